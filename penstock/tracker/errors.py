"""What can go wrong in the tracker, as errors that carry their facts."""

from __future__ import annotations

from penstock.errors import PenstockError

__all__ = [
    "LedgerError",
    "LedgerRecoveryError",
    "LedgerWriteError",
    "NoExecutorsError",
    "ReceiverPickleError",
    "TrackerError",
]


class TrackerError(PenstockError):
    """Base class of the tracker's errors."""


class LedgerError(TrackerError):
    """The ledger of received blocks was asked for something that it must not do."""


class LedgerWriteError(LedgerError):
    """The driver log did not take an event, so nothing was changed in memory either.

    The same call may succeed later (a disk that was full has space again). The log's own error
    is the cause.

    Attributes:
        what: The event that was to be written, in words.
    """

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"the driver log did not take {what}: {reason}")
        self.what = what
        self.reason = reason

    def __reduce__(self) -> tuple[type[LedgerWriteError], tuple[str, str]]:
        return type(self), (self.what, self.reason)


class LedgerRecoveryError(LedgerError):
    """A record of the driver log is whole, but does not say what a ledger can follow.

    Attributes:
        folder: The driver log's folder.
        segment: Number of the segment that holds the record.
        offset: Byte offset of the record's header in its segment.
        reason: What is wrong with it.
    """

    def __init__(self, folder: str, segment: int, offset: int, reason: str) -> None:
        super().__init__(
            f"driver log {folder}: the record at offset {offset} of segment {segment} cannot be "
            f"applied: {reason}. Look at it with `penstock wal dump {folder}`; to give up what "
            f"the ledger knew, start with another checkpoint directory"
        )
        self.folder = folder
        self.segment = segment
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[type[LedgerRecoveryError], tuple[str, int, int, str]]:
        return type(self), (self.folder, self.segment, self.offset, self.reason)


class NoExecutorsError(TrackerError):
    """After the job that waits for executors there is still none."""


class ReceiverPickleError(TrackerError):
    """A receiver cannot be pickled, so it cannot be sent to an executor.

    Attributes:
        stream_id: The stream of the receiver.
        receiver_type: Its class name.
    """

    def __init__(self, stream_id: int, receiver_type: str, reason: str) -> None:
        super().__init__(
            f"the receiver {receiver_type} of stream {stream_id} cannot be pickled: {reason}. "
            f"Open sockets, threads and files in onStart, not in the constructor"
        )
        self.stream_id = stream_id
        self.receiver_type = receiver_type
        self.reason = reason

    def __reduce__(self) -> tuple[type[ReceiverPickleError], tuple[int, str, str]]:
        return type(self), (self.stream_id, self.receiver_type, self.reason)
