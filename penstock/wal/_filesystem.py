"""What the segment log needs of a file system, and nothing more; and the one of this host.

The file system is a parameter of every call of this room, so that tests run the same code on a
model of a disk that fails on purpose, and so that other stores can come later.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer

_logger = logging.getLogger("penstock.wal")
_COPY_BYTES = 4 << 20
_LOOK_S = 0.05
"""Longer than a mere look at whether a lock is taken shares it."""
_MAX_BUFFERS = 512  # per pwritev; Linux accepts 1024 (IOV_MAX)
_NOT_SUPPORTED = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS})


class AppendFile(Protocol):
    """A file that is being written.

    One thread writes, or as many at once as `FileSystem.writes_at_once` says; `sync` may come from
    another.
    """

    @property
    def direct(self) -> bool:
        """Whether writes pass the page cache.

        Buffers, lengths and offsets must then be multiples of 4096 bytes.
        """
        ...

    @property
    def forces_writes(self) -> bool:
        """Whether each write is forced, asked for or not."""
        ...

    @property
    def preallocates(self) -> bool:
        """Whether `preallocate` makes the file longer, so that no write does."""
        ...

    def preallocate(self, size: int) -> None:
        """Make the file `size` bytes long with zeros at its end, and reserve the space.

        Does nothing unless `preallocates`.
        """
        ...

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        """Write all buffers one after the other at `offset`, or raise.

        Args:
            offset: Byte offset in the file.
            buffers: What to write.
            sync: Return only when these bytes, not necessarily earlier ones, are on the disk.

        Raises:
            OSError: Any part of it may have been written.
        """
        ...

    def sync(self) -> None:
        """Return when all that was written is on the disk.

        Raises:
            OSError: The unsynced part is lost or not: a later sync that succeeds proves nothing.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def close(self) -> None:
        """Give the file back. Syncs nothing. May be called twice."""
        ...


class ReadFile(Protocol):
    """A file that is being read."""

    @property
    def size(self) -> int:
        """Bytes in the file now."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`; fewer only at the end of the file."""
        ...

    def read_into(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer from `offset` on and return its length; less only at the end of the file.

        Raises:
            OSError: Anything may be in the buffer now.
        """
        ...

    def close(self) -> None:
        """Give the file back. May be called twice."""
        ...


class FolderLock(Protocol):
    """A lock that ends with the process that holds it."""

    def check(self) -> None:
        """Make sure that it is still this holder's; asked before and behind each new name.

        Raises:
            OSError: It was taken over, which a lock of the kernel does not allow.
        """
        ...

    def release(self) -> None:
        """Let others take it. May be called twice."""
        ...


class FileSystem(Protocol):
    """The calls of a file system that the log uses.

    All raise `OSError`, and `answer_of` returns what it says: what was asked for is gone, refused,
    or the file system is away. One that is reached over a network returns or raises within a bound
    of its own, whatever its client does (`penstock.wal._answers`).
    """

    @property
    def begins_at_once(self) -> bool:
        """Whether a file exists with its first write, or not at all.

        Then it needs no temporary name, and it is that write which raises `FileExistsError`.
        """
        ...

    @property
    def has_folders(self) -> bool:
        """Whether folders are made; else one exists as long as something is below it."""
        ...

    @property
    def writes_at_once(self) -> int:
        """How many writes to a file may be under way, each behind the other's bytes."""
        ...

    def create(self, path: str, *, direct: bool) -> AppendFile:
        """Create a file that must not exist, readable by its user only (0600).

        Args:
            path: Where.
            direct: Pass the page cache if the file system can; see `AppendFile.direct`.
        """
        ...

    def reopen(self, path: str, *, direct: bool) -> AppendFile:
        """Open a file for writing over what it holds; otherwise as `create`."""
        ...

    def read_range(self, path: str, offset: int, length: int) -> memoryview:
        """Return bytes of a record that was acknowledged; fewer only at the end of the file.

        Raises:
            OSError: As `open` and `ReadFile.read`.
        """
        ...

    def open(self, path: str) -> ReadFile:
        """Open a file for reading.

        Raises:
            OSError: With EBUSY: a file that is being written cannot be read on it.
        """
        ...

    def address(self, path: str) -> str:
        """Return a path as people and commands name it: on HDFS with its address."""
        ...

    def settle(self, paths: Sequence[str]) -> None:
        """Return when no one else can write to these files any more, and all of them can be read.

        Called by the owner of the folder's lock, for what writers before left. Files that are gone
        are fine.
        """
        ...

    def truncate(self, path: str, size: int, *, is_settled: bool = False) -> None:
        """Cut a file and return when the cut is on the disk.

        Args:
            path: The file.
            size: Its bytes from then on.
            is_settled: The caller has the folder and has called `settle`. Otherwise another process
                may have taken the folder over, and gone on from what would be cut off.

        Raises:
            OSError: It is not cut; EOPNOTSUPP says that it never is.
        """
        ...

    def sync_file(self, path: str) -> None:
        """Return when all that was written to a closed file is on the disk.

        Raises:
            OSError: As for `AppendFile.sync`: only `write_again` can make up for it.
        """
        ...

    def write_again(self, path: str, begin: int, end: int) -> None:
        """Write what a closed file shows from `begin` to `end` over itself, and force it.

        After a sync that failed: the system counts what it dropped as forced, and forces it only
        when it is written once more.
        """
        ...

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        """Give a file another name in the same folder, at once or not at all.

        Args:
            source: Its name.
            target: The new one.
            replace: It replaces a file of that name. Otherwise the caller knows that there is none;
                where other hosts may make one, `FileExistsError` is raised.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file; one that is gone is fine: it may be that an answer was lost."""
        ...

    def list_folder(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        ...

    def sync_folder(self, folder: str) -> None:
        """Return when the names in a folder are on the disk."""
        ...

    def make_folder(self, folder: str) -> None:
        """Create one folder, open to its user only (0700). Its parent must exist."""
        ...

    def remove_folder(self, folder: str) -> None:
        """Remove an empty folder; one that is gone is fine."""
        ...

    def is_folder(self, folder: str) -> bool:
        """Return whether a folder of that name exists."""
        ...

    def free_bytes(self, folder: str) -> int:
        """Return the bytes that this user can still write, -1 when not known."""
        ...

    def lock(self, path: str, owner: str) -> FolderLock:
        """Take the lock of that name and write `owner` into it.

        Raises:
            BlockingIOError: Another process holds it; `strerror` is what that wrote into it.
        """
        ...


class _Announcements:
    """Says each thing once per process. One lock guards the set."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said: set[str] = set()

    def say(self, text: str) -> None:
        with self._lock:
            if text in self._said:
                return
            self._said.add(text)
        _logger.info(text)


_announcements = _Announcements()


def read_once(fs: FileSystem, path: str, offset: int, length: int) -> memoryview:
    """Read from a file that is opened for it; see `FileSystem.read_range`."""
    file = fs.open(path)
    try:
        return memoryview(file.read(offset, length))
    finally:
        file.close()


class LocalFileSystem:
    """Files of this host, by system calls.

    Space is reserved with `posix_fallocate`. With direct I/O a forced write is one `pwritev`
    with `RWF_DSYNC`. Where the file system refuses direct I/O (overlay, some network file
    systems), writes go through the page cache and are forced with `fdatasync`: slower, no less
    durable. It says so once in the log.
    """

    begins_at_once = False
    has_folders = True
    writes_at_once = 1

    def create(self, path: str, *, direct: bool) -> LocalAppendFile:
        return LocalAppendFile(path, direct)

    def reopen(self, path: str, *, direct: bool) -> LocalAppendFile:
        return LocalAppendFile(path, direct, new=False)

    def open(self, path: str) -> LocalReadFile:
        return LocalReadFile(path)

    def read_range(self, path: str, offset: int, length: int) -> memoryview:
        return read_once(self, path, offset, length)

    def address(self, path: str) -> str:
        return path

    def settle(self, paths: Sequence[str]) -> None:
        """Do nothing: the lock of a dead writer ended with it, and files can always be read."""

    def truncate(self, path: str, size: int, *, is_settled: bool = False) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(fd, size)
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_file(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def write_again(self, path: str, begin: int, end: int) -> None:
        file = LocalAppendFile(path, direct=False, new=False)
        try:
            shown = LocalReadFile(path)
            try:
                for offset in range(begin, end, _COPY_BYTES):
                    data = shown.read(offset, min(_COPY_BYTES, end - offset))
                    file.write(offset, [data], sync=False)
            finally:
                shown.close()
            file.sync()
        finally:
            file.close()

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def list_folder(self, folder: str) -> list[str]:
        return os.listdir(folder)

    def sync_folder(self, folder: str) -> None:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            # Some file systems (FUSE, SMB) have no sync of a folder: there is nothing to wait for.
            if error.errno not in _NOT_SUPPORTED:
                raise
        finally:
            os.close(fd)

    def make_folder(self, folder: str) -> None:
        os.mkdir(folder, 0o700)

    def remove_folder(self, folder: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(folder)

    def is_folder(self, folder: str) -> bool:
        return os.path.isdir(folder)

    def free_bytes(self, folder: str) -> int:
        try:
            facts = os.statvfs(folder)
        except OSError:
            return -1
        return facts.f_bavail * facts.f_frsize

    def lock(self, path: str, owner: str) -> LocalFolderLock:
        return LocalFolderLock(path, owner)


class LocalAppendFile:
    """A file of this host that is being written.

    A write or sync of a file that was removed raises `FileNotFoundError`: no one would find what
    is in it. The system itself says that only at the next new name.
    """

    def __init__(self, path: str, direct: bool, *, new: bool = True) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if new else 0)
        self._path = path
        self._dsync = hasattr(os, "RWF_DSYNC")
        self._direct = False
        self._fd = os.open(path, flags, 0o600)
        # Some file systems (FUSE) count no names.
        self._counts_names = os.fstat(self._fd).st_nlink > 0
        if direct:
            self._set_direct(True)

    def _set_direct(self, wanted: bool) -> None:
        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        flags = flags | os.O_DIRECT if wanted else flags & ~os.O_DIRECT
        try:
            fcntl.fcntl(self._fd, fcntl.F_SETFL, flags)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
            self._say_refused()
            wanted = False
        self._direct = wanted

    def _say_refused(self) -> None:
        _announcements.say(
            f"direct I/O is refused in {os.path.dirname(self._path)}: "
            "the log writes through the page cache, which is slower and as durable"
        )

    @property
    def direct(self) -> bool:
        return self._direct

    @property
    def forces_writes(self) -> bool:
        return False

    @property
    def preallocates(self) -> bool:
        return True

    def preallocate(self, size: int) -> None:
        try:
            os.posix_fallocate(self._fd, 0, size)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
            # Without reservation the file still reads as zeros; a full disk then shows at a
            # write, which the log treats like any failed write.
            os.ftruncate(self._fd, size)

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        start = 0
        while start < len(views):
            group = views[start : start + _MAX_BUFFERS]
            written = self._write_some(offset, group, sync)
            if written == 0:
                raise OSError(errno.EIO, "the file system wrote nothing", self._path)
            offset += written
            # The system may write less than asked: go on behind what it took.
            while start < len(views) and written >= len(views[start]):
                written -= len(views[start])
                start += 1
            if written:
                views[start] = views[start][written:]
        if sync and not self._dsync:
            os.fdatasync(self._fd)
        self._check_named()

    def _check_named(self) -> None:
        if self._counts_names and os.fstat(self._fd).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "the file has no name any more", self._path)

    def _write_some(self, offset: int, views: list[memoryview], sync: bool) -> int:
        flags = os.RWF_DSYNC if sync and self._dsync else 0
        try:
            return os.pwritev(self._fd, views, offset, flags)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED or not (self._direct or flags):
                raise
        # The first refusal may be of direct I/O (overlay accepts the flag and refuses the
        # write) or of the per-write sync: do without both.
        if self._direct:
            self._set_direct(False)
            self._say_refused()
        self._dsync = False
        return os.pwritev(self._fd, views, offset)

    def sync(self) -> None:
        os.fdatasync(self._fd)
        self._check_named()

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class LocalReadFile:
    """A file of this host that is being read."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    @property
    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) == length or not data:
            return data
        parts = [data]
        done = len(data)
        while done < length:
            data = os.pread(self._fd, length - done, offset + done)
            if not data:
                break
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def read_into(self, offset: int, buffer: memoryview) -> int:
        done = 0
        while done < len(buffer):
            found = os.preadv(self._fd, [buffer[done:]], offset + done)
            if not found:
                break
            done += found
        return done

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class LocalFolderLock:
    """A `flock` on a file: the system lets it go when the process ends, however it ends."""

    def __init__(self, path: str, owner: str) -> None:
        self._fd = -1
        end_s = time.monotonic() + _LOOK_S
        while self._fd < 0:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if self._take(fd, path, end_s):
                    # It is for people only; a full disk has no room for it.
                    with contextlib.suppress(OSError):
                        os.ftruncate(fd, 0)
                        os.pwrite(fd, owner.encode() + b"\n", 0)
                    self._fd = fd
            finally:
                if self._fd < 0:
                    os.close(fd)
        _held_locks.add(self)

    @staticmethod
    def _take(fd: int, path: str, end_s: float) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() < end_s:
                # Another process may only be looking whether it is taken, and shares it meanwhile.
                time.sleep(_LOOK_S / 10)
                return False
            found = os.pread(fd, 4096, 0).decode(errors="replace").strip()
            raise BlockingIOError(
                errno.EWOULDBLOCK, found or "a process that has not said its name", path
            ) from None
        # The log may have been removed, with the file, between the two calls: then this is a lock
        # on a file without a name, which no one else would see.
        try:
            named = os.stat(path)
        except FileNotFoundError:
            return False
        return os.path.samestat(named, os.fstat(fd))

    def check(self) -> None:
        """Do nothing: no one else can have it."""

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_held_locks: weakref.WeakSet[LocalFolderLock] = weakref.WeakSet()


def _let_go_in_child() -> None:
    # A forked child shares its parent's locks and would hold them beyond the parent's death.
    for lock in list(_held_locks):
        lock.release()


os.register_at_fork(after_in_child=_let_go_in_child)
