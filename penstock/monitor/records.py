"""What the model reports: frozen records of batches, their operations, receivers and events.

Times are milliseconds since the epoch, durations milliseconds; None is not yet, or not known.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from penstock.host.receiver_readings import ReceiverReading, ReceiverStatus
from penstock.listeners.events import UNKNOWN, BatchInfo, OutputOperationInfo
from penstock.rates import StreamRate

TEXT_LIMIT = 20_000
"""Characters of an error's traceback that are kept; of a longer one, both ends."""
_OF_JAVA = re.compile(
    r"\s+at \S.*|\s+\.\.\. \d+ more|((Driver|JVM) stacktrace:|\s*SQLSTATE: \w{5})\s*"
)


def bounded(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return a text that is not longer than `limit`: its beginning and its end."""
    if len(text) <= limit:
        return text
    part = max(0, limit // 2 - 20)
    return f"{text[:part]}\n… {len(text) - 2 * part} characters left out …\n{text[-part:]}"


def last_line(text: str) -> str:
    """Return the last line of a text, where a traceback says what it is of; empty without one.

    Behind that of a task comes the stack of Java, which is left out.
    """
    lines = (line for line in reversed(text.splitlines()) if not _OF_JAVA.fullmatch(line))
    return next((line.strip() for line in lines if line.strip()), "")


class BatchStatus(enum.Enum):
    """How far a batch is, by the names of Spark's REST."""

    QUEUED = "QUEUED"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"


@dataclass(frozen=True)
class Input:
    """What one input had for a batch.

    Attributes:
        stream_id: The stream.
        records: Its records.
        description: More about them, for people; None where there is no more.
    """

    stream_id: int
    records: int
    description: str | None


@dataclass(frozen=True)
class Operation:
    """An output operation of a batch.

    Attributes:
        number: Counted from 0 in the order of the program.
        name: What it is and where in the program.
        description: The stack of its call.
        start_ms: When it began.
        end_ms: When it ended.
        error: What it failed of, with the traceback.
    """

    number: int
    name: str
    description: str
    start_ms: int | None
    end_ms: int | None
    error: str | None

    @classmethod
    def of(cls, info: OutputOperationInfo) -> Operation:
        """Take one out of an event."""
        reason = info.failureReason()
        return cls(
            info.id(),
            info.name(),
            info.description(),
            _known(info.startTime()),
            _known(info.endTime()),
            None if reason is None else bounded(reason),
        )

    @property
    def duration_ms(self) -> int | None:
        """From its beginning to its end."""
        return _between(self.start_ms, self.end_ms)


@dataclass(frozen=True)
class Batch:
    """A batch.

    Attributes:
        time_ms: Its time, which names it.
        status: How far it is.
        submission_ms: When its jobs were handed to the scheduler.
        start_ms: When the first of them began.
        end_ms: When the last of them ended.
        inputs: What each input had, by stream.
        operations: Its output operations, in their order.
    """

    time_ms: int
    status: BatchStatus
    submission_ms: int | None
    start_ms: int | None
    end_ms: int | None
    inputs: Mapping[int, Input]
    operations: tuple[Operation, ...]

    @classmethod
    def of(cls, info: BatchInfo, status: BatchStatus) -> Batch:
        """Take one out of an event."""
        operations = sorted(info.outputOperationInfos().items())
        return cls(
            info.batchTime().milliseconds(),
            status,
            _known(info.submissionTime()),
            _known(info.processingStartTime()),
            _known(info.processingEndTime()),
            {
                stream_id: Input(stream_id, told.numRecords(), _text(told.metadataDescription()))
                for stream_id, told in sorted(info.streamIdToInputInfo().items())
            },
            tuple(Operation.of(operation) for _, operation in operations),
        )

    @cached_property
    def records(self) -> int:
        """The records of all inputs; counted once, as each view asks it of all batches."""
        return sum(found.records for found in self.inputs.values())

    @property
    def planning_ms(self) -> int | None:
        """From its time to its submission: until it had its blocks, and its jobs were made."""
        return _between(self.time_ms, self.submission_ms)

    @property
    def scheduling_delay_ms(self) -> int | None:
        """From its submission to its start."""
        return _between(self.submission_ms, self.start_ms)

    @property
    def processing_ms(self) -> int | None:
        """From its start to its end."""
        return _between(self.start_ms, self.end_ms)

    @property
    def total_delay_ms(self) -> int | None:
        """From its submission to its end."""
        return _between(self.submission_ms, self.end_ms)

    @property
    def error(self) -> str | None:
        """What the first operation that failed, failed of."""
        return next((found.error for found in self.operations if found.error is not None), None)


class EventKind(enum.Enum):
    """What happened."""

    STARTED = "started"
    RECEIVER_STARTED = "receiver started"
    RECEIVER_STOPPED = "receiver stopped"
    RECEIVER_ERROR = "receiver error"
    FUNCTION_FAILED = "function failed"
    BATCH_FAILED = "batch failed"
    BLOCK_SLOW = "block slow to read"
    RATE_CHANGED = "rate changed"
    ACTION = "action"
    EVENTS_DROPPED = "events dropped"

    @property
    def is_error(self) -> bool:
        """Whether a person should look."""
        return self in (
            EventKind.RECEIVER_ERROR,
            EventKind.FUNCTION_FAILED,
            EventKind.BATCH_FAILED,
            EventKind.EVENTS_DROPPED,
        )


@dataclass(frozen=True)
class Event:
    """Something that happened, for the strip of events.

    Attributes:
        number: Counted from 1; none is used twice in a run.
        at_ms: When.
        kind: What.
        text: The same in one line.
        detail: A traceback or the like; empty where there is no more.
        stream_id: Of which stream.
        batch_ms: Of which batch.
    """

    number: int
    at_ms: int
    kind: EventKind
    text: str
    detail: str = ""
    stream_id: int | None = None
    batch_ms: int | None = None


@dataclass(frozen=True)
class Lately:
    """How a receiver has been in the last minutes (`penstock.monitor.history`).

    Attributes:
        stops: How often it stopped, in the last ten minutes.
        discarded: How many records it discarded, in the last five minutes.
        lag: How many records its source has that are not stored; None: that is not known.
        lag_before: What that was a minute ago, where it grows; None: it does not, or is not known.
        dropped: How many records it dropped, in the last five minutes.
    """

    stops: int = 0
    discarded: int = 0
    lag: int | None = None
    lag_before: int | None = None
    dropped: int = 0


@dataclass(frozen=True)
class Receiver(ReceiverStatus):
    """A receiver as it is, with what the model knows beside that.

    In its status, attempts include those within its process, the last error is what may be shown of
    it, and the position is a text, empty where there is none.

    Attributes:
        discarded: Records that it reported as discarded, in this run.
        last_error_detail: The traceback of the last error.
        reading: Its last reading; None while nothing is heard of it.
        rate: The rate of its stream.
        lately: How it has been in the last minutes.
    """

    discarded: int = 0
    last_error_detail: str = ""
    reading: ReceiverReading | None = None
    rate: StreamRate | None = None
    lately: Lately = Lately()


@dataclass(frozen=True)
class Totals:
    """Counts since the start; averages over the batches that are kept.

    Attributes:
        started_ms: When the context started; None before.
        completed_batches: Batches that are complete.
        failed_batches: Those of them with an operation that failed.
        received_records: Records of the batches that began.
        processed_records: Records of the batches that are complete.
        waiting: Batches whose jobs have not begun.
        running: Batches whose jobs run.
        retained: Complete batches that are kept.
        input_rate: Records per second of a batch, in the mean.
        scheduling_delay_ms: In the mean.
        processing_ms: In the mean.
        total_delay_ms: In the mean.
        dropped_events: Events that the listener bus dropped: nothing in them is counted, except the
            number of batches.
    """

    started_ms: int | None
    completed_batches: int
    failed_batches: int
    received_records: int
    processed_records: int
    waiting: int
    running: int
    retained: int
    input_rate: float | None
    scheduling_delay_ms: int | None
    processing_ms: int | None
    total_delay_ms: int | None
    dropped_events: int = 0


def _known(time_ms: int) -> int | None:
    return None if time_ms == UNKNOWN else time_ms


def _between(start_ms: int | None, end_ms: int | None) -> int | None:
    return None if start_ms is None or end_ms is None else end_ms - start_ms


def _text(text: str | None) -> str | None:
    return None if text is None else bounded(text)
