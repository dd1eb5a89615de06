"""Rates in a running program: a real Spark, real receivers, and one of them killed."""

from __future__ import annotations

import os
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SettingError
from penstock.receiver import Receiver, SharedRateError
from penstock.streaming import RateSource, StreamingContext, StreamingListener
from tests.bounds import HANG_S
from tests.services.redis import make_server

WAIT_S = HANG_S


class Fast(Receiver):
    """Stores its process's id for ever, as fast as it is let."""

    def onStart(self) -> None:
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def onStop(self) -> None:
        self.thread.join(HANG_S)

    def run(self) -> None:
        record = struct.pack(">Q", os.getpid())
        while not self.isStopped():
            self.store(record)


class Idle(Receiver):
    """Stores nothing."""

    def onStart(self) -> None:
        pass

    def onStop(self) -> None:
        pass


class Program(StreamingListener):
    """A context, what its batches had, and waits for what comes."""

    def __init__(self, sc: Any) -> None:
        self.ssc = StreamingContext(sc, 0.5)
        self.ssc.addStreamingListener(self)
        self.changed = threading.Condition()
        self.counts: list[int] = []
        self.last: list[bytes] = []
        self.wants_records = False
        self.starts = 0
        self.errors: list[str] = []

    def onReceiverError(self, receiverError: Any) -> None:
        with self.changed:
            self.errors.append(receiverError.receiverInfo().lastErrorMessage())
            self.changed.notify_all()

    def onReceiverStarted(self, receiverStarted: Any) -> None:
        with self.changed:
            self.starts += 1
            self.changed.notify_all()

    def process(self, stream: Any, speed: float = 0) -> None:
        """Count the records of each batch, at so many per second."""

        def count(rdd: Any) -> None:
            found = rdd.count()
            if speed:
                time.sleep(found / speed)
            last = rdd.take(1) if self.wants_records else []
            with self.changed:
                self.counts.append(found)
                self.last = last or self.last
                self.changed.notify_all()

        stream.foreachRDD(count)

    def wait_for(self, condition: Callable[[], Any]) -> None:
        end_s = time.monotonic() + WAIT_S
        with self.changed:
            # Reports of receivers are told to no listener, so it is looked again now and then.
            while not condition():
                assert time.monotonic() < end_s, (self.counts, self.ssc.rates())
                self.changed.wait(0.05)


@pytest.fixture
def program(sc: Any) -> Iterator[Program]:
    before = set(threading.enumerate())
    made = Program(sc)
    yield made
    made.ssc.stop(stopSparkContext=False)
    left = set(threading.enumerate()) - before
    assert [t.name for t in left if t.name.startswith("penstock-")] == []


@pytest.fixture
def configure(sc: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    conf = sc.getConf()
    monkeypatch.setattr(sc, "getConf", lambda: conf)
    return lambda key, value: conf.set(key, value)


@pytest.mark.slow
def test_i8_a_rate_that_is_set_while_it_runs_holds_for_the_open_block(
    program: Program, configure: Any
) -> None:
    """The block stays open: only its size ends it. Until the rate is lifted nothing passes."""
    configure("spark.streaming.blockInterval", "1h")
    configure("spark.penstock.block.maxSize", "64k")
    stream = program.ssc.receiverStream(Fast())
    program.process(stream)
    stream.set_rate("1/day")
    program.ssc.start()
    program.wait_for(lambda: stream.rate.is_confirmed and len(program.counts) > 1)
    assert sum(program.counts) == 0
    assert (stream.rate.effective, stream.rate.source) == (1 / 86_400, RateSource.USER)
    stream.set_rate(None)
    program.wait_for(lambda: sum(program.counts) > 0)
    assert stream.rate.effective is None
    assert list(program.ssc.rates()) == [0]
    assert program.ssc.receivedStream(0).rate.stream_id == 0


@pytest.mark.long
@pytest.mark.slow
def test_a_receiver_that_was_killed_comes_back_with_its_rate(program: Program) -> None:
    stream = program.ssc.receiverStream(Fast())
    program.wants_records = True
    program.process(stream)
    program.ssc.start()
    stream.set_rate("2000/second")
    stream.set_byte_rate("1000000/second")
    program.wait_for(lambda: program.last and stream.rate.is_confirmed)
    before = struct.unpack(">Q", program.last[0])[0]
    os.kill(before, signal.SIGKILL)
    program.wait_for(lambda: program.starts == 2)
    program.wait_for(lambda: program.last[0] != struct.pack(">Q", before))
    program.wait_for(lambda: stream.rate.is_confirmed)
    found = stream.rate
    assert (found.effective, found.effective_bytes) == (2000, 1_000_000)
    # A batch has what its interval and one burst let pass; a busy machine may stretch an interval.
    done = len(program.counts)
    program.wait_for(lambda: len(program.counts) > done + 2)
    assert max(program.counts[done:]) <= 2000 * (0.5 + 1) * 4


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["pid", "aimd"])
def test_backpressure_holds_a_fast_source_from_the_first_batch_on(
    program: Program, configure: Any, estimator: str
) -> None:
    """Spark: "published rates reach receivers"; its first batch is as large as it gets."""
    configure("spark.streaming.backpressure.enabled", "true")
    configure("spark.streaming.backpressure.rateEstimator", estimator)
    speed = 8000
    stream = program.ssc.receiverStream(Fast())
    program.process(stream, speed)
    assert stream.rate.source is RateSource.SLOW_START
    program.ssc.start()
    program.wait_for(
        lambda: stream.rate.source is RateSource.ESTIMATOR and stream.rate.is_confirmed
    )
    first = next(count for count in program.counts if count)
    # Unhindered it would be hundreds of thousands; a busy machine may stretch an interval.
    assert first <= 1000 * (0.5 + 1) * 4
    done = len(program.counts)
    program.wait_for(lambda: len(program.counts) >= done + 6)
    # The rate, for an interval and a burst, stretched as above.
    assert max(program.counts) <= 2 * speed * (0.5 + 1) * 4
    estimate = stream.rate.estimate
    assert estimate is not None
    assert 100 <= estimate <= 2 * speed


@pytest.mark.slow
def test_a_group_gives_the_total_to_who_uses_it(program: Program) -> None:
    fast = program.ssc.receiverStream(Fast())
    idle = program.ssc.receiverStream(Idle())
    program.process(fast.union(idle))
    group = program.ssc.rateGroup("10000/second", [fast, idle])
    program.ssc.start()
    assert fast.rate.source is RateSource.GROUP
    program.wait_for(lambda: fast.rate.effective > 9900 and fast.rate.is_confirmed)
    found = group.rate
    assert sum(found.shares.values()) <= 10_000 * (1 + 1e-9)
    assert idle.rate.effective < 100
    group.set_rate("50/second")
    program.wait_for(lambda: fast.rate.is_confirmed and fast.rate.effective <= 50)


@pytest.mark.long
@pytest.mark.slow
def test_a_rate_that_is_shared_holds_and_without_its_server_nothing_passes(
    program: Program, configure: Any, tmp_path: Path
) -> None:
    """Both receivers share it, with whoever else names the same server and key."""
    server = make_server(tmp_path)
    rate = 2000.0
    configure("spark.penstock.sharedRate.rate", f"{rate:g}/second")
    configure("spark.penstock.sharedRate.storage", server.address)
    program.process(program.ssc.receiverStream(Fast()).union(program.ssc.receiverStream(Fast())))
    server.start()
    try:
        program.ssc.start()
        program.wait_for(lambda: sum(program.counts) > 2 * rate)
        # A batch has what its interval and one burst let pass; a busy machine may stretch it.
        assert max(program.counts) <= rate * (0.5 + 1) * 4
        server.kill()
        program.wait_for(lambda: len(program.errors) >= 2)
        assert all(
            error.startswith("Nothing passes until the shared rate") for error in program.errors
        )
        # Batches that waited come first.
        program.wait_for(lambda: len(program.counts) > 6 and sum(program.counts[-6:]) == 0)
        passed = sum(program.counts)
        server.start()
        program.wait_for(lambda: sum(program.counts) > passed)
        program.ssc.stop(stopSparkContext=False)
    finally:
        server.stop()


def test_a_shared_rate_whose_server_is_not_there_is_an_error_of_the_start(
    program: Program, configure: Any, tmp_path: Path
) -> None:
    server = make_server(tmp_path)
    configure("spark.penstock.sharedRate.rate", "5/second")
    configure("spark.penstock.sharedRate.storage", server.address)
    program.process(program.ssc.receiverStream(Idle()))
    with pytest.raises(SharedRateError, match=server.address):
        program.ssc.start()


def test_an_unknown_estimator_is_named_at_the_start(program: Program, configure: Any) -> None:
    configure("spark.streaming.backpressure.rateEstimator", "bogus")
    program.process(program.ssc.queueStream([[1]]))
    with pytest.raises(SettingError, match=r"rateEstimator.*bogus.*pid, aimd"):
        program.ssc.start()
