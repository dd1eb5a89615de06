"""A log's folder: on which file system it is, making it, the names in it, taking it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
from collections.abc import Iterator

from penstock.files.addresses import is_on_hdfs, is_shared, normal_form, split_shared
from penstock.wal._errors import LogFolderInUseError, UnsupportedAddressError, UnwritableFolderError
from penstock.wal._filesystem import FileSystem, FolderLock, LocalFileSystem
from penstock.wal._hdfs.filesystem import hdfs_file_system
from penstock.wal._objects.filesystem import object_file_system

_LOCAL = LocalFileSystem()

LOCK_NAME = "LOCK"
NEW_SUFFIX = ".new"
DAMAGED_SUFFIX = ".damaged"
SPARE_SUFFIX = ".spare"
_NAME = re.compile(r"segment-(\d{12})\.log(\.new|\.damaged|\.spare)?")


def normal_address(address: str) -> str:
    """Return an address in the form in which they are compared and joined.

    Args:
        address: A path of this host, with or without ``file:``, or ``hdfs://host:port/path``, or
            ``s3://bucket/path`` or an address of another object store
            (`penstock.files.addresses`).

    Returns:
        An absolute path, or ``hdfs://…`` or ``s3://…`` without a slash at its end.

    Raises:
        UnsupportedAddressError: It is on another file system.
    """
    normal = normal_form(address)
    if normal is None:
        raise UnsupportedAddressError(address)
    return normal


def locate(address: str) -> tuple[FileSystem, str]:
    """Return the file system of an address, and the path in it.

    Args:
        address: See `normal_address`.

    Raises:
        UnsupportedAddressError: It is on another file system.
        MissingClientError: It is on another one, and the package of its client is not installed.
    """
    address = normal_address(address)
    if not is_shared(address):
        return _LOCAL, address
    parts = split_shared(address)
    assert parts is not None
    if is_on_hdfs(address):
        return hdfs_file_system("" if parts[0] == "hdfs://" else parts[0]), parts[1]
    return object_file_system(parts[0]), parts[1]


def segment_path(folder: str, number: int) -> str:
    """Return the path of a segment: ``<folder>/segment-000000000001.log``."""
    return os.path.join(folder, f"segment-{number:012d}.log")


def segment_number(path: str) -> int | None:
    """Return the number in a segment's path, None when it is not the path of one."""
    match = _NAME.fullmatch(os.path.basename(path))
    return int(match[1]) if match and match[2] is None else None


def list_names(fs: FileSystem, folder: str) -> tuple[list[int], list[str], int]:
    """Look into a log's folder.

    Returns:
        Numbers of its segments in order; names of unfinished and spare files; the highest number
        that any name in it ever used (those and quarantined ones count), 0 when there is none.
    """
    numbers: list[int] = []
    unfinished: list[str] = []
    highest = 0
    for name in fs.list_folder(folder):
        match = _NAME.fullmatch(name)
        if match is None:
            continue
        highest = max(highest, int(match[1]))
        if match[2] is None:
            numbers.append(int(match[1]))
        elif match[2] in (NEW_SUFFIX, SPARE_SUFFIX):
            unfinished.append(name)
    return sorted(numbers), sorted(unfinished), highest


def is_unwritable(error: OSError) -> bool:
    """Return whether the system forbids this user to write to it."""
    return error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)


def make_folders(fs: FileSystem, folder: str) -> None:
    """Create a folder and its missing parents, and force each new name to the disk.

    Without the sync of every parent a power loss can take a whole new folder away, with
    acknowledged records in it.

    Raises:
        UnwritableFolderError: It cannot be created.
    """
    if not fs.has_folders:
        return  # Nor is anything above it looked at, which this user may not list.
    missing: list[str] = []
    path = os.path.abspath(folder)
    while not fs.is_folder(path):
        missing.append(path)
        parent = os.path.dirname(path)
        if parent == path:
            break
        path = parent
    try:
        for path in reversed(missing):
            try:
                fs.make_folder(path)
            except FileExistsError:
                # Another process makes the same parents. If this is a file, not a folder, there
                # is nothing to be done about it here.
                if not fs.is_folder(path):
                    raise
            fs.sync_folder(os.path.dirname(path))
        if not missing:
            _sync_parent(fs, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise UnwritableFolderError.of(fs.address(folder), error) from error


def _sync_parent(fs: FileSystem, folder: str) -> None:
    # The maker of the folder may have been killed before it could sync the name.
    try:
        fs.sync_folder(os.path.dirname(folder))
    except OSError as error:
        # A parent that this user may pass but not read (0711) was not made by this user either.
        if not is_unwritable(error):
            raise


def lock_folder(fs: FileSystem, folder: str, application: str = "") -> FolderLock:
    """Take a log's folder for this process.

    Args:
        fs: Where it lives.
        folder: The log's folder, which exists.
        application: Shown to anyone who wants the folder meanwhile.

    Raises:
        LogFolderInUseError: Another living process has it.
    """
    owner = f"process {os.getpid()} on host {socket.gethostname()}"
    if application:
        owner += f", application {application}"
    try:
        return fs.lock(os.path.join(folder, LOCK_NAME), owner)
    except BlockingIOError as error:
        owner = error.strerror or "an unknown process"
        raise LogFolderInUseError(fs.address(folder), owner) from None


@contextlib.contextmanager
def settled(fs: FileSystem, folder: str) -> Iterator[None]:
    """See to it that a log that no one writes can be read.

    Nothing is written on a disk of this host. On HDFS, where what is being written cannot be read,
    the log is taken for the while from a writer on another host, which can write no more.

    Raises:
        LogFolderInUseError: Another living process has it; on HDFS one of this host.
    """
    if fs.address(folder) == folder:
        owner = owner_of(folder)
        if owner is not None:
            raise LogFolderInUseError(folder, owner)
        yield
        return
    lock = lock_folder(fs, folder)
    try:
        fs.settle([segment_path(folder, number) for number in list_names(fs, folder)[0]])
        yield
    finally:
        lock.release()


def owner_of(folder: str) -> str | None:
    """Return who has a log's folder of this host, as they say it; None when no one has it.

    Nothing is written. For a moment the lock is shared, in which no one else can take it.
    """
    try:
        fd = os.open(os.path.join(folder, LOCK_NAME), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None  # Without it no one has the folder; or it cannot be known.
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.pread(fd, 4096, 0).decode(errors="replace").strip() or "an unknown process"
    except OSError:
        return None  # A file system without locks.
    finally:
        os.close(fd)
    return None
