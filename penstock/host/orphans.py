"""What programs that were killed left on this host, removed by the next one that starts on it.

Memory files are removed by block servers (`penstock.blockstore`), which know who needs them.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator

from penstock.blockstore import scratch_claim_path
from penstock.wal import LOCK_NAME

_CLAIM = re.compile(r"\.(penstock-.+-[0-9a-f]{8})\.lock")
_UNNAMED_CLAIM = re.compile(r"\.penstock-.+-[0-9a-f]{8}\.[a-z0-9_]{8}")
"""A lock whose driver was killed before it was renamed (`tempfile.mkstemp`)."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_AGE_S = 60.0
"""A younger lock may be one that its owner has made and not taken yet."""

_log = logging.getLogger("penstock.host")


class ScratchClaim:
    """Says that the driver that uses a scratch folder lives.

    The claim is a lock beside the folder and not in it: what a driver has locked in its folder
    depends on its settings (with logs on HDFS nothing), and the folder may be gone before it.

    Args:
        folder: The scratch folder; it need not exist, nor does its parent.

    Raises:
        OSError: The lock cannot be made.
    """

    def __init__(self, folder: str) -> None:
        parent, name = os.path.split(folder)
        os.makedirs(parent, exist_ok=True)
        self._folder = folder
        self._path = scratch_claim_path(folder)
        # Under its name it is never seen without its lock, so its age does not matter.
        self._fd, unnamed = tempfile.mkstemp(prefix=f".{name}.", dir=parent)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(unnamed, self._path)
        except BaseException:
            os.close(self._fd)
            os.unlink(unnamed)
            raise

    def release(self) -> None:
        """Remove the folder, then the claim. May be called again."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        shutil.rmtree(self._folder, ignore_errors=True)
        try:
            # What could not be removed now stays claimable: the next program here removes it.
            if not os.path.lexists(self._folder):
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
        finally:
            os.close(fd)


def remove_scratch_folders(parent: str) -> None:
    """Remove scratch folders whose drivers were killed.

    A driver holds its `ScratchClaim` for as long as it lives, block servers and receivers have
    locks of their own in the folder. A folder goes when its claim is this user's and no lock of
    it is held. What cannot be looked at stays.

    Args:
        parent: The folder below which they are.
    """
    try:
        found = os.listdir(parent)
    except OSError:
        return
    for name in found:
        match = _CLAIM.fullmatch(name)
        if match is None:
            if _UNNAMED_CLAIM.fullmatch(name):
                path = os.path.join(parent, name)
                with contextlib.suppress(OSError), _held(path, _AGE_S) as is_held:
                    if is_held:
                        os.unlink(path)
            continue
        folder = os.path.join(parent, match[1])
        with contextlib.suppress(OSError), _held(os.path.join(parent, name), 0.0) as is_held:
            if not is_held:
                continue
            if os.path.lexists(folder):
                if not _is_own_folder(folder) or not _is_left_behind(folder):
                    continue
                shutil.rmtree(folder)
                _log.info("%s was left by a program that was killed; it is removed", folder)
            os.unlink(os.path.join(parent, name))


def remove_empty_rdd_folders(directory: str, own: str | None) -> None:
    """Remove empty folders that earlier SparkContexts made for RDD checkpoints.

    Spark makes one for each SparkContext, and again when it needs one that is gone.

    Args:
        directory: The checkpoint directory, a path of this host.
        own: The folder of this SparkContext.
    """
    kept = None if own is None else os.path.basename(own.rstrip("/"))
    for path in _folders(directory, _UUID):
        if os.path.basename(path) != kept:
            # It has files, or another program is also removing it.
            with contextlib.suppress(OSError):
                os.rmdir(path)


def _folders(parent: str, names: re.Pattern[str]) -> Iterator[str]:
    """Yield this user's folders of these names; no links."""
    try:
        found = os.listdir(parent)
    except OSError:
        return
    for name in found:
        path = os.path.join(parent, name)
        with contextlib.suppress(OSError):
            if names.fullmatch(name) and _is_own_folder(path):
                yield path


def _is_own_folder(path: str) -> bool:
    state = os.lstat(path)
    return stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid()


def _is_left_behind(path: str) -> bool:
    """Return whether all locks below a folder are old, and free."""
    for folder, _, files in os.walk(path):
        for name in files:
            if name == LOCK_NAME or name.endswith(".lock"):
                with _held(os.path.join(folder, name), _AGE_S) as is_held:
                    if not is_held:
                        return False
    return True


@contextlib.contextmanager
def _held(path: str, min_age_s: float) -> Iterator[bool]:
    """Hold a lock; yield whether it is held: not if it is another's, or too young."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        state = os.fstat(fd)
        is_held = time.time() - state.st_mtime >= min_age_s and state.st_uid == os.geteuid()
        if is_held:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                is_held = False
        yield is_held
    finally:
        os.close(fd)
