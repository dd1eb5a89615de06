"""What can go wrong in the tracker, as errors that carry their facts."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.wal import CorruptRecordError


class LedgerError(PenstockError):
    """The ledger of received blocks was asked for something that it must not do."""


class BatchCleanedError(LedgerError):
    """A batch was asked for its blocks after they were released.

    Attributes:
        time_ms: The batch.
        cleaned_before_ms: Batches before this one were cleaned up.
    """

    def __init__(self, time_ms: int, cleaned_before_ms: int) -> None:
        super().__init__(
            f"the batch of {time_ms} ms was cleaned up, with all before {cleaned_before_ms} ms: "
            "its blocks are gone"
        )
        self.time_ms = time_ms
        self.cleaned_before_ms = cleaned_before_ms


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


class LedgerLostError(LedgerWriteError):
    """The driver log is no longer this driver's: it takes nothing more in this run.

    It was removed under the program, and a restart would not find what was acknowledged so far; or
    another driver has taken it over, and goes on with it. The log's own error is the cause.

    Attributes:
        is_taken_over: Which of them.
    """

    def __init__(self, what: str, reason: str, *, is_taken_over: bool = False) -> None:
        way_out = "stop the program, and start it on a folder that no one else clears"
        if is_taken_over:
            way_out = "the other driver goes on; this one is to end"
        super().__init__(what, f"{reason}. Nothing more can be acknowledged: {way_out}")
        self.is_taken_over = is_taken_over


class DamagedLedgerError(CorruptRecordError, LedgerError):
    """A record of the driver log that had been acknowledged is damaged (I6).

    Attributes:
        folder: The driver log's folder.
    """

    def __init__(self, folder: str, damage: CorruptRecordError) -> None:
        super().__init__(damage.segment, damage.offset, damage.reason, folder, damage.damages)
        where = f"at offset {damage.offset} of segment {damage.segment}"
        message = (
            f"driver log {folder}: corrupt record {where}: {damage.reason}. `penstock wal check "
            f"{folder}` lists what is damaged. Bring the folder back from a copy; or, if it was "
            f"only cut short, give up what was cut off with `penstock wal repair {folder}`; or, to "
            f"give up all that the ledger knew, start with another folder"
        )
        self.args = (message,)


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


class StreamsDoNotFitError(LedgerError):
    """The ledger has records or positions of streams that the program does not have.

    Attributes:
        folder: The driver log's folder.
        left: Names of these streams; ``stream <number>`` for one without a name.
        new: Names of the program's streams that the ledger does not know.
        are_kept: Whether they are a `ReceiverHost`'s.
    """

    def __init__(
        self,
        folder: str,
        left: tuple[str, ...],
        new: tuple[str, ...],
        are_kept: bool = False,
    ) -> None:
        how = f"stream({left[0]!r}, ...)" if are_kept else _stream_as_before(left, new)
        of_program = f"are new to it: {_names(new)}" if new else "are all known to it"
        super().__init__(
            f"the ledger in {folder} has records that wait, or positions, of streams that this "
            f"program does not have: {_names(left)}. The program's own streams {of_program}. A "
            f"stream goes on where it was under the name that it had: {how}. To give up what the "
            f"ledger has of it, set spark.penstock.removedStreams={','.join(left)}; or start with "
            "another folder"
        )
        self.folder = folder
        self.left = left
        self.new = new
        self.are_kept = are_kept


def _stream_as_before(left: tuple[str, ...], new: tuple[str, ...]) -> str:
    """Return the call that makes the first stream again, also of receivers that share a source."""
    first = left[0]
    of_several, _, number = first.rpartition("/")
    if of_several and number.isdecimal():
        most = 1 + max(int(name.rpartition("/")[2]) for name in left if _is_of(of_several, name))
        return (
            f"receiverStream(..., name={of_several!r}, numReceivers=..., maxReceivers={most}); "
            "fewer may be declared once it was scaled down and stopped gracefully"
        )
    alone = " without numReceivers" if any(_is_of(first, name) for name in new) else ""
    return f"receiverStream(..., name={first!r}){alone}"


def _is_of(shared: str, name: str) -> bool:
    """Return whether a stream is of one of the receivers that share a source, by its name."""
    stream, _, number = name.rpartition("/")
    return stream == shared and number.isdecimal()


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names))


class ReceiverPickleError(PenstockError):
    """A receiver cannot be pickled, so it cannot be sent to an executor.

    Attributes:
        stream_id: The stream of the receiver.
        receiver_type: Its class name.
    """

    def __init__(self, stream_id: int, receiver_type: str, reason: str) -> None:
        super().__init__(
            f"the receiver {receiver_type} of stream {stream_id} cannot be pickled: {reason}. "
            f"Open sockets, threads and files where the receiver runs: in its function, in run or "
            f"in onStart"
        )
        self.stream_id = stream_id
        self.receiver_type = receiver_type
        self.reason = reason
