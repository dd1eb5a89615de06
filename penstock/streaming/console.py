"""`Console`: what a program says on its terminal while it runs.

One line when it starts, one for each receiver that starts or stops, and every few seconds how it
goes; the last is not logged. Spark's progress bar is ended where there are receivers: the endless
job of each would keep its bar for ever.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from penstock.host.terminal import TerminalLines, started_line, stopped_line
from penstock.listeners.events import (
    BatchCompleted,
    BatchInfo,
    ReceiverStarted,
    ReceiverStopped,
    SchedulerStatistics,
    StreamingStarted,
)
from penstock.listeners.listener import StreamingListener
from penstock.runtime.clock import Clock
from penstock.runtime.threads import Repeated
from penstock.streaming.durations import batch_datetime

_STATUS_S = 5.0

_log = logging.getLogger("penstock.streaming")


@dataclass(frozen=True)
class ConsoleFacts:
    """What the console asks for.

    Attributes:
        introduction: The first line.
        statistics: Returns the batches as they are.
        receivers: Returns how many receivers run, and how many there are.
    """

    introduction: str
    statistics: Callable[[], SchedulerStatistics]
    receivers: Callable[[], tuple[int, int]]


class Console(StreamingListener):
    """Shows how a context is doing; a listener with a thread of its own (``penstock-console``).

    `_lock` guards what has been processed since the last status line.

    Args:
        facts: What to show.
        mode: ``on``, ``off``, or ``auto``: on where standard error is a terminal.
        clock: Wall time for people.
        stream: Where to write; None: standard error.
    """

    def __init__(
        self, facts: ConsoleFacts, mode: str, clock: Clock, stream: TextIO | None = None
    ) -> None:
        self._facts = facts
        self._clock = clock
        self._lines = TerminalLines(_log, mode, stream)
        self._lock = threading.Lock()
        self._records = 0
        self._last: BatchInfo | None = None
        self._began_s = 0.0
        self._statuses = Repeated(self._tell, _STATUS_S, "console", clock)

    def start(self) -> None:
        """Begin to show how it goes."""
        if self._lines.is_shown:
            self._began_s = self._clock.monotonic_s()
            self._statuses.start()

    def stop(self, timeout_s: float) -> None:
        """Show no more."""
        self._statuses.stop(timeout_s)

    def say(self, line: str) -> None:
        """Say a line; one like it within a minute is only counted."""
        self._lines.say(line)

    # -- events ----------------------------------------------------------------------------------

    def onStreamingStarted(self, streamingStarted: StreamingStarted) -> None:
        self.say(self._facts.introduction)

    def onReceiverStarted(self, receiverStarted: ReceiverStarted) -> None:
        info = receiverStarted.receiverInfo()
        self._lines.say(
            started_line(info.name(), info.location(), info.executorId()),
            ("started", info.streamId()),
        )

    def onReceiverStopped(self, receiverStopped: ReceiverStopped) -> None:
        info = receiverStopped.receiverInfo()
        line = stopped_line(info.name(), info.lastErrorMessage(), info.lastError())
        if line:
            self._lines.say(line, ("stopped", info.streamId()))

    def onBatchCompleted(self, batchCompleted: BatchCompleted) -> None:
        info = batchCompleted.batchInfo()
        with self._lock:
            self._records += info.numRecords()
            self._last = info

    # -- the status ------------------------------------------------------------------------------

    def _tell(self) -> None:
        now_s = self._clock.monotonic_s()
        span_s, self._began_s = now_s - self._began_s, now_s
        self._lines.write(self._status(span_s))

    def _status(self, span_s: float) -> str:
        with self._lock:
            records, self._records = self._records, 0
            last, self._last = self._last, None
        batches = self._facts.statistics()
        running, receivers = self._facts.receivers()
        parts = [f"{records / max(span_s, 0.001):,.0f} records/s"]
        if last is None:
            parts.append(f"no batch completed in {span_s:.0f} s")
        else:
            parts.append(
                f"last batch {last.numRecords():,} records, delay {last.totalDelay() / 1000:.2f} s"
            )
        parts.append(f"{batches.waiting_batches} batches wait")
        if batches.failed_batches:
            parts.append(f"{batches.failed_batches} failed")
        if receivers:
            parts.append(f"{running} of {receivers} receivers run")
        return f"{_time_of_day(self._clock)}  {' | '.join(parts)}"


def _time_of_day(clock: Clock) -> str:
    return batch_datetime(clock.time_ms()).strftime("%H:%M:%S")
