"""One start of a receiver: its door into the block generator, and its view of the supervisor."""

from __future__ import annotations

import enum
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from typing import Any, NoReturn, Protocol

from penstock.errors import IllegalStateError

_STEP_S = 1.0


class ReceiverStoppedError(IllegalStateError):
    """A record came too late: its receiver stops, or was started again since.

    It was not stored, or of many records not all. `Receiver.isStopped` is true in the thread that
    got this.
    """


class DoorState(enum.Enum):
    """What a door takes."""

    OPEN = "open"
    HELD = "held"
    """Data with an acknowledgement waits until it is known whether the door opens again."""
    DRAINED = "drained"
    """Data with an acknowledgement is refused; what has none is taken."""
    CLOSED = "closed"


class StoreDoor:
    """What one start of a receiver stores through; each start has its own.

    So the threads of an earlier start find a closed door, whatever the receiver does by then, and a
    stop can make durable and acknowledge what was taken before the receiver hears of the stop.

    `_changed` guards the state and the calls inside. The generator makes the door and closes it.

    Attributes:
        store: See `penstock.receiver.Receiver.store`; an attribute, so that a receiver can bind it.
        store_at_once: As `store`; records that wait in an intake do not go before these.
        store_from: See `penstock.receiver.Receiver.storeFrom`.
        discard: See `penstock.receiver.Receiver.discard`.
        shut: Makes the fast path of `store` look whether it came too late.
        acknowledged: Be inside with data that has an acknowledgement; entering waits while the door
            is held, and raises `ReceiverStoppedError` when such data is not taken any more.
        late: Notified of each use after it was closed, in the thread that uses it.
        drop_lease: Takes its permits from `store`; returns how many there were.
    """

    def __init__(self, stream_id: int) -> None:
        self.store: Callable[..., None]
        self.store_at_once: Callable[..., None]
        self.store_from: Callable[..., None]
        self.discard: Callable[..., None]
        self.shut: Callable[[], None]
        self.drop_lease: Callable[[], int]
        self.late: Callable[[], None] = lambda: None
        self._stream_id = stream_id
        self._changed = threading.Condition(threading.Lock())
        self._state = DoorState.OPEN
        self._inside = 0
        self._waiting = 0
        self._was_acknowledged = False
        self.acknowledged = _Inside(self._enter, self._leave)

    @property
    def state(self) -> DoorState:
        """The state now."""
        return self._state

    @property
    def was_acknowledged(self) -> bool:
        """Whether anything came with an acknowledgement."""
        return self._was_acknowledged

    @property
    def has_waiting(self) -> bool:
        """Whether a thread waits with data that has an acknowledgement."""
        return self._waiting > 0

    def check(self) -> None:
        """Raise unless the door takes data without an acknowledgement.

        Raises:
            ReceiverStoppedError: It is closed.
        """
        if self._state is DoorState.CLOSED:
            self.late()
            raise ReceiverStoppedError(
                f"receiver {self._stream_id} has stopped, or was started again: this is a thread "
                "of a start that is over; end it when isStopped() turns true"
            )

    @property
    def is_stopping(self) -> bool:
        """Whether the receiver is to stop, so that no one should wait for long in `store`."""
        return self._state in (DoorState.DRAINED, DoorState.CLOSED)

    def refuse_waiting(self) -> NoReturn:
        """Raise in a thread that would wait in `store` until the stop gives it up."""
        raise ReceiverStoppedError(
            f"receiver {self._stream_id} stops while its stream is paused, or its rates let "
            "nothing pass soon: not all of this is stored"
        )

    def _enter(self) -> None:
        with self._changed:
            self._was_acknowledged = True
            self._waiting += 1
            try:
                while self._state is DoorState.HELD:
                    self._changed.wait(_STEP_S)
            finally:
                self._waiting -= 1
            self.check()
            if self._state is DoorState.DRAINED:
                raise ReceiverStoppedError(
                    f"receiver {self._stream_id} stops: all that was taken is acknowledged, and "
                    "nothing more is; the source gives this again"
                )
            self._inside += 1

    def _leave(self) -> None:
        with self._changed:
            self._inside -= 1
            if self._state is not DoorState.OPEN:
                self._changed.notify_all()

    def hold(self, left_s: Callable[[], float]) -> bool:
        """Let data with an acknowledgement wait; then wait for what is inside.

        Returns:
            Whether nothing is inside; False when `left_s` seconds were over first.
        """
        with self._changed:
            if self._state is DoorState.OPEN:
                self._state = DoorState.HELD
            while self._inside and left_s() > 0:
                self._changed.wait(min(_STEP_S, left_s()))
            return not self._inside

    def refuse_acknowledged(self) -> None:
        """Refuse data with an acknowledgement, also that which waits."""
        with self._changed:
            if self._state is not DoorState.CLOSED:
                self._state = DoorState.DRAINED
            self._changed.notify_all()

    def close(self) -> None:
        """Take nothing any more. May be called again."""
        with self._changed:
            self._state = DoorState.CLOSED
            self._changed.notify_all()
        self.shut()


class _Inside(AbstractContextManager[None]):
    """A `with` that costs little; from any thread."""

    __slots__ = ("_enter", "_leave")

    def __init__(self, enter: Callable[[], None], leave: Callable[[], None]) -> None:
        self._enter = enter
        self._leave = leave

    def __enter__(self) -> None:
        self._enter()

    def __exit__(self, *error: object) -> None:
        self._leave()


def acknowledge_nothing() -> None:
    """As an `ack`, make `store` of many records return without waiting until they are durable."""


def withdraw(pending: list[Any], record: Any) -> bool:
    """Take back a record from those that wait to enter a block; False: it is in one."""
    for index in range(len(pending) - 1, -1, -1):
        if pending[index] is record:
            del pending[index]
            return True
    return False


class RunningCall(Protocol):
    """A function of the author's that runs, in a thread (`UserCall`) or on a loop."""

    def join(self, timeout_s: float) -> bool: ...
    def blocked_at(self) -> str: ...


class AsyncSources(Protocol):
    """What runs the async sources of a process; explained in `SourceLoop`."""

    def begin(
        self, stream_id: int, work: Coroutine[Any, Any, Any], on_end: Callable[[Any], object]
    ) -> RunningCall: ...
    def lane(self, name: str, stream_id: int) -> Executor: ...
    def left(self, stream_id: int) -> list[str]: ...


class Supervision(Protocol):
    """What a start asks of `ReceiverSupervisor`, where it is explained.

    Attributes:
        sources: Runs async sources, if this process has a loop for all of them.
    """

    sources: AsyncSources | None

    def restart(self, message: str, error: BaseException | None, delay_ms: int | None) -> None: ...
    def stop(self, message: str, error: BaseException | None) -> None: ...
    def finish(self, message: str) -> None: ...
    def report_error(self, message: str, error: BaseException | None) -> None: ...
    def listening(self, addresses: tuple[str, ...]) -> None: ...
    def seal(self) -> None: ...
    def is_started(self) -> bool: ...
    def is_stopped(self) -> bool: ...
    def on_stop_left_s(self) -> float: ...


class Start:
    """What a receiver asks of the supervisor that runs it, in one start.

    When the start is over its door is closed. From then on it stores nothing, is stopped, and asks
    for nothing: the threads that still have it are of the past.
    """

    def __init__(self, supervisor: Supervision, door: StoreDoor) -> None:
        self.door = door
        self.sources = supervisor.sources
        self._supervisor = supervisor

    def store(
        self,
        data: Any,
        position: Any = None,
        ack: Callable[[], None] | None = None,
        framing: Any = None,
    ) -> None:
        self.door.store(data, position, ack, framing)

    def store_from(self, readinto: Callable[[memoryview], int], framing: Any) -> None:
        self.door.store_from(readinto, framing)

    def discard(
        self,
        data: bytes,
        reason: str | Exception,
        position: Any = None,
        ack: Callable[[], None] | None = None,
    ) -> None:
        self.door.discard(data, reason, position, ack)

    def restart(
        self, message: str, error: BaseException | None = None, delay_ms: int | None = None
    ) -> None:
        if not self._is_over():
            self._supervisor.restart(message, error, delay_ms)

    def stop(self, message: str, error: BaseException | None = None) -> None:
        if not self._is_over():
            self._supervisor.stop(message, error)

    def finish(self, message: str) -> None:
        if not self._is_over():
            self._supervisor.finish(message)

    def report_error(self, message: str, error: BaseException | None = None) -> None:
        self._supervisor.report_error(message, error)

    def listening(self, addresses: tuple[str, ...]) -> None:
        if not self._is_over():
            self._supervisor.listening(addresses)

    def seal(self) -> None:
        self._supervisor.seal()

    def is_started(self) -> bool:
        return not self._is_over() and self._supervisor.is_started()

    def is_stopped(self) -> bool:
        return self._is_over() or self._supervisor.is_stopped()

    def on_stop_left_s(self) -> float:
        return self._supervisor.on_stop_left_s()

    def _is_over(self) -> bool:
        if self.door.state is not DoorState.CLOSED:
            return False
        self.door.late()
        return True


class EarlierStarts:
    """The threads of a receiver's earlier starts, and those that still use its object.

    Args:
        stream_id: The stream.
        report: Reports to the driver.
        fail: Ends the attempt.
    """

    def __init__(
        self, stream_id: int, report: Callable[[str], None], fail: Callable[[str], None]
    ) -> None:
        self._stream_id = stream_id
        self._report = report
        self._fail = fail
        self._before_start: frozenset[threading.Thread] = frozenset()
        self._threads: frozenset[threading.Thread] = frozenset()
        self._refused: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._was_told = False

    def __contains__(self, thread: threading.Thread | None) -> bool:
        return thread in self._threads

    def note_start(self, threads: frozenset[threading.Thread]) -> None:
        """Remember which threads there are before `onStart`."""
        self._before_start = threads

    def note_restart(self, threads: frozenset[threading.Thread]) -> None:
        """Remember which threads there are when a start is over."""
        self._threads = threads
        self._was_told = False

    def has_left_threads(self) -> bool:
        """Return whether the last start left threads behind, which keep its object."""
        return bool(self._threads - self._before_start)

    def used_late(self, thread: threading.Thread) -> None:
        """Take note that a thread uses the object of a start that is over.

        A thread of that start may, once; it is of the past, and the error that it gets ends it. One
        that comes again is a client's, which keeps its thread and swallows the error: all that it
        gives is refused. One that was begun since shows that the object of this start refers to
        the old one, by a callback that was made in `__init__` for example: then nothing that it
        gives is stored. In another attempt there is one object only.
        """
        if thread not in self._threads:
            self._fail(
                f"Receiver {self._stream_id} calls its object of before the last restart in the "
                f"thread {thread.name}: a restart whose onStop leaves threads behind "
                "starts a copy, and something in it still refers to the old one. Let onStop end "
                "all threads, or make callbacks and what holds `self` in onStart"
            )
        elif thread not in self._refused:
            self._refused.add(thread)
        elif not self._was_told:
            self._was_told = True
            self._report(
                f"The thread {thread.name} of receiver {self._stream_id} is of before its last "
                "restart and goes on storing: each such call raises ReceiverStoppedError, and its "
                "records are not stored. Let onStop close the client that owns the thread and wait "
                "for the thread's end, and onStart make a new client"
            )
