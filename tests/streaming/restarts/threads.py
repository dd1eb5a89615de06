"""What the driver's threads do, without the threads: each does one thing when a test says so.

The work itself is that of the classes they are made of; only who calls it, and when, differs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.listeners.bus import StreamingListenerBus
from penstock.runtime.event_loop import EventLoop
from penstock.streaming.checkpoint.checkpointer import CheckpointWriter
from penstock.streaming.scheduler.job_generator import JobGenerator
from penstock.streaming.scheduler.job_scheduler import JobScheduler
from penstock.streaming.scheduler.recurring_timer import RecurringTimer
from tests.streaming.restarts.world import current_world

__all__ = [
    "DrivenBus",
    "DrivenGenerator",
    "DrivenLoop",
    "DrivenScheduler",
    "DrivenTimer",
    "DrivenWriter",
]

_WAIT_MS = 100
"""How far the clock goes at a time while a stop waits for it."""


class DrivenLoop(EventLoop):
    """The job generator's loop."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._waiting: deque[Callable[[], object]] = deque()

    def start(self) -> None:
        assert self._first is not None
        self._first()

    def post(self, event: Callable[[], object]) -> None:
        self._waiting.append(event)

    def has_work(self) -> bool:
        return bool(self._waiting)

    def step(self) -> None:
        try:
            self._waiting.popleft()()
        except BaseException as error:  # noqa: BLE001  # as the loop does
            self._on_error(error)

    def drain(self, timeout_s: float) -> bool:
        while self._waiting:
            self.step()
        return True

    stop = drain


class DrivenGenerator(JobGenerator):
    """The job generator; time passes while it is waited for."""

    def _wait_until(self, holds: Callable[[], bool], timeout_s: float) -> bool:
        world = current_world()
        end_s = world.clock.monotonic_s() + timeout_s
        while not holds() and not world.is_dead and world.clock.monotonic_s() < end_s:
            if self._loop.has_work():
                self._loop.step()
            elif self._scheduler.has_work() and not self._scheduler.has_room():
                self._scheduler.step()
            else:
                world.clock.wall_ms += _WAIT_MS
                world.clock.elapsed_ms += _WAIT_MS
                self._timer.poll()
        return holds()


class DrivenTimer(RecurringTimer):
    """The batch timer: calls back for all times that have come, whenever it is asked."""

    def start(self, first_ms: int) -> None:
        self._next_ms = first_ms
        self._last_tick_s = self._clock.monotonic_s()

    def poll(self) -> None:
        if self._next_ms and not self._stopping.is_set():
            self._run()


class _Jobs:
    def __init__(self) -> None:
        self.waiting: deque[Any] = deque()
        self.allowed = 0

    def put(self, job: Any) -> None:
        self.waiting.append(job)

    def bring_forward(self, place: int) -> None:
        """Let a job overtake those before it, if there is one at that place."""
        if 0 < place < len(self.waiting):
            job = self.waiting[place]
            del self.waiting[place]
            self.waiting.appendleft(job)

    def get(self) -> Any:
        """Return a job, or None, which ends the loop, when no more are allowed."""
        if not self.allowed or not self.waiting:
            return None
        self.allowed -= 1
        return self.waiting.popleft()


class DrivenScheduler(JobScheduler):
    """The scheduler: one job at a time, of those that the threads would have at that time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._at_a_time = len(self._threads)
        self._threads = []
        self._jobs = _Jobs()
        self._queue = self._jobs

    def has_work(self) -> bool:
        return bool(self._jobs.waiting)

    def step(self) -> None:
        world = current_world()
        world.point()
        if world.chance is not None:
            self._jobs.bring_forward(world.chance.randrange(self._at_a_time))
        self._jobs.allowed = 1
        self._run()
        world.point()

    def wait_until_idle(self, timeout_s: float) -> bool:
        while self.has_work() and not current_world().is_dead:
            self.step()
        return super().wait_until_idle(0)


class DrivenWriter(CheckpointWriter):
    """The writer of checkpoints."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._thread = _NoThread()

    def has_work(self) -> bool:
        return self._waiting is not None

    def step(self) -> None:
        # Told to stop, the thread writes what waits, and ends.
        self._stopping = True
        self._run()
        self._stopping = False

    def flush(self, timeout_s: float) -> bool:
        if self.has_work():
            self.step()
        return not self.has_work()

    def stop(self, timeout_s: float) -> bool:
        return self.flush(timeout_s)


class _NoThread:
    def start(self) -> None:
        """Steps are made by the test."""

    def is_alive(self) -> bool:
        return False


class DrivenBus(StreamingListenerBus):
    """Listeners are called at once."""

    def start(self) -> None:
        """Nothing waits."""

    def post(self, event: Any) -> None:
        for listener in self._listeners:
            self._call(listener, event)
