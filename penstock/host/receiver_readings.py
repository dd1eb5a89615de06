"""What receivers wait for: the readings that they send, as shares of the time between two.

A receiver sends sums since its attempt began (`penstock.wire.messages.PipeReading`), so that one
that is lost takes nothing with it. Here the difference of two becomes percent. A storing thread
that waits for room, or for what it stored to be durable, waits for what the thread behind it waits
for: the log, the replica, or the driver; what these do not explain is the queue's own.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from penstock._html import table_of
from penstock.rates import RateBook, StreamRate
from penstock.runtime.clock import Clock
from penstock.wire.messages import BlockTrace, PipeReading, ReportRateStatus

_STALE_S = 12.0
"""Age after which a reading no longer says what a receiver waits for."""

_SHOWN_PERCENT = 1.0

_TRACES = 1_000
"""Traces that are kept until they are fetched; beyond that, the oldest are dropped."""


@dataclass(frozen=True)
class ReceiverWaits:
    """What a receiver waited for in the last second, in percent; all of them make 100.

    Attributes:
        source: Its source: neither data came nor did it work.
        tokens: Permits of a rate.
        limit: Whose rate that is: ``user``, ``maxRate``, ``group``, ``initial``, ``slowStart``,
            ``estimator`` (backpressure), ``query`` (the slowest one that reads the stream),
            ``shared``, or ``backlog``: nothing passes before queries
            have read some of it. Empty when it did not wait for one.
        queue: Its turn in the queue of blocks.
        memory: Memory for the next block, which batches must release first.
        log: Its log.
        replica: Another host to have its copy.
        driver: The driver to take note of its blocks.
        nothing: Nothing: it worked.
    """

    source: float
    tokens: float
    limit: str
    queue: float
    memory: float
    log: float
    replica: float
    driver: float
    nothing: float

    def parts(self) -> dict[str, float]:
        """Return the percentages by name, without the limit."""
        return {
            "source": self.source,
            "tokens": self.tokens,
            "queue": self.queue,
            "memory": self.memory,
            "log": self.log,
            "replica": self.replica,
            "driver": self.driver,
            "nothing": self.nothing,
        }

    def __str__(self) -> str:
        found = sorted(self.parts().items(), key=lambda part: -part[1])
        shown = [(name, percent) for name, percent in found if percent >= _SHOWN_PERCENT]
        return ", ".join(
            f"{name} ({self.limit}) {percent:.0f} %"
            if name == "tokens" and self.limit
            else f"{name} {percent:.0f} %"
            for name, percent in shown
        )


@dataclass(frozen=True)
class ReceiverReading:
    """What a receiver reported last, and how it went since the reading before.

    Attributes:
        stream_id: Its stream.
        attempt: The attempt.
        records: Records that passed the rate limiter since the attempt began.
        bytes: Their bytes.
        records_per_second: Records that pass.
        bytes_per_second: Bytes that pass.
        queue_fill: How full the queue of sealed blocks is, 0 to 1.
        pipe: Sums since the attempt began, and what is on its way.
        waits: What it waited for; its `limit` is ``records``, ``bytes`` or ``shared``, since only
            other parts of the driver know whose limit of records or bytes is in force. None with
            the first reading of an attempt.
        at_s: When it came, on the driver's monotonic clock.
    """

    stream_id: int
    attempt: str
    records: int
    bytes: int
    records_per_second: float
    bytes_per_second: float
    queue_fill: float
    pipe: PipeReading
    waits: ReceiverWaits | None
    at_s: float


class ReceiverReadings:
    """The last reading of each receiver. `_lock` guards it; any thread may come.

    Args:
        rates: The rates of their streams, which get all reports.
        clock: The driver's.
    """

    def __init__(self, rates: RateBook, clock: Clock) -> None:
        self.rates = rates
        self._clock = clock
        self._lock = threading.Lock()
        self._last: dict[int, tuple[ReportRateStatus, ReceiverReading]] = {}
        self._traces: deque[BlockTrace] = deque(maxlen=_TRACES)

    def take(self, report: ReportRateStatus) -> None:
        """Take a report of a receiver; of one without a `pipe` there is no reading."""
        self.rates.on_rate_status(report)
        now_s = self._clock.monotonic_s()
        pipe = report.pipe
        if pipe is None:
            return
        with self._lock:
            self._traces.extend(pipe.traces)
            before, _ = self._last.get(report.stream_id, (None, None))
            if before is not None and before.attempt == report.attempt:
                span_s = report.at_s - before.at_s
                if span_s <= 0:
                    return  # It was overtaken.
                records = (report.records - before.records) / span_s
                size = (report.bytes - before.bytes) / span_s
                waits = None if before.pipe is None else _waits(before.pipe, pipe, span_s)
            else:
                records, size, waits = 0.0, 0.0, None
            reading = ReceiverReading(
                report.stream_id,
                report.attempt,
                report.records,
                report.bytes,
                max(0.0, records),
                max(0.0, size),
                report.queue_fill,
                pipe,
                waits,
                now_s,
            )
            self._last[report.stream_id] = (report, reading)

    def take_traces(self) -> list[BlockTrace]:
        """Return the traces of blocks that came since the call before."""
        with self._lock:
            found = list(self._traces)
            self._traces.clear()
        return found

    def started(self, stream_id: int) -> None:
        """Take note that a receiver begins."""
        self.rates.receiver_started(stream_id)

    def ended(self, stream_id: int) -> None:
        """Forget a receiver that stopped."""
        self.rates.receiver_stopped(stream_id)
        with self._lock:
            self._last.pop(stream_id, None)

    def readings(self) -> dict[int, ReceiverReading]:
        """Return the last reading of each receiver that was heard of lately, by stream."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            return {
                stream_id: reading
                for stream_id, (_, reading) in self._last.items()
                if now_s - reading.at_s <= _STALE_S
            }

    def waits(self) -> dict[int, ReceiverWaits]:
        """Return what each receiver that was heard of lately waits for, by stream."""
        return {
            stream_id: _named(reading.waits, self.rates.rate(stream_id))
            for stream_id, reading in self.readings().items()
            if reading.waits is not None
        }


def _named(waits: ReceiverWaits, rate: StreamRate) -> ReceiverWaits:
    """Return waits with the name of whose limit of records or of bytes is in force."""
    names = {"records": rate.source.value, "bytes": rate.byte_source.value}
    return replace(waits, limit=names.get(waits.limit, waits.limit))


def _waits(before: PipeReading, after: PipeReading, span_s: float) -> ReceiverWaits:
    def spent_s(name: str) -> float:
        return max(0.0, float(getattr(after, name)) - float(getattr(before, name)))

    limits = {
        "records": spent_s("rate_s"),
        "bytes": spent_s("byte_rate_s"),
        "shared": spent_s("shared_rate_s"),
    }
    tokens_s, memory_s = sum(limits.values()), spent_s("memory_s")
    log_s, replica_s = spent_s("log_s"), spent_s("replica_s")
    room_s, driver_s = spent_s("room_s"), spent_s("driver_s")
    # A wait for room is for the pushing thread, which does one thing at a time; one for durability
    # is for all of a block's way.
    behind = [
        (spent_s("queue_s"), (log_s, replica_s, room_s)),
        (spent_s("durable_s"), (log_s, replica_s, driver_s)),
    ]
    explained = [0.0, 0.0, 0.0]
    queue_s = 0.0
    for waited_s, causes in behind:
        whole_s = max(waited_s, sum(causes))
        if not whole_s:
            continue
        for at, cause_s in enumerate(causes):
            explained[at] += waited_s * cause_s / whole_s
        queue_s += waited_s * (1 - sum(causes) / whole_s)
    total_s = tokens_s + memory_s + queue_s + sum(explained)
    # Several threads may wait at once.
    scale = 100 / max(span_s, total_s)
    left_s = max(0.0, span_s - total_s)
    worked_s = min(left_s, spent_s("busy_s"))
    return ReceiverWaits(
        source=(left_s - worked_s) * scale,
        tokens=tokens_s * scale,
        limit=max(limits, key=lambda name: limits[name]) if tokens_s else "",
        queue=queue_s * scale,
        memory=memory_s * scale,
        log=explained[0] * scale,
        replica=explained[1] * scale,
        driver=explained[2] * scale,
        nothing=worked_s * scale,
    )


@dataclass(frozen=True)
class ReceiverStatus:
    """A receiver as it is at one moment.

    Attributes:
        stream_id: Its stream.
        name: ``<type>-<stream id>``.
        state: ``starting``, ``running``, ``stopped``, or ``idle``, as it has no splits.
        host: Where it runs, or last ran; empty before.
        executor_id: Its executor.
        address: Where its connection to the driver comes from; empty while there is none.
        attempts: How often its job was started in this run.
        records: Records of it that are durable and known to the driver, in this run.
        blocks: The blocks that they are in.
        position: The place in the source after the last of them, or None.
        last_error: What it last complained of, or empty.
        last_error_ms: When that was, ms since the epoch, or -1.
        waits: What it waited for in the last second; None while it is not known.
        addresses: Where it listens; empty for one that does not, or does not run.
        dropped: Records that it dropped in this run, since they came faster than they passed.
    """

    stream_id: int
    name: str
    state: str
    host: str
    executor_id: str
    address: str
    attempts: int
    records: int
    blocks: int
    position: Any
    last_error: str
    last_error_ms: int
    waits: ReceiverWaits | None = None
    addresses: tuple[str, ...] = ()
    dropped: int = 0

    def _repr_html_(self) -> str:
        return table_of("Receiver", [self])
