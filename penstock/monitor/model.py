"""`Model`: what is known of one running application, bounded, fed by events and readings."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace

from penstock.host.receiver_readings import ReceiverReading
from penstock.listeners.events import (
    BatchCompleted,
    BatchInfo,
    BatchStarted,
    BatchSubmitted,
    OutputOperationCompleted,
    OutputOperationInfo,
    OutputOperationStarted,
    ReceiverError,
    ReceiverInfo,
    ReceiverStarted,
    ReceiverStopped,
    SchedulerStatistics,
    StreamingStarted,
)
from penstock.listeners.listener import StreamingListener
from penstock.monitor.application import Application
from penstock.monitor.history import History, Point, Trend, points_of
from penstock.monitor.records import (
    Batch,
    BatchStatus,
    Event,
    EventKind,
    Operation,
    Receiver,
    Totals,
    bounded,
    last_line,
)
from penstock.monitor.sentence import Facts, sentence
from penstock.receiver.blocks.discards import count_of_discards
from penstock.runtime.clock import Clock, SystemClock
from penstock.tracker import EpochStatus, KeptStream

EVENTS = 1_000
"""Events that are kept, the last ones."""
ERRORS = 200
"""Errors that are kept with their text after newer events have displaced them."""
UNFINISHED = 2_000
"""Waiting or running batches that are kept; beyond that, the oldest are only counted."""

TOTAL_FIGURES = (
    "records_per_second",
    "scheduling_delay_ms",
    "processing_ms",
    "total_delay_ms",
    "waiting_batches",
    "processed_per_second",
)
"""What is known of the whole application over time; the delays are those of the last batch."""

STREAM_FIGURES = (
    "records_per_second",
    "bytes_per_second",
    "limit",
    "open_records",
    "queued_blocks",
    "stored_blocks",
    "latency_ms",
    "slowest_latency_ms",
    "log_bytes",
)
"""What is known of a stream with a receiver over time."""

WAIT_FIGURES = ("source", "tokens", "queue", "memory", "log", "replica", "driver", "nothing")
"""What its receiver waited for over time, in percent."""


class Model(StreamingListener):
    """A running application: its batches, receivers, events, and all of it over time.

    `_lock` guards everything; nothing is asked of the application under it.

    Args:
        application: What it asks, once a second.
        retained_batches: How many complete batches are kept.
        shows_samples: Whether reports of discarded records are kept with how the records begin, and
            what their errors say.
        clock: Wall time.
    """

    def __init__(
        self,
        application: Application,
        *,
        retained_batches: int = 1000,
        shows_samples: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.application = application
        self._shows_samples = shows_samples
        self._clock: Clock = SystemClock() if clock is None else clock
        self._lock = threading.Lock()
        self._changes = 0
        self._started_ms: int | None = None
        self._has_looked = False
        """Whether the receivers were looked at since the streams started."""
        self._unfinished: OrderedDict[int, Batch] = OrderedDict()
        self._completed: deque[Batch] = deque(maxlen=max(1, retained_batches))
        self._by_time: dict[int, Batch] = {}
        self._completed_count = self._failed = self._received = self._processed = 0
        self._delays = {name: Delays() for name in _DELAYS}
        self._sums = {name: _Sum() for name in _AVERAGED}
        """Of the complete batches that are kept."""
        self._waiting: set[int] = set()
        self._running: set[int] = set()
        self._dropped = self._told_completed = self._told_failed = 0
        self._is_dropping = False
        self._gone: set[int] = set()
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._errors: deque[Event] = deque(maxlen=ERRORS)
        self._event_count = 0
        self._receivers: dict[int, Receiver] = {}
        self._details: dict[int, str] = {}
        self._discards: dict[int, tuple[str, int, int]] = {}
        """Of a stream: its last attempt that was heard of, what that and those before discarded."""
        self._starts: dict[int, int] = {}
        self._trends: dict[int, Trend] = {}
        self._limits: dict[int, tuple[float | None, str]] = {}
        self._kept: dict[int, KeptStream] = {}
        self._epochs: dict[int, EpochStatus] = {}
        self._totals = History(TOTAL_FIGURES)
        self._streams: dict[int, History] = {}
        self._waits: dict[int, History] = {}
        self._point_processed: tuple[float, int] | None = None
        self._sentence = "It has not started yet."

    # -- what it is fed with ---------------------------------------------------------------------

    def onStreamingStarted(self, streamingStarted: StreamingStarted) -> None:
        with self._lock:
            self._started_ms = streamingStarted.time()
            self._tell(EventKind.STARTED, "The streams started")

    def onReceiverStarted(self, receiverStarted: ReceiverStarted) -> None:
        info = receiverStarted.receiverInfo()
        with self._lock:
            self._starts[info.streamId()] = self._starts.get(info.streamId(), 0) + 1
        where = f" on {info.location()}" if info.location() else ""
        self._tell_of(EventKind.RECEIVER_STARTED, info, f"{info.name()} runs{where}")

    def onReceiverStopped(self, receiverStopped: ReceiverStopped) -> None:
        info = receiverStopped.receiverInfo()
        told, _ = self._shown(info.lastErrorMessage())
        why = f": {told}" if told else ""
        with self._lock:
            self._trend(info.streamId()).stopped(self._clock.time_ms() // 1000)
        self._tell_of(EventKind.RECEIVER_STOPPED, info, f"{info.name()} stopped{why}")

    def onReceiverError(self, receiverError: ReceiverError) -> None:
        info = receiverError.receiverInfo()
        told, _ = self._shown(info.lastErrorMessage())
        self._tell_of(EventKind.RECEIVER_ERROR, info, f"{info.name()}: {told}")

    def given_up(self, stream_id: int, message: str, trace: str) -> None:
        """Take note that a receiver is not started again."""
        told, trace = self._shown(message, trace)
        with self._lock:
            self._tell(EventKind.RECEIVER_ERROR, f"Given up: {told}", trace, stream_id=stream_id)

    def onBatchSubmitted(self, batchSubmitted: BatchSubmitted) -> None:
        with self._lock:
            self._begin(batchSubmitted.batchInfo(), BatchStatus.QUEUED)

    def onBatchStarted(self, batchStarted: BatchStarted) -> None:
        info = batchStarted.batchInfo()
        with self._lock:
            self._received += info.numRecords()
            self._begin(info, BatchStatus.PROCESSING)

    def onOutputOperationStarted(self, outputOperationStarted: OutputOperationStarted) -> None:
        self._take_operation(outputOperationStarted.outputOperationInfo())

    def onOutputOperationCompleted(
        self, outputOperationCompleted: OutputOperationCompleted
    ) -> None:
        self._take_operation(outputOperationCompleted.outputOperationInfo())

    def onBatchCompleted(self, batchCompleted: BatchCompleted) -> None:
        batch = Batch.of(batchCompleted.batchInfo(), BatchStatus.COMPLETED)
        with self._lock:
            self._forget(batch.time_ms)
            if len(self._completed) == self._completed.maxlen:
                oldest = self._completed[0]
                self._by_time.pop(oldest.time_ms, None)
                for name, known in self._sums.items():
                    known.take_away(getattr(oldest, name))
            self._completed.append(batch)
            for name, known in self._sums.items():
                known.add(getattr(batch, name))
            self._by_time[batch.time_ms] = batch
            self._completed_count += 1
            self._processed += batch.records
            self._delays["scheduling_delay"].add(batch.scheduling_delay_ms)
            self._delays["processing_time"].add(batch.processing_ms)
            self._delays["total_delay"].add(batch.total_delay_ms)
            if batch.error is not None:
                self._failed += 1
                failed = next(found for found in batch.operations if found.error is not None)
                self._tell(
                    EventKind.BATCH_FAILED,
                    f"Output operation {failed.number} ({failed.name}) of a batch failed: "
                    f"{last_line(batch.error)}",
                    batch.error,
                    batch_ms=batch.time_ms,
                )
            self._changes += 1

    def tick(self) -> None:
        """Take a point of the history; once a second, by one thread."""
        application = self.application
        has_started = self._started_ms is not None
        readings = application.readings()
        rates = application.rates()
        statuses = application.receivers()
        dropped = application.dropped_events()
        hosted = application.hosted
        slow_blocks = [] if hosted is None else hosted.tracker.take_slow_blocks()
        epochs = {} if hosted is None else hosted.tracker.epochs()
        kept = application.kept()
        unfinished = dict(application.unfinished()) if dropped else {}
        statistics = application.statistics() if dropped else None
        now_ms = self._clock.time_ms()
        with self._lock:
            for status in statuses:
                reading = readings.get(status.stream_id)
                discarded = self._discarded(status.stream_id, reading)
                lag = None if reading is None else reading.pipe.source_lag
                trend = self._trend(status.stream_id)
                self._receivers[status.stream_id] = Receiver(
                    **vars(
                        replace(
                            status,
                            # One that starts again in its process is still the same attempt.
                            attempts=max(status.attempts, self._starts.get(status.stream_id, 0)),
                            last_error=bounded(self._shown(status.last_error)[0]),
                            position=""
                            if status.position is None
                            else bounded(str(status.position), _POSITION),
                        )
                    ),
                    discarded=discarded,
                    last_error_detail=self._details.get(status.stream_id, ""),
                    reading=reading,
                    rate=rates.get(status.stream_id),
                    lately=trend.look(now_ms // 1000, discarded, lag, status.dropped),
                )
            for stream_id, rate in rates.items():
                self._tell_of_rate(stream_id, rate.effective, rate.source.value)
            for stream_id, newest in epochs.items():
                before = self._epochs.get(stream_id)
                if newest.failed > (0 if before is None else before.failed):
                    text, _, trace = newest.last_error.partition("\n")
                    self._tell(EventKind.FUNCTION_FAILED, text, trace, stream_id=stream_id)
            self._kept, self._epochs = dict(kept), dict(epochs)
            self._has_looked = has_started
            for found in slow_blocks:
                self._tell(
                    EventKind.BLOCK_SLOW,
                    f"A task on {found.host} waits for block {found.block_id}: its host is away"
                    if found.is_waiting
                    else f"It took {found.seconds:.1f} s to read block {found.block_id} "
                    f"on {found.host}",
                    found.tried,
                    stream_id=found.stream_id,
                    batch_ms=None if found.batch_ms < 0 else found.batch_ms,
                )
            self._note_dropped(dropped)
            if statistics is not None:
                self._correct(unfinished, statistics)
            self._take_points(now_ms // 1000)
            self._sentence = sentence(self._facts())
            self._changes += 1

    def note(self, text: str, stream_id: int | None = None) -> None:
        """Keep what was done from outside."""
        with self._lock:
            self._tell(EventKind.ACTION, text, stream_id=stream_id)

    # -- what it is asked ------------------------------------------------------------------------

    @property
    def has_looked(self) -> bool:
        """Whether the receivers were looked at since the streams started."""
        return self._has_looked

    @property
    def changes(self) -> int:
        """Counts up with each change, so that a view knows whether there is news."""
        return self._changes

    def now_ms(self) -> int:
        """Return wall time as the model has it."""
        return self._clock.time_ms()

    def name_of(self, stream_id: int) -> str:
        """Return what a stream is called, with its number."""
        return f"{self.application.streams.get(stream_id, 'stream')}-{stream_id}"

    def sentence(self) -> str:
        """Return how it goes, as a person would say it."""
        with self._lock:
            return self._sentence

    def totals(self) -> Totals:
        """Return the counts since the start."""
        with self._lock:
            return self._count()

    def delays(self) -> list[tuple[str, str, Delays]]:
        """Return how often complete batches took how long: name, what it is, and how often."""
        with self._lock:
            return [(name, what, self._delays[name].copy()) for name, what in _DELAYS.items()]

    def receivers(self) -> tuple[Receiver, ...]:
        """Return the receivers, in the order of their streams."""
        with self._lock:
            return tuple(found for _, found in sorted(self._receivers.items()))

    def kept(self) -> tuple[KeptStream, ...]:
        """Return what is kept of streams that queries read, in the order of the streams."""
        with self._lock:
            return tuple(found for _, found in sorted(self._kept.items()))

    def epochs(self) -> dict[int, EpochStatus]:
        """Return where the epochs of continuous streams are, in the order of the streams."""
        with self._lock:
            return dict(sorted(self._epochs.items()))

    def batches(self, *statuses: BatchStatus) -> tuple[Batch, ...]:
        """Return the batches that are kept, of some statuses or of all; the newest first."""
        wanted = statuses or tuple(BatchStatus)
        with self._lock:
            found = [batch for batch in self._all() if batch.status in wanted]
        return tuple(sorted(found, key=lambda batch: -batch.time_ms))

    def batch(self, time_ms: int) -> Batch | None:
        """Return the batch of a time, if it is kept."""
        with self._lock:
            return self._unfinished.get(time_ms) or self._by_time.get(time_ms)

    def events(self, after: int = 0) -> tuple[Event, ...]:
        """Return the events that are kept, the oldest first.

        Args:
            after: Those with a larger number only.
        """
        with self._lock:
            return tuple(event for event in self._events if event.number > after)

    def errors(self) -> tuple[Event, ...]:
        """Return the errors that are kept, the oldest first."""
        with self._lock:
            return tuple(self._errors)

    def history(self, since_s: int, until_s: int, step_s: int = 1) -> list[Point]:
        """Return `TOTAL_FIGURES` over time, as `History.points`."""
        with self._lock:
            return self._totals.points(since_s, until_s, step_s)

    def stream_histories(
        self, since_s: int, until_s: int, step_s: int = 1
    ) -> dict[int, tuple[list[Point], list[Point]]]:
        """Return `STREAM_FIGURES` and `WAIT_FIGURES` of each stream with a receiver over time."""
        with self._lock:
            streams = list(self._streams)
            kept = [list(found.values()) for found in (self._streams, self._waits)]
        # Not under the lock: a day of many streams takes a while.
        figures, waits = (points_of(each, since_s, until_s, step_s, self._lock) for each in kept)
        return dict(zip(streams, zip(figures, waits, strict=True), strict=True))

    # -- within, with the lock -------------------------------------------------------------------

    def _all(self) -> list[Batch]:
        return [*self._unfinished.values(), *self._completed]

    def _begin(self, info: BatchInfo, status: BatchStatus) -> None:
        batch = Batch.of(info, status)
        self._forget(batch.time_ms)
        (self._waiting if status is BatchStatus.QUEUED else self._running).add(batch.time_ms)
        self._unfinished[batch.time_ms] = batch
        if len(self._unfinished) > UNFINISHED:
            self._unfinished.popitem(last=False)
        self._changes += 1

    def _forget(self, time_ms: int) -> None:
        self._unfinished.pop(time_ms, None)
        self._waiting.discard(time_ms)
        self._running.discard(time_ms)

    def _note_dropped(self, dropped: int) -> None:
        was_dropping, self._is_dropping = self._is_dropping, dropped > self._dropped
        if self._is_dropping and not was_dropping:
            self._tell(
                EventKind.EVENTS_DROPPED,
                f"{dropped - self._dropped} events were dropped: a listener of the program is too "
                "slow; delays and records of their batches are not known",
            )
        self._dropped = dropped

    def _correct(self, unfinished: Mapping[int, bool], statistics: SchedulerStatistics) -> None:
        """Count the batches as the scheduler does, once events of them may never have come.

        An end that is still on its way is no end that was dropped: a batch is forgotten when it
        was over a second ago already.
        """
        self._waiting = {time_ms for time_ms, has_begun in unfinished.items() if not has_begun}
        self._running = {time_ms for time_ms, has_begun in unfinished.items() if has_begun}
        gone = {time_ms for time_ms in self._unfinished if time_ms not in unfinished}
        for time_ms in gone & self._gone:
            del self._unfinished[time_ms]
        self._gone = gone - self._gone
        # It counts a batch before it reports it, so the larger number of the two is right.
        self._told_completed = statistics.completed_batches
        self._told_failed = statistics.failed_batches
        if self._started_ms is None and (unfinished or statistics.completed_batches):
            self._started_ms = self._clock.time_ms()

    def _take_operation(self, info: OutputOperationInfo) -> None:
        operation = Operation.of(info)
        with self._lock:
            batch = self._unfinished.get(info.batchTime().milliseconds())
            if batch is None:
                return
            others = [found for found in batch.operations if found.number != operation.number]
            operations = sorted([*others, operation], key=lambda found: found.number)
            self._unfinished[batch.time_ms] = replace(batch, operations=tuple(operations))
            self._changes += 1

    def _trend(self, stream_id: int) -> Trend:
        return self._trends.setdefault(stream_id, Trend())

    def _discarded(self, stream_id: int, reading: ReceiverReading | None) -> int:
        """Return what all attempts of a receiver discarded; each reports its own, from 0."""
        attempt, last, before = self._discards.get(stream_id, ("", 0, 0))
        if reading is not None:
            if reading.attempt != attempt:
                attempt, last, before = reading.attempt, 0, before + last
            last = max(last, reading.pipe.discarded)
            self._discards[stream_id] = (attempt, last, before)
        return before + last

    def _tell_of(self, kind: EventKind, info: ReceiverInfo, text: str) -> None:
        _, trace = self._shown(info.lastErrorMessage(), info.lastError())
        detail = "" if kind is EventKind.RECEIVER_STARTED else trace
        with self._lock:
            self._details[info.streamId()] = bounded(trace)
            self._tell(kind, text, detail, stream_id=info.streamId())

    def _shown(self, error: str, trace: str = "") -> tuple[str, str]:
        """Return what all who look may see of a receiver's error and its traceback."""
        count = None if self._shows_samples else count_of_discards(error)
        if count is None:
            return error, trace
        return f"{count} (spark.penstock.ui.samples shows more of it)", ""

    def _tell_of_rate(self, stream_id: int, limit: float | None, source: str) -> None:
        before = self._limits.get(stream_id)
        self._limits[stream_id] = (limit, source)
        if before is None or before == (limit, source):
            return
        if before[1] == source and source in _CHANGING:
            return  # Backpressure changes its rate with each batch: a chart shows that better.
        name = self.application.streams.get(stream_id, f"stream {stream_id}")
        rate = "no limit" if limit is None else f"{limit:,.0f} records/s ({source})"
        self._tell(EventKind.RATE_CHANGED, f"{name}: {rate}", stream_id=stream_id)

    def _tell(
        self,
        kind: EventKind,
        text: str,
        detail: str = "",
        stream_id: int | None = None,
        batch_ms: int | None = None,
    ) -> None:
        self._event_count += 1
        event = Event(
            self._event_count,
            self._clock.time_ms(),
            kind,
            bounded(text, 1_000),
            bounded(detail),
            stream_id,
            batch_ms,
        )
        self._events.append(event)
        if kind.is_error or (kind is EventKind.RECEIVER_STOPPED and detail):
            self._errors.append(event)
        self._changes += 1

    def _count(self) -> Totals:
        records, batch_ms = self._mean("records"), self.application.batch_ms
        return Totals(
            self._started_ms,
            max(self._completed_count, self._told_completed),
            max(self._failed, self._told_failed),
            self._received,
            self._processed,
            len(self._waiting),
            len(self._running),
            len(self._completed),
            None if records is None or not batch_ms else records * 1000 / batch_ms,
            _whole(self._mean("scheduling_delay_ms")),
            _whole(self._mean("processing_ms")),
            _whole(self._mean("total_delay_ms")),
            self._dropped,
        )

    def _mean(self, name: str) -> float | None:
        """Return the mean of a figure of the batches that are kept, as far as it is known."""
        found = copy(self._sums[name])
        for batch in self._unfinished.values():
            found.add(getattr(batch, name))
        return found.sum / found.count if found.count else None

    def _take_points(self, now_s: int) -> None:
        last = self._completed[-1] if self._completed else None
        readings = [found.reading for found in self._receivers.values() if found.reading]
        began = self._point_processed
        clock_s = self._clock.monotonic_s()
        self._point_processed = (clock_s, self._processed)
        processed = None
        if began is not None and clock_s > began[0]:
            processed = (self._processed - began[1]) / (clock_s - began[0])
        self._totals.add(
            now_s,
            (
                sum(reading.records_per_second for reading in readings),
                None if last is None else last.scheduling_delay_ms,
                None if last is None else last.processing_ms,
                None if last is None else last.total_delay_ms,
                len(self._waiting),
                processed,
            ),
        )
        for stream_id, receiver in self._receivers.items():
            reading = receiver.reading
            if stream_id not in self._streams:
                self._streams[stream_id] = History(STREAM_FIGURES)
                self._waits[stream_id] = History(WAIT_FIGURES, "uint8")
            if reading is None:
                continue
            pipe = reading.pipe
            median, slowest = (None, None) if pipe.latency_ms is None else pipe.latency_ms
            self._streams[stream_id].add(
                now_s,
                (
                    reading.records_per_second,
                    reading.bytes_per_second,
                    None if receiver.rate is None else receiver.rate.effective,
                    pipe.open_records,
                    pipe.queued_blocks,
                    pipe.stored_blocks,
                    median,
                    slowest,
                    None if pipe.log is None else pipe.log.bytes,
                ),
            )
            if receiver.waits is not None:
                parts = receiver.waits.parts()
                self._waits[stream_id].add(now_s, [parts[name] for name in WAIT_FIGURES])

    def _facts(self) -> Facts:
        newest = sorted(self._completed, key=lambda batch: batch.time_ms)[-_RECENT:]
        return Facts(
            self.application.batch_ms,
            self._started_ms is not None,
            max(self._completed_count, self._told_completed),
            len(self._waiting),
            tuple(newest),
            tuple(found for _, found in sorted(self._receivers.items())),
            self._is_dropping,
            self._longest_ms(),
            {self.name_of(stream_id): found for stream_id, found in self._epochs.items()},
        )

    def _longest_ms(self) -> int:
        """Return how long the running batch that began first has run."""
        begun = [self._unfinished[each].start_ms for each in self._running & {*self._unfinished}]
        known = [start_ms for start_ms in begun if start_ms is not None]
        return max(0, self._clock.time_ms() - min(known)) if known else 0


_DELAYS = {
    "scheduling_delay": "From the submission of a batch to its start",
    "processing_time": "From the start of a batch to its end",
    "total_delay": "From the submission of a batch to its end",
}

_CHANGING = ("estimator", "query")
"""Whose rates follow batches."""

_POSITION = 200
"""Characters of a position."""

_RECENT = 5
"""Number of last batches by which the state of the program is judged."""


_AVERAGED = ("records", "scheduling_delay_ms", "processing_ms", "total_delay_ms")
"""The figures of batches that are shown as means."""


@dataclass
class _Sum:
    """A sum of figures that come and go, and how many they are; what is not known is none."""

    sum: int = 0
    count: int = 0

    def add(self, value: int | None) -> None:
        if value is not None:
            self.sum += value
            self.count += 1

    def take_away(self, value: int | None) -> None:
        if value is not None:
            self.sum -= value
            self.count -= 1


def _whole(mean: float | None) -> int | None:
    return None if mean is None else math.floor(mean)


BOUNDS_S = (
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(30.0, 60.0, 300.0, 900.0, 3600.0),
)
"""The upper bounds of the buckets, in seconds; the last one has none."""


class Delays:
    """A histogram with fixed bounds. Not for several threads at once.

    Attributes:
        sum_s: All of it together, in seconds.
    """

    def __init__(self) -> None:
        self.sum_s = 0.0
        self._counts = [0] * (len(BOUNDS_S) + 1)

    def add(self, duration_ms: int | None) -> None:
        """Count a duration; one that is not known is none."""
        if duration_ms is None:
            return
        duration_s = max(0.0, duration_ms / 1000)
        self.sum_s += duration_s
        self._counts[bisect_left(BOUNDS_S, duration_s)] += 1

    def copy(self) -> Delays:
        """Return one that does not change any more."""
        found = Delays()
        found.sum_s = self.sum_s
        found._counts = list(self._counts)
        return found

    def buckets(self) -> list[tuple[str, float]]:
        """Return how many took at most each bound, as Prometheus writes it."""
        found: list[tuple[str, float]] = []
        count = 0
        for bound, more in zip((*BOUNDS_S, None), self._counts, strict=True):
            count += more
            found.append(("+Inf" if bound is None else str(bound), count))
        return found
