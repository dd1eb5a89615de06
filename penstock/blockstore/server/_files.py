"""Which files of a host belong to one application's blocks: opening them, and removing them.

Names are the only thing that a request may choose, so they are held against the exact patterns::

    <memory folder>/penstock-<application id>-<attempt>
    <block log root>/<stream id>-<attempt>/segment-….log
    <block log root>/<stream id>-<attempt>-<copy>/segment-….log
    <block log root>/<stream id>-<attempt>/memory
    <block log root>/process-<id>/segment-….log

What was opened is then held against the path that the kernel gives for it, so that a symbolic
link anywhere in it, also one that is put there at the same moment, opens nothing.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import stat
import uuid
from collections.abc import Iterator

from penstock.blockstore.process_log import log_of
from penstock.wal import segment_path
from penstock.wire.messages import MemoryPlace, SegmentPlace

_logger = logging.getLogger("penstock.blockstore")

_ATTEMPT = re.compile(r"[0-9a-f]{32}")
_MEMORY_FILE = re.compile(r"penstock-[^/]+-[0-9a-f]{32}")
_LOG_FOLDER = re.compile(r"[0-9]{1,10}-([0-9a-f]{32})(?:-[0-9a-f]{32})?")
"""The second form holds copies of blocks of another host; the attempt is that of the receiver."""
_PROCESS_LOG = re.compile(r"process-[0-9a-f]{32}")
"""A log of several attempts; the folders that those have below it are names only."""
_ARENA_IN_LOG_FOLDER = "memory"


def _refused(path: str, reason: str) -> PermissionError:
    """Return the error of a path that is none of the application's own."""
    return PermissionError(errno.EPERM, f"{path!r} is not served: {reason}")


class ApplicationFiles:
    """The block files of one application on this host.

    Args:
        application_id: Spark's.
        memory_folder: The folder of its memory files.
        block_log_root: The folder of its attempts' log folders.
    """

    def __init__(self, application_id: str, memory_folder: str, block_log_root: str) -> None:
        self._memory_prefix = f"penstock-{application_id}-"
        self._memory_folder = os.path.abspath(memory_folder)
        self._log_root = os.path.abspath(block_log_root)

    # -- opening -------------------------------------------------------------------------------

    def open_memory(self, place: MemoryPlace) -> int:
        """Open a memory file for reading and return the descriptor, which is the caller's.

        Raises:
            PermissionError: It is none of this application's.
            FileNotFoundError: It is gone, or was one of a run before, and is gone.
            OSError: It cannot be opened.
        """
        folder, name = os.path.split(place.path)
        if folder == self._memory_folder:
            attempt = name.removeprefix(self._memory_prefix)
            if attempt != name and _ATTEMPT.fullmatch(attempt):
                return self._open(self._memory_folder, name)
            if _MEMORY_FILE.fullmatch(name) and not os.path.lexists(place.path):
                # Of a run before, whose blocks are in the log alone: that says nothing against it.
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place.path)
        elif name == _ARENA_IN_LOG_FOLDER:
            return self._open(self._log_root, self._log_folder_name(folder), name)
        raise _refused(place.path, "it is no memory file of this application")

    def open_segment(self, place: SegmentPlace) -> int:
        """Open a segment for reading and return the descriptor, which is the caller's.

        Raises:
            PermissionError: It is none of this application's.
            OSError: It cannot be opened.
        """
        folder = self._log_name(place.folder)
        if place.segment < 0:
            raise _refused(place.folder, f"no segment has the number {place.segment}")
        name = os.path.basename(segment_path(place.folder, place.segment))
        return self._open(self._log_root, folder, name)

    def _log_folder_name(self, folder: str) -> str:
        root, name = os.path.split(folder)
        if root != self._log_root or not _LOG_FOLDER.fullmatch(name):
            raise _refused(folder, "it is no log folder of this application")
        return name

    def _log_name(self, folder: str) -> str:
        """Return the name of the folder in which an attempt's segments are."""
        root, name = os.path.split(log_of(folder))
        if root == self._log_root and _PROCESS_LOG.fullmatch(name):
            return name
        return self._log_folder_name(folder)

    def _open(self, root: str, *names: str) -> int:
        path = os.path.join(root, *names)
        # Not blocking: a named pipe would hold up everybody.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            opened = os.readlink(f"/proc/self/fd/{fd}")
            if opened.endswith(" (deleted)"):
                raise FileNotFoundError(errno.ENOENT, "it was removed", path)
            if opened != os.path.join(os.path.realpath(root), *names):
                raise _refused(path, "a symbolic link leads elsewhere")
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise _refused(path, "it is not a regular file")
        except BaseException:
            os.close(fd)
            raise
        return fd

    # -- making --------------------------------------------------------------------------------

    def new_replica_folder(self, stream_id: int, attempt: str) -> str:
        """Return a name for the folder of a log of copies; no other log on any host has it.

        Raises:
            PermissionError: Stream or attempt are none.
        """
        name = f"{stream_id}-{attempt}-{uuid.uuid4().hex}"
        if not _LOG_FOLDER.fullmatch(name):
            raise _refused(name, "it is no log folder of this application")
        return os.path.join(self._log_root, name)

    # -- removing ------------------------------------------------------------------------------

    def remove_attempts(self, attempts: tuple[str, ...]) -> None:
        """Remove the memory files and log folders of these attempts. What is gone is no error."""
        wanted = {attempt for attempt in attempts if _ATTEMPT.fullmatch(attempt)}
        for attempt in wanted:
            _remove_file(os.path.join(self._memory_folder, self._memory_prefix + attempt))
        for folder, attempt in self._log_folders():
            if attempt in wanted:
                _remove_folder(folder)

    def remove_memory_of(self, attempts: tuple[str, ...]) -> None:
        """Remove the memory files of these attempts, wherever they are; their logs stay."""
        wanted = {attempt for attempt in attempts if _ATTEMPT.fullmatch(attempt)}
        if not wanted:
            return
        for attempt in wanted:
            _remove_file(os.path.join(self._memory_folder, self._memory_prefix + attempt))
        for folder, attempt in self._log_folders():
            if attempt in wanted and not os.path.islink(folder):
                _remove_file(os.path.join(folder, _ARENA_IN_LOG_FOLDER))

    def remove_segments(self, segments: tuple[tuple[str, int], ...]) -> None:
        """Remove single segments. What is gone, or is none of this application's, stays so.

        Args:
            segments: Folder and number; a number below 0 stands for the whole log of a process.
        """
        for folder, number in segments:
            try:
                name = self._log_name(folder)
            except PermissionError as error:
                _logger.warning("not removed: %s", error)
                continue
            path = os.path.join(self._log_root, name)
            if number < 0 and _PROCESS_LOG.fullmatch(name):
                _remove_folder(path)
            elif number >= 0 and not os.path.islink(path):
                _remove_file(segment_path(path, number))

    def remove_memory(self) -> None:
        """Remove every memory file of the application in the memory folder."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name in os.listdir(self._memory_folder):
                attempt = name.removeprefix(self._memory_prefix)
                if attempt != name and _ATTEMPT.fullmatch(attempt):
                    _remove_file(os.path.join(self._memory_folder, name))

    def remove_all(self) -> None:
        """Remove every memory file and every log folder, and the root if nothing else is in it."""
        self.remove_memory()
        for folder in [*(folder for folder, _ in self._log_folders()), *self._process_logs()]:
            _remove_folder(folder)
        with contextlib.suppress(OSError):  # others' files are in it, or it is gone
            os.rmdir(self._log_root)

    def _log_folders(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the attempt of the log folder of every attempt that has one."""
        for name in self._names():
            if match := _LOG_FOLDER.fullmatch(name):
                yield os.path.join(self._log_root, name), match[1]

    def _process_logs(self) -> list[str]:
        names = filter(_PROCESS_LOG.fullmatch, self._names())
        return [os.path.join(self._log_root, name) for name in names]

    def _names(self) -> list[str]:
        try:
            return os.listdir(self._log_root)
        except (FileNotFoundError, NotADirectoryError):
            return []


def _remove_file(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as error:
        _logger.warning("%s cannot be removed: %s", path, error)


def _remove_folder(path: str) -> None:
    if os.path.islink(path):
        _logger.warning("%s is a symbolic link and was left alone", path)
        return
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as error:
        _logger.warning("%s cannot be removed: %s", path, error)
