"""The events that listeners get, with the getters that PySpark's have.

Each is a frozen record whose facts are read by method calls: ``info.batchTime().milliseconds()``.
Missing times and durations are -1, missing texts are None, as in PySpark.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.listeners.input_info import BatchInput

if TYPE_CHECKING:
    from penstock.tracker import ReceiverTrackingInfo

UNKNOWN = -1
"""A time or a duration that is not known."""


@dataclass(frozen=True, order=True)
class Time:
    """A batch time."""

    _milliseconds: int

    def milliseconds(self) -> int:
        """Milliseconds since the epoch."""
        return self._milliseconds

    def __str__(self) -> str:
        return f"{self._milliseconds} ms"


@dataclass(frozen=True)
class StreamInputInfo:
    """What one input had for a batch."""

    _info: BatchInput

    def inputStreamId(self) -> int:
        """The stream's number."""
        return self._info.input_stream_id

    def numRecords(self) -> int:
        """Its records in the batch."""
        return self._info.num_records

    def metadata(self) -> dict[str, object]:
        """More about them."""
        return dict(self._info.metadata)

    def metadataDescription(self) -> str | None:
        """The part of the metadata that is meant for people."""
        text = self._info.metadata.get("Description")
        return None if text is None else str(text)


@dataclass(frozen=True)
class OutputOperationInfo:
    """An output operation of a batch, as it was when the event was made."""

    _time: Time
    _id: int
    _name: str
    _description: str
    _start_ms: int = UNKNOWN
    _end_ms: int = UNKNOWN
    _failure_reason: str | None = None

    def batchTime(self) -> Time:
        """The batch."""
        return self._time

    def id(self) -> int:
        """The operation, counted from 0 in the order of the program."""
        return self._id

    def name(self) -> str:
        """What it is and where in the program."""
        return self._name

    def description(self) -> str:
        """The stack of its call in the program."""
        return self._description

    def startTime(self) -> int:
        """When it started, ms since the epoch, or -1."""
        return self._start_ms

    def endTime(self) -> int:
        """When it ended, ms since the epoch, or -1."""
        return self._end_ms

    def failureReason(self) -> str | None:
        """The error with its traceback, or None."""
        return self._failure_reason


@dataclass(frozen=True)
class BatchInfo:
    """A batch, as it was when the event was made. Times in ms since the epoch, or -1."""

    _time: Time
    _input_info: Mapping[int, BatchInput]
    _submission_ms: int
    _start_ms: int
    _end_ms: int
    _operations: Mapping[int, OutputOperationInfo] = field(repr=False)

    def batchTime(self) -> Time:
        """The batch time."""
        return self._time

    def streamIdToInputInfo(self) -> dict[int, StreamInputInfo]:
        """What each receiver or file input had, by stream id."""
        return {number: StreamInputInfo(info) for number, info in self._input_info.items()}

    def submissionTime(self) -> int:
        """When its jobs were handed to the scheduler."""
        return self._submission_ms

    def processingStartTime(self) -> int:
        """When its first job started."""
        return self._start_ms

    def processingEndTime(self) -> int:
        """When its last job ended."""
        return self._end_ms

    def schedulingDelay(self) -> int:
        """Milliseconds from submission to start, or -1."""
        return _difference(self._submission_ms, self._start_ms)

    def processingDelay(self) -> int:
        """Milliseconds from start to end, or -1."""
        return _difference(self._start_ms, self._end_ms)

    def totalDelay(self) -> int:
        """The sum of both delays, or -1."""
        parts = (self.schedulingDelay(), self.processingDelay())
        return UNKNOWN if UNKNOWN in parts else sum(parts)

    def numRecords(self) -> int:
        """The records of all inputs that report them."""
        return sum(info.num_records for info in self._input_info.values())

    def outputOperationInfos(self) -> dict[int, OutputOperationInfo]:
        """The operations of the batch, by id."""
        return dict(self._operations)


@dataclass(frozen=True)
class ReceiverInfo:
    """A receiver, as it was when the event was made."""

    _stream_id: int
    _name: str
    _active: bool
    _location: str
    _executor_id: str
    _last_error_message: str = ""
    _last_error: str = ""
    _last_error_ms: int = UNKNOWN

    @classmethod
    def of(cls, info: ReceiverTrackingInfo) -> ReceiverInfo:
        """Make one from what the tracker reports."""
        return cls(
            info.stream_id,
            info.name,
            info.active,
            info.location,
            info.executor_id,
            info.last_error_message,
            info.last_error,
            info.last_error_time_ms,
        )

    def streamId(self) -> int:
        """The stream that it feeds."""
        return self._stream_id

    def name(self) -> str:
        """``<stream>-<streamId>``; the stream is called as its receiver where it has no name."""
        return self._name

    def active(self) -> bool:
        """Whether it is registered now."""
        return self._active

    def location(self) -> str:
        """The host it runs on."""
        return self._location

    def executorId(self) -> str:
        """The executor it runs in."""
        return self._executor_id

    def lastErrorMessage(self) -> str:
        """What it last complained of, or empty."""
        return self._last_error_message

    def lastError(self) -> str:
        """The traceback of that, or empty."""
        return self._last_error

    def lastErrorTime(self) -> int:
        """When that was, ms since the epoch, or -1."""
        return self._last_error_ms


class StreamingEvent:
    """What passes through the listener bus."""


@dataclass(frozen=True)
class SchedulerStatistics:
    """The batches at one moment.

    Attributes:
        waiting_batches: Made, and no job started yet.
        running_batches: Some job started, not all ended.
        completed_batches: All jobs ended, since the start.
        failed_batches: Those of them with a failed job.
        last_total_delay_ms: From submission to the end of the last completed batch, or None.
        skipped_blocks: Blocks that batches left out because no host has them, with
            ``spark.penstock.lostBlocks=skip``.
        given_up_batches: Made and not processed to the end, because of a stop or the end of Spark.
        records: The records of the completed batches.
    """

    waiting_batches: int
    running_batches: int
    completed_batches: int
    failed_batches: int
    last_total_delay_ms: int | None
    skipped_blocks: int = 0
    given_up_batches: int = 0
    records: int = 0


@dataclass(frozen=True)
class StreamingStarted(StreamingEvent):
    """The context has started."""

    _time_ms: int

    def time(self) -> int:
        """When, ms since the epoch."""
        return self._time_ms


@dataclass(frozen=True)
class _ReceiverEvent(StreamingEvent):
    _info: ReceiverInfo

    def receiverInfo(self) -> ReceiverInfo:
        """The receiver."""
        return self._info


class ReceiverStarted(_ReceiverEvent):
    """A receiver has registered."""


class ReceiverError(_ReceiverEvent):
    """A receiver has reported an error."""


class ReceiverStopped(_ReceiverEvent):
    """A receiver has deregistered or died."""


@dataclass(frozen=True)
class _BatchEvent(StreamingEvent):
    _info: BatchInfo

    def batchInfo(self) -> BatchInfo:
        """The batch."""
        return self._info


class BatchSubmitted(_BatchEvent):
    """The jobs of a batch wait to be run."""


class BatchStarted(_BatchEvent):
    """The first job of a batch starts."""


class BatchCompleted(_BatchEvent):
    """All jobs of a batch have ended."""


@dataclass(frozen=True)
class _OutputOperationEvent(StreamingEvent):
    _info: OutputOperationInfo

    def outputOperationInfo(self) -> OutputOperationInfo:
        """The operation."""
        return self._info


class OutputOperationStarted(_OutputOperationEvent):
    """A job of a batch starts."""


class OutputOperationCompleted(_OutputOperationEvent):
    """A job of a batch has ended."""


def _difference(start_ms: int, end_ms: int) -> int:
    return UNKNOWN if UNKNOWN in (start_ms, end_ms) else end_ms - start_ms
