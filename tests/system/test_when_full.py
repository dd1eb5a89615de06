"""A source that cannot wait, on a real Spark: stored and dropped are all that it gave."""

from __future__ import annotations

import mmap
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.receiver import Receiver
from tests.bounds import HANG_S
from tests.system.running import Run, run_on

pytestmark = pytest.mark.slow

_WHEN_FULL = "spark.penstock.receiver.whenFull"


class Pushes(Receiver):
    """Stores ``<process> <number>`` without a pause, and keeps by process how many it began.

    Args:
        folder: Where it keeps that, in a file that outlives the process.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def onStart(self) -> None:
        self.thread = threading.Thread(target=self.push, name="pushes", daemon=True)
        self.thread.start()

    def onStop(self) -> None:
        self.thread.join(HANG_S)

    def push(self) -> None:
        pid = os.getpid()
        path = self.folder / f".{pid}"
        path.write_bytes(bytes(mmap.PAGESIZE))
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 8) as begun:
            path.rename(self.folder / str(pid))
            pause = threading.Event()
            number = 0
            while not self.isStopped():
                begun[:] = (number + 1).to_bytes(8, "little")
                self.store(f"{pid} {number}")
                number += 1
                if number % 200 == 0:
                    pause.wait(0.01)


def begun(folder: Path) -> dict[int, int]:
    return {
        int(path.name): int.from_bytes(path.read_bytes()[:8], "little")
        for path in folder.iterdir()
        if not path.name.startswith(".")
    }


def dropped(run: Run) -> int:
    return run.ssc.receivers()[0].dropped


def pair(record: str) -> tuple[int, int]:
    pid, number = record.split()
    return int(pid), int(number)


@pytest.mark.long
@pytest.mark.parametrize("policy", ["dropNew", "dropOld"])
def test_stored_and_dropped_are_all_that_was_pushed_also_after_a_kill(
    sc: Any, tmp_path: Path, policy: str
) -> None:
    values = {
        _WHEN_FULL: policy,
        f"{_WHEN_FULL}.memory": "64k",
        "spark.streaming.receiver.maxRate": "3000",
    }
    with run_on(sc, values) as run:
        run.process(Pushes(tmp_path), pair)
        run.start()
        run.await_processed(6_000)
        (killed,) = begun(tmp_path)
        os.kill(killed, signal.SIGKILL)
        with run._changed:
            assert run._changed.wait_for(
                lambda: sum(pid != killed for pid, _ in run.processed) > 3_000, HANG_S
            )
        run.stop()
        total = dropped(run)
        pushed = begun(tmp_path)
        stored = {pid: [n for p, n in run.processed if p == pid] for pid in pushed}
        for numbers in stored.values():
            assert numbers == sorted(set(numbers))
        (other,) = set(pushed) - {killed}
        of_other = pushed[other] - len(stored[other])
        of_killed = total - of_other
        # All that is missing before the last record that is stored is counted, and nothing else.
        assert of_killed > 0 < of_other
        assert len(stored[killed]) + of_killed >= stored[killed][-1] + 1
        assert len(stored[killed]) + of_killed <= pushed[killed]
