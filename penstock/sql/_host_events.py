"""`HostEvents`: who is told of the receivers of a `ReceiverHost`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.host.errors import PermanentReceiverError
from penstock.host.receiver_readings import ReceiverReadings
from penstock.host.terminal import TerminalLines, started_line, stopped_line

if TYPE_CHECKING:
    from penstock.tracker import ReceiverTrackerEvents, TrackedReceiver


class HostEvents:
    """Hands on what the tracker tells: to the host, to the terminal, and to the monitor.

    Args:
        on_error: Is told of what is final.
        readings: Forget a receiver that stopped.
        lines: Say of receivers what a person wants to see.

    Attributes:
        monitor: Is told of everything; None: nobody looks.
    """

    def __init__(
        self,
        on_error: Callable[[PermanentReceiverError], None],
        readings: ReceiverReadings,
        lines: TerminalLines,
    ) -> None:
        self._on_error = on_error
        self._readings = readings
        self._lines = lines
        self.monitor: ReceiverTrackerEvents | None = None

    def receiver_started(self, info: TrackedReceiver, /) -> None:
        self._lines.say(
            started_line(info.name, info.location, info.executorId), ("started", info.streamId)
        )
        if self.monitor is not None:
            self.monitor.receiver_started(info)

    def receiver_error(self, info: TrackedReceiver, /) -> None:
        # It is in the tracker's log.
        if self.monitor is not None:
            self.monitor.receiver_error(info)

    def receiver_stopped(self, info: TrackedReceiver, /) -> None:
        self._readings.ended(info.streamId)
        line = stopped_line(info.name, info.lastErrorMessage, info.lastError)
        if line:
            self._lines.say(line, ("stopped", info.streamId))
        if self.monitor is not None:
            self.monitor.receiver_stopped(info)

    def permanent_error(self, stream_id: int, message: str, error: str, /) -> None:
        self._on_error(PermanentReceiverError(stream_id, message, error))
        if self.monitor is not None:
            self.monitor.permanent_error(stream_id, message, error)
