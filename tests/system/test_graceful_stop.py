"""I10: what was stored before a graceful stop is processed in it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.receiver import Receiver
from tests.bounds import HANG_S
from tests.system.feeder import Feeder
from tests.system.receivers import NumberedLines, Numbers
from tests.system.running import Run, run_on, settings

pytestmark = pytest.mark.slow


class Counts(Receiver):
    """Stores numbers one by one as fast as it can, and writes down how many, before it stops."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def onStart(self) -> None:
        self.thread = threading.Thread(target=self.count, name="counts", daemon=True)
        self.thread.start()

    def onStop(self) -> None:
        self.thread.join(HANG_S)

    def count(self) -> None:
        number = 0
        pause = threading.Event()
        while not self.isStopped():
            self.store(b"%d" % number)
            number += 1
            if number % 500 == 0:
                pause.wait(0.002)
        # Whole or not there at all.
        part = self.path.with_suffix(".part")
        part.write_text(str(number))
        part.rename(self.path)


@pytest.mark.long
@pytest.mark.parametrize(
    "durable",
    [
        pytest.param(False, id="scratch", marks=pytest.mark.exhaustive),
        pytest.param(True, id="checkpoint"),
    ],
)
def test_every_record_that_was_stored_is_processed_however_slow_the_batches(
    sc: Any, tmp_path: Path, durable: bool
) -> None:
    stored = tmp_path / "stored"
    with run_on(sc, checkpoint=str(tmp_path / "checkpoint") if durable else None) as run:
        run.process(Counts(stored))
        # Two batch intervals long, so that batches and blocks wait when the stop comes.
        run.streams[0].foreachRDD(lambda rdd: threading.Event().wait(1.0))
        run.start()
        run.await_processed(5000)
        run.events.wait_for("batch", count=2)
        run.stop()
        assert run.processed == list(range(int(stored.read_text())))


@pytest.mark.long
@pytest.mark.parametrize(
    "positions",
    [
        pytest.param(False, id="acknowledged", marks=pytest.mark.exhaustive),
        pytest.param(True, id="positions"),
    ],
)
def test_every_record_that_was_acknowledged_is_processed_when_it_stops_under_load(
    sc: Any, tmp_path: Path, positions: bool
) -> None:
    with Feeder() as feeder, run_on(sc, checkpoint=str(tmp_path)) as run:
        run.process(NumberedLines(feeder.address, positions=positions))
        run.start()
        feeder.await_acknowledged(10_000)
        run.stop()
        assert run.processed == list(range(len(run.processed)))
        assert len(run.processed) >= feeder.acknowledged


@pytest.mark.exhaustive  # The tests above stop, and `test_life_cycle` starts again.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("lives", [4, 20])
def test_many_short_lives_in_one_spark_context_lose_nothing(
    sc: Any, tmp_path: Path, lives: int
) -> None:
    with settings(sc, {}):
        for number in range(lives):
            stored = tmp_path / f"stored-{number}"
            run = Run(sc, batch_s=0.2)
            try:
                run.process(Counts(stored))
                run.start()
                if number % 4:
                    # From a stop at the first record to one after some batches.
                    run.await_processed([1, 1000, 10_000][number % 4 - 1])
                run.stop()
                count = int(stored.read_text()) if stored.exists() else 0
                assert run.processed == list(range(count)), f"in round {number}"
            finally:
                run.stop(graceful=False)
    with run_on(sc):
        # Checks, like every run, that nothing is left of all these.
        pass


@pytest.mark.long
def test_a_start_after_a_graceful_stop_processes_nothing_again_without_checkpoints(
    sc: Any, tmp_path: Path
) -> None:
    processed: list[int] = []
    for _ in range(3):
        with run_on(sc, {"spark.penstock.wal.dir": str(tmp_path)}, batch_s=1) as run:
            run.process(Numbers())
            run.start()
            run.await_processed(30)
            run.stop()
            processed.extend(run.processed)
    assert processed == list(range(len(processed)))
