"""What the segment log needs of a file system, and nothing more.

The file system is a parameter of every call of this room, so that tests run the same code on a
model of a disk that fails on purpose, and so that other stores can come later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["AppendFile", "FileSystem", "FolderLock", "ReadFile"]


class AppendFile(Protocol):
    """A file that is being written. One thread writes; `sync` may come from another."""

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

    def close(self) -> None:
        """Give the file back. May be called twice."""
        ...


class FolderLock(Protocol):
    """A lock that ends with the process that holds it."""

    def check(self) -> None:
        """Make sure that it is still this holder's; asked before and behind each new name.

        Raises:
            OSError: Somebody has taken it over, which a lock of the kernel does not allow.
        """
        ...

    def release(self) -> None:
        """Let others take it. May be called twice."""
        ...


class FileSystem(Protocol):
    """The calls of a file system that the log uses. All raise `OSError`."""

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

    def open(self, path: str) -> ReadFile:
        """Open a file for reading.

        Raises:
            OSError: With EBUSY: a file that is being written cannot be read there.
        """
        ...

    def address(self, path: str) -> str:
        """Return a path as people and commands name it: on HDFS with its address."""
        ...

    def settle(self, paths: Sequence[str]) -> None:
        """Return when nobody else can write to these files any more, and all of them can be read.

        Called by who has taken the folder's lock, for what writers before left. Files that are
        gone are fine.
        """
        ...

    def truncate(self, path: str, size: int) -> None:
        """Cut a file and return when the cut is on the disk."""
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
            replace: It takes the place of a file of that name. Otherwise the caller knows that
                there is none; where other hosts may make one, `FileExistsError` is raised.
        """
        ...

    def remove(self, path: str) -> None:
        """Remove a file."""
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
        """Remove an empty folder."""
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
            BlockingIOError: Somebody else holds it; `strerror` is what they wrote into it.
        """
        ...
