"""Timers, watermarks and late records of one task, with a clock that the test drives."""

from __future__ import annotations

import importlib.util
import json
import pickle
import random
import sqlite3
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.continuous import (
    ContinuousOperation,
    ExpiredTimers,
    FunctionSink,
    KeyedState,
    StateError,
    Timers,
    Watermark,
)
from penstock.continuous import timers as timers_module
from penstock.continuous.task import ContinuousTaskError
from penstock.continuous.timers import NO_WATERMARK, TimerService
from tests.continuous.driven import Driven

EXAMPLES = Path(__file__).parents[2] / "examples"
NOW_MS = 1_700_000_000_000


def rows(*keys: Any, **columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"key": list(keys), **columns})


def timed(*times_ms: int | None, unit: str = "ms", source: Any = None) -> pa.RecordBatch:
    factor = {"s": 1 / 1000, "ms": 1, "us": 1000, "ns": 1_000_000}[unit]
    times = [None if at is None else int(at * factor) for at in times_ms]
    at = pa.array(times, pa.timestamp(unit, "UTC"))
    return rows(*[1] * len(times), at=at, source=[source] * len(times))


def tell(found: ExpiredTimers, state: KeyedState, timers: Timers) -> pa.RecordBatch:
    domain = "event" if found.is_event_time else "processing"
    return pa.RecordBatch.from_pylist(
        [{"domain": domain, "at": found.time_ms, "keys": repr(found.keys)}]
    )


def told(made: list[dict[str, Any]]) -> list[tuple[str, int, list[Any]]]:
    import ast

    return [(row["domain"], row["at"], ast.literal_eval(row["keys"])) for row in made]


class Program:
    """A function that does what a test says next."""

    def __init__(self) -> None:
        self.next: Callable[[Timers], object] = lambda timers: None
        self.given: list[list[Any]] = []

    def __call__(self, batch: pa.RecordBatch, state: KeyedState, timers: Timers) -> None:
        self.given.append(batch["key"].to_pylist())
        self.next(timers)


@pytest.fixture
def program() -> Program:
    return Program()


def test_a_timer_of_processing_time_expires_before_a_block_that_came_later(
    tmp_path: Path, program: Program
) -> None:
    driven = Driven(tmp_path, program, tell)
    program.next = lambda timers: timers.processing_time.register(
        "k", timers.processing_time.now_ms + 100
    )
    driven.block(NOW_MS, rows(1))
    driven.block(NOW_MS + 99, rows(1))
    assert driven.attempt._by_place == []
    program.next = lambda timers: None
    driven.block(NOW_MS + 100, rows(1))
    assert told(driven.end(NOW_MS + 150)) == [("processing", NOW_MS + 100, ["k"])]
    assert driven.attempt.due_ms == NOW_MS + 199
    assert told(driven.end(NOW_MS + 198)) == []
    assert told(driven.end(NOW_MS + 199)) == [("processing", NOW_MS + 199, ["k"])]
    assert driven.attempt.due_ms is None


def test_there_is_one_timer_of_a_domain_key_and_time(tmp_path: Path, program: Program) -> None:
    driven = Driven(tmp_path, program, tell, Watermark("at", 0))

    def register(timers: Timers) -> None:
        for key in (1, "1", b"1", 1):
            for _ in range(3):
                timers.processing_time.register(key, NOW_MS + 5)
                timers.event_time.register(key, NOW_MS + 5)

    program.next = register
    for _ in range(2):
        driven.block(NOW_MS, timed(NOW_MS))
        assert driven.end(NOW_MS) == []
    program.next = lambda timers: None
    driven.block(NOW_MS + 4, timed(NOW_MS + 5))
    found = told(driven.end(NOW_MS + 5))
    assert [(domain, at, sorted(keys, key=repr)) for domain, at, keys in found] == [
        ("event", NOW_MS + 5, ["1", 1, b"1"]),
        ("processing", NOW_MS + 5, ["1", 1, b"1"]),
    ]
    assert driven.end(NOW_MS + 1000) == []


def test_a_timer_that_is_deleted_does_not_expire(tmp_path: Path, program: Program) -> None:
    driven = Driven(tmp_path, program, tell)
    soon = NOW_MS + 5

    def of(*names: str) -> Callable[[Timers], None]:
        def call(timers: Timers) -> None:
            for name in names:
                getattr(timers.processing_time, name)("k", soon)

        return call

    for saved in (False, True):
        for calls, expire in (
            (("register", "delete"), 0),
            (("delete", "register"), 1),
            (("register", "delete", "register"), 1),
            (("delete",), 0),
        ):
            soon += 10
            if saved:
                program.next = of("register")
                driven.block(soon - 9, rows(1))
                driven.end(soon - 9)
            program.next = of(*calls)
            driven.block(soon - 8, rows(1))
            program.next = lambda timers: None
            assert len(driven.end(soon)) == expire, (saved, calls)
            assert driven.attempt.due_ms is None
            assert driven.end(soon + 1) == []


def test_the_earlier_come_first_and_what_has_passed_waits_for_the_next_moment(
    tmp_path: Path, program: Program
) -> None:
    """A timer that registers itself for a time that has passed would else never let go."""
    again: list[int] = [0, 10, 20, 30, -5]

    def expire(found: ExpiredTimers, state: KeyedState, timers: Timers) -> pa.RecordBatch:
        if again:
            timers.processing_time.register("k", NOW_MS + again.pop())
        return tell(found, state, timers)

    driven = Driven(tmp_path, program, expire)

    def register(timers: Timers) -> None:
        for late in (25, 15, 5):
            timers.processing_time.register("k", NOW_MS + late)

    program.next = register
    driven.block(NOW_MS, rows(1))
    seen = []
    while True:
        seen.append([at - NOW_MS for _, at, _ in told(driven.end(NOW_MS + 40))])
        if driven.attempt.due_ms is None:
            break
        assert driven.attempt.due_ms <= NOW_MS + 40
    assert seen == [[5, 15, 25, 30], [-5, 0, 10, 20]]


@pytest.mark.parametrize("domain", ["event_time", "processing_time"])
def test_what_is_too_much_for_an_epoch_is_due_at_once(
    tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch, domain: str
) -> None:
    monkeypatch.setattr(timers_module, "MOST_EXPIRED", 2)
    driven = Driven(tmp_path, program, tell, Watermark("at", 0))

    def register(timers: Timers) -> None:
        for key in range(8):
            getattr(timers, domain).register(key, NOW_MS + 10)

    def delete(timers: Timers) -> None:
        for key in (0, 1, 2):
            getattr(timers, domain).delete(key, NOW_MS + 10)

    program.next = register
    driven.block(NOW_MS, timed(NOW_MS))
    assert driven.end(NOW_MS) == []
    program.next = delete
    driven.block(NOW_MS + 9, timed(NOW_MS + 9))
    program.next = lambda timers: None
    driven.block(NOW_MS + 10, timed(NOW_MS + 10))
    for keys in ([3, 4], [5, 6], [7]):
        ((_, _, found),) = told(driven.end(NOW_MS + 10))
        assert found == keys
        assert driven.attempt.due_ms == (None if keys == [7] else NOW_MS + 10)


def test_a_timer_that_registers_itself_again_expires_once_each_time(
    tmp_path: Path, program: Program
) -> None:
    def again(found: ExpiredTimers, state: KeyedState, timers: Timers) -> pa.RecordBatch:
        timers.processing_time.register("k", found.time_ms)
        return tell(found, state, timers)

    driven = Driven(tmp_path, program, again)
    program.next = lambda timers: timers.processing_time.register("k", NOW_MS)
    driven.block(NOW_MS, rows(1))
    for _ in range(3):
        assert told(driven.end(NOW_MS)) == [("processing", NOW_MS, ["k"])]
        assert driven.attempt.due_ms == NOW_MS


def test_what_has_passed_expires_at_the_next_block_of_the_epoch_already(
    tmp_path: Path, program: Program
) -> None:
    again = [NOW_MS - 5]

    def expire(found: ExpiredTimers, state: KeyedState, timers: Timers) -> pa.RecordBatch:
        if again:
            timers.processing_time.register("again", again.pop())
        return tell(found, state, timers)

    driven = Driven(tmp_path, program, expire)
    program.next = lambda timers: timers.processing_time.register("k", NOW_MS)
    driven.block(NOW_MS, rows(1))
    program.next = lambda timers: None
    for number in (1, 2):
        driven.block(NOW_MS, rows(1))
        assert len(driven.attempt._by_place) == number
    assert told(driven.end(NOW_MS)) == [
        ("processing", NOW_MS, ["k"]),
        ("processing", NOW_MS - 5, ["again"]),
    ]


def test_a_watermark_beyond_what_a_column_can_have_makes_all_of_it_late(
    tmp_path: Path, program: Program
) -> None:
    driven = Driven(tmp_path, program, tell, Watermark("at", 0))
    driven.block(NOW_MS, timed(253_402_300_799_000, unit="s"))
    driven.block(NOW_MS, timed(NOW_MS, unit="ns"))
    driven.end(NOW_MS)
    assert driven.output.late == 1


def test_epochs_that_were_not_logged_are_undone_with_their_timers(
    tmp_path: Path, program: Program
) -> None:
    driven = Driven(tmp_path, program, tell, Watermark("at", 0))

    def register(timers: Timers) -> None:
        timers.processing_time.register("a", NOW_MS + 10)
        timers.event_time.register("b", NOW_MS + 10)

    program.next = register
    driven.block(NOW_MS, timed(NOW_MS))
    driven.end(NOW_MS)
    wanted = [("processing", NOW_MS + 10, ["a"]), ("event", NOW_MS + 10, ["b"])]
    for saved in (True, False, True):
        program.next = lambda timers: timers.event_time.register("c", NOW_MS + 20)
        driven.block(NOW_MS + 10, timed(NOW_MS + 12))
        # At the end of the block, not of the epoch.
        assert len(driven.attempt._by_place) == 1
        if saved:
            assert told(driven.end(NOW_MS + 50, is_logged=False)) == wanted
        driven.begin()
        assert driven.attempt.service.timers.event_time.now_ms == NOW_MS
        assert driven.attempt.service.timers.processing_time.now_ms == NOW_MS
        assert driven.attempt.due_ms == NOW_MS + 10
    program.next = lambda timers: None
    driven.block(NOW_MS + 10, timed(NOW_MS + 12))
    assert told(driven.end(NOW_MS + 50)) == wanted
    driven.begin()
    assert driven.attempt.due_ms is None
    assert driven.attempt.service.timers.event_time.now_ms == NOW_MS + 12
    driven.block(NOW_MS + 60, timed(NOW_MS + 30))
    assert driven.end(NOW_MS + 60) == []


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_watermark_is_the_largest_time_less_the_delay(
    tmp_path: Path, program: Program, unit: str
) -> None:
    driven = Driven(tmp_path, program, tell, Watermark("at", "2 seconds"))
    event_time = driven.attempt.service.timers.event_time
    assert event_time.now_ms == NO_WATERMARK
    driven.block(NOW_MS, timed(None, unit=unit))
    assert event_time.now_ms == NO_WATERMARK
    driven.block(NOW_MS, timed(NOW_MS + 3000, NOW_MS, None, unit=unit))
    assert event_time.now_ms == NOW_MS + 1000
    driven.block(NOW_MS, timed(NOW_MS, NOW_MS + 1000, None, unit=unit))
    assert program.given[-1] == [1, 1]
    driven.block(NOW_MS, timed(unit=unit))
    assert event_time.now_ms == NOW_MS + 1000
    driven.end(NOW_MS)
    assert driven.output.late == 1
    assert driven.output.watermark_ms == NOW_MS + 1000
    assert driven.output.records == 6


def test_times_between_milliseconds_are_not_late_too_soon(tmp_path: Path, program: Program) -> None:
    driven = Driven(tmp_path, program, tell, Watermark("at", 0))

    def at(us: int) -> pa.RecordBatch:
        return rows(us, at=pa.array([us], pa.timestamp("us")))

    program.next = lambda timers: timers.event_time.register(
        "k", datetime.fromtimestamp(0, timezone.utc) + timedelta(microseconds=5_001)
    )
    for us in (5_999, 5_000, 4_999, 6_000):
        driven.block(NOW_MS, at(us))
        program.next = lambda timers: None
    assert program.given == [[5_999], [5_000], [6_000]]
    assert told(driven.end(NOW_MS)) == [("event", 6, ["k"])]


def test_neither_time_goes_back(tmp_path: Path, program: Program) -> None:
    driven = Driven(tmp_path, program, tell, Watermark("at", 0, sources="source"))
    timers = driven.attempt.service.timers
    driven.block(NOW_MS + 100, timed(NOW_MS + 100, source="a"))
    assert driven.end(NOW_MS + 200) == []
    # It came before the epoch ended, and was not in it.
    driven.block(NOW_MS + 150, timed(NOW_MS + 50, NOW_MS + 100, source="b"))
    assert timers.processing_time.now_ms == NOW_MS + 200
    driven.block(NOW_MS + 160, timed(NOW_MS + 50, source="c"))
    assert timers.event_time.now_ms == NOW_MS + 100
    assert driven.end(NOW_MS + 170) == []
    assert timers.processing_time.now_ms == NOW_MS + 200
    assert driven.output.late == 2


def test_a_watermark_within_a_second_is_one_for_whole_seconds_too(
    tmp_path: Path, program: Program
) -> None:
    driven = Driven(tmp_path, program, tell, Watermark("at", 0.5))
    driven.block(NOW_MS, timed(NOW_MS + 2000, unit="s"))
    driven.block(NOW_MS, timed(NOW_MS + 1000, NOW_MS + 2000, unit="s"))
    driven.end(NOW_MS)
    assert driven.output.late == 1


def test_late_records_are_kept_if_asked_and_counted(tmp_path: Path, program: Program) -> None:
    driven = Driven(tmp_path, program, tell, Watermark("at", 0, late="keep"))
    for _ in range(2):
        driven.block(NOW_MS, timed(NOW_MS))
        driven.block(NOW_MS, timed(NOW_MS - 1, NOW_MS))
        assert driven.end(NOW_MS) == []
        assert driven.output.late == 1
    assert program.given == [[1], [1, 1]] * 2


def test_of_several_sources_the_slowest_counts_until_it_is_idle(
    tmp_path: Path, program: Program
) -> None:
    watermark = Watermark("at", 0, sources="source", idle="10 s")
    driven = Driven(tmp_path, program, tell, watermark)
    event_time = driven.attempt.service.timers.event_time
    program.next = lambda timers: timers.event_time.register("k", NOW_MS + 50)
    driven.block(NOW_MS, timed(NOW_MS + 100, source="fast"))
    assert event_time.now_ms == NOW_MS + 100
    program.next = lambda timers: timers.event_time.register("k", NOW_MS + 1000)
    driven.block(NOW_MS + 1000, timed(NOW_MS + 200, source="slow"))
    driven.block(NOW_MS + 5000, timed(NOW_MS + 2000, source="fast"))
    assert event_time.now_ms == NOW_MS + 200
    driven.end(NOW_MS + 5000)
    assert driven.attempt.due_ms == NOW_MS + 11_000
    assert driven.end(NOW_MS + 10_999) == []
    assert event_time.now_ms == NOW_MS + 200
    # Without a record: the epoch of timers alone finds who is idle.
    assert told(driven.end(NOW_MS + 11_000)) == [("event", NOW_MS + 1000, ["k"])]
    assert event_time.now_ms == NOW_MS + 2000
    # It is back, and holds the others back again; the watermark stays.
    program.next = lambda timers: None
    driven.block(NOW_MS + 12_000, timed(NOW_MS + 2100, source="slow"))
    driven.block(NOW_MS + 13_000, timed(NOW_MS + 9000, source="fast"))
    assert event_time.now_ms == NOW_MS + 2100
    driven.begin()
    event_time = driven.attempt.service.timers.event_time
    assert event_time.now_ms == NOW_MS + 2000
    # All are idle at once.
    driven.block(NOW_MS + 12_000, timed(NOW_MS + 2100, source="slow"))
    driven.block(NOW_MS + 13_000, timed(NOW_MS + 9000, source="fast"))
    driven.end(NOW_MS + 40_000)
    assert event_time.now_ms == NOW_MS + 9000


def test_the_largest_counts_also_when_sources_become_idle_one_after_another(
    tmp_path: Path, program: Program
) -> None:
    watermark = Watermark("at", 0, sources="source", idle="10 s")
    driven = Driven(tmp_path, program, tell, watermark)
    program.next = lambda timers: [
        timers.event_time.register("k", NOW_MS + after_ms) for after_ms in (5000, 60_000)
    ]
    driven.block(NOW_MS, timed(NOW_MS, source="slow"))
    driven.block(NOW_MS, timed(NOW_MS + 5000, source="fast"))
    driven.block(NOW_MS + 9000, timed(NOW_MS + 100, source="slow"))
    driven.end(NOW_MS + 9000)
    for due_ms, now_ms in ((NOW_MS + 10_000, NOW_MS + 100), (NOW_MS + 19_000, NOW_MS + 5000)):
        assert driven.attempt.due_ms == due_ms
        made = driven.end(due_ms)
        assert driven.attempt.service.timers.event_time.now_ms == now_ms
    assert told(made) == [("event", NOW_MS + 5000, ["k"])]
    # For the other one nobody can say when its time comes.
    assert driven.attempt.due_ms is None


def test_a_shorter_time_after_which_sources_are_idle_holds_at_once(
    tmp_path: Path, program: Program
) -> None:
    driven = Driven(tmp_path, program, tell, Watermark("at", 0, sources="source", idle="10 s"))
    program.next = lambda timers: timers.event_time.register("k", NOW_MS + 5000)
    for source, at_ms in (("slow", NOW_MS), ("fast", NOW_MS + 5000)):
        driven.block(NOW_MS, timed(at_ms, source=source))
    driven.end(NOW_MS + 5000)
    driven.program = (*driven.program[:2], Watermark("at", 0, sources="source", idle="1 s"))
    driven.begin()
    assert driven.attempt.due_ms == NOW_MS + 5000
    assert told(driven.end(NOW_MS + 5000)) == [("event", NOW_MS + 5000, ["k"])]


@pytest.mark.parametrize(
    ("before", "now"),
    [(None, "source"), ("source", None), ("source", "key"), ("at", "later")],
)
def test_what_other_columns_said_holds_no_source_back(
    tmp_path: Path, program: Program, before: str | None, now: str | None
) -> None:
    """A program has its watermark from other columns than the one before it."""

    def watermark(column: str | None) -> Watermark:
        if column in ("at", "later"):
            return Watermark(column, 0)
        return Watermark("at", 0, sources=column)

    def block(after_ms: int) -> None:
        batch = timed(NOW_MS + after_ms, source="one")
        driven.block(NOW_MS, batch.append_column("later", batch["at"]))

    driven = Driven(tmp_path, program, tell, watermark(before))
    block(5000)
    driven.end(NOW_MS)
    driven.program = (*driven.program[:2], watermark(now))
    driven.begin()
    event_time = driven.attempt.service.timers.event_time
    assert event_time.now_ms == NOW_MS + 5000
    block(4000)
    assert event_time.now_ms == NOW_MS + 5000
    block(7000)
    assert event_time.now_ms == NOW_MS + 7000
    # The same columns are the same sources, over restarts, too.
    driven.end(NOW_MS)
    driven.begin()
    assert len(driven.attempt.service._sources) == 1


def test_one_source_alone_is_not_waited_for_and_a_timer_that_is_sooner_is(
    tmp_path: Path, program: Program
) -> None:
    """Whether it is idle changes nothing: no epoch is for that."""
    watermark = Watermark("at", 0, sources="source", idle="10 s")
    driven = Driven(tmp_path, program, tell, watermark)
    program.next = lambda timers: timers.event_time.register("k", NOW_MS + 5000)
    driven.block(NOW_MS, timed(NOW_MS, source="one"))
    driven.end(NOW_MS)
    assert driven.attempt.due_ms is None
    program.next = lambda timers: timers.processing_time.register("k", NOW_MS + 100)
    driven.block(NOW_MS, timed(NOW_MS, source="other"))
    driven.end(NOW_MS)
    assert driven.attempt.due_ms == NOW_MS + 100


def test_event_times_before_1970_and_in_its_first_moment_are_times_as_others(
    tmp_path: Path, program: Program
) -> None:
    driven = Driven(tmp_path, program, tell, Watermark("at", 0))
    event_time = driven.attempt.service.timers.event_time
    for at_ms in (-5000, -1000, 0):
        driven.block(NOW_MS, timed(at_ms))
        assert event_time.now_ms == at_ms


def test_times_of_the_seventies_are_refused_only_where_they_are_mistakes(
    tmp_path: Path, program: Program
) -> None:
    driven = Driven(tmp_path, program, tell, Watermark("at", 0))
    # Where the clock itself says so.
    program.next = lambda timers: timers.processing_time.register("k", 2000)
    driven.block(1000, timed(NOW_MS))
    assert told(driven.end(2000)) == [("processing", 2000, ["k"])]
    # And as an event time.
    program.next = lambda timers: timers.event_time.register("k", 5000)
    driven.block(NOW_MS, timed(NOW_MS))
    assert told(driven.end(NOW_MS)) == [("event", 5000, ["k"])]


def test_timers_of_a_program_that_has_no_one_to_tell_wake_nobody(
    tmp_path: Path, program: Program
) -> None:
    driven = Driven(tmp_path, program, tell)
    program.next = lambda timers: timers.processing_time.register("k", NOW_MS + 10)
    driven.block(NOW_MS, rows(1))
    driven.end(NOW_MS)
    service = TimerService(None, expire=False)
    driven.place.claim("quiet")
    state = KeyedState(driven.place, "quiet", driven.number, driven.end_place, service)
    assert service.due_ms() is None
    assert list(service.advance(NOW_MS + 20)) == []
    state.close()
    driven.begin()
    assert driven.attempt.due_ms == NOW_MS + 10


def test_too_many_sources_are_an_error_for_good(
    tmp_path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers_module, "_MOST_SOURCES", 2)
    driven = Driven(tmp_path, program, tell, Watermark("at", 0, sources="source"))
    for source in (None, "a"):
        driven.block(NOW_MS, timed(NOW_MS, source=source))
    with pytest.raises(StateError, match="more than 2 values") as caught:
        driven.block(NOW_MS, timed(NOW_MS, source="b"))
    assert caught.value.is_permanent


def test_a_column_without_times_is_an_error_for_good(tmp_path: Path, program: Program) -> None:
    driven = Driven(tmp_path, program, tell, Watermark("at", 0, sources="source"))
    for batch, says in (
        (rows(1), r"the column 'at' of the watermark is not among \['key'\]"),
        (rows(1, at=[1]), "has the type int64, and not timestamp"),
        (rows(1, at=[datetime(2026, 1, 1)]), "sources='source': there is no such column"),
        (rows(1, at=[datetime(2026, 1, 1)], source=[1.5]), "sources='source': .* type double"),
    ):
        with pytest.raises(StateError, match=says) as caught:
            driven.block(NOW_MS, batch)
        assert caught.value.is_permanent
    # Of a column in which nothing stands Arrow knows no type.
    driven.block(NOW_MS, rows(1, at=[None], source=[None]))


@pytest.mark.parametrize(
    ("key", "time", "error", "says"),
    [
        (None, NOW_MS, TypeError, "a key of a state is an int, str or bytes"),
        (1.0, NOW_MS, TypeError, "a key of a state"),
        (1, 1.7e9, TypeError, "a whole number of milliseconds .*, and not 1700000000.0"),
        (1, True, TypeError, "and not True"),
        (1, "10 s", TypeError, "and not '10 s'"),
        (1, None, TypeError, "and not None"),
        (1, timedelta(seconds=5), TypeError, "and not datetime.timedelta"),
        (1, datetime(2026, 1, 1), ValueError, "has no zone: give it one"),
        (1, 1 << 63, ValueError, "63 bits"),
        (1, -(1 << 63), ValueError, "63 bits"),
        (1, NOW_MS // 1000, ValueError, "is it in seconds, or a duration"),
        (1, 5000, ValueError, "is it in seconds, or a duration"),
    ],
)
def test_what_is_no_timer_is_refused(
    tmp_path: Path, program: Program, key: Any, time: Any, error: type[Exception], says: str
) -> None:
    driven = Driven(tmp_path, program, tell)
    for call in ("register", "delete"):
        program.next = lambda timers: getattr(timers.processing_time, call)(key, time)  # noqa: B023
        with pytest.raises(error, match=says):
            driven.block(NOW_MS, rows(1))


def test_times_may_be_numbers_of_numpy_and_datetimes_of_any_zone(
    tmp_path: Path, program: Program
) -> None:
    driven = Driven(tmp_path, program, tell)
    in_india = datetime.fromtimestamp(NOW_MS / 1000, timezone(timedelta(hours=5.5)))

    def register(timers: Timers) -> None:
        timers.processing_time.register(1, np.int64(NOW_MS))  # type: ignore[arg-type]
        timers.processing_time.register(2, in_india)

    program.next = register
    driven.block(NOW_MS - 1, rows(1))
    assert told(driven.end(NOW_MS)) == [("processing", NOW_MS, [1, 2])]


def test_without_a_watermark_there_is_no_event_time(tmp_path: Path, program: Program) -> None:
    driven = Driven(tmp_path, program, tell)
    program.next = lambda timers: timers.event_time.register(1, 5)
    with pytest.raises(ValueError, match="without watermark= no event time comes"):
        driven.block(NOW_MS, rows(1))


def test_a_wrong_result_of_on_timer_is_refused(tmp_path: Path, program: Program) -> None:
    driven = Driven(tmp_path, program, lambda found, state, timers: [1])
    program.next = lambda timers: timers.processing_time.register("k", NOW_MS)
    driven.block(NOW_MS, rows(1))
    with pytest.raises(ContinuousTaskError, match=r"must return a pyarrow.RecordBatch or None"):
        driven.end(NOW_MS)
    assert "timers of 1700000000000 ms of keys such as 'k'" in driven.attempt._with


def test_a_state_of_before_timers_is_read(tmp_path: Path, program: Program) -> None:
    """One of an earlier development version has only the first three tables."""
    with sqlite3.connect(tmp_path / "state.sqlite") as database:
        database.executescript(
            """
            CREATE TABLE state (key NOT NULL PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
            CREATE TABLE undo (changes BLOB NOT NULL);
            CREATE TABLE epoch (
                one PRIMARY KEY, number, end, number_before, end_before, attempt
            );
            INSERT INTO epoch VALUES (1, 7, 70, 6, 60, 'a');
            """
        )
        database.execute("INSERT INTO state VALUES (1, ?)", (pickle.dumps("new"),))
        database.execute("INSERT INTO undo VALUES (?)", (pickle.dumps([(1, pickle.dumps("old"))]),))
    database.close()
    driven = Driven.__new__(Driven)
    Driven.begin, begin = lambda self: None, Driven.begin  # type: ignore[method-assign]
    try:
        driven.__init__(tmp_path, program, tell)  # type: ignore[misc]
    finally:
        Driven.begin = begin  # type: ignore[method-assign]
    for number, value in ((7, "new"), (6, "old")):
        driven.number, driven.end_place = number, number * 10
        driven.begin()
        assert dict(driven.attempt.state) == {1: value}
    program.next = lambda timers: timers.processing_time.register("k", NOW_MS)
    driven.block(NOW_MS, rows(1))
    assert told(driven.end(NOW_MS)) == [("processing", NOW_MS, ["k"])]


def test_an_epoch_of_a_program_without_timers_is_undone_alone(
    tmp_path: Path, program: Program
) -> None:
    driven = Driven(tmp_path, program, tell)
    program.next = lambda timers: timers.processing_time.register("k", NOW_MS + 10)
    driven.block(NOW_MS, rows(1))
    driven.end(NOW_MS)
    place = driven.place
    for number in (1, 2):
        place.claim("plain")
        plain = KeyedState(place, "plain", number - 1, 1)
        plain["n"] = number
        plain.save(number, 1)
        plain.close()
    driven.number = 1
    driven.begin()
    assert dict(driven.attempt.state) == {"n": 1}
    assert driven.attempt.due_ms == NOW_MS + 10
    assert driven.attempt.service.timers.processing_time.now_ms == NOW_MS


def test_many_timers_of_one_key_expire_in_their_order(tmp_path: Path, program: Program) -> None:
    chance = random.Random(3)
    driven = Driven(tmp_path, program, tell)
    times = chance.sample(range(NOW_MS, NOW_MS + 10_000), 3000)

    def register(timers: Timers) -> None:
        for _ in range(min(100, len(times))):
            timers.processing_time.register("k", times.pop())

    program.next = register
    wanted = sorted(times)
    found = []
    while times:
        driven.block(NOW_MS - 1, rows(1))
        driven.end(NOW_MS - 1)
    for late in range(0, 11_000, 500):
        found += [at for _, at, _ in told(driven.end(NOW_MS + late))]
    assert found == wanted


def asked(**arguments: Any) -> ContinuousOperation:
    def function(batch: Any, state: Any, timers: Any) -> None: ...

    sink = FunctionSink(lambda epoch, table: None)
    given = {"key_by": "key", "on_timer": tell, "watermark": None, "function": function}
    given.update(arguments)
    return ContinuousOperation(
        given["function"],
        sink,
        "1s",
        1,
        "1s",
        1,
        key_by=given["key_by"],
        on_timer=given["on_timer"],
        watermark=given["watermark"],
    )


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"key_by": None}, ValueError, "on_timer needs key_by"),
        (
            {"key_by": None, "on_timer": None, "watermark": Watermark("at", 1)},
            ValueError,
            "watermark needs key_by",
        ),
        ({"on_timer": 5}, TypeError, r"on_timer\(expired, state, timers\)"),
        ({"on_timer": lambda key: None}, TypeError, "on_timer is called as on_timer"),
        (
            {"function": lambda batch, state: None},
            TypeError,
            r"called as function\(batch, state, timers\) with key_by and on_timer",
        ),
        ({"on_timer": None}, TypeError, r"called as function\(batch, state\) with key_by,"),
        ({"watermark": ("at", "10 s")}, TypeError, r"such as Watermark\('at', '10 s'\)"),
    ],
)
def test_what_a_program_asks_for_wrongly_is_refused_at_once(
    arguments: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        asked(**arguments)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("", "1 s"), TypeError),
        ((5, "1 s"), TypeError),
        (("at", "-1 s"), ValueError),
        (("at", -1), ValueError),
        (("at", "soon"), ValueError),
        (("at", "10"), ValueError),
        (("at", None), TypeError),
        (("at", timedelta(seconds=1)), TypeError),
        (("at", float("nan")), ValueError),
        (("at", "1 s", None, "1 s"), ValueError),
        (("at", "1 s", "source", 0), ValueError),
        (("at", "1 s", 5), TypeError),
        (("at", "1 s", None, None, "ignore"), ValueError),
    ],
)
def test_a_watermark_that_makes_no_sense_is_refused(arguments: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Watermark(*arguments)


def test_delays_are_written_as_in_spark() -> None:
    for delay, delay_ms in (
        (0, 0),
        ("0 seconds", 0),
        ("10 seconds", 10_000),
        ("1 minute", 60_000),
        ("250 milliseconds", 250),
        ("2 days", 172_800_000),
        ("3h", 10_800_000),
        (1.5, 1500),
    ):
        assert Watermark("at", delay).delay_ms == delay_ms


# -- the examples ------------------------------------------------------------------------------


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def moments(*times_ms: int) -> pa.Array:
    return pa.array([at_ms * 1000 for at_ms in times_ms], pa.timestamp("us", "UTC"))


def test_the_example_counts_each_window_once(tmp_path: Path) -> None:
    module = example("windowed_count")
    driven = Driven(tmp_path, module.count, module.close, module.WATERMARK, "card")
    chance = random.Random(1)
    begin_ms = NOW_MS // 10_000 * 10_000
    wanted: dict[tuple[int, int], int] = {}
    found = []
    filling: list[pa.RecordBatch] = []
    for number in range(100):
        cards = [chance.randint(1, 3) for _ in range(20)]
        times = [begin_ms + 500 * number + chance.randint(-900, 900) for _ in cards]
        for card, at_ms in zip(cards, times, strict=True):
            window = (card, at_ms // 10_000 * 10_000)
            wanted[window] = wanted.get(window, 0) + 1
        filling.append(pa.RecordBatch.from_pydict({"card": cards, "at": moments(*times)}))
        driven.block(NOW_MS, filling[-1])
        if number % 7 == 0:
            driven.begin()  # What was in no epoch is lost, and given again.
            for batch in filling:
                driven.block(NOW_MS, batch)
        if number % 3 == 0:
            found += driven.end(NOW_MS)
            filling = []
    found += driven.end(NOW_MS + 100)
    assert len(found) > 10
    for row in found:
        start_ms = int(row["start"].timestamp()) * 1000
        assert wanted.pop((row["card"], start_ms)) == row["count"]
    # What is left is open.
    assert dict(driven.attempt.state) == {
        f"{card} {start_ms}": count for (card, start_ms), count in wanted.items()
    }
    assert len(wanted) <= 6


def test_the_example_passes_each_message_on_once_and_forgets_it(tmp_path: Path) -> None:
    module = example("deduplicate")
    driven = Driven(tmp_path, module.unknown, module.forget, module.WATERMARK, "id")

    def messages(second: int, *ids: str) -> list[str]:
        at_ms = NOW_MS + second * 1000
        at = moments(*[at_ms] * len(ids))
        driven.block(at_ms, pa.RecordBatch.from_pydict({"id": ids, "at": at, "text": ids}))
        return [row["id"] for row in driven.end(at_ms)]

    assert messages(0, "a", "b", "a") == ["a", "b"]
    driven.begin()
    assert messages(30, "b", "c") == ["c"]
    assert messages(69, "a") == []
    assert messages(70, "d") == ["d"]  # The watermark is a minute behind the first.
    assert set(driven.attempt.state) == {"c", "d"}
    assert messages(71, "a") == ["a"]


def test_the_example_joins_with_the_table_of_the_hour(tmp_path: Path) -> None:
    module = example("hourly_join")
    path = tmp_path / "rates.json"
    rates = module.Rates(path)
    driven = Driven(tmp_path, rates.in_euros, rates.load_again, None, "currency")
    hour_ms = 3_600_000
    begin_ms = NOW_MS // hour_ms * hour_ms

    def euros(at_ms: int) -> float:
        payment = pa.RecordBatch.from_pydict({"currency": ["USD"], "amount": [10.0]})
        driven.block(at_ms, payment)
        ((row),) = driven.end(at_ms)
        return float(row["euros"])

    path.write_text(json.dumps({"USD": 0.5}))
    assert euros(begin_ms + 5) == 5.0
    path.write_text(json.dumps({"USD": 0.7}))
    assert euros(begin_ms + hour_ms - 1) == 5.0
    assert driven.attempt.due_ms == begin_ms + hour_ms
    driven.begin()
    assert euros(begin_ms + hour_ms) == 7.0
    path.write_text(json.dumps({"USD": 0.8}))
    # No payment comes, and the table is loaded all the same.
    assert driven.end(begin_ms + 2 * hour_ms) == []
    path.unlink()
    assert euros(begin_ms + 2 * hour_ms + 5) == 8.0
    assert driven.attempt.due_ms == begin_ms + 3 * hour_ms
