"""Receivers that take too much of the process that they share: real ones, in real processes."""

from __future__ import annotations

import itertools
import os
import re
import signal
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.receiver.attempts.slot_load import SlotLoad
from penstock.receiver.threads.slot_board import _SILENT_LOOKS, Board, Silence
from penstock.receiver.threads.source_loop import SourceLoop
from penstock.receiver.threads.workers import Workers
from penstock.runtime.processes import stat_of
from penstock.testing.driver import read_back
from penstock.wire.messages import DeregisterReceiver, RegisterReceiver, RegisterSlot
from tests.receiver.test_slot import (  # noqa: F401 - its fixtures
    MakeSlot,
    SlotTracker,
    slot,
    tracker,
)

TAKERS = """
import _thread, re

class Counted(InThread):
    def run(self):
        number = (self.lastPosition or 0) + 1
        while not self.isStopped():
            self.store([b"%d" % number], position=number)
            number += 1
            time.sleep(0.005)

class Computes(InThread):
    def run(self):
        while not self.isStopped():
            sum(range(1000))

class Spins(InThread):
    def run(self):
        while True:
            pass

class Matches(InThread):
    def run(self):
        # One call of C code, for hours, with Python's lock.
        re.match("(a+)+$", "a" * 45 + "b")

class Unknown(Plain):
    def onStart(self):
        _thread.start_new_thread(re.match, ("(a+)+$", "a" * 45 + "b"))

class Sums(InThread):
    def run(self):
        # Calls of C code for a second or some, with Python's lock.
        while not self.isStopped():
            sum(range(100_000_000))
            time.sleep(0.05)

async def in_steps(ctx):
    while True:
        sum(range(20_000))
        await asyncio.sleep(0)

async def matching(ctx):
    await asyncio.sleep(0)
    re.match("(a+)+$", "a" * 45 + "b")

kept = []

class Leaks(InThread):
    def run(self):
        while not self.isStopped():
            kept.append(os.urandom(1 << 20))
            time.sleep(0.05)

class LeaksOn(InThread):
    def run(self):
        while True:
            kept.append(os.urandom(1 << 20))
            time.sleep(0.05)

async def leaking(ctx):
    while True:
        kept.append(os.urandom(1 << 20))
        await asyncio.sleep(0.05)

InSteps, Matching, Leaking = map(on_loop, (in_steps, matching, leaking))
"""

LARGE = 128 << 20
TOOK = r"took \d+\.\d\d of a core that others need"
GREW = r"met most new pages while its process grew from \d+ to \d+ MiB"


def number(tracker: SlotTracker, stream_id: int) -> int:  # noqa: F811
    with tracker.changed:
        blocks = [one for one in tracker.blocks if one.stream_id == stream_id]
    return int(msgspec.msgpack.decode(blocks[-1].position or b"\x00")) if blocks else 0


def await_more(tracker: SlotTracker) -> None:  # noqa: F811
    """Wait for more records of the two that behave; all of them came once and in order."""
    for stream_id in (0, 2):
        seen = number(tracker, stream_id)
        tracker.wait_for(lambda one=stream_id, seen=seen: number(tracker, one) > seen + 20)
        with tracker.changed:
            blocks = [one for one in tracker.blocks if one.stream_id == stream_id]
        found = [int(record) for record in read_back(blocks)]
        assert found == list(range(1, len(found) + 1))


@pytest.fixture
def shared(slot: MakeSlot, tracker: SlotTracker, kind: str) -> Iterator[Any]:  # noqa: F811
    """A process with two receivers that behave, and one between them that does not."""
    soon = "slot_load._BURN_S = 2.0"
    made = slot("Numbers", kind, "Counted", more=TAKERS, setup=soon, slot_memory_bytes=LARGE)
    made.start(tracker.process(1), 0, 2)
    await_more(tracker)
    made.start(tracker.process(1), 1)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "did"),
    [
        ("Computes", TOOK),
        ("Sums", TOOK),
        ("InSteps", TOOK),
        ("Leaks", GREW),
        ("Leaking", GREW),
    ],
    ids=["a thread", "C code", "steps on the loop", "a thread that leaks", "one on the loop"],
)
def test_who_takes_too_much_moves_and_the_others_go_on(
    shared: Any,
    tracker: SlotTracker,  # noqa: F811
    did: str,
) -> None:
    moved = shared.registered(2)[1]
    assert moved.streams == (1,)
    assert re.search(rf"it {did} \(it starts in a process of its own\)$", moved.ended)
    # The receiver has told the driver, too.
    (told,) = [one for one in tracker.of(DeregisterReceiver) if one.stream_id == 1]
    assert re.fullmatch(f"it {did}", told.message)
    shared.await_running(shared.start(tracker.process(2), 1))
    await_more(tracker)
    # No other one was disturbed, and who is alone stays.
    assert len(tracker.of(RegisterSlot)) == 2
    assert sorted(one.stream_id for one in tracker.of(RegisterReceiver)) == [0, 1, 1, 2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "did"), [("Spins", TOOK), ("LeaksOn", GREW)], ids=["spins", "leaks"]
)
def test_where_what_it_has_left_goes_on_the_others_start_again(
    shared: Any,
    tracker: SlotTracker,  # noqa: F811
    did: str,
) -> None:
    alone, others = shared.registered(3)[1:]
    assert (alone.streams, others.streams) == ((1,), (0, 2))
    assert re.search(rf"it {did} \(it left author behind, so it starts in", alone.ended)
    said = f"The process of receivers 0, 2 .*: what receiver 1 has left there {did}"
    assert re.fullmatch(said, others.ended)
    shared.start(tracker.process(3), 0, 2)
    shared.await_running(shared.start(tracker.process(2), 1))
    await_more(tracker)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Matches", "Matching"])
def test_who_lets_nothing_else_run_is_found_from_outside(
    shared: Any,
    tracker: SlotTracker,  # noqa: F811
) -> None:
    alone, others = shared.registered(3)[1:]
    assert (alone.streams, others.streams) == ((1,), (0, 2))
    said = (
        r"Receiver 1 let nothing else run for \d+ s in the process of receivers 0, 1, 2; it is in"
    )
    assert re.match(said, alone.ended)
    shared.start(tracker.process(3), 0, 2)
    shared.await_running(shared.start(tracker.process(2), 1))
    await_more(tracker)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Unknown"])
def test_where_it_is_not_known_who_lets_nothing_else_run_half_of_them_move(
    shared: Any,
    tracker: SlotTracker,  # noqa: F811
) -> None:
    first, second = shared.registered(3)[1:]
    assert (first.streams, second.streams) == ((0,), (1, 2))
    said = (
        r"Something let nothing else run for \d+ s in the process of receivers 0, 1, 2; it is not"
    )
    assert re.match(said, first.ended)


def test_who_took_more_than_its_part_leaves_and_what_came_before_is_over_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources, now_s = SourceLoop("test", Workers("test")), itertools.count()
    monkeypatch.setattr("penstock.receiver.attempts.slot_load._own_bytes", lambda: 0)
    clock = SimpleNamespace(monotonic=lambda: next(now_s))
    monkeypatch.setattr("penstock.receiver.attempts.slot_load.time", clock)
    load = SlotLoad(sources, 1 << 30)

    def look(**took_s: float) -> tuple[int, str] | None:
        for name, one_s in took_s.items():
            sources.cpu_s[int(name[1:])] += one_s
        return load.look([3, 4])

    # Half a core is not too much where there is more, nor is all of it for a while.
    assert {look(_3=0.45, _4=0.1) for _ in range(1000)} == {None}
    assert {look(_3=0.99) for _ in range(5)} == {None}
    assert {look() for _ in range(100)} == {None}
    found = [look(_3=0.95) for _ in range(40)]
    first = next(at for at, one in enumerate(found) if one is not None)
    assert 10 <= first <= 30
    assert {one[0] for one in found[first:] if one is not None} == {3}
    assert None not in found[first:]
    # It has left.
    assert {look(_4=0.02) for _ in range(20)} == {None}
    # Of two that take all, the one that takes more; and then there is enough for the other.
    found = [look(_3=0.4, _4=0.55) for _ in range(100)]
    assert next(one for one in found if one is not None)[0] == 4
    assert {look(_3=0.4) for _ in range(100)} == {None}


def test_who_is_alone_stays_however_large_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sizes = iter([90, 200, 210, 211, 212, 263, 277, 400, 500])
    monkeypatch.setattr(
        "penstock.receiver.attempts.slot_load._own_bytes", lambda: next(sizes) << 20
    )
    monkeypatch.setattr("resource.getrlimit", lambda which: (200 << 20, 200 << 20))
    load = SlotLoad(SourceLoop("test", Workers("test")), 1 << 30)
    # Half of the system's limit is less. From 200 it has to grow by a twentieth, then by a quarter.
    assert [load.look([3, 4]) for _ in range(3)] == [None] * 3
    # Of those of whom nothing is known it is the newest.
    assert load.look([3, 4]) == (4, "met most new pages while its process grew from 200 to 211 MiB")
    assert [load.look([3]) for _ in range(3)] == [None] * 3
    assert not any("alone" in one for one in caplog.messages)
    assert [load.look([3]) for _ in range(2)] == [None] * 2
    (said,) = [one for one in caplog.messages if "alone" in one]
    assert said.startswith("receiver 3, which is alone there, met most new pages while its process")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Plain"])
def test_a_process_that_is_stopped_is_not_silent(
    shared: Any,
    tracker: SlotTracker,  # noqa: F811
) -> None:
    board, pid = Board(), tracker.of(RegisterReceiver)[0].pid
    silence = Silence(pid, board)
    many = range(2 * _SILENT_LOOKS)
    # One that has not begun to look is not silent either.
    assert [silence.look() for _ in many] == [None for _ in many]
    board.show_look()
    os.kill(pid, signal.SIGSTOP)
    end_s = time.monotonic() + 10
    while stat_of(f"/proc/{pid}")[0] != "T" and time.monotonic() < end_s:
        time.sleep(0.01)  # The signal may not have stopped it yet.
    assert [silence.look() for _ in many] == [None for _ in many]
    os.kill(pid, signal.SIGCONT)
    await_more(tracker)
    found = [silence.look() for _ in many]
    assert found[:_SILENT_LOOKS] == [None for _ in range(_SILENT_LOOKS)]
    assert found[_SILENT_LOOKS] is not None
    assert "let nothing else run" in found[_SILENT_LOOKS][1]


def test_a_board_says_for_whom_a_thread_runs() -> None:
    board = Board()
    board.show_thread(5, None)
    board.show_thread(7, 0)
    board.show_thread(8, 3)
    assert [board.runs_for(thread) for thread in (5, 6, 7, 8)] == [None, None, 0, 3]
    board.on_loop[0] = 1
    assert [board.runs_for(thread) for thread in (5, 6)] == [0, None]
    board.show_thread(8, 4)
    assert board.runs_for(8) == 4
