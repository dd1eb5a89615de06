"""Wall time is set back while a stream runs."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest

from penstock.runtime.clock import SystemClock
from tests.system.feeder import Feeder
from tests.system.receivers import NumberedLines
from tests.system.running import run_on

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000


class SetBackClock(SystemClock):
    """The machine's clock, until its wall time is set back."""

    offset_ms = 0

    def time_ms(self) -> int:
        return super().time_ms() + self.offset_ms


class InThePast(NumberedLines):
    """Its process sees wall time go back by an hour, some time after its start.

    A stand-in for the administrator of the host: the clock of this machine is not the test's.
    """

    def onStart(self) -> None:
        super().onStart()
        threading.Timer(0.7, set_back_in_this_process).start()


def set_back_in_this_process() -> None:
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() - HOUR_MS / 1000
    time.time_ns = lambda: nanoseconds() - HOUR_MS * 1_000_000


@pytest.mark.long
def test_a_clock_set_back_stops_no_batch_and_uses_no_block_id_twice(sc: Any) -> None:
    clock = SetBackClock()
    blocks: list[str] = []
    with Feeder() as feeder, run_on(sc, clock=clock) as run:
        run.process(InThePast(feeder.address, positions=True))
        (stream,) = run.streams
        # The RDD of a batch without blocks has none.
        stream.foreachRDD(lambda rdd: blocks.extend(b.block_id for b in getattr(rdd, "blocks", ())))
        run.start()
        run.events.wait_for("batch", lambda info: info.numRecords() > 0, count=2)
        clock.offset_ms = -HOUR_MS
        seen = len(run.events.of("batch"))
        feeder.await_acknowledged(3000)
        # A new attempt, which begins in the past, has block ids of its own, too.
        os.kill(feeder.await_connection(1), signal.SIGKILL)
        feeder.await_connection(2)
        feeder.await_acknowledged(3000)
        run.events.wait_for("batch", lambda info: info.numRecords() > 0, count=4)
        run.events.wait_for("batch", count=seen + 4)
        total = feeder.finish()
        run.stop()
        assert run.processed == list(range(total))
        assert len(blocks) == len(set(blocks)) > 10
        times = [info.batchTime().milliseconds() for info in run.events.of("batch")]
        assert times == list(range(times[0], times[0] + 500 * len(times), 500))
