"""What the driver knows of each receiver, and what it reports to listeners."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.errors import IllegalStateError
from penstock.tracker.cluster import ExecutorLocation, TaskLocation
from penstock.wire.messages import ReportRateStatus

NEVER = -1
"""`ReceiverTrackingInfo.last_error_time_ms` when there was no error."""

_log = logging.getLogger("penstock.tracker")


class ReceiverState(enum.Enum):
    """A receiver as the driver sees it."""

    INACTIVE = 0
    SCHEDULED = 1
    ACTIVE = 2


@dataclass(frozen=True)
class ReceiverTrackingInfo:
    """A receiver, also as listeners have it. Frozen: each transition returns the next state.

    Attributes:
        stream_id: The stream.
        state: INACTIVE, SCHEDULED (a job was submitted) or ACTIVE (it registered).
        name: ``<stream>-<stream_id>``, where a stream without a name has that of its receiver's
            class or function.
        scheduled_locations: Where it may run, while SCHEDULED.
        running: Where it runs, while ACTIVE; where it last ran, otherwise.
        attempt: The attempt that was launched last, or empty.
        last_error_message: What the last error was about, or empty.
        last_error: Its traceback, or empty.
        last_error_time_ms: When it was reported, or -1.
        attempts: How many were launched.
        addresses: Where it listens, while ACTIVE.
        dropped: Records that its attempts dropped.
        dropped_before: Those of them that the attempts before the last one did.
    """

    stream_id: int
    state: ReceiverState = ReceiverState.INACTIVE
    name: str = ""
    scheduled_locations: tuple[TaskLocation, ...] = ()
    running: ExecutorLocation | None = None
    attempt: str = ""
    last_error_message: str = ""
    last_error: str = ""
    last_error_time_ms: int = NEVER
    attempts: int = 0
    addresses: tuple[str, ...] = ()
    dropped: int = 0
    dropped_before: int = 0

    def schedule(self, attempt: str, locations: tuple[TaskLocation, ...]) -> ReceiverTrackingInfo:
        """INACTIVE or SCHEDULED to SCHEDULED: a job for a new attempt is about to be submitted."""
        self._require("schedule", ReceiverState.INACTIVE, ReceiverState.SCHEDULED)
        return replace(
            self,
            state=ReceiverState.SCHEDULED,
            attempt=attempt,
            scheduled_locations=locations,
            addresses=(),
            attempts=self.attempts + 1,
            dropped_before=self.dropped,
        )

    def register(self, name: str, running: ExecutorLocation) -> ReceiverTrackingInfo:
        """To ACTIVE: the receiver registered (again, after a lost connection or its own restart).

        Only a receiver whose job was submitted can register.
        """
        if not self.attempt:
            raise IllegalStateError(f"receiver {self.stream_id} registered before it was launched")
        return replace(
            self, state=ReceiverState.ACTIVE, name=name, running=running, scheduled_locations=()
        )

    def report_error(self, message: str, error: str, time_ms: int) -> ReceiverTrackingInfo:
        """Keep an error; the state stays. Spark forgets the time here."""
        return replace(
            self, last_error_message=message, last_error=error, last_error_time_ms=time_ms
        )

    def report_dropped(self, records: int) -> ReceiverTrackingInfo:
        """Keep how many records the last attempt has dropped so far; the state stays."""
        return replace(self, dropped=max(self.dropped, self.dropped_before + records))

    def deregister(self, message: str, error: str, time_ms: int) -> ReceiverTrackingInfo:
        """ACTIVE or SCHEDULED to INACTIVE: it stopped, with an error or without."""
        self._require("deregister", ReceiverState.ACTIVE, ReceiverState.SCHEDULED)
        return replace(
            self.report_error(message, error, time_ms if error else NEVER),
            state=ReceiverState.INACTIVE,
            scheduled_locations=(),
            addresses=(),
        )

    def job_ended(self) -> ReceiverTrackingInfo:
        """To INACTIVE from any state: its job is over, whatever it said before."""
        return replace(self, state=ReceiverState.INACTIVE, scheduled_locations=(), addresses=())

    @property
    def active(self) -> bool:
        """Whether it runs."""
        return self.state is ReceiverState.ACTIVE

    @property
    def location(self) -> str:
        """The host that it runs or ran on, or empty."""
        return "" if self.running is None else self.running.host

    @property
    def executor_id(self) -> str:
        """The executor, or empty."""
        return "" if self.running is None else self.running.executor_id

    def _require(self, transition: str, *states: ReceiverState) -> None:
        if self.state not in states:
            raise IllegalStateError(
                f"receiver {self.stream_id} cannot {transition} while it is {self.state.name}"
            )


class ReceiverTrackerEvents(Protocol):
    """Notified of receivers. Called on the tracker's threads: must not block for long."""

    def receiver_started(self, info: ReceiverTrackingInfo, /) -> None:
        """A receiver registered."""

    def receiver_error(self, info: ReceiverTrackingInfo, /) -> None:
        """A receiver, or its job, had an error; it may go on."""

    def receiver_stopped(self, info: ReceiverTrackingInfo, /) -> None:
        """A receiver stopped; unless the tracker stops too, it starts again."""

    def permanent_error(self, stream_id: int, message: str, error: str, /) -> None:
        """A receiver cannot be started, however often it is tried; it is given up."""

    def continuous_error(self, stream_id: int, message: str, error: str, /) -> None:
        """A continuous stream is given up: why, and with which traceback."""

    def rate_status(self, report: ReportRateStatus, /) -> None:
        """A receiver says how its rates are used; on the control thread: must not block."""


class Listeners:
    """Calls a `ReceiverTrackerEvents`; what it raises is logged and harms no one."""

    def __init__(self, events: ReceiverTrackerEvents) -> None:
        self._events = events

    def started(self, info: ReceiverTrackingInfo) -> None:
        """A receiver registered."""
        self._call(lambda: self._events.receiver_started(info))

    def error(self, info: ReceiverTrackingInfo) -> None:
        """A receiver had an error."""
        self._call(lambda: self._events.receiver_error(info))

    def stopped(self, info: ReceiverTrackingInfo) -> None:
        """A receiver stopped."""
        self._call(lambda: self._events.receiver_stopped(info))

    def gave_up(self, stream_id: int, message: str, error: str) -> None:
        """A receiver is given up."""
        _log.error("%s; it is given up", message)
        self._call(lambda: self._events.permanent_error(stream_id, message, error))

    def ended_with_spark(self, stream_id: int, error: str) -> None:
        """A receiver's job ended with its SparkContext or the JVM; the listener asks Spark."""
        message = f"Receiver {stream_id} ended with its SparkContext"
        _log.info("%s", message)
        self._call(lambda: self._events.permanent_error(stream_id, message, error))

    def continuous_error(self, stream_id: int, message: str, error: str) -> None:
        """A continuous stream is given up."""
        self._events.continuous_error(stream_id, message, error)

    def rate_status(self, report: ReportRateStatus) -> None:
        """A receiver says how its rates are used."""
        self._events.rate_status(report)

    @staticmethod
    def _call(event: Callable[[], None]) -> None:
        try:
            event()
        except Exception:  # noqa: BLE001 - the user's code; the tracker goes on
            _log.exception("a listener failed")
