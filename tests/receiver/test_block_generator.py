"""The block generator over a real log and real shared memory, with a tracker that answers."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import threading
import time
import traceback
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.blockstore import BlockStore
from penstock.blockstore.building.builder import BlockBuilder
from penstock.blockstore.building.memory import ArenaError
from penstock.blockstore.store import BlockStoreOptions
from penstock.errors import IllegalStateError, PenstockError
from penstock.receiver import ReceiverStoppedError, WithLetters
from penstock.receiver.blocks import block_generator, discards, intake, storing
from penstock.receiver.blocks.block_generator import (
    BlockGenerator,
    BlockGeneratorState,
    BlockNotStoredError,
    BlocksRefusedError,
    RecordTooLargeError,
)
from penstock.receiver.blocks.options import BlockGeneratorOptions
from penstock.receiver.door import withdraw
from penstock.receiver.exit_report import described
from penstock.receiver.rate_limiter import RateLimiter
from penstock.receiver.splits import PositionError
from penstock.runtime.clock import ManualClock
from penstock.testing.driver import read_back
from penstock.wal import AppendTooLargeError, LogOptions, SyncPolicy
from penstock.wire import FrameTooLargeError
from penstock.wire.messages import ReceivedBlockInfo
from tests.bounds import HANG_S
from tests.system.mounts import in_own_mounts

WAIT_S = HANG_S
"""A bound for what must happen, not an expectation of when."""
LONG_S = 3600.0
"""A block interval that never ends by itself."""


class Driver:
    """Takes reports as the tracker does; a test may make it wait, fail or refuse."""

    def __init__(self) -> None:
        self.infos: list[ReceivedBlockInfo] = []
        self.changed = threading.Condition()
        self.fail: list[BaseException] = []
        self.open = threading.Event()
        self.open.set()

    def report(self, infos: tuple[ReceivedBlockInfo, ...]) -> None:
        if not self.open.wait(WAIT_S):
            raise TimeoutError("the test never let the driver answer")
        with self.changed:
            if self.fail:
                raise self.fail.pop(0)
            self.infos.extend(infos)
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_S)

    def records(self) -> list[Any]:
        return read_back(self.infos)


class Bench:
    """A generator with all its parts."""

    def __init__(
        self,
        folder: Path,
        *,
        interval_s: float = LONG_S,
        limiter: RateLimiter | None = None,
        schema: pa.Schema | None = None,
        queue_size: int = 10,
        report_bytes: int = 1 << 20,
        clock: ManualClock | None = None,
        validate: Any = None,
        seals_early: bool = False,
        one_thread: bool = False,
        **store_options: Any,
    ) -> None:
        attempt = uuid.uuid4().hex
        self.driver = Driver()
        self.errors: list[tuple[str, BaseException]] = []
        defaults = BlockStoreOptions(
            memory_dir=str(folder),
            memory_bytes=4 << 20,
            block_max_bytes=256 << 10,
            log=LogOptions(segment_size=1 << 20),
        )
        self.store = BlockStore(
            stream_id=0,
            attempt=attempt,
            host="here",
            log_folder=str(folder / attempt),
            options=replace(defaults, **store_options),
        )
        self.limiter = limiter or RateLimiter()
        self.generator = BlockGenerator(
            block_store=self.store,
            report=self.driver.report,
            limiter=self.limiter,
            options=BlockGeneratorOptions(
                first_block_number=1 << 32,
                block_interval_s=interval_s,
                queue_size=queue_size,
                schema=schema,
                report_bytes=report_bytes,
                validate=validate,
                seals_early=seals_early,
                one_thread=one_thread and not seals_early,
            ),
            on_error=lambda message, error: self.errors.append((message, error)),
            clock=clock,
        )
        self.generator.start()

    def finish(self) -> list[Any]:
        assert self.generator.stop(WAIT_S)
        return self.driver.records()


@pytest.fixture(params=[False, pytest.param(True, marks=pytest.mark.long)], ids=["3", "1"])
def make(tmp_path, request):
    """What makes a generator, with three threads or with one."""
    made: list[Bench] = []

    def make_bench(**options: Any) -> Bench:
        bench = Bench(tmp_path, **{"one_thread": request.param, **options})
        made.append(bench)
        return bench

    yield make_bench
    for bench in made:
        if bench.generator.state is BlockGeneratorState.ACTIVE:
            bench.driver.open.set()
            bench.generator.stop(WAIT_S)
        bench.store.close()


record_values = st.one_of(
    st.binary(max_size=20),
    st.text(st.characters(exclude_categories=()), max_size=10),
    st.integers(),
    st.none(),
    st.tuples(st.integers(), st.text(max_size=3)),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=3),
)


@given(st.lists(record_values, max_size=60))
@settings(max_examples=40, deadline=None)
def test_records_of_any_types_come_back_in_order_I5(tmp_path_factory, records):
    bench = Bench(tmp_path_factory.mktemp("bench"))
    try:
        for record in records:
            bench.generator.store(record)
        assert bench.finish() == records
    finally:
        bench.store.close()


def let_intervals_pass(bench: Bench, clock: ManualClock, blocks: int) -> None:
    """Let time pass until there are so many blocks; who seals may only be about to wait for it."""
    end_s = time.monotonic() + WAIT_S
    with bench.driver.changed:
        while len(bench.driver.infos) < blocks:
            assert time.monotonic() < end_s
            clock.advance(200)
            bench.driver.changed.wait(0.1)


def test_block_generation_and_data_callbacks(make):
    """Every interval seals what came in; acknowledgements come after the report, in order."""
    clock = ManualClock()
    bench = make(interval_s=0.2, clock=clock)
    order: list[int] = []
    for number in range(3):
        bench.generator.store(b"%d" % number, ack=lambda number=number: order.append(number))
    assert bench.driver.infos == []
    let_intervals_pass(bench, clock, blocks=1)
    bench.generator.store(b"3", ack=lambda: order.append(3))
    let_intervals_pass(bench, clock, blocks=2)
    assert bench.finish() == [b"0", b"1", b"2", b"3"]
    assert order == [0, 1, 2, 3]
    assert [info.block_id for info in bench.driver.infos] == [
        f"input-0-{1 << 32}",
        f"input-0-{(1 << 32) + 1}",
    ]


@pytest.mark.parametrize("interval_ms", [1, 10, 50, 200, 1000])
@pytest.mark.parametrize("time_ms", [0, 7, 189, 190, 195, 1_700_000_000_123])
def test_blocks_are_sealed_a_moment_before_batches_are_cut(make, interval_ms, time_ms):
    """At most 10 ms before a multiple of the interval, about an interval after the last one."""
    generator = make(interval_s=interval_ms / 1000, clock=ManualClock(time_ms)).generator
    left_ms = generator._until_seal_s() * 1000
    assert interval_ms / 2 <= left_ms < 1.5 * interval_ms
    lead_ms = pytest.approx(min(10, interval_ms / 5), abs=1e-3)
    assert -(time_ms + left_ms) % interval_ms == lead_ms
    # What comes after a rest is not for the interval after next.
    left_ms = generator._until_seal_s(soon=True) * 1000
    assert 0 < left_ms <= interval_ms
    assert -(time_ms + left_ms) % interval_ms == lead_ms


def test_an_interval_without_records_makes_no_block(make):
    clock = ManualClock()
    bench = make(interval_s=0.2, clock=clock)
    for _ in range(5):
        clock.advance(200)
    assert bench.finish() == []
    assert bench.driver.infos == []


@pytest.mark.parametrize(
    "put",
    [
        pytest.param(lambda door, n: door.store(b"x"), id="record"),
        pytest.param(lambda door, n: door.store(b"x", n), id="record with a position"),
        pytest.param(lambda door, n: door.store([b"x", b"y"], None, print), id="records"),
        pytest.param(lambda door, n: door.store([], n, print), id="position"),
        pytest.param(lambda door, n: door.discard(b"x", "no", n), id="discarded"),
    ],
)
def test_what_comes_after_a_rest_is_sealed_as_ever(make, monkeypatch, put):
    monkeypatch.setattr(block_generator, "_REST_S", LONG_S)
    bench = make(interval_s=0.01)
    door = bench.generator.open_door()
    for blocks in (1, 2):
        await_rest(bench)
        put(door, blocks)
        bench.driver.wait_for(lambda blocks=blocks: len(bench.driver.infos) >= blocks)
    await_rest(bench)
    bench.finish()


def test_a_record_that_came_just_when_the_rest_began_is_sealed(make, monkeypatch):
    monkeypatch.setattr(block_generator, "_REST_S", 0.01)
    bench = make(interval_s=0.01)
    await_rest(bench)
    # Its thread had a permit, and stood before this line.
    bench.generator._assembler.pending.append(b"x")
    bench.driver.wait_for(lambda: bench.driver.infos)
    assert bench.finish() == [b"x"]


def test_a_generator_does_not_rest_while_it_has_something_to_tell(make, monkeypatch):
    monkeypatch.setattr(block_generator, "_REST_S", LONG_S)
    # All of them are discarded within it, also on a busy machine.
    monkeypatch.setattr(discards, "_SPAN_S", 1.5)
    bench = make(interval_s=0.01)
    door = bench.generator.open_door()
    for _ in range(discards.TOLD_SINGLY + 1):
        door.discard(b"x", "no")
    await_rest(bench)
    assert bench.errors[-1][0].startswith("1 more record")


@pytest.mark.parametrize("rest_s", [0.001, LONG_S])
def test_early_blocks_are_sealed_when_all_before_are_reported(make, monkeypatch, rest_s):
    monkeypatch.setattr(block_generator, "_REST_S", rest_s)
    bench = make(seals_early=True)
    for blocks in (1, 2):
        bench.generator.store(b"alone %d" % blocks)
        bench.driver.wait_for(lambda blocks=blocks: len(bench.driver.infos) == blocks)
    bench.driver.open.clear()
    bench.generator.store(b"0")
    while bench.generator.statistics().blocks_stored < 3:
        time.sleep(0.001)
    for number in range(1, 100):
        bench.generator.store(b"%d" % number)
        time.sleep(0.0001)
    assert bench.generator.statistics().blocks_sealed == 3
    bench.driver.open.set()
    bench.driver.wait_for(lambda: len(bench.driver.infos) == 4)
    assert [info.num_records for info in bench.driver.infos] == [1, 1, 1, 99]
    assert bench.finish()[2:] == [b"%d" % number for number in range(100)]


def test_what_a_source_waits_for_is_sealed_when_all_before_is_reported_and_nothing_else(make):
    bench = make()
    for number in range(3):
        bench.generator.store(b"%d" % number)
        bench.generator.seal_when_free()
        bench.driver.wait_for(lambda number=number: len(bench.driver.infos) == number + 1)
    bench.driver.open.clear()
    bench.generator.store(b"3")
    bench.generator.seal_when_free()
    while bench.generator.statistics().blocks_stored < 4:
        time.sleep(0.001)
    for number in range(4, 100):
        bench.generator.store(b"%d" % number)
        bench.generator.seal_when_free()
    assert bench.generator.statistics().blocks_sealed == 4
    bench.driver.open.set()
    bench.driver.wait_for(lambda: len(bench.driver.infos) == 5)
    bench.generator.store(b"100")
    time.sleep(0.05)
    assert bench.generator.statistics().blocks_sealed == 5
    assert bench.finish() == [b"%d" % number for number in range(101)]


def test_what_a_source_waits_for_is_sealed_also_after_the_queue_was_full(make):
    bench = make(queue_size=1, one_thread=False)
    bench.driver.open.clear()
    blocks = 0
    while not bench.generator._pipeline.is_full():
        blocks += 1
        bench.generator.store(b"x")
        bench.generator.seal_soon()
        while bench.generator.statistics().blocks_sealed < blocks:
            time.sleep(0.001)
        time.sleep(0.05)  # The log takes it from the queue, as long as it has room itself.
    bench.generator.store(b"awaited")
    bench.generator.seal_when_free()
    bench.generator.seal_soon()  # As at the end of an interval.
    time.sleep(0.05)
    assert bench.generator.statistics().blocks_sealed == blocks
    bench.driver.open.set()
    bench.driver.wait_for(lambda: sum(info.num_records for info in bench.driver.infos) > blocks)
    assert bench.finish() == [b"x"] * blocks + [b"awaited"]


def test_early_blocks_are_sealed_after_an_interval_at_the_latest(make):
    bench = make(seals_early=True, interval_s=0.02)
    bench.driver.open.clear()
    for blocks in (1, 2, 3):
        bench.generator.store(b"x")
        while bench.generator.statistics().blocks_sealed < blocks:
            time.sleep(0.001)
    bench.driver.open.set()
    assert bench.finish() == [b"x"] * 3


class OneByOne:
    """Lets a driver answer so often as it is told."""

    def __init__(self) -> None:
        self.permits = threading.Semaphore(0)

    def wait(self, timeout_s: float) -> bool:
        return self.permits.acquire(timeout=timeout_s)

    def set(self) -> None:
        self.permits.release(100)


@pytest.mark.parametrize("seals_early", [False, True])
def test_a_report_of_one_of_two_blocks_or_of_a_stream_without_function_seals_nothing(
    make, seals_early
):
    bench = make(seals_early=seals_early)
    bench.driver.open = OneByOne()
    for blocks in (1, 2) if seals_early else (1,):
        bench.generator.store(b"x")
        if blocks > 1 or not seals_early:
            # The first early one needs none: asked for after its seal, it would be the next one's.
            bench.generator.seal_soon()
        while bench.generator.statistics().blocks_stored < blocks:
            time.sleep(0.001)
    bench.generator.store(b"x")
    bench.driver.open.permits.release()
    bench.driver.wait_for(lambda: len(bench.driver.infos) == 1)
    time.sleep(0.05)
    assert bench.generator.statistics().blocks_sealed == blocks
    bench.driver.open.set()
    assert bench.finish() == [b"x"] * (blocks + 1)


def test_early_blocks_have_at_least_some_time_between_them(make, monkeypatch):
    monkeypatch.setattr(block_generator, "_SHORTEST_S", LONG_S)
    bench = make(seals_early=True, interval_s=0.001)
    bench.generator.store(b"x")
    bench.driver.wait_for(lambda: bench.driver.infos)
    bench.generator.store(b"y")
    time.sleep(0.05)
    assert len(bench.driver.infos) == 1
    assert bench.finish() == [b"x", b"y"]


def test_while_the_queue_is_full_early_blocks_wait_and_do_not_spin(make, monkeypatch):
    bench = make(seals_early=True, interval_s=0.001)
    await_rest(bench)
    monkeypatch.setattr(bench.generator, "_shortest_s", LONG_S)
    looks: list[int] = []
    bench.generator._pipeline.is_full = lambda: looks.append(1) or True
    bench.generator.store(b"x")
    while not looks:
        time.sleep(0.001)
    time.sleep(0.05)
    assert len(looks) == 1
    del bench.generator._pipeline.is_full
    assert bench.finish() == [b"x"]


def test_only_after_a_rest_an_interval_is_cut_short(make, monkeypatch):
    bench = make(interval_s=0.005)
    asked: list[tuple[bool, int]] = []

    def until_seal_s(*, soon: bool = False) -> float:
        asked.append((soon, bench.generator.statistics().blocks_sealed))
        return 0.001

    monkeypatch.setattr(bench.generator, "_until_seal_s", until_seal_s)
    for blocks in range(1, 20):
        bench.generator.store(b"x")
        bench.driver.wait_for(lambda blocks=blocks: len(bench.driver.infos) >= blocks)
    bench.finish()
    blocks = [sealed for _, sealed in asked]
    assert [soon for soon, _ in asked[1:]] == [a == b for a, b in itertools.pairwise(blocks)]


def test_early_blocks_are_sealed_while_something_is_to_be_told(make, monkeypatch):
    monkeypatch.setattr(discards, "_SPAN_S", 0.2)
    bench = make(seals_early=True, interval_s=0.01)
    door = bench.generator.open_door()
    for _ in range(discards.TOLD_SINGLY + 1):
        door.discard(b"x", "no")
    end_s = time.monotonic() + WAIT_S
    while "1 more record" not in bench.errors[-1][0]:
        assert time.monotonic() < end_s
        time.sleep(0.01)
    assert bench.finish() == []


@pytest.mark.parametrize("seals_early", [False, True])
def test_what_was_dropped_is_told_though_nothing_comes_any_more(make, monkeypatch, seals_early):
    monkeypatch.setattr(block_generator, "_REST_S", LONG_S)
    monkeypatch.setattr(intake, "_TELL_S", 0.2)
    bench = make(seals_early=seals_early, interval_s=0.01)
    end_s = time.monotonic() + WAIT_S
    for told in (1, 2):  # The second is told when it is time for it.
        bench.generator._intake.dropped += 1
        bench.generator.seal_soon()
        while len(bench.errors) < told:
            assert time.monotonic() < end_s
            time.sleep(0.01)


def test_a_thread_with_a_permit_in_hand_ends_a_rest_too(make, monkeypatch):
    """Nobody looks, and so whoever stores must say that something came."""
    bench = make(interval_s=0.01)
    plain = bench.generator._storing.give_leases_back
    given_back: list[int] = []

    def give_back() -> None:
        plain()
        given_back.append(bench.generator.statistics().blocks_sealed)

    monkeypatch.setattr(block_generator, "_REST_S", LONG_S)
    monkeypatch.setattr(block_generator, "_SHORTEST_S", LONG_S)
    monkeypatch.setattr(bench.generator._storing, "give_leases_back", give_back)
    for blocks in (1, 2, 3):
        bench.generator.store(b"x")
        bench.driver.wait_for(lambda blocks=blocks: len(bench.driver.infos) == blocks)
        end_s = time.monotonic() + WAIT_S
        while given_back[-1:] != [blocks]:
            assert time.monotonic() < end_s
            time.sleep(0.001)
    assert bench.finish() == [b"x"] * 3


def await_rest(bench: Bench) -> None:
    end_s = time.monotonic() + WAIT_S
    while not bench.generator.is_resting:
        assert time.monotonic() < end_s
        time.sleep(0.001)


def test_a_generator_that_waits_for_the_rate_is_woken_when_a_record_passes(make, monkeypatch):
    monkeypatch.setattr(block_generator, "_REST_S", LONG_S)
    limiter = RateLimiter()
    limiter.set_paused(True)
    bench = make(interval_s=0.01, limiter=limiter)
    await_rest(bench)
    woken = threading.Event()
    bench.generator.woken = woken.set
    thread = threading.Thread(target=bench.generator.store, args=(b"x",), daemon=True)
    thread.start()
    # Who waits is reported, too.
    assert woken.wait(WAIT_S)
    await_rest(bench)
    limiter.set_paused(False)
    bench.driver.wait_for(lambda: bench.driver.infos)
    thread.join(WAIT_S)


def test_stop_ensures_correct_shutdown(make):
    """The last records are sealed, stored, reported and acknowledged; then nothing is taken."""
    bench = make()
    acknowledged = threading.Event()
    for number in range(1000):
        bench.generator.store(b"%d" % number)
    bench.generator.store(b"last", ack=acknowledged.set)
    assert bench.finish() == [b"%d" % number for number in range(1000)] + [b"last"]
    assert acknowledged.is_set()
    assert bench.generator.state is BlockGeneratorState.STOPPED_ALL
    with pytest.raises(IllegalStateError, match="has not been started or has been stopped"):
        bench.generator.store(b"late")
    assert not any(
        thread.name.endswith("-0")
        for thread in threading.enumerate()
        if thread.is_alive() and thread.name.startswith(("penstock-tick", *PIPELINE_THREADS))
    )


def test_start_twice_is_an_error_that_names_the_state(make):
    bench = make()
    with pytest.raises(IllegalStateError, match=r"\[state = Active\]"):
        bench.generator.start()


def test_a_list_is_stored_when_store_returns_I1(make):
    bench = make()
    bench.generator.store([b"a", b"b"])
    assert [info.num_records for info in bench.driver.infos] == [2]
    assert bench.driver.records() == [b"a", b"b"]


def test_nothing_is_acknowledged_before_the_driver_has_it_I1(make):
    bench = make()
    bench.driver.open.clear()
    acknowledged = threading.Event()
    stored = threading.Event()

    def store() -> None:
        bench.generator.store([b"a"])
        stored.set()

    bench.generator.store([b"z"], ack=acknowledged.set)
    threading.Thread(target=store, daemon=True).start()
    assert not stored.wait(0.2)
    assert not acknowledged.is_set()
    bench.driver.open.set()
    assert stored.wait(WAIT_S)
    assert acknowledged.wait(WAIT_S)
    assert bench.finish() == [b"z", b"a"]


def test_every_bulk_form_comes_back_in_order(make):
    bench = make()
    schema = pa.schema([("n", pa.int64())])
    batch = pa.RecordBatch.from_pylist([{"n": 1}, {"n": 2}], schema)
    bench.generator.store(b"single")
    bench.generator.store([b"l1", "l2", 3])
    bench.generator.store(iter([b"i1", b"i2"]))
    bench.generator.store(batch)
    bench.generator.store(pa.Table.from_batches([batch, batch]))
    bench.generator.store(b"x\ny\n", framing="newline")
    bench.generator.store(b"x\r\ny", framing="lines")
    bench.generator.store(b"\0\0\0\1z", framing="length-prefix")
    bench.generator.store([])
    rows = [{"n": 1}, {"n": 2}]
    assert bench.finish() == [
        b"single", b"l1", "l2", 3, b"i1", b"i2", *rows, *rows, *rows,
        b"x", b"y", "x", "y", b"z",
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["list", "rows", "batch", "table", "lines", "length-prefix"])
def test_what_a_rate_divides_comes_back_once_and_in_order(make, form):
    numbers = range(60)
    rows = [{"n": number} for number in numbers]
    schema = pa.schema([("n", pa.int64())])
    texts = [b"%d" % number for number in numbers]
    forms = {
        "list": (texts, None, texts),
        "rows": (rows, None, rows),
        "batch": (pa.RecordBatch.from_pylist(rows, schema), None, rows),
        "table": (pa.Table.from_pylist(rows, schema), None, rows),
        "lines": (b"".join(text + b"\n" for text in texts), "newline", texts),
        "length-prefix": (
            b"".join(len(text).to_bytes(4, "big") + text for text in texts),
            "length-prefix",
            texts,
        ),
    }
    data, framing, records = forms[form]
    # At most seven may pass at a time.
    limiter = RateLimiter(350, burst_s=0.02)
    bench = make(limiter=limiter, schema=schema if form == "rows" else None)
    bench.generator.store(data, framing=framing)
    assert bench.finish() == records


def test_an_unknown_framing_is_an_error_in_the_call(make):
    bench = make()
    with pytest.raises(ValueError, match="tabs"):
        bench.generator.store(b"x", framing="tabs")


def test_block_push_errors_are_reported_and_the_blocks_are_pushed_later(make):
    """In the original the push thread ends with its first error (SPARK-3655's complaint)."""
    bench = make()
    original = bench.store.put
    failures = [OSError(28, "No space left on device"), OSError(28, "No space left on device")]

    def put(block):
        if failures:
            raise failures.pop()
        return original(block)

    bench.store.put = put
    bench.generator.store([b"a", b"b"])
    assert failures == []
    assert [message for message, _ in bench.errors] == ["Error in block pushing thread"]
    bench.generator.store([b"c"])
    assert bench.finish() == [b"a", b"b", b"c"]


def test_a_driver_that_fails_for_a_while_is_asked_again_and_order_holds(make):
    bench = make()
    bench.driver.fail = [PenstockError("the driver log is full"), PenstockError("still")]
    for number in range(5):
        bench.generator.store([b"%d" % number], ack=lambda: None)
    assert bench.finish() == [b"0", b"1", b"2", b"3", b"4"]
    assert [message for message, _ in bench.errors] == ["Failed to add block to receiver tracker."]


def test_a_refused_attempt_is_told_and_nothing_is_acknowledged(make):
    bench = make()
    bench.driver.fail = [BlocksRefusedError("attempt 2 took over")]
    with pytest.raises(BlockNotStoredError, match="attempt 2 took over"):
        bench.generator.store([b"a"])
    assert bench.driver.infos == []
    assert isinstance(bench.errors[0][1], BlocksRefusedError)


def test_stop_gives_up_in_time_when_the_driver_does_not_answer_and_says_so(make, caplog):
    bench = make()
    bench.driver.open.clear()
    acknowledged = threading.Event()
    bench.generator.store([b"a"], ack=acknowledged.set)
    assert not bench.generator.stop(0.3)
    assert "1 blocks not reported" in caplog.text
    assert not acknowledged.is_set()
    bench.driver.open.set()


def test_what_waits_is_bounded_when_the_driver_stands_still_I7(make):
    bench = make(queue_size=2, memory_bytes=2 << 20)
    bench.driver.open.clear()
    record = b"x" * 4000
    passed = 0
    stuck = threading.Event()

    def fill() -> None:
        nonlocal passed
        try:
            while True:
                bench.generator.store(record)
                passed += 1
        except IllegalStateError:
            stuck.set()

    threading.Thread(target=fill, daemon=True).start()
    seen = -1
    while seen != passed or passed == 0:
        seen = passed
        stuck.wait(0.5)
    # queue of 2 sealed + 2 stored + up to 2 in hand + the open block, and a pending chunk
    assert passed * 4000 < 8 * (256 << 10) + (1 << 20)
    assert bench.store._arena.statistics().used <= 2 << 20
    bench.driver.open.set()
    threads_end = bench.generator.stop(WAIT_S)
    assert threads_end
    assert stuck.wait(WAIT_S)
    assert len(bench.driver.records()) >= passed


def test_a_block_that_waits_for_room_behind_the_log_is_waited_for_I10(make):
    bench = make(queue_size=1, one_thread=False)
    bench.driver.open.clear()
    for number in range(3):
        bench.generator.store(str(number))
        bench.generator.flush(lambda: None)
    # One is being reported, one waits for that, and one is in the log and waits for room.
    until(lambda: bench.generator.read_rate_usage(with_pipe=True).pipe.room_s > 0)
    assert bench.generator.statistics().queue_length == 3
    bench.driver.open.set()
    assert bench.generator.stop(WAIT_S)
    assert bench.driver.records() == ["0", "1", "2"]


def test_a_new_rate_holds_for_the_open_block_at_once_I8(make):
    clock = ManualClock()
    limiter = RateLimiter(1_000_000, clock=clock)
    bench = make(limiter=limiter, clock=clock)
    clock.advance(1000)
    for _ in range(100):
        bench.generator.store(b"x")
    bench.generator.update_rate(10)
    passed = []
    ended = threading.Event()

    def fill() -> None:
        try:
            for number in range(1000):
                bench.generator.store(b"y")
                passed.append(number)
        except (IllegalStateError, PenstockError):
            pass
        ended.set()

    threading.Thread(target=fill, daemon=True).start()
    seen = -1
    while len(passed) != seen:
        seen = len(passed)
        ended.wait(0.3)
    assert len(passed) <= 10
    clock.advance(1000)
    while len(passed) < seen + 5:
        assert not ended.wait(0.01)
    assert len(passed) <= 20 + 1
    assert bench.generator.stop(WAIT_S)
    assert ended.wait(WAIT_S)


def test_a_rate_that_changes_often_costs_no_permits(make):
    clock = ManualClock()
    limiter = RateLimiter(1000, clock=clock)
    bench = make(limiter=limiter, clock=clock)
    clock.advance(1000)
    for number in range(200):
        bench.generator.store(b"x")
        bench.generator.update_rate(1000 + number % 2)
    assert (limiter.permits, limiter.permits_out) == (200, 0)
    # What was saved up is there for the next.
    assert limiter.lease(800, 0.0, in_hand=800) == 800


def test_a_record_that_cannot_be_pickled_fails_in_its_own_call_and_the_stream_goes_on(make):
    bench = make()
    bench.generator.store({"good": 1})
    with pytest.raises(TypeError, match="a record of type lock cannot be pickled") as caught:
        bench.generator.store(threading.Lock())
    assert "; it is <unlocked " in str(caught.value)
    assert f"({__file__}:" in described(caught.value)
    with pytest.raises(TypeError, match="pickle"):
        bench.generator.store([1, threading.Lock()])
    bench.generator.store({"good": 2})
    assert bench.finish() == [{"good": 1}, {"good": 2}]


def test_a_record_larger_than_a_block_is_discarded_and_told_in_every_form_of_store(make):
    bench = make(memory_bytes=16 << 20)
    store = bench.generator.store
    big = b"x" * (300 << 10)
    text = big.decode()
    acknowledged: list[str] = []
    store(b"before")
    store(big)
    store(text)
    store({"big": text})
    store(big, position=1)
    store(big, ack=lambda: acknowledged.append("single"))
    store([b"1", big, b"2"])
    store([1, text, 2], ack=lambda: acknowledged.append("list"))
    store(iter([b"3", big, b"4"]))
    store([b"5", big, b"6"], position=2)
    store(["7", {"big": text}, "8"], position=3)
    store(b"9\n" + big + b"\n10\n", framing="newline", position=4)
    store(b"11\n" + big + b"\n12\n", framing="lines")
    frames = [b"13", big, b"14"]
    framed = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    store(framed, framing="length-prefix", ack=lambda: acknowledged.append("frames"))
    store(framed, framing="length-prefix", position=5)
    batch = pa.record_batch({"text": ["15", text, "16"]})
    store(batch)
    store(batch, position=6)
    store(pa.Table.from_batches([batch]))
    store(pa.Table.from_batches([batch, batch]), position=7, ack=lambda: acknowledged.append("all"))
    store(b"after")
    rows = [{"text": "15"}, {"text": "16"}]
    assert bench.finish() == [
        b"before", b"1", b"2", 1, 2, b"3", b"4", b"5", b"6", "7", "8", b"9", b"10", "11", "12",
        b"13", b"14", b"13", b"14", *rows, *rows, *rows, *rows, *rows, b"after",
    ]  # fmt: skip
    assert bench.generator.statistics().records_discarded == 19
    assert [position for position in positions(bench) if position] == [1, 2, 3, 4, 5, 6, 7]
    assert acknowledged == ["single", "list", "frames", "all"]
    assert all(isinstance(error, RecordTooLargeError) for _, error in bench.errors)
    message, error = bench.errors[0]
    assert error.size == 300 << 10
    assert message.startswith("1 record was discarded: a record of 307200 bytes does not fit")
    assert "spark.penstock.block.maxSize" in message
    assert message.endswith("it begins with b'" + "x" * 64 + "'...")
    assert bench.errors[3][0].startswith("1 record was discarded (stored with 1): ")
    # A flood is told in sum.
    assert len(bench.errors) == 11
    assert bench.errors[-1][0].startswith("9 more records were discarded")


def test_large_records_fill_blocks_one_by_one(make):
    bench = make()
    records = [bytes([n]) * (150 << 10) for n in range(10)]
    for record in records:
        bench.generator.store(record)
    assert bench.finish() == records
    assert len(bench.driver.infos) == 10


def test_empty_records_are_records(make):
    bench = make()
    for record in (b"", "", [b""], b""):
        bench.generator.store(record)
    assert bench.finish() == [b"", "", b"", b""]


def test_a_line_over_the_limit_is_discarded_told_and_the_stream_goes_on(make):
    bench = make()
    bench.generator.store(b"a\n" + b"x" * (300 << 10) + b"\nb\n", framing="newline")
    assert bench.finish() == [b"a", b"b"]
    assert bench.generator.statistics().records_discarded == 1
    assert "discarded" in bench.errors[0][0]
    assert isinstance(bench.errors[0][1], RecordTooLargeError)


def test_a_row_that_does_not_fit_the_schema_is_discarded_with_its_reason(make):
    bench = make(schema=pa.schema([("n", pa.int64())]))
    for row in ({"n": 1}, {"n": "two"}, {"n": 3}):
        bench.generator.store(row)
    bench.generator.store([{"n": 4}, {"m": 5}, {"n": 6}])
    assert bench.finish() == [{"n": 1}, {"n": 3}, {"n": 4}, {"n": 6}]
    assert bench.generator.statistics().records_discarded == 2
    assert [message.rpartition("; ")[2] for message, _ in bench.errors] == [
        "it begins with {'n': 'two'}",
        "it begins with {'m': 5}",
    ]


def test_what_is_told_of_a_row_that_does_not_fit_names_the_column_and_no_traceback(make):
    bench = make(schema=pa.schema([("n", pa.int64()), ("m", pa.int64())]))
    bench.generator.store([{"n": 1}, {"n": "two"}, {"n": 3}, (4,)])
    assert bench.finish() == [{"n": 1, "m": None}, {"n": 3, "m": None}]
    (first, error), (second, _) = bench.errors
    assert first.startswith("1 record was discarded: column n (int64): Could not convert 'two'")
    assert second.startswith("1 record was discarded: a tuple of 1 is no row of the schema's 2")
    assert len(traceback.format_exception(error)) == 1


@pytest.mark.parametrize("position", [None, 7])
def test_arrow_batches_get_the_columns_of_a_declared_schema_or_are_discarded_row_by_row(
    make, position
):
    schema = pa.schema([pa.field("n", pa.int32(), nullable=False), ("name", pa.string())])
    bench = make(schema=schema)
    for columns in (
        {"n": pa.array([1, 2]), "name": ["a", "b"]},
        {"n": pa.array([3, None, 1 << 40])},
        {"m": [5]},
        {"n": pa.array([6], pa.int32()), "name": ["c"]},
    ):
        bench.generator.store(pa.RecordBatch.from_pydict(columns), position)
    bench.generator.store(pa.table({"name": ["d"], "n": [8]}), position)
    assert bench.finish() == [
        {"n": 1, "name": "a"},
        {"n": 2, "name": "b"},
        {"n": 3, "name": None},
        {"n": 6, "name": "c"},
        {"n": 8, "name": "d"},
    ]
    assert {info.schema for info in bench.driver.infos if info.num_records} == {
        schema.serialize().to_pybytes()
    }
    assert bench.generator.statistics().records_discarded == 3


def test_framed_bytes_are_refused_where_a_schema_is_declared_and_of_a_wrong_type(make):
    declared = make(schema=pa.schema([("line", pa.string())]))
    with pytest.raises(TypeError, match="not accepted where a schema is declared"):
        declared.generator.store(b"a\n", framing="lines")
    with pytest.raises(TypeError, match="not accepted where a schema is declared"):
        declared.generator.open_door().store_from(lambda target: 0, "lines")
    plain = make()
    with pytest.raises(TypeError, match="takes bytes, not str"):
        plain.generator.store("a\n", framing="lines")
    with pytest.raises(ValueError, match="one of 'lines', 'newline', 'length-prefix'"):
        plain.generator.store(b"a\n", framing="nl")
    assert declared.finish() == plain.finish() == []


class Unreadable(dict):
    """Can be pickled; what comes of that raises."""

    def __init__(self, size: int) -> None:
        super().__init__(number=0)
        self.size = size

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("x" * self.size,)


@pytest.mark.parametrize("schema", [None, pa.schema([("number", pa.int64())])])
@pytest.mark.parametrize("size", [1, 300 << 10])
def test_a_record_whose_pickle_cannot_be_loaded_holds_nobody_up(make, schema, size):
    bench = make(schema=schema)
    for number in range(3):
        bench.generator.store({"number": number})
    bench.generator.store(Unreadable(size))
    bench.generator.store({"number": 3})
    assert bench.generator.stop(WAIT_S)
    stored = sum(info.num_records for info in bench.driver.infos)
    assert stored + bench.generator.statistics().records_discarded == 5
    assert stored >= 4
    assert len(bench.errors) == bench.generator.statistics().records_discarded


def test_a_row_larger_than_a_block_is_discarded_alone_and_the_rows_around_it_are_stored_once(make):
    bench = make(schema=pa.schema([("n", pa.int64()), ("text", pa.string())]))
    rows = [{"n": n, "text": "x"} for n in range(10)]
    big = {"n": -1, "text": "x" * (300 << 10)}
    for row in [*rows[:5], big, *rows[5:7]]:
        bench.generator.store(row)
    bench.generator.store([*rows[7:9], big, rows[9]], position=1)
    assert bench.finish() == rows
    assert bench.generator.statistics().records_discarded == 2
    assert all(isinstance(error, RecordTooLargeError) for _, error in bench.errors)
    assert "it begins with {'n': -1, 'text': 'xxx" in bench.errors[0][0]


def test_a_block_whose_compression_cannot_begin_is_stored_all_the_same_I11(make):
    bench = make()
    original = bench.store.begin

    def begin(block):
        bench.store.begin = original
        raise RuntimeError("can't start new thread")

    bench.store.begin = begin
    bench.generator.store(b"a")
    with pytest.raises(RuntimeError, match="new thread"):
        bench.generator.store([b"b"])
    assert bench.finish() == [b"a"]


@pytest.mark.parametrize("with_schema", [False, True])
def test_a_flush_that_fails_in_the_middle_loses_and_doubles_nothing_I11(make, with_schema):
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())]) if with_schema else None
    bench = make(schema=schema)
    records = [{"n": n, "text": "x" * 5000} for n in range(60)]
    # No lease ends meanwhile, so all of them wait to enter a block.
    bench.generator._assembler.lease_size = 4096
    for record in records:
        bench.generator.store(record)
    assert len(bench.generator._assembler.pending) >= 59
    original = bench.store.open_block
    calls = []

    def open_block(*args, **options):
        calls.append(args)
        if len(calls) == 2:
            raise OSError(5, "the memory of the second block")
        return original(*args, **options)

    bench.store.open_block = open_block
    with pytest.raises(OSError, match="second block"):
        bench.generator._assembler.flush_pending()
    assert 0 < len(bench.generator._assembler.pending) < 60
    bench.generator.store({"n": 60, "text": "after"})
    assert bench.finish() == [*records, {"n": 60, "text": "after"}]


@pytest.mark.parametrize(
    "schema", [None, pa.schema([("n", pa.int64()), ("list", pa.list_(pa.int64()))])]
)
def test_an_object_that_its_author_uses_again_is_stored_as_it_was(make, schema):
    bench = make(schema=schema)
    row: dict[str, Any] = {"n": 0, "list": [0]}

    def rows(start: int) -> Any:
        for n in range(start, start + 5):
            row["n"] = n
            row["list"][0] = n
            yield row

    for found in rows(0):
        bench.generator.store(found)
    bench.generator.store(rows(5))
    bench.generator.store(rows(10), position=1)
    bench.generator.store(rows(15), ack=lambda: None)
    assert bench.finish() == [{"n": n, "list": [n]} for n in range(20)]


def test_a_flat_row_that_its_author_uses_again_is_stored_as_it_was(make):
    bench = make(schema=pa.schema([("n", pa.int64()), ("text", pa.string())]))
    row: dict[str, Any] = {}
    for n in range(5):
        row.update(n=n, text=str(n) if n else None)
        bench.generator.store(row)
    assert bench.finish() == [{"n": n, "text": str(n) if n else None} for n in range(5)]


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.string())], ids=str)
def test_rows_of_a_schema_that_wait_are_bounded_by_bytes_I7(make, kind):
    bench = make(schema=pa.schema([("text", kind)]))
    row = {"text": "x" * 100_000 if kind == pa.string() else ["x" * 100_000]}
    bench.generator._assembler.lease_size = 4096
    for _ in range(20):
        bench.generator.store({"text": None})
        bench.generator.store(row)
        assert len(bench.generator._assembler.pending) < 2
    assert bench.finish() == [{"text": None}, row] * 20


def test_a_list_with_a_record_that_cannot_be_pickled_stores_nothing_whatever_its_length(make):
    bench = make()
    with pytest.raises(TypeError, match="pickle"):
        bench.generator.store([*range(10_000), threading.Lock()])
    bench.generator.store([1], position=1)
    assert bench.finish() == [1]


def test_permits_of_what_entered_no_block_are_given_back_I8(make):
    limiter = RateLimiter(1000)
    bench = make(limiter=limiter)
    many = [b"z" * 1000] * 400
    with pytest.raises(RecordTooLargeError, match="400 records with one position"):
        bench.generator.store(many, position=2)
    assert limiter.permits == 0


@pytest.mark.parametrize("threads", ["three", "one"])
def test_full_memory_makes_store_wait_and_go_on_when_there_is_room(tmp_path, threads):
    """And records lie in pages that were asked for: a page that is not to be had is no SIGBUS."""
    mount = shlex.join(["mount", "-t", "tmpfs", "-o", "size=16m", "penstock", str(tmp_path)])
    done = subprocess.run(
        [*in_own_mounts(mount), "-m", "tests.receiver.full_memory_process", str(tmp_path), threads],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=4 * WAIT_S,
    )
    assert (done.returncode, done.stdout.splitlines()) == (
        0,
        ["There is no memory for more blocks, so storing waits until there is", "stored"],
    )


def positions(bench: Bench) -> list[Any]:
    return [
        None if info.position is None else msgspec.msgpack.decode(info.position)
        for info in bench.driver.infos
    ]


def test_a_position_is_in_the_block_of_its_record(make):
    bench = make()
    for number in range(10):
        bench.generator.store(b"%d" % number, position={"offset": number})
    bench.generator.store([b"10", b"11"], position={"offset": 11})
    assert bench.finish() == [b"%d" % number for number in range(12)]
    assert positions(bench) == [{"offset": 9}, {"offset": 11}]


def test_records_and_their_position_are_in_one_block_or_in_none(make):
    bench = make()
    bench.generator.store(b"x" * 8000)
    many = [b"y" * 1000] * 200
    bench.generator.store(many, position=1, ack=lambda: None)
    with pytest.raises(RecordTooLargeError):
        bench.generator.store([b"z" * 1000] * 400, position=2)
    assert bench.finish() == [b"x" * 8000, *many]
    with_position = [info for info in bench.driver.infos if info.position is not None]
    assert len(with_position) == 1
    assert with_position[0].num_records >= 200


TEXTS = pa.schema([("text", pa.string())])
LARGE = "z" * 1000


def is_text(record: Any) -> bool:
    return type(record) is str


@pytest.mark.parametrize(
    ("options", "data"),
    [
        ({"schema": TEXTS}, [{"text": LARGE}] * 400 + [{"text": 1}]),
        ({"schema": TEXTS}, pa.record_batch({"text": [LARGE.encode()] * 400 + [b"\xff"]})),
        ({"validate": is_text}, [1] + [LARGE] * 400),
        ({"validate": is_text}, [*[LARGE] * 400, 1].__iter__),
        ({"validate": is_text}, WithLetters([LARGE] * 400, [("bad", "why")])),
        ({}, WithLetters([LARGE] * 400, [(b"bad", "why")])),
        ({"framing": "newline"}, b"y" * 300_000 + b"\n" + b"%s\n" % LARGE.encode() * 400),
    ],
)
def test_a_call_that_fits_into_no_block_makes_no_letter(
    make: Any, options: dict[str, Any], data: Any
) -> None:
    """Its source makes it again in parts, and each of these its own."""
    options = dict(options)  # Those of the next case, too.
    framing = options.pop("framing", None)
    bench = make(**options)
    with pytest.raises(RecordTooLargeError, match="with one position"):
        bench.generator.store(data() if callable(data) else data, 1, lambda: None, framing)
    assert (bench.errors, bench.generator.statistics().records_discarded) == ([], 0)
    assert bench.finish() == []


@pytest.mark.parametrize("position", [None, 7])
def test_letters_come_with_the_records_of_their_call(make: Any, position: Any) -> None:
    said: list[str] = []
    bench = make()
    letters = [(b"bad", "why"), (b"worse", ValueError("how"))]
    bench.generator.store(WithLetters([1, 2], letters), position, lambda: said.append("stored"))
    bench.generator.store(WithLetters([], letters[:1]), position, lambda: said.append("letter"))
    assert bench.finish() == [1, 2]
    assert said == ["stored", "letter"]
    assert [str(error) for _, error in bench.errors] == ["why", "how", "why"]
    assert all(("stored with 7" in told) is (position == 7) for told, _ in bench.errors)
    with pytest.raises(TypeError, match="records"):
        WithLetters(iter([1]), [])  # type: ignore[arg-type]


def test_a_multi_thread_receiver_loses_and_doubles_nothing(make):
    """`multi-thread receiver` of InputStreamsSuite."""
    bench = make(interval_s=0.01)

    def store(base: int) -> None:
        for number in range(base, base + 5000):
            bench.generator.store(b"%d" % number)

    threads = [threading.Thread(target=store, args=(n * 5000,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    records = [int(record) for record in bench.finish()]
    assert sorted(records) == list(range(40_000))
    for n in range(8):
        mine = [record for record in records if record // 5000 == n]
        assert mine == sorted(mine)


def test_a_failing_acknowledgement_callback_is_told_and_stops_nothing(make):
    bench = make()

    def fail() -> None:
        raise RuntimeError("author's bug")

    bench.generator.store([b"a"], ack=fail)
    bench.generator.store([b"b"])
    assert bench.finish() == [b"a", b"b"]
    assert [str(error) for _, error in bench.errors] == ["author's bug"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_no_error_of_a_callback_ends_the_thread_that_reports(make, error):
    bench = make()

    def fail() -> None:
        raise error

    bench.generator.store(b"a", ack=fail)
    bench.generator.store([b"b"])
    bench.generator.store([b"c"])
    assert bench.finish() == [b"a", b"b", b"c"]
    assert [found for _, found in bench.errors] == [error]


def test_errors_of_callbacks_are_told_apart(make):
    bench = make()
    bench.generator.store([b"a"], ack=lambda: int("x"))
    bench.generator.store([b"b"], ack=lambda: {}["key"])
    bench.finish()
    for (message, _), kind in zip(bench.errors, ("ValueError", "KeyError"), strict=True):
        assert f"Error in an acknowledgement callback: {kind}: " in message


@pytest.mark.parametrize("data", [b"a", 1, [b"a"]])
def test_an_ack_that_cannot_be_called_is_refused_before_anything_is_stored(make, data):
    bench = make()
    with pytest.raises(TypeError, match="ack='done' is not accepted: a function"):
        bench.generator.store(data, ack="done")
    assert bench.finish() == []


@pytest.mark.parametrize("many", [False, True])
def test_a_callback_that_stores_gets_an_error_and_not_a_deadlock(make, many):
    bench = make(queue_size=1)

    def store() -> None:
        bench.generator.store([b"b"] if many else b"x" * 10_000)

    bench.generator.store([b"a"], ack=store)
    bench.generator.store([b"c"])
    assert bench.finish() == [b"a", b"c"]
    assert "called by an acknowledgement callback" in str(bench.errors[0][1])


@pytest.mark.parametrize(
    "error",
    [ValueError("a defect"), AppendTooLargeError(2, 1), FrameTooLargeError("the driver", 2, 1)],
)
def test_an_error_that_cannot_pass_is_not_retried_and_who_waits_is_told(make, monkeypatch, error):
    died: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: died.append(arguments.exc_value))
    bench = make(queue_size=1)
    bench.driver.fail = [error]
    with pytest.raises(BlockNotStoredError, match=re.escape(str(error))):
        bench.generator.store([b"a"])
    bench.generator.store(b"b")
    with pytest.raises(BlockNotStoredError, match=re.escape(str(error))):
        bench.generator.flush(lambda: None)
    assert not bench.generator.stop(WAIT_S), "and the stop does not wait for what cannot happen"
    assert died == [error], "the thread's owner hears of it"


PIPELINE_THREADS = ("penstock-push-", "penstock-report-", "penstock-move-")


def pipeline_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith(PIPELINE_THREADS)]


def test_what_goes_on_failing_is_not_tried_any_more_when_the_receiver_has_ended(make):
    bench = make()
    tried = threading.Event()

    def put(block):
        tried.set()
        raise OSError(28, "No space left on device")

    bench.store.put = put
    bench.generator.store(b"a")
    with suppress(BlockNotStoredError):
        bench.generator.stop(0.3)
    assert tried.is_set()
    for thread in pipeline_threads():
        thread.join(WAIT_S)
    assert pipeline_threads() == []


def test_a_block_whose_store_is_closed_at_the_end_is_no_defect(make, monkeypatch):
    died: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda arguments: died.append(arguments.exc_value))
    bench = make()
    closed = threading.Event()

    def put(block):
        assert closed.wait(WAIT_S)
        raise IllegalStateError("closed")

    bench.store.put = put
    bench.generator.store(b"a")
    assert not bench.generator.stop(0.3)
    closed.set()
    for thread in pipeline_threads():
        thread.join(WAIT_S)
    assert pipeline_threads() == []
    assert died == []


def test_reports_are_bounded_by_bytes_and_lose_no_order(make):
    bench = make(queue_size=50, report_bytes=2000)
    sizes: list[int] = []
    report = bench.generator._pipeline._report

    def measured(infos: tuple[ReceivedBlockInfo, ...]) -> Any:
        sizes.append(len(msgspec.msgpack.encode(infos)))
        return report(infos)

    bench.generator._pipeline._report = measured
    bench.driver.open.clear()
    for number in range(20):
        bench.generator.store(b"%d" % number, position="x" * 500, ack=lambda: None)
        bench.generator.store([], ack=lambda: None)
        with bench.generator._assembler.lock:
            bench.generator._assembler.seal()
    if bench.generator._options.one_thread:
        # It may already wait for the driver with the first ones.
        assert bench.generator.statistics().blocks_sealed == 20
    else:
        until(lambda: bench.generator.statistics().blocks_stored == 20)
    bench.driver.open.set()
    assert bench.finish() == [b"%d" % number for number in range(20)]
    assert len(sizes) < 20, "they still share reports"
    assert max(sizes) <= 2100


@pytest.mark.parametrize("many", [False, True])
def test_a_position_that_is_too_large_is_refused_in_its_own_call(make, many):
    bench = make()
    with pytest.raises(PositionError, match="70005 bytes is larger than the 65536"):
        bench.generator.store([b"a"] if many else b"a", position="x" * 70_000)
    bench.generator.store(b"b", position="x" * 60_000)
    assert bench.finish() == [b"b"]


@pytest.mark.parametrize(
    ("earlier", "last", "following"),
    [(4, 5, 5), (4, 5.5, 6), ([1, 9], [2, 0], [2, 1]), ((7, 3), [7, 4], [8, 4])],
)
@pytest.mark.parametrize("form", ["one", "list", "empty", "acknowledged", "framed", "iterator"])
def test_a_position_that_goes_back_is_refused_and_nothing_of_it_is_stored(
    make, earlier, last, following, form
):
    bench = make()
    store = bench.generator.store
    store(b"first", position=last)
    calls = {
        "one": lambda: store(b"again", position=earlier),
        "list": lambda: store([b"again"] * 3, position=earlier),
        "empty": lambda: store([], position=earlier),
        "acknowledged": lambda: store([b"again"], position=earlier, ack=lambda: None),
        "framed": lambda: store(b"again\n", position=earlier, framing="newline"),
        "iterator": lambda: store(iter([b"again"]), position=earlier),
    }
    with pytest.raises(PositionError, match="goes back behind the last one"):
        calls[form]()
    store(b"next", position=following)
    assert bench.finish() == [b"first", b"next"]
    last_position = msgspec.msgpack.decode(bench.driver.infos[-1].position)
    assert last_position == msgspec.msgpack.decode(msgspec.msgpack.encode(following))


def test_each_start_begins_after_the_last_position_that_it_was_given(make):
    bench = make()
    bench.generator.open_door(7).store(b"a", position=7)
    with pytest.raises(PositionError):
        bench.generator.open_door(7).store(b"b", position=6)
    bench.generator.open_door(None).store(b"c", position=6)
    assert bench.finish() == [b"a", b"c"]


@pytest.mark.parametrize(
    "positions",
    [["b", "a"], [{"n": 2}, {"n": 1}], [["b", 2], ["a", 1]], [5, "a"], [True, False], [5, None, 5]],
)
def test_positions_without_an_order_are_taken_as_they_come(make, positions):
    bench = make()
    for number, position in enumerate(positions):
        bench.generator.store(b"%d" % number, position=position)
    assert bench.finish() == [b"%d" % number for number in range(len(positions))]


@pytest.mark.slow
@pytest.mark.parametrize("short_of", ["queue", "memory"])
def test_a_stop_gives_up_in_time_when_there_is_no_room_for_the_last_block(make, short_of):
    """The driver answers nothing, and threads that store hold the open block."""
    bench = make(queue_size=2 if short_of == "queue" else 100, memory_bytes=2 << 20)
    bench.driver.open.clear()
    ended = threading.Event()

    def feed() -> None:
        try:
            while True:
                bench.generator.store(b"x" * 4000)
        except PenstockError:
            ended.set()

    thread = threading.Thread(target=feed)
    thread.start()
    while True:
        waiting = bench.generator.statistics().queue_length
        if not ended.wait(0.3) and bench.generator.statistics().queue_length == waiting > 2:
            break
    assert not bench.generator.stop(0.5)
    assert ended.wait(WAIT_S), "who stores is told"
    thread.join(WAIT_S)
    assert bench.generator.state is BlockGeneratorState.STOPPED_ALL
    bench.driver.open.set()


@pytest.mark.parametrize("record_of", [lambda number: b"%d" % number, int])
@pytest.mark.parametrize("what", ["stop", "close"])
def test_a_store_that_a_stop_overtakes_raises_or_its_record_is_in(
    make, monkeypatch, what, record_of
):
    """It has looked whether it may store, and is then held up until all is over."""
    bench = make()
    door = bench.generator.open_door()
    held_up, go_on = threading.Event(), threading.Event()

    def lease(*arguments: Any, **named: Any) -> int:
        held_up.set()
        assert go_on.wait(WAIT_S)
        return 1000

    monkeypatch.setattr(bench.limiter, "lease", lease)
    outcome: list[Any] = []

    def store() -> None:
        for number in range(3):
            try:
                door.store(record_of(number))
                outcome.append(number)
            except ReceiverStoppedError as error:
                outcome.append(error)

    thread = threading.Thread(target=store)
    thread.start()
    assert held_up.wait(WAIT_S)
    if what == "stop":
        assert bench.finish() == []
    else:
        door.close()
    go_on.set()
    thread.join(WAIT_S)
    assert [type(found) for found in outcome] == [ReceiverStoppedError] * 3
    if what == "close":
        assert bench.finish() == []


def test_what_threads_stored_when_a_stop_came_is_in_to_the_last_record(make):
    for _ in range(10):
        bench = make(interval_s=0.001)
        accepted: list[list[int]] = [[] for _ in range(4)]

        def store(thread: int, bench: Bench = bench, accepted: Any = accepted) -> None:
            with suppress(PenstockError):
                for number in itertools.count():
                    bench.generator.store(b"%d:%d" % (thread, number))
                    accepted[thread].append(number)

        threads = [threading.Thread(target=store, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        bench.driver.wait_for(lambda bench=bench: len(bench.driver.infos) >= 2)
        records = bench.finish()
        for thread in threads:
            thread.join(WAIT_S)
        for number in range(4):
            mine = [record for record in records if record.startswith(b"%d:" % number)]
            assert mine == [b"%d:%d" % (number, each) for each in accepted[number]]


def test_a_door_that_is_held_lets_through_what_needs_no_acknowledgement(make):
    bench = make()
    door = bench.generator.open_door()
    acknowledged: list[bytes] = []
    door.store(b"a", ack=lambda: acknowledged.append(b"a"))
    assert door.hold(lambda: WAIT_S)
    refused = threading.Event()

    def store() -> None:
        with pytest.raises(ReceiverStoppedError, match="the source gives this again"):
            door.store(b"b", ack=lambda: acknowledged.append(b"b"))
        refused.set()

    thread = threading.Thread(target=store)
    thread.start()
    door.store(b"c")
    durable = threading.Event()
    bench.generator.flush(durable.set)
    assert durable.wait(WAIT_S)
    assert acknowledged == [b"a"], "what was taken before is acknowledged by then"
    assert not refused.is_set()
    door.refuse_acknowledged()
    thread.join(WAIT_S)
    assert refused.is_set()
    door.store(b"d")
    door.close()
    with pytest.raises(ReceiverStoppedError, match="a start that is over"):
        door.store(b"e")
    assert bench.finish() == [b"a", b"c", b"d"]


def until(condition: Callable[[], bool]) -> None:
    """Wait for what nobody tells of."""
    end_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_who_waits_for_the_queue_or_for_durability_is_told_what_holds_it_up(make):
    bench = make(queue_size=1, one_thread=False)
    bench.driver.open.clear()
    wholes = [threading.Thread(target=bench.generator.store, args=([b"a"],)) for _ in range(6)]
    for thread in wholes:
        thread.start()
    # One block is with the driver, one waits for it, one is in hand, one is queued: two wait.
    until(lambda: bench.generator.read_rate_usage(with_pipe=True).pipe.queue_s > 0.2)
    found = bench.generator.read_rate_usage(with_pipe=True).pipe
    assert found.driver_s > 0
    assert found.room_s > 0
    assert found.durable_s > 0
    assert found.blocks == 0
    assert found.latency_ms is None
    assert found.queued_blocks + found.stored_blocks == 4
    assert bench.generator.read_rate_usage().pipe is None
    bench.driver.open.set()
    for thread in wholes:
        thread.join(WAIT_S)
    until(lambda: bench.generator.statistics().blocks_reported == 6)
    after = bench.generator.read_rate_usage(with_pipe=True).pipe
    assert (after.queued_blocks, after.stored_blocks, after.blocks) == (0, 0, 6)
    assert bench.generator.read_rate_usage(with_pipe=True).pipe.queue_s == after.queue_s


def test_who_waits_for_memory_is_told_so(make):
    bench = make(
        memory_bytes=512 << 10,
        use_disk=False,
        log=LogOptions(segment_size=1 << 20, sync=SyncPolicy.NONE),
    )
    bench.driver.open.clear()

    def fill() -> None:
        with suppress(PenstockError):  # the wait for memory is given up at the end
            for _ in range(20):
                bench.generator.store(b"a" * 60_000)

    store = threading.Thread(target=fill, daemon=True)
    store.start()
    until(lambda: bench.generator.read_rate_usage(with_pipe=True).pipe.memory_s > 0.2)
    bench.driver.open.set()
    bench.generator.give_up_within(0.0)
    store.join(WAIT_S)


@pytest.mark.parametrize("form", ["many", "one"])
def test_what_waits_for_the_byte_rate_at_a_stop_is_stored_and_no_error_says_otherwise(make, form):
    """It is in a block: a source that got an error would give it again."""
    bench = make(limiter=RateLimiter(bytes_per_second=1))
    outcome: list[BaseException | None] = []

    def feed() -> None:
        try:
            if form == "many":
                bench.generator.store([b"x" * 100] * 10)
            else:
                bench.generator.store(b"x" * 1000, position=7)
        except PenstockError as error:
            outcome.append(error)
        else:
            outcome.append(None)

    thread = threading.Thread(target=feed)
    thread.start()
    while bench.limiter.waiting == 0:
        time.sleep(0.01)
    records = bench.finish()
    thread.join(WAIT_S)
    assert outcome == [None]
    assert sum(map(len, records)) == 1000


@pytest.mark.parametrize("end", ["refuse_acknowledged", "close"])
def test_what_waits_for_the_byte_rate_as_its_start_ends_goes_on_and_is_charged(
    make, monkeypatch, end
):
    monkeypatch.setattr(storing, "_LEASE_STEP_S", 0.05)
    bench = make(limiter=RateLimiter(bytes_per_second=0.001))
    door = bench.generator.open_door()
    thread = threading.Thread(target=door.store, args=(b"x" * 1000, 7), daemon=True)
    thread.start()
    until(lambda: bench.limiter.waiting == 1)
    thread.join(0.2)
    assert thread.is_alive(), "the start goes on, and so it waits"
    getattr(door, end)()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert bench.limiter.bytes_charged == 1000
    assert not bench.limiter.passes_soon
    assert bench.finish() == [b"x" * 1000]


def test_a_callback_that_stores_while_another_thread_waits_for_the_rate_gets_an_error(make):
    """It would wait for that thread for ever: nobody else reports, so nobody sets the rate."""
    bench = make()
    bench.driver.open.clear()

    def store() -> None:
        bench.generator.store(b"b")

    bench.generator.store([b"a"], ack=store)
    bench.generator.flush(lambda: None)
    bench.generator.pause()
    waiting = threading.Thread(target=bench.generator.store, args=(b"c",), daemon=True)
    waiting.start()
    until(lambda: bench.limiter.waiting == 1)
    bench.driver.open.set()
    until(lambda: bench.errors)
    assert "called by an acknowledgement callback" in str(bench.errors[0][1])
    assert waiting.is_alive(), "nothing passes while it is paused"
    bench.generator.update_rate(None)
    waiting.join(WAIT_S)
    assert bench.finish() == [b"a", b"c"]


def test_a_door_that_is_shut_gives_back_what_it_leased(make):
    clock = ManualClock()
    limiter = RateLimiter(1000, clock=clock)
    bench = make(limiter=limiter, clock=clock)
    clock.advance(1000)
    door = bench.generator.open_door()
    door.store(b"x")
    door.close()
    assert limiter.permits_out == 0
    assert limiter.lease(999, 0.0, in_hand=999) == 999


def test_a_list_that_comes_too_late_seals_nothing_of_others(make):
    bench = make()
    closed, door = bench.generator.open_door(), bench.generator.open_door()
    closed.close()
    door.store(b"a")
    with pytest.raises(ReceiverStoppedError):
        closed.store([b"b"])
    assert bench.generator.statistics().blocks_sealed == 0
    assert bench.finish() == [b"a"]


def test_what_is_taken_back_is_the_last_of_its_kind():
    first, last = [1], [1]
    pending = [first, last, [2]]
    assert withdraw(pending, last)
    assert [each is first for each in pending] == [True, False]
    assert not withdraw(pending, last)
    assert withdraw(pending, first)
    assert pending == [[2]]


def test_a_generator_is_stopped_once_and_says_how_it_ended(make, caplog):
    bench = make()
    bench.generator.store(b"a")
    assert bench.generator.stop(WAIT_S)
    assert bench.generator.stop(WAIT_S)
    assert "cannot stop the block generator of stream 0: it is" in caplog.text
    assert bench.driver.records() == [b"a"]


def test_sealing_that_goes_on_failing_is_told_once(make, monkeypatch):
    bench = make(interval_s=0.01)
    tried: list[int] = []

    def short(builder: BlockBuilder, *arguments: Any) -> Any:
        tried.append(1)
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(BlockBuilder, "seal", short)
        bench.generator.store(b"a")
        until(lambda: len(tried) > 3)
    assert bench.finish() == [b"a"]
    assert [message for message, _ in bench.errors] == ["Error in sealing a block"]


def test_who_stores_while_its_start_ends_waits_for_a_byte_rate_that_lets_it_pass(make, monkeypatch):
    monkeypatch.setattr(storing, "_LEASE_STEP_S", 0.05)
    # What may pass is counted from here on.
    began_s = time.monotonic()
    bench = make(limiter=RateLimiter(bytes_per_second=10_000))
    door = bench.generator.open_door()
    door.refuse_acknowledged()
    door.store(b"x" * 2000, 7)
    assert time.monotonic() - began_s > 0.15, "or more passes than the rate allows"
    assert bench.finish() == [b"x" * 2000]


def test_memory_that_is_short_for_a_moment_discards_no_row(make):
    bench = make(schema=pa.schema([("n", pa.int64())]))
    short = [None] * 8

    class Reading:
        def __init__(self, n: int) -> None:
            self.n = n

        def asDict(self, recursive: bool) -> dict[str, int]:
            if self.n == 5 and short:
                short.pop()
                raise MemoryError
            return {"n": self.n}

    rows = [Reading(n) for n in range(10)]
    while True:
        try:
            bench.generator.store(rows)
            break
        except MemoryError:
            assert bench.generator.statistics().records == 0, "all of them or none"
    assert not short
    assert [row["n"] for row in bench.finish()] == list(range(10))
    assert not bench.errors


def test_a_block_that_cannot_be_sealed_leaves_no_gap_in_the_numbers(make, monkeypatch):
    """Behind a gap the ledger would take no position any more, however often it is asked."""
    bench = make()
    seal = BlockBuilder.seal

    def short_once(builder: BlockBuilder, *arguments: Any) -> Any:
        monkeypatch.setattr(BlockBuilder, "seal", seal)
        raise MemoryError

    monkeypatch.setattr(BlockBuilder, "seal", short_once)
    bench.generator.store(b"a", position=1)
    with pytest.raises(MemoryError):
        bench.generator.flush(lambda: None)
    bench.generator.flush(lambda: None)
    assert bench.finish() == [b"a"]
    assert [info.block_id for info in bench.driver.infos] == [f"input-0-{1 << 32}"]


def test_a_stop_that_cannot_seal_the_last_block_does_not_say_that_all_is_stored_I10(
    make, monkeypatch
):
    bench = make()
    bench.generator.store(b"a")

    def short(builder: BlockBuilder, *arguments: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(BlockBuilder, "seal", short)
    assert not bench.generator.stop(WAIT_S)
    assert [message for message, _ in bench.errors] == ["Error in sealing the last block"]


def test_what_an_empty_block_carries_goes_with_it_when_it_gets_no_memory(make, monkeypatch):
    bench = make()
    acknowledged: list[str] = []
    bench.generator.store([], position=3, ack=lambda: acknowledged.append("nothing"))
    append = BlockBuilder.append

    def short_once(builder: BlockBuilder, *arguments: Any) -> Any:
        monkeypatch.setattr(BlockBuilder, "append", append)
        raise ArenaError("memory", "it is full")

    monkeypatch.setattr(BlockBuilder, "append", short_once)
    bench.generator.store(b"a")
    assert bench.finish() == [b"a"]
    assert acknowledged == ["nothing"]
    assert [info.position for info in bench.driver.infos] == [b"\x03"]


def test_the_one_thread_leaves_an_empty_block_with_what_it_carries_when_it_gets_no_memory(
    make, monkeypatch
):
    """It would wait for memory that nobody but it can bring."""
    bench = make(one_thread=True)
    acknowledged: list[str] = []
    bench.generator.store([], position=3, ack=lambda: acknowledged.append("nothing"))
    bench.generator.store(b"a")
    met = threading.Event()

    def short(builder: BlockBuilder, *arguments: Any) -> Any:
        met.set()
        raise ArenaError("memory", "it is full")

    with monkeypatch.context() as patched:
        patched.setattr(BlockBuilder, "append", short)
        patched.setattr(bench.store._arena, "reserve", lambda *_, **__: None)
        bench.generator.seal_soon()
        assert met.wait(WAIT_S)
        with bench.generator._assembler.lock:
            pass  # It has let go of the block.
    assert bench.finish() == [b"a"]
    assert acknowledged == ["nothing"]
    assert [info.position for info in bench.driver.infos] == [b"\x03"]
    said = "There is no memory for more blocks, so storing waits until there is"
    assert [message for message, _ in bench.errors] == [said]


def test_the_time_for_what_is_left_can_only_become_shorter(make):
    bench = make()
    bench.generator.give_up_within(0.0)
    bench.generator.give_up_within(WAIT_S)
    assert bench.generator._pipeline.is_given_up()
