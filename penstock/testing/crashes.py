"""`crash_test`: kills a receiver at every step of a record's way, and checks what it claims."""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from penstock._arguments import refused
from penstock.errors import PenstockError
from penstock.testing.attempts import Attempts
from penstock.testing.driver import ReceiverTestError, TestDriver
from penstock.wire.messages import RestartReceiver

CRASH_POINTS = (
    "before store",
    "stored",
    "sealed",
    "appended",
    "synced",
    "before report",
    "reported",
    "before acknowledgement",
    "acknowledged",
)
"""The steps of a record's way, in their order. ``appended``: written, which is not known yet."""

Claim = Literal["at least once", "exactly once"]
Kill = tuple[str, int]
"""A step, and which time there is the end; or `STOPPED`, and after how many records each."""

STOPPED = "stopped"
"""In the place of a step: the receiver is restarted in its process, and stopped gracefully."""

_SHOWN = 10
_MOST_TIMES = 4
_MOST_BARREN = 10
"""Rounds one after the other in which no step was reached."""
_STOP_S = 120.0
_LOOK_S = 0.05
_AFTER_S = 0.5
_START_S = 300.0


class Source(Protocol):
    """What a crash test asks of a source, a user's double or a handle of a real server."""

    def expected(self) -> Iterable[Any]:
        """Return the records that it gives in all, as they are stored."""
        ...


S = TypeVar("S", bound=Source)


class ClaimNotHeldError(PenstockError, AssertionError):
    """A receiver does not do what is claimed of it.

    Attributes:
        claim: What was claimed.
        kills: The fewest kills that were found to show it: each step, and which time at it.
        missing: Records that were lost.
        doubled: Records that came more often than the source gave them.
        errors: What the receiver reported meanwhile, each once.
    """

    def __init__(
        self,
        claim: str,
        kills: tuple[str, ...],
        missing: tuple[object, ...],
        doubled: tuple[object, ...],
        errors: tuple[str, ...],
        idle_s: float,
    ) -> None:
        wrong = [
            f"{len(records)} {what}: {', '.join(map(repr, records[:_SHOWN]))}"
            + (" …" if len(records) > _SHOWN else "")
            for what, records in (("missing", missing), ("doubled", doubled))
            if records
        ]
        super().__init__(
            f"the claim {claim!r} does not hold: {'; '.join(wrong)}\n  "
            + "\n  ".join(kills or ["without a kill"])
            + f"\n  then it ran until all had come, or nothing for {idle_s:g} s"
            + "".join(f"\nit reported: {error.splitlines()[0]}" for error in errors[:_SHOWN])
        )
        self.claim = claim
        self.kills = kills
        self.missing = missing
        self.doubled = doubled
        self.errors = errors


@dataclass(frozen=True)
class CrashReport:
    """What a crash test that found nothing did.

    Attributes:
        seed: What its choices came from.
        rounds: Sources that were read to their end.
        kills: Kills by their step.
        stops: Attempts that were restarted in their process and stopped gracefully.
        records: Records that were checked.
        doubled: Records that came more than once, where the claim allows it.
    """

    seed: int
    rounds: int
    kills: Mapping[str, int]
    stops: int
    records: int
    doubled: int


def crash_test(
    make_receiver: Callable[[S], object],
    source: Callable[[], AbstractContextManager[S]],
    *,
    claim: Claim,
    kills: int = 27,
    seed: int | None = None,
    settings: Mapping[str, object] | None = None,
    idle_s: float = 10.0,
) -> CrashReport:
    """Kill a receiver again and again, let it end its work, and compare with what its source gave.

    Each round has a source of its own, up to three kills, and a last attempt that is not killed.
    The steps of `CRASH_POINTS` are drawn, each at the first or a later time that an attempt comes
    to it. A step that an attempt does not come to, since the source has ended, is no kill and is
    not counted. In the first round and every second one after it an attempt more is restarted in
    its process as soon as it has stored some records, and stopped gracefully after some more.

    Args:
        make_receiver: Makes the receiver of a source; called for each attempt.
        source: Opens a new source with the same records.
        claim: ``"at least once"``: nothing is missing; ``"exactly once"``: nor comes twice.
        kills: How many there should be.
        seed: Of the choices; one is drawn when None. The report has it, and a failure's kills.
        settings: Settings of the receiver, by their keys.
        idle_s: An attempt that nothing comes from for that long is taken to have all there is.

    Raises:
        PenstockError: An argument is not accepted.
        ClaimNotHeldError: With the fewest kills that show it.
        ReceiverTestError: An attempt failed, or did not end when it was stopped.
    """
    if claim not in ("at least once", "exactly once"):
        raise PenstockError(f"a claim is 'at least once' or 'exactly once', and not {claim!r}")
    numbers: dict[str, object] = {"kills": kills, "idle_s": idle_s}
    for name, given in numbers.items():
        if not isinstance(given, (int, float)) or not given > 0:
            raise PenstockError(refused(name, given, "a number above 0"))
    seed = random.randrange(1 << 32) if seed is None else seed
    chance = random.Random(seed)
    done: Counter[str] = Counter()
    rounds = stops = records = doubled = barren = 0
    points = list(CRASH_POINTS)
    with Attempts("penstock.testing.child") as attempts:
        trial = _Trial(attempts, make_receiver, source, settings or {}, idle_s)
        while done.total() < kills:
            chance.shuffle(points)
            # Where little is stored, or late, a step is reached less often, and after a wait.
            most, trial.patience = max(1, _MOST_TIMES - barren), 1 + barren
            plan = [(point, chance.randint(1, most)) for point in points[: chance.randint(1, 3)]]
            if rounds % 2 == 0:
                plan.insert(chance.randint(0, len(plan)), (STOPPED, chance.randint(1, _MOST_TIMES)))
            outcome = trial.run(plan)
            if outcome.breaks(claim):
                plan, outcome = _shortest(trial, claim, plan, outcome)
                wrong = tuple(outcome.missing), tuple(outcome.doubled)
                raise ClaimNotHeldError(claim, outcome.story, *wrong, outcome.errors, idle_s)
            barren = 0 if outcome.kills else barren + 1
            if barren > _MOST_BARREN:
                raise ReceiverTestError(
                    "the receiver comes to no step of a record's way: does its source give records?"
                )
            done.update(outcome.kills)
            rounds += 1
            stops += sum(point == STOPPED for point, _ in plan)
            records += outcome.records
            doubled += len(outcome.doubled)
    return CrashReport(seed, rounds, dict(done), stops, records, doubled)


def _told(kill: Kill, was_killed: bool) -> str:
    point, times = kill
    if point == STOPPED:
        return f"restarted, and stopped gracefully, after {times} records or more each time"
    if was_killed:
        return f"killed at {point!r}, the time no. {times}"
    return f"stopped gracefully when nothing more came, before {point!r} for the time no. {times}"


@dataclass(frozen=True)
class _Outcome:
    story: tuple[str, ...]
    kills: list[str]
    records: int
    missing: list[Any]
    doubled: list[Any]
    errors: tuple[str, ...]

    def breaks(self, claim: str) -> bool:
        return bool(self.missing or (self.doubled and claim == "exactly once"))


def _shortest(
    trial: _Trial[Any], claim: str, plan: list[Kill], outcome: _Outcome
) -> tuple[list[Kill], _Outcome]:
    """Leave out one kill after the other, and try earlier times, as long as it still breaks."""
    smaller = [plan[:at] + plan[at + 1 :] for at in range(len(plan))]
    smaller += [[*plan[:at], (plan[at][0], 1), *plan[at + 1 :]] for at in range(len(plan))]
    for tried in smaller:
        if tried != plan and (found := trial.run(tried)).breaks(claim):
            return _shortest(trial, claim, tried, found)
    return plan, outcome


class _Trial(Generic[S]):
    """Runs rounds: a source, some kills, and an attempt that stores what is left.

    Attributes:
        patience: How many times as long as usual an attempt waits for more.
    """

    def __init__(
        self,
        attempts: Attempts,
        make_receiver: Callable[[S], object],
        source: Callable[[], AbstractContextManager[S]],
        settings: Mapping[str, object],
        idle_s: float,
    ) -> None:
        self._attempts = attempts
        self._make_receiver = make_receiver
        self._source = source
        self._settings = {"spark.streaming.receiverRestartDelay": "100", **settings}
        self._idle_s = idle_s
        self.patience = 1

    def run(self, plan: list[Kill]) -> _Outcome:
        with tempfile.TemporaryDirectory() as folder, self._source() as source:
            driver = TestDriver(Path(folder), self._settings)
            try:
                was_killed = [self._attempt(driver, source, kill) for kill in plan]
                self._attempt(driver, source, ("", 0))
                found = driver.records()
            finally:
                driver.close()
            expected = list(source.expected())
        missing, doubled = _more_of(expected, found), _more_of(found, expected)
        errors = tuple(dict.fromkeys(driver.errors))
        story = tuple(map(_told, plan, was_killed))
        kills = [point for (point, _), was in zip(plan, was_killed, strict=True) if was]
        return _Outcome(story, kills, len(found), missing, doubled, errors)

    def _attempt(self, driver: TestDriver, source: S, kill: Kill) -> bool:
        """Run an attempt until it is killed, or has stored all; return whether it was killed."""
        launch, starts = driver.launch(self._make_receiver(source)), driver.starts
        with self._attempts.attempt((launch, *kill)) as attempt:
            _await_start(driver, starts, attempt.has_ended)
            self._await_end(driver, source, attempt.has_ended, kill)
            driver.stop(attempt.has_ended, _STOP_S)
            was_killed = attempt.was_killed(kill[0] in CRASH_POINTS)
        if driver.failed_for_good is not None:
            raise ReceiverTestError(f"the receiver cannot work: {driver.failed_for_good}")
        return was_killed

    def _await_end(
        self, driver: TestDriver, source: S, has_ended: Callable[[float], bool], kill: Kill
    ) -> None:
        """Wait until the child has ended or is to stop, all came, or none came for a long time."""
        point, more = kill
        act_at, is_to_restart = driver.count + more if point == STOPPED else math.inf, True
        # Looks and not the clock: where neither process gets its turn, nothing is over yet.
        count, idle_looks, has_all = -1, 0, False
        while not has_ended(_LOOK_S):
            seen, count = count, driver.count
            idle_looks += 1
            if count != seen:
                idle_looks = 0
                expected = list(source.expected())
                has_all = count >= len(expected) and not _more_of(expected, driver.records())
            if count >= act_at:
                if not is_to_restart:
                    return
                starts, act_at, is_to_restart = driver.starts, count + more, False
                driver.send(RestartReceiver("the crash test restarts it"))
                _await_start(driver, starts, has_ended)
                idle_looks = 0
            # What comes twice, and the acknowledgements, come after all there is.
            if idle_looks * _LOOK_S > self.patience * (_AFTER_S if has_all else self._idle_s):
                return


def _await_start(driver: TestDriver, starts: int, has_ended: Callable[[float], bool]) -> None:
    """Wait until the receiver has started more than this often, or its process has ended."""
    end_s = time.monotonic() + _START_S
    while driver.starts == starts and not has_ended(_LOOK_S):
        if time.monotonic() > end_s:
            raise ReceiverTestError(f"the receiver did not start within {_START_S:g} s")


def _more_of(records: list[Any], others: list[Any]) -> list[Any]:
    """Return what is more often among records than among others."""
    # By what they are, as not all records can be hashed.
    by_name = {_name(record): record for record in records}
    more = Counter(map(_name, records)) - Counter(map(_name, others))
    return [by_name[name] for name in more.elements()]


def _name(record: Any) -> str:
    """Return what is the same of two records that are the same."""
    if type(record) is dict:  # Whatever the order of its fields.
        parts = sorted((repr(key), _name(value)) for key, value in record.items())
        return f"{{{', '.join(f'{key}: {value}' for key, value in parts)}}}"
    shown: object = type(record).__repr__
    if shown is object.__repr__:  # It would show where in memory it is.
        return f"{type(record).__qualname__} {_name(getattr(record, '__dict__', {}))}"
    return repr(record)
