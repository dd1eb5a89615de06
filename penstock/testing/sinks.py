"""`sink_crash_test`: kills a sink at every step of an epoch, and checks that each record came once.

The sink runs in processes of this module, which are given the epochs; what they report of them is
what the driver would know.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import random
import signal
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pyspark import cloudpickle

from penstock._arguments import as_count
from penstock.continuous import Epoch, Sink
from penstock.testing.attempts import Attempts
from penstock.testing.crashes import ClaimNotHeldError
from penstock.testing.driver import ReceiverTestError

if TYPE_CHECKING:
    import pyarrow as pa

SINK_CRASH_POINTS = (
    "before prepare",
    "within prepare",
    "prepared",
    "before commit",
    "within commit",
    "committed",
)
"""The steps of an epoch at which a sink's process is killed; between the third and the fourth the
epoch is logged."""

_MOST_ROWS = 20
_EPOCHS = 4
"""How many epochs an attempt is given at most."""

_WITHIN_S = 0.003
_LATE = 0.3
_CALL_S = 60.0
_SHOWN = 10


@dataclass(frozen=True)
class SinkCrashReport:
    """What a crash test that found nothing did.

    Attributes:
        seed: What its choices came from.
        kills: Kills by their step.
        late: Commits of attempts that had been given up, after that of the next one.
        epochs: Epochs that were committed.
        records: Records that were checked.
    """

    seed: int
    kills: Mapping[str, int]
    late: int
    epochs: int
    records: int


def sink_crash_test(
    sink: Sink,
    read: Callable[[], Iterable[int]],
    *,
    batch: Callable[[Sequence[int]], pa.RecordBatch] | None = None,
    kills: int = 30,
    seed: int | None = None,
) -> SinkCrashReport:
    """Kill a sink again and again, and compare what it has with what it was given.

    It is pickled into a process for each attempt, as into a task. Beside the kills, commits of
    attempts that were given up come late, and once all epochs start over from 0, as another
    ledger's do.

    Args:
        sink: The sink, whose target has nothing yet.
        read: Returns the numbers that its target has, called at the end.
        batch: Makes the rows of some numbers, one a number; by default a column ``n``.
        kills: How many there should be.
        seed: Of the choices; one is drawn when None.

    Raises:
        ClaimNotHeldError: A record is missing in the sink, or twice.
        ReceiverTestError: An attempt failed, or hangs.
    """
    as_count(kills, "kills", "kills", 1)
    seed = random.randrange(1 << 32) if seed is None else seed
    # PySpark's own copy of it, as tasks have; it comes without types.
    pickled = cloudpickle.dumps((sink, batch or _column))  # type: ignore[no-untyped-call]
    with Attempts(__name__) as attempts:
        trial = _Trial(attempts, pickled, random.Random(seed))
        while trial.kills.total() < kills:
            if not trial.is_anew and trial.kills.total() >= kills // 2:
                trial.finish()
                trial.begin_anew()
            trial.attempt()
        trial.finish()
    found, expected = Counter(read()), Counter(range(trial.next_record))
    if found != expected:
        missing = tuple(sorted((expected - found).elements()))
        doubled = tuple(sorted((found - expected).elements()))
        story = tuple(trial.story[-_SHOWN:])
        raise ClaimNotHeldError("exactly once", story, missing, doubled, (), 0.0)
    return SinkCrashReport(seed, dict(trial.kills), trial.late, trial.epochs, trial.next_record)


def _column(numbers: Sequence[int]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({"n": list(numbers)})


@dataclass(frozen=True)
class _Given:
    """An epoch, and the numbers that it has."""

    number: int
    begin: int
    end: int


@dataclass(frozen=True)
class _Plan:
    """What a process is to do: these epochs, and where it is killed.

    Attributes:
        pickled: The sink, and what makes its batches.
        source: Names the epochs.
        attempt: Names the attempt.
        epochs: The epochs.
        point: A step; empty: it is not killed.
        number: The epoch at whose step it is.
        delay_s: How long after the beginning of a step within which it is.
        is_late: An attempt that was given up commits the first epoch after this one.
        done: The file in which it says what it has done.
    """

    pickled: bytes
    source: str
    attempt: str
    epochs: tuple[_Given, ...]
    point: str
    number: int
    delay_s: float
    is_late: bool
    done: str


class _Trial:
    """What a driver would know of a sink's epochs, and what was done to it."""

    def __init__(self, attempts: Attempts, pickled: bytes, chance: random.Random) -> None:
        self._attempts = attempts
        self._pickled = pickled
        self._chance = chance
        self._source = self._name()
        self._number = 0  # The next epoch.
        self._logged: _Given | None = None  # The next one, if it was logged.
        self.is_anew = False
        self.next_record = self.late = self.epochs = 0
        self.kills: Counter[str] = Counter()
        self.story: list[str] = []

    def begin_anew(self) -> None:
        """Begin with other epochs, as a program with another ledger does."""
        self._source, self._number, self.is_anew = self._name(), 0, True
        self.story.append("another ledger, whose epochs begin at 0")

    def finish(self) -> None:
        """Run an attempt that is not killed."""
        self._run("")

    def attempt(self) -> None:
        """Run an attempt that is killed at some step, if it comes to it."""
        self._run(self._chance.choice(SINK_CRASH_POINTS))

    def _name(self) -> str:
        return f"{self._chance.getrandbits(128):032x}"

    def _run(self, point: str) -> None:
        chance = self._chance
        epochs = [] if self._logged is None else [self._logged]
        while len(epochs) < _EPOCHS:
            begin = epochs[-1].end if epochs else self.next_record
            end = begin + chance.randint(1, _MOST_ROWS)
            epochs.append(_Given(self._number + len(epochs), begin, end))
        with tempfile.NamedTemporaryFile() as done:
            plan = _Plan(
                self._pickled,
                self._source,
                self._name(),
                tuple(epochs),
                point,
                chance.choice(epochs).number,
                chance.uniform(0, _WITHIN_S),
                chance.random() < _LATE,
                done.name,
            )
            with self._attempts.attempt(plan) as attempt:
                if not attempt.has_ended(_CALL_S):
                    raise ReceiverTestError(f"the sink did not return within {_CALL_S:g} s")
                was_killed = attempt.was_killed(bool(point))
            lines = done.read().decode().splitlines()
        given = {epoch.number: epoch for epoch in epochs}
        for line in lines:
            what, _, number = line.partition(" ")
            epoch = given[int(number)]
            if what == "prepared":
                self._logged, self._number = epoch, epoch.number
            elif what == "committed":
                self._logged, self._number = None, epoch.number + 1
                self.next_record = epoch.end
                self.epochs += 1
            else:
                self.late += 1
                self.story.append(f"a late commit of epoch {number} of {self._source[:8]}")
        if was_killed:
            self.kills[point] += 1
            self.story.append(f"killed {point!r} of epoch {plan.number} of {self._source[:8]}")


class _Process:
    """Runs a plan, in a process of its own."""

    def __init__(self, plan: _Plan) -> None:
        self._plan = plan
        self._done = os.open(plan.done, os.O_WRONLY | os.O_APPEND)

    def run(self) -> None:
        plan = self._plan
        sink, batch = self._opened()
        given_up = self._opened()[0] if plan.is_late else None
        for epoch in plan.epochs:
            part = Epoch(plan.source, epoch.number, 0, plan.attempt)
            batches = [batch([number]) for number in range(epoch.begin, epoch.end)]
            old = Epoch(plan.source, epoch.number, 0, plan.attempt[::-1])
            if given_up is not None:
                # Its files may be gone with the next attempt; it may fail, and do no harm.
                with contextlib.suppress(Exception):
                    given_up.prepare(old, batches)
            self._step("prepare", epoch.number, partial(sink.prepare, part, batches))
            self._say("prepared", epoch.number)
            self._step("commit", epoch.number, partial(sink.commit, part, batches))
            self._say("committed", epoch.number)
            if given_up is not None:
                with contextlib.suppress(Exception):
                    given_up.commit(old, batches)
                self._say("late", epoch.number)
                with contextlib.suppress(Exception):
                    given_up.close()
                given_up = None
        sink.close()

    def _opened(self) -> tuple[Sink, Callable[[Sequence[int]], pa.RecordBatch]]:
        sink, batch = pickle.loads(self._plan.pickled)
        sink.open(self._plan.source, 0)
        return sink, batch

    def _step(self, what: str, number: int, call: Callable[[], None]) -> None:
        points = f"before {what}", f"within {what}", {"prepare": "prepared"}.get(what, "committed")
        at = self._plan.point if number == self._plan.number else ""
        if at == points[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        if at == points[1]:
            threading.Timer(
                self._plan.delay_s, lambda: os.kill(os.getpid(), signal.SIGKILL)
            ).start()
        call()
        if at in points[1:]:
            os.kill(os.getpid(), signal.SIGKILL)

    def _say(self, what: str, number: int) -> None:
        os.write(self._done, f"{what} {number}\n".encode())


def main() -> None:
    """Run the attempt whose plan is on standard input."""
    _Process(pickle.load(sys.stdin.buffer)).run()
