"""An attempt of a task without threads and connection, which does one thing at a time."""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from penstock.blockstore import BlockKind
from penstock.continuous import KeyedState, StatePlace, Watermark
from penstock.continuous.task import _Attempt, _Output, _Program
from penstock.continuous.timers import TimerService
from penstock.wire.messages import EndEpoch, Message


class _Nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def block_of(*batches: pa.RecordBatch) -> Any:
    """Return what a block with columns is to a task."""
    return SimpleNamespace(kind=BlockKind.ARROW, num_records=1, batches=lambda: list(batches))


class DrivenAttempt(_Attempt):
    """What a task does with blocks and ends of epochs; what fails is raised.

    Args:
        place: Where its state is.
        attempt: Its name.
        task: Its number.
        tasks: How many there are.
    """

    def __init__(
        self, place: StatePlace, attempt: str = "a" * 32, task: int = 0, tasks: int = 1
    ) -> None:
        self.place = place
        self.attempt = attempt
        self._launch: Any = SimpleNamespace(
            task=task, tasks=tasks, attempt=attempt, state=place, timeout_s=60.0
        )
        self._me = (0, task, attempt)
        self._client: Any = SimpleNamespace(send=self.told)
        self._letters = None
        self._by_place = []
        self._ahead = {}
        self._records = 0
        self._due_ms = None
        self._with = ""
        self._sink_work: Any = queue.SimpleQueue()
        nothing: Any = SimpleNamespace(timed=_Nothing)
        self._function_call = self._state_call = nothing
        self.due_ms: int | None = None

    def begin(
        self,
        function: Callable[..., Any],
        on_timer: Callable[..., Any],
        watermark: Watermark | None,
        number: int = -1,
        end: int = 0,
    ) -> None:
        """Take the state as of an epoch."""
        service = TimerService(watermark, expire=True)
        state = KeyedState(self.place, self.attempt, number, end, service)
        self.service, self.state = service, state
        self.program = _Program(
            lambda batch: function(batch, state, service.timers),
            lambda found: on_timer(found, state, service.timers),
            state,
            service,
        )

    def told(self, message: Message) -> None:
        """Take what it tells the driver."""
        self.due_ms = message.due_ms  # type: ignore[union-attr]

    def _fail(self, message: str, error: BaseException, *, permanent: bool = False) -> None:
        error.add_note(message) if hasattr(error, "add_note") else None
        raise error


class Driven:
    """A function and its timers, alone: blocks at times that a test gives, and what they make.

    Attributes:
        rows: What was made in the last epoch.
    """

    def __init__(
        self,
        folder: Path,
        function: Callable[..., Any],
        on_timer: Callable[..., Any],
        watermark: Watermark | None = None,
        key_by: str = "key",
    ) -> None:
        self.place = StatePlace(str(folder / "state.sqlite"), key_by, "none")
        self.program = (function, on_timer, watermark)
        self.number, self.end_place, self.attempts = -1, 0, 0
        self.begin()

    def begin(self) -> None:
        """Begin again after the last epoch: what was not saved is lost."""
        self.attempts += 1
        self.attempt = DrivenAttempt(self.place, f"{self.attempts:032d}")
        self.place.claim(self.attempt.attempt)
        self.attempt.begin(*self.program, self.number, self.end_place)
        self.next_place = self.end_place
        self.attempt._tell_due(self.attempt.service)

    def block(self, at_ms: int, batch: pa.RecordBatch) -> None:
        """Have the driver log take a block at a time."""
        block: Any = SimpleNamespace(
            attempt="", block_id=f"input-0-{self.next_place}", num_records=1
        )
        self.attempt._read = lambda info: block_of(batch)  # type: ignore[method-assign]
        assert self.attempt._take_work(self.attempt.program, (self.next_place, block, at_ms))
        self.next_place += 1

    def end(self, at_ms: int, *, is_logged: bool = True) -> list[dict[str, Any]]:
        """End the epoch at a time, and return what is made in it."""
        end = EndEpoch(self.number + 1, self.next_place, 1, True, at_ms)
        assert self.attempt._take_work(self.attempt.program, end)
        self.output: _Output = self.attempt._sink_work.get_nowait()
        if is_logged:
            self.number, self.end_place = end.number, end.end
        return [row for batch in self.output.parts[0] for row in batch.to_pylist()]
