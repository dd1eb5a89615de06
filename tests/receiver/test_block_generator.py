"""The block generator over a real log and real shared memory, with a tracker that answers."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.blockstore import BlockAccess, BlockStore, read_block
from penstock.blockstore.store import BlockStoreOptions
from penstock.clock import ManualClock
from penstock.errors import IllegalStateError, PenstockError
from penstock.receiver.block_generator import (
    BlockGenerator,
    BlockGeneratorOptions,
    BlockGeneratorState,
    BlockNotStoredError,
    RecordTooLargeError,
    RefusedError,
)
from penstock.receiver.rate_limiter import RateLimiter
from penstock.wal import SyncPolicy
from penstock.wire.messages import ReceivedBlockInfo

WAIT_S = 30.0
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

    def report(self, infos: tuple[ReceivedBlockInfo, ...]) -> Future[None]:
        answer: Future[None] = Future()

        def run() -> None:
            if not self.open.wait(WAIT_S):
                answer.set_exception(TimeoutError("the test never let the driver answer"))
                return
            with self.changed:
                if self.fail:
                    answer.set_exception(self.fail.pop(0))
                    return
                self.infos.extend(infos)
                self.changed.notify_all()
            answer.set_result(None)

        threading.Thread(target=run, daemon=True).start()
        return answer

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_S)

    def records(self) -> list[Any]:
        records = []
        for info in self.infos:
            with read_block(info, BlockAccess()) as block:
                records.extend(block.records())
        return records


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
        clock: ManualClock | None = None,
        **store_options: Any,
    ) -> None:
        attempt = uuid.uuid4().hex
        self.driver = Driver()
        self.errors: list[tuple[str, BaseException]] = []
        defaults = BlockStoreOptions(
            memory_dir=str(folder),
            memory_bytes=4 << 20,
            block_max_bytes=256 << 10,
            segment_bytes=1 << 20,
            sync=SyncPolicy.ALWAYS,
        )
        self.store = BlockStore(
            stream_id=0,
            attempt=attempt,
            host="here",
            log_folder=str(folder / attempt),
            memory_name=f"memory-{attempt}",
            options=replace(defaults, **store_options),
        )
        self.limiter = limiter or RateLimiter()
        self.generator = BlockGenerator(
            stream_id=0,
            first_block_number=1 << 32,
            block_store=self.store,
            report=self.driver.report,
            limiter=self.limiter,
            options=BlockGeneratorOptions(
                block_interval_s=interval_s, queue_size=queue_size, schema=schema
            ),
            on_error=lambda message, error: self.errors.append((message, error)),
            clock=clock,
        )
        self.generator.start()

    def finish(self) -> list[Any]:
        assert self.generator.stop(WAIT_S)
        return self.driver.records()


@pytest.fixture
def make(tmp_path):
    made: list[Bench] = []

    def make_bench(**options: Any) -> Bench:
        bench = Bench(tmp_path, **options)
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


def test_block_generation_and_data_callbacks(make):
    """Every interval seals what came in; acknowledgements come after the report, in order."""
    clock = ManualClock()
    bench = make(interval_s=0.2, clock=clock)
    order: list[int] = []
    for number in range(3):
        bench.generator.store(b"%d" % number, ack=lambda number=number: order.append(number))
    assert bench.driver.infos == []
    clock.advance(200)
    bench.driver.wait_for(lambda: len(bench.driver.infos) == 1)
    bench.generator.store(b"3", ack=lambda: order.append(3))
    clock.advance(200)
    bench.driver.wait_for(lambda: len(bench.driver.infos) == 2)
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
    assert -(time_ms + left_ms) % interval_ms == pytest.approx(min(10, interval_ms / 5), abs=1e-3)


def test_an_interval_without_records_makes_no_block(make):
    clock = ManualClock()
    bench = make(interval_s=0.2, clock=clock)
    for _ in range(5):
        clock.advance(200)
    assert bench.finish() == []
    assert bench.driver.infos == []


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
        if thread.is_alive()
        and thread.name.startswith(("penstock-tick", "penstock-push", "penstock-report"))
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
    bench.driver.fail = [RefusedError("attempt 2 took over")]
    with pytest.raises(BlockNotStoredError, match="attempt 2 took over"):
        bench.generator.store([b"a"])
    assert bench.driver.infos == []
    assert isinstance(bench.errors[0][1], RefusedError)


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
    found = limiter.statistics()
    assert (found.permits, found.permits_out) == (200, 0)
    # What was saved up is there for the next.
    assert limiter.lease(800, 0.0, in_hand=800) == 800


def test_a_record_that_cannot_be_pickled_fails_in_its_own_call_and_the_stream_goes_on(make):
    bench = make()
    bench.generator.store({"good": 1})
    with pytest.raises(TypeError, match="pickle"):
        bench.generator.store(threading.Lock())
    with pytest.raises(TypeError, match="pickle"):
        bench.generator.store([1, threading.Lock()])
    bench.generator.store({"good": 2})
    assert bench.finish() == [{"good": 1}, {"good": 2}]


def test_a_record_larger_than_a_block_is_an_error_that_names_the_setting(make):
    bench = make()
    bench.generator.store(b"before")
    with pytest.raises(RecordTooLargeError, match=r"spark\.penstock\.block\.maxSize") as caught:
        bench.generator.store(b"x" * (300 << 10))
    assert caught.value.size == 300 << 10
    with pytest.raises(RecordTooLargeError):
        bench.generator.store("x" * (300 << 10))
    with pytest.raises(RecordTooLargeError):
        bench.generator.store([{"big": "x" * (300 << 10)}])
    bench.generator.store(b"after")
    assert bench.finish() == [b"before", b"after"]


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
    assert len(bench.errors) == 2


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
