"""The errors of the segment log. Facts stand in attributes and in the message."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.files.addresses import OBJECT_ADDRESSES


class WalError(PenstockError):
    """Base class of the segment log's errors."""


class CorruptRecordError(WalError):
    """A record that had been committed is not readable, or is not what it claims to be.

    Attributes:
        segment: Number of the segment, None when the bytes came from elsewhere (a mapped slot).
        offset: Byte offset of the record in its segment.
        reason: What is wrong with it.
        folder: The log's folder, None when the bytes came from elsewhere.
        damages: All damaged places that the same pass over the log found, this one first.
    """

    def __init__(
        self,
        segment: int | None,
        offset: int,
        reason: str,
        folder: str | None = None,
        damages: tuple[CorruptRecordError, ...] = (),
    ) -> None:
        where = "in memory" if segment is None else f"in segment {segment}"
        message = f"corrupt record {where} at offset {offset}"
        if folder is not None:
            message += f" of {folder}"
        message += f": {reason}"
        if len(damages) > 1:
            message += f" (and {len(damages) - 1} more damaged places)"
        if folder is not None:
            message += (
                f"; `penstock wal check {folder}` says what is readable and what is damaged, "
                f"`penstock wal repair {folder}` puts damaged segments aside, and ends one that "
                "was cut short behind its last whole record"
            )
        super().__init__(message)
        self.folder = folder
        self.segment = segment
        self.offset = offset
        self.reason = reason
        self.damages = damages or (self,)


class LogFolderInUseError(WalError):
    """Another living writer holds the folder.

    Attributes:
        folder: The log's folder.
        owner: What the other writer wrote into the lock: process, host, application.
    """

    def __init__(self, folder: str, owner: str) -> None:
        super().__init__(
            f"log folder {folder} is in use by {owner}; "
            "give each application its own folder, or end the other one first"
        )
        self.folder = folder
        self.owner = owner


class LogClosedError(WalError):
    """The writer is closed.

    Attributes:
        folder: The log's folder.
    """

    def __init__(self, folder: str) -> None:
        super().__init__(f"the writer of the log in {folder} is closed")
        self.folder = folder


class LogWriteError(WalError):
    """Writing or syncing failed; the records of this call are not committed.

    When the disk did not answer in time, they may be. The writer stays usable: its next append
    begins a new segment.

    Attributes:
        folder: The log's folder.
        reason: What the system said.
    """

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(f"the log in {folder} could not be written: {reason}")
        self.folder = folder
        self.reason = reason


class LogLostError(LogWriteError):
    """The log is this writer's no more: it commits nothing from now on.

    It was removed while it was written, and what was appended before may also be gone; or another
    writer has taken it over.

    Attributes:
        is_taken_over: Which of them.
    """

    def __init__(self, folder: str, reason: str, *, is_taken_over: bool = False) -> None:
        if not is_taken_over:
            reason = (
                f"it was removed while this program wrote there ({reason}), with what was "
                "acknowledged"
            )
        super().__init__(folder, reason)
        self.is_taken_over = is_taken_over


class LogFullError(WalError):
    """No space is left for the log; the records of this call are not committed.

    The writer stays usable: appends succeed again when there is space.

    Attributes:
        folder: The log's folder.
        free_bytes: Free bytes on its file system when the write failed, -1 when not known.
    """

    def __init__(self, folder: str, free_bytes: int) -> None:
        free = "unknown" if free_bytes < 0 else f"{free_bytes} bytes"
        super().__init__(
            f"no space left for the log in {folder} (free: {free}); "
            "free some space or point the log to another folder"
        )
        self.folder = folder
        self.free_bytes = free_bytes


class AppendTooLargeError(WalError, ValueError):
    """One append is larger than the log accepts; nothing was written.

    Attributes:
        size: Bytes it would take in the segment, headers and padding included.
        limit: `LogOptions.max_append_size`.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"an append of {size} bytes is larger than the limit of {limit} bytes; "
            "store smaller records or raise LogOptions.max_append_size"
        )
        self.size = size
        self.limit = limit


class UnwritableFolderError(WalError):
    """The folder cannot be created or written.

    Attributes:
        folder: The folder of a log, of checkpoints or of a host.
        reason: What the system said.
    """

    def __init__(self, folder: str, reason: str) -> None:
        way_out = "choose a folder that this user may write"
        if "://" in folder:
            way_out = "give this program credentials that may write there, or choose another folder"
        super().__init__(f"folder {folder} cannot be written: {reason}; {way_out}")
        self.folder = folder
        self.reason = reason

    @classmethod
    def of(cls, folder: str, error: OSError) -> UnwritableFolderError:
        """Return the error for what the system said of a folder, or of what is on its path."""
        if isinstance(error, FileExistsError) and error.filename == folder:
            return cls(folder, "it is a file")
        if isinstance(error, (FileExistsError, NotADirectoryError)):
            return cls(folder, f"a part of the path {error.filename} is a file")
        return cls(folder, str(error))


class UnsupportedAddressError(WalError, ValueError):
    """A log or a checkpoint directory is asked for where it could not be made durable.

    Attributes:
        address: The address.
    """

    def __init__(self, address: str) -> None:
        super().__init__(
            f"{address!r} is on a file system that logs and checkpoints are not kept on. Use "
            f"hdfs://host:port/path, {OBJECT_ADDRESSES}, or a path on a disk or a mounted share"
        )
        self.address = address


class MissingClientError(WalError, ImportError):
    """The package is not installed that reaches a file system.

    Attributes:
        address: What should have been reached.
        package: The package.
    """

    def __init__(self, address: str, package: str, extra: str) -> None:
        super().__init__(
            f"{address or 'hdfs://'} is reached by the package {package}, which is not installed "
            f"in this Python: pip install '{extra}'"
        )
        self.address = address
        self.package = package


class EncryptionMismatchError(WalError):
    """What was written with encryption is read without it, the reverse, or by another key.

    Nothing was changed.

    Attributes:
        what: What is read: a file, a segment.
        is_encrypted: Whether that is encrypted.
        written_with: The id of the key that it was written with, where another one was given.
    """

    def __init__(
        self,
        what: str,
        is_encrypted: bool,
        written_with: bytes | None = None,
        given: bytes | None = None,
    ) -> None:
        if written_with is not None and given is not None:
            message = (
                f"{what} was encrypted with another key (id {written_with.hex()}) than the one "
                f"that is given (id {given.hex()}): give that one, or begin with an empty folder"
            )
        elif is_encrypted:
            message = (
                f"{what} is encrypted, and encryption is off: set spark.io.encryption.enabled=true "
                "and give the key that it was written with (PENSTOCK_ENCRYPTION_KEY)"
            )
        else:
            message = (
                f"{what} was written without encryption, and encryption is on: go on without it "
                "(spark.io.encryption.enabled=false, no PENSTOCK_ENCRYPTION_KEY), or begin with an "
                "empty folder"
            )
        super().__init__(message)
        self.what = what
        self.is_encrypted = is_encrypted
        self.written_with = written_with
