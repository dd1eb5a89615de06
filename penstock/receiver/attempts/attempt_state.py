"""The state of one attempt, what is asked of it, and when its failures are enough."""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from dataclasses import dataclass

from penstock.errors import IllegalStateError, SettingError
from penstock.receiver.exit_report import ExitReport
from penstock.receiver.splits import PositionError
from penstock.receiver.threads.workers import Wake
from penstock.wire.messages import Message


class SupervisorState(enum.Enum):
    """The states of Spark's `ReceiverSupervisor`."""

    INITIALIZED = "initialized"
    STARTED = "started"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Bounds:
    """How long the supervisor waits for what it does not control, in seconds.

    Attributes:
        user_call_s: For `onStop`, with an `onStart` that still runs, at a restart; and what they
            have at a stop at least.
        drain_s: For a stop, if the driver does not say: `onStop`, and the last blocks to be stored
            and reported.
        ask_s: For the driver to answer a registration or a deregistration.
        abandon_s: For each thing that ends by itself, and for the last blocks when no one takes
            them or the time for the stop is over.
        close_s: For the block store to close.
    """

    user_call_s: float = 5.0
    drain_s: float = 30.0
    ask_s: float = 30.0
    abandon_s: float = 2.0
    close_s: float = 15.0

    @property
    def overrun_s(self) -> float:
        """How long after the time for a stop an attempt has ended, unless something hangs."""
        return 2 * self.user_call_s + self.ask_s + self.close_s + 5 * self.abandon_s


@dataclass(frozen=True)
class RestartRequest:
    """A restart that was asked for."""

    message: str
    error: BaseException | None
    delay_ms: int
    may_grow: bool = False
    """Whether the delay is longer when the same happens again and again."""


class AttemptState:
    """What the supervisor's thread and all others share.

    One lock guards all of it. `wake` is set by every request, so that the supervisor's thread
    looks; the thread alone clears it. `stopping` is set once a stop was asked for, or the end has
    come. The states go ``INITIALIZED → STARTED → STOPPED`` and, by a restart, to ``STARTED`` again.
    """

    def __init__(self, stream_id: int) -> None:
        self.wake = Wake()
        self.stopping = threading.Event()
        self.ended = threading.Event()
        self._stream_id = stream_id
        self._lock = threading.Lock()
        self._state = SupervisorState.INITIALIZED
        self._stop: ExitReport | None = None
        self._stop_by_s: float | None = None
        self._restart: RestartRequest | None = None
        self._work: deque[Message] = deque()
        self._exit_report: ExitReport | None = None

    @property
    def state(self) -> SupervisorState:
        """The state now."""
        with self._lock:
            return self._state

    @property
    def stop(self) -> ExitReport | None:
        """The stop that was asked for."""
        with self._lock:
            return self._stop

    @property
    def stop_by_s(self) -> float | None:
        """When the stop that was asked for is to be over, on the monotonic clock."""
        with self._lock:
            return self._stop_by_s

    @property
    def restart(self) -> RestartRequest | None:
        """The restart that was asked for and is not done."""
        with self._lock:
            return self._restart

    @property
    def exit_report(self) -> ExitReport | None:
        """How the attempt ended, once it has."""
        with self._lock:
            return self._exit_report

    # -- requests --------------------------------------------------------------------------------

    def ask_stop(self, exit_report: ExitReport, timeout_s: float) -> None:
        """Leave a request to end within `timeout_s` seconds; the first one says why.

        A later one may only shorten the time.
        """
        stop_by_s = time.monotonic() + timeout_s
        with self._lock:
            if self._stop is None or self._stop_by_s is None:
                self._stop = exit_report
                self._stop_by_s = stop_by_s
            self._stop_by_s = min(self._stop_by_s, stop_by_s)
        self.stopping.set()
        self.wake.set()

    def ask_restart(self, request: RestartRequest) -> bool:
        """Leave a request to restart. False: a stop or restart is under way already."""
        with self._lock:
            if (
                self._stop is not None
                or self._restart is not None
                or self._state is not SupervisorState.STARTED
            ):
                return False
            self._restart = request
        self.wake.set()
        return True

    def add_work(self, message: Message) -> None:
        """Leave a message that the supervisor's thread is to act on."""
        with self._lock:
            self._work.append(message)
        self.wake.set()

    def take_work(self) -> Message | None:
        """Take the next such message."""
        with self._lock:
            return self._work.popleft() if self._work else None

    # -- changes of state ------------------------------------------------------------------------

    def become_started(self) -> None:
        """The receiver is about to be started; a restart that led here is done.

        Raises:
            IllegalStateError: It is started.
        """
        with self._lock:
            if self._state is SupervisorState.STARTED:
                raise IllegalStateError(f"receiver {self._stream_id} is started already")
            self._state = SupervisorState.STARTED
            self._restart = None

    def become_stopped(self) -> None:
        """The receiver is about to be stopped: its loops see `isStopped` from now on.

        Raises:
            IllegalStateError: It is not started.
        """
        with self._lock:
            if self._state is not SupervisorState.STARTED:
                raise IllegalStateError(f"receiver {self._stream_id} is not started")
            self._state = SupervisorState.STOPPED

    def become_ended(self, exit_report: ExitReport) -> None:
        """Everything is closed; from whatever state, for an attempt may fail in any.

        Raises:
            IllegalStateError: It has ended before.
        """
        with self._lock:
            if self._exit_report is not None:
                raise IllegalStateError(f"receiver {self._stream_id} has ended already")
            self._state = SupervisorState.STOPPED
            self._exit_report = exit_report
        self.stopping.set()
        self.ended.set()


_HOPELESS = (ImportError, NameError, SyntaxError, TypeError, AttributeError)
"""Before the first record these are mistakes in the program: the next start ends the same way."""
_BUGS = (*_HOPELESS, ArithmeticError, AssertionError, LookupError, ValueError)
"""What points to a mistake in the program. Anything else may come from a source that is down or
sends nonsense, for any length of time."""

_DOUBLINGS = 16


class Failures:
    """Counts bugs between which no record was stored. Used by the supervisor's thread only.

    Args:
        most: After that many bugs in a row it is enough.
        max_delay_ms: The longest pause.
    """

    def __init__(self, most: int, max_delay_ms: int) -> None:
        self._most = most
        self._max_delay_ms = max_delay_ms
        self._records = -1
        self._count = 0

    def note(self, error: BaseException, records: int) -> None:
        """Take note of a failure, after that many stored records."""
        if not isinstance(error, _BUGS):
            self._count = 0
        else:
            self._count = self._count + 1 if records == self._records else 1
        self._records = records

    @property
    def count(self) -> int:
        """How many in a row there were."""
        return self._count

    def delay_ms(self, delay_ms: int) -> int:
        """Return the pause before the next start: it doubles with each bug in a row."""
        grown = delay_ms << min(max(0, self._count - 1), _DOUBLINGS)
        return max(delay_ms, min(grown, self._max_delay_ms))

    def is_enough(self, error: BaseException, *, is_new: bool) -> bool:
        """Return whether there is no point in another start.

        Args:
            error: The last failure.
            is_new: The stream has no record yet.
        """
        if isinstance(error, SettingError) or (is_new and isinstance(error, _HOPELESS)):
            return True
        # A source that begins after the last position that was accepted gives the refused one
        # again: the second time only a change of the program helps. Others may go on with the next.
        most = min(self._most, 2) if isinstance(error, PositionError) else self._most
        return isinstance(error, _BUGS) and self._count >= most
