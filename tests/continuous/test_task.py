"""An attempt of a continuous task, without Spark."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace

from penstock.blockstore import BlockAccess, BlockKind, BlockStore, SealedBlock
from penstock.blockstore.store import BlockStoreOptions
from penstock.continuous import Epoch, Sink, task
from penstock.continuous.sinks import SinkError
from penstock.continuous.task import ContinuousLaunch, _Attempt
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.wire.messages import EndEpoch, ShownBlock, TaskBlocks, TaskWaits
from tests.bounds import HANG_S
from tests.receiver.conftest import SETTINGS
from tests.receiver.running import Tracker, make_launch


@pytest.fixture
def attempt(tmp_path: Path) -> Iterator[_Attempt]:
    tracker = Tracker()
    access = BlockAccess(link=make_launch(b"", tracker, tmp_path, SETTINGS).link)
    yield _Attempt(ContinuousLaunch(0, 0, 1, "a", b"", access, 2.0, 60.0, 60.0, 1 << 20))
    tracker.server.stop()


@pytest.fixture
def sent(attempt: _Attempt, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the attempt tells the driver."""
    told: list[Any] = []
    monkeypatch.setattr(attempt._client, "send", told.append)
    return told


@pytest.mark.parametrize("call", ["_function_call", "_sink_call", "_state_call"])
def test_a_call_that_hangs_is_told_and_ends_the_attempt(
    attempt: _Attempt, sent: list[Any], call: str
) -> None:
    hanging = getattr(attempt, call)
    supervising = threading.Thread(target=attempt._supervise)
    bound_s = 20.0 if call == "_state_call" else 2.0
    hanging.since_s = time.monotonic() - bound_s + 1
    supervising.start()
    supervising.join(HANG_S)
    assert not supervising.is_alive()
    assert time.monotonic() - hanging.since_s > bound_s
    assert sent[0] == TaskWaits(0, 0, "a", hanging.what)
    assert sent[-1].message == f"{hanging.what} has not returned for {bound_s:g} s"


@pytest.fixture
def resting(attempt: _Attempt, monkeypatch: pytest.MonkeyPatch) -> threading.Thread:
    """The thread of an attempt that has nothing to look after, and does not look by itself."""
    monkeypatch.setattr(task, "_REST_S", 3600.0)
    supervising = threading.Thread(target=attempt._supervise)
    supervising.start()
    end_s = time.monotonic() + HANG_S
    while not attempt._rest._rests:
        assert time.monotonic() < end_s
        time.sleep(0.01)
    return supervising


def test_a_call_ends_the_rest_of_an_idle_attempt(
    attempt: _Attempt, sent: list[Any], resting: threading.Thread
) -> None:
    with attempt._function_call.timed():
        resting.join(HANG_S)
    assert not resting.is_alive()
    assert sent[-1].message == "the function has not returned for 2 s"


def test_an_idle_attempt_ends_at_once(attempt: _Attempt, resting: threading.Thread) -> None:
    attempt._end(None)
    resting.join(HANG_S)
    assert not resting.is_alive()


class HeldSink(Sink):
    """Takes a part when it is asked for the last time."""

    def __init__(self, times: int) -> None:
        self.times = times

    def commit(self, epoch: Epoch, batches: Sequence[Any]) -> None:
        self.times -= 1
        if self.times:
            raise SinkError("a" * 1000, is_held=True)


def test_a_sink_that_is_held_is_asked_again_until_it_takes_the_part(
    attempt: _Attempt, sent: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "_LOOK_S", 0.01)
    epoch = Epoch("e", 0, 0, "a")
    assert attempt._is_committed(HeldSink(5), epoch, [])
    assert sent == []
    with monkeypatch.context() as patched:
        patched.setattr(task, "_HELD_S", -1.0)
        with pytest.raises(SinkError):
            attempt._is_committed(HeldSink(5), epoch, [])
    attempt._end(None)
    assert not attempt._is_committed(HeldSink(5), epoch, [])


@pytest.fixture
def calls(attempt: _Attempt, tmp_path: Path) -> Iterator[list[list[str]]]:
    """The values that the function was called with; it raises for some the first time."""
    seen: list[list[str]] = []

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        seen.append([value.decode() for value in batch.column(0).to_pylist()])
        if seen[-1] == ["bad"] and seen.count(["bad"]) == 1:
            raise ValueError("bad")
        if seen[-1] == ["exit"] and seen.count(["exit"]) == 1:
            raise SystemExit
        return batch

    ran = threading.Thread(target=attempt._call_function, args=(function, None))
    ran.start()
    yield seen
    attempt._end(None)
    ran.join(HANG_S)
    assert not ran.is_alive()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockStore]:
    options = BlockStoreOptions(memory_bytes=1 << 20, block_max_bytes=1 << 16, memory_prefix="t-")
    made = BlockStore(
        stream_id=0, attempt="b" * 32, host="here", log_folder=str(tmp_path / "log"),
        options=options,
    )  # fmt: skip
    yield made
    made.close()
    os.unlink(made.memory_path)


def sealed(store: BlockStore, number: int, record: bytes) -> SealedBlock:
    builder = store.open_block(BlockKind.BINARY)
    builder.append(record, np.array([len(record)], np.int32))
    return builder.seal(f"input-0-{number}", 0.0)


def shown(store: BlockStore, block: SealedBlock) -> ShownBlock:
    return ShownBlock(0, store.attempt, block.block_id, store.payload_of(block))


def log(attempt: _Attempt, store: BlockStore, place: int, *blocks: SealedBlock) -> None:
    """Log blocks, and send them with their places."""
    infos = [store.put(block) for block in blocks]
    attempt._take(TaskBlocks(tuple((at, info, 0) for at, info in enumerate(infos, place))))


def output_of(attempt: _Attempt, end: int) -> list[bytes]:
    """End the epoch, and return what the sink is given."""
    attempt._take(EndEpoch(0, end, 1, is_logged=False))
    output = attempt._sink_work.get(timeout=HANG_S)
    assert isinstance(output, task._Output)
    assert output.records == end
    return [value for batch in output.parts[0] for value in batch.column(0).to_pylist()]


def await_calls(calls: list[list[str]], count: int) -> None:
    end_s = time.monotonic() + HANG_S
    while len(calls) < count:
        assert time.monotonic() < end_s, calls
        time.sleep(0.005)


def test_what_the_function_makes_of_a_shown_block_is_that_of_the_logged_one(
    attempt: _Attempt, sent: list[Any], calls: list[list[str]], store: BlockStore
) -> None:
    records = [b"first", b"a", b"bad", b"c"]
    blocks = [sealed(store, number, record) for number, record in enumerate(records)]
    first, *others = blocks
    log(attempt, store, 0, first)
    await_calls(calls, 1)
    for block in others:
        attempt._take(shown(store, block))
    await_calls(calls, 3)
    log(attempt, store, 1, *others)
    assert output_of(attempt, 4) == records
    # That it failed ahead is no failure; what follows it waits for it.
    assert calls == [["first"], ["a"], ["bad"], ["bad"], ["c"]]
    assert sent == []


def test_a_block_is_not_seen_before_one_that_was_not_shown(
    attempt: _Attempt, sent: list[Any], calls: list[list[str]], store: BlockStore
) -> None:
    blocks = [sealed(store, number, b"%d" % number) for number in range(4)]
    log(attempt, store, 0, blocks[0])
    await_calls(calls, 1)
    for number in (2, 3, 1):
        attempt._take(shown(store, blocks[number]))
    await_calls(calls, 2)
    log(attempt, store, 1, *blocks[1:])
    assert output_of(attempt, 4) == [b"0", b"1", b"2", b"3"]
    assert calls == [["0"], ["1"], ["2"], ["3"]]


def test_the_function_is_not_called_with_a_block_without_records(
    attempt: _Attempt, sent: list[Any], calls: list[list[str]], store: BlockStore
) -> None:
    def position(number: int) -> SealedBlock:
        builder = store.open_block(BlockKind.BINARY)
        builder.position = b"%d" % number
        return builder.seal(f"input-0-{number}", 0.0)

    blocks = [sealed(store, 0, b"0"), position(1), sealed(store, 2, b"2"), position(3)]
    log(attempt, store, 0, blocks[0])
    await_calls(calls, 1)
    for number in (1, 2):
        attempt._take(shown(store, blocks[number]))
    await_calls(calls, 2)
    log(attempt, store, 1, *blocks[1:], sealed(store, 4, b"4"))
    attempt._take(EndEpoch(0, 5, 1, is_logged=False))
    assert attempt._sink_work.get(timeout=HANG_S).records == 3  # type: ignore[union-attr]
    assert calls == [["0"], ["2"], ["4"]]


@pytest.mark.parametrize("how", [b"bad", b"exit"])
def test_what_is_raised_for_a_shown_block_is_no_dead_letter(
    attempt: _Attempt,
    sent: list[Any],
    calls: list[list[str]],
    store: BlockStore,
    how: bytes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(task, "_limited_log", RateLimitedLog(logging.getLogger("penstock")))
    letters: list[Any] = []
    attempt._letters = SimpleNamespace(  # type: ignore[assignment]
        add=lambda *letter: letters.append(letter), write=lambda: None, count=0
    )
    blocks = [sealed(store, number, record) for number, record in enumerate([b"first", how])]
    log(attempt, store, 0, blocks[0])
    await_calls(calls, 1)
    attempt._take(shown(store, blocks[1]))
    await_calls(calls, 2)
    log(attempt, store, 1, blocks[1])
    assert output_of(attempt, 2) == [b"first", how]
    assert (letters, sent) == ([], [])
    [line] = [each.getMessage() for each in caplog.records if "input-0-1" in each.getMessage()]
    assert "not logged yet" in line


def test_of_several_tasks_each_sees_its_own_blocks_ahead(
    attempt: _Attempt, sent: list[Any], calls: list[list[str]], store: BlockStore
) -> None:
    attempt._launch = dataclasses.replace(attempt._launch, tasks=3)
    blocks = [sealed(store, number, b"%d" % number) for number in range(7)]
    log(attempt, store, 0, blocks[0])
    await_calls(calls, 1)
    for number in (1, 3):
        attempt._take(shown(store, blocks[number]))
    await_calls(calls, 2)
    log(attempt, store, 3, blocks[3])
    attempt._take(shown(store, blocks[6]))
    await_calls(calls, 3)
    assert calls == [["0"], ["3"], ["6"]]


def test_blocks_are_seen_ahead_while_those_before_them_are_logged(
    attempt: _Attempt, sent: list[Any], calls: list[list[str]], store: BlockStore
) -> None:
    blocks = [sealed(store, number, b"%d" % number) for number in range(4)]
    log(attempt, store, 0, blocks[0])
    await_calls(calls, 1)
    for number in (1, 2):
        attempt._take(shown(store, blocks[number]))
    await_calls(calls, 3)
    log(attempt, store, 1, blocks[1])
    attempt._take(shown(store, blocks[3]))
    await_calls(calls, 4)
    log(attempt, store, 2, *blocks[2:])
    assert output_of(attempt, 4) == [b"0", b"1", b"2", b"3"]
    assert calls == [["0"], ["1"], ["2"], ["3"]]


def test_a_block_that_was_shown_too_soon_is_seen_when_its_turn_comes(
    attempt: _Attempt, sent: list[Any], calls: list[list[str]], store: BlockStore
) -> None:
    """Else none would be seen ahead of a source that always has some on the way to the log."""
    blocks = [sealed(store, number, b"%d" % number) for number in range(4)]
    for number in (1, 2):
        attempt._take(shown(store, blocks[number]))
    log(attempt, store, 0, blocks[0])
    await_calls(calls, 3)
    attempt._take(shown(store, blocks[3]))
    await_calls(calls, 4)
    log(attempt, store, 1, *blocks[1:])
    assert output_of(attempt, 4) == [b"0", b"1", b"2", b"3"]
    assert calls == [["0"], ["1"], ["2"], ["3"]]


def test_of_shown_blocks_whose_turn_never_comes_only_the_last_are_kept(
    attempt: _Attempt, store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "_MOST_AHEAD", 3)
    for number in range(10):
        attempt._take(shown(store, sealed(store, number, b"x")))
    assert list(attempt._shown) == [("b" * 32, f"input-0-{n}") for n in range(7, 10)]


def test_a_shown_block_of_another_attempt_is_another_block(
    attempt: _Attempt, sent: list[Any], calls: list[list[str]], store: BlockStore
) -> None:
    attempt._behind = ("d" * 32, "input-0-0")
    never = shown(store, sealed(store, 0, b"never logged"))
    attempt._take(replace(never, attempt="d" * 32))
    await_calls(calls, 1)
    log(attempt, store, 0, sealed(store, 0, b"logged"))
    assert output_of(attempt, 1) == [b"logged"]


def test_of_blocks_that_were_never_logged_only_the_last_are_kept(
    attempt: _Attempt,
    sent: list[Any],
    calls: list[list[str]],
    store: BlockStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(task, "_MOST_AHEAD", 3)
    attempt._behind = (store.attempt, "input-0-0")
    for number in range(10):
        attempt._take(shown(store, sealed(store, number, b"x")))
        await_calls(calls, number + 1)
    end_s = time.monotonic() + HANG_S
    while list(attempt._ahead) != [("b" * 32, f"input-0-{n}") for n in range(7, 10)]:
        assert time.monotonic() < end_s, list(attempt._ahead)
        time.sleep(0.005)


def test_a_logged_block_is_not_seen_ahead_as_well(
    attempt: _Attempt, sent: list[Any], store: BlockStore
) -> None:
    block = sealed(store, 0, b"a")
    attempt._take(shown(store, block))
    attempt._take(TaskBlocks(((0, store.put(block), 0),)))
    found = attempt._next()
    assert isinstance(found, tuple)
    assert attempt._shown == {}
