"""What programs that were killed left on this host, removed by the next one that starts there.

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
import time
from collections.abc import Iterator

from penstock.wal import LOCK_NAME

__all__ = ["remove_empty_rdd_folders", "remove_scratch_folders"]

_SCRATCH = re.compile(r"penstock-.+-[0-9a-f]{8}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_AGE_S = 60.0
"""A younger lock may be one that its owner has made and not taken yet."""

_log = logging.getLogger("penstock.streaming")


def remove_scratch_folders(parent: str, ledger: str) -> None:
    """Remove scratch folders whose drivers were killed.

    A driver has its ledger's folder locked for as long as it lives, block servers and receivers
    have locks of their own. A folder goes when it is this user's, the ledger in it shows that its
    driver was on this host, and no lock in it is held. What cannot be looked at stays.

    Args:
        parent: The folder below which they lie.
        ledger: The name of the ledger's folder in each.
    """
    for path in _folders(parent, _SCRATCH):
        with contextlib.suppress(OSError):
            if os.path.exists(os.path.join(path, ledger, LOCK_NAME)) and _is_left_behind(path):
                shutil.rmtree(path)
                _log.info("%s was left by a program that was killed; it is removed", path)


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
            # It has files, or somebody else removes it, too.
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
            state = os.lstat(path)
            is_own = stat.S_ISDIR(state.st_mode) and state.st_uid == os.geteuid()
            if is_own and names.fullmatch(name):
                yield path


def _is_left_behind(path: str) -> bool:
    """Tell whether all locks below a folder are old, and free."""
    for folder, _, files in os.walk(path):
        for name in files:
            if name != LOCK_NAME and not name.endswith(".lock"):
                continue
            fd = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if time.time() - os.fstat(fd).st_mtime < _AGE_S:
                    return False
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            finally:
                os.close(fd)
    return True
