"""Receivers that share a source: they, executors and the driver are killed while it scales."""

from __future__ import annotations

import itertools
import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.programs import Program, executors_of, kill_one, running_in
from tests.system.leftovers import await_that, is_running
from tests.system.running import WAIT_S
from tests.system.splits_program import MOST, SPLITS

pytestmark = [pytest.mark.slow, pytest.mark.long]


class Splits:
    """The driver, which is killed and started again."""

    def __init__(
        self, folder: Path, master: str, last: int, settings: Mapping[str, str] | None = None
    ) -> None:
        self.folder, self.master, self.last = folder, master, last
        self.settings = json.dumps(dict(settings or {}))
        for name in ("pids", "batches"):
            (folder / name).mkdir()
        self.start()

    def start(self) -> None:
        arguments = (self.folder, self.master, str(self.last), self.settings)
        command = [sys.executable, "-m", "tests.system.splits_program", *arguments]
        self.driver = Program(command, self.folder, errors=self.folder / "stderr")
        self.asked = 0
        self.driver.wait_for_line("started".__eq__)

    def scale(self, count: int) -> None:
        self.ask(str(count))

    def ask(self, line: str) -> None:
        self.driver.tell(line)
        self.asked += 1
        self.driver.wait_for_line("scaled".__eq__, count=self.asked)

    def receivers(self) -> list[int]:
        return running_in(self.folder / "pids")

    def executors(self) -> list[int]:
        return executors_of(self.receivers())

    def kill_one(self, find: Callable[[], list[int]], chance: random.Random) -> None:
        """Kill one of what there is, once there is some."""
        await_that("something to kill", find, WAIT_S)
        kill_one(find(), chance)

    def kill_driver(self) -> None:
        self.driver.kill_group()
        self.start()

    def seen(self) -> dict[str, list[tuple[int, str]]]:
        """Return by split what batches had: numbers, and who stored them."""
        found = defaultdict(list)
        for path in sorted((self.folder / "batches").iterdir(), key=lambda path: float(path.name)):
            for line in path.read_text().splitlines():
                split, number, start = line.split()
                found[split].append((int(number), start))
        return found

    def await_all(self) -> None:
        await_that(
            "all records",
            lambda: sum(map(len, self.seen().values())) >= SPLITS * self.last,
            WAIT_S,
            lambda: str({split: len(found) for split, found in self.seen().items()}),
        )

    def violations(self) -> str:
        path = self.folder / "violations"
        return path.read_text() if path.exists() else ""

    def stop(self) -> None:
        self.driver.end_input()
        assert self.driver.wait_until_ended() == 0, self.driver.report()


@contextmanager
def program(
    folder: Path, master: str, last: int, settings: Mapping[str, str] | None = None
) -> Iterator[Splits]:
    made = Splits(folder, master, last, settings)
    try:
        yield made
    finally:
        made.driver.kill_group()
        for pid in made.receivers():
            await_that("the end of receivers", lambda pid=pid: not is_running(pid), WAIT_S)


def check(running: Splits) -> None:
    """Check that each number was seen once, and each split in one place at a time."""
    seen = running.seen()
    assert {split: sorted(number for number, _ in found) for split, found in seen.items()} == {
        f"q{number}": list(range(running.last)) for number in range(SPLITS)
    }
    for found in seen.values():
        starts = [start for _, start in sorted(found)]
        # Who has lost a split stores none of it any more.
        runs = [start for at, start in enumerate(starts) if at == 0 or starts[at - 1] != start]
        assert len(runs) == len(set(runs))
    assert running.violations() == ""


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("master", "cycles", "seed"),
    [
        ("local[6]", 12, 1),
        pytest.param("local[6]", 60, 2, marks=pytest.mark.exhaustive),
        pytest.param("local-cluster[3,2,1024]", 30, 3, marks=pytest.mark.exhaustive),
    ],
)
def test_kills_and_scales_lose_and_double_nothing_and_no_split_is_in_two_places(
    tmp_path: Path, master: str, cycles: int, seed: int
) -> None:
    chance = random.Random(seed)
    with program(tmp_path, master, 100 * cycles) as running:
        for cycle in range(cycles):
            time.sleep(chance.uniform(0.1, 1.5))
            kind = chance.random()
            if cycle % 15 == 7:
                running.kill_driver()
            elif kind < 0.55:
                running.scale(chance.randint(1, MOST))
            elif kind < 0.8 or master.startswith("local["):
                running.kill_one(running.receivers, chance)
            else:
                running.kill_one(running.executors, chance)
        running.await_all()
        running.stop()
        check(running)


ALLOCATION = {
    "spark.streaming.dynamicAllocation.enabled": "true",
    "spark.streaming.dynamicAllocation.scalingInterval": "1s",
    # So close that it does both.
    "spark.streaming.dynamicAllocation.scalingUpRatio": "0.5",
    "spark.streaming.dynamicAllocation.scalingDownRatio": "0.45",
    "spark.streaming.dynamicAllocation.minExecutors": "2",
    "spark.streaming.dynamicAllocation.maxExecutors": "4",
}
SHARED = {"spark.penstock.receivers.perSlot": "2"}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("master", "settings", "faults", "cycles", "seed"),
    [
        # Partitions of many blocks, in the middle of which tasks die.
        (
            "local[6,4]",
            {**SHARED, "spark.streaming.blockInterval": "20ms"},
            ("scale", "receiver", "task"),
            12,
            4,
        ),
        pytest.param(
            "local-cluster[3,2,1024]",
            {**SHARED, "spark.decommission.enabled": "true"},
            ("scale", "decommission", "receiver", "executor"),
            15,
            5,
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            "local-cluster[4,2,1024]",
            ALLOCATION,
            ("scale", "executor", "receiver", "task"),
            15,
            6,
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_moves_lose_and_double_nothing_whatever_else_goes_on(
    tmp_path: Path,
    master: str,
    settings: Mapping[str, str],
    faults: Sequence[str],
    cycles: int,
    seed: int,
) -> None:
    chance = random.Random(seed)
    with program(tmp_path, master, 100 * cycles, settings) as running:
        for cycle in range(cycles):
            time.sleep(chance.uniform(0.1, 1.5))
            fault = chance.choice(faults)
            if fault == "scale":
                running.scale(chance.randint(1, MOST))
            elif fault == "receiver":
                running.kill_one(running.receivers, chance)
            elif fault == "executor":
                running.kill_one(running.executors, chance)
            elif fault == "decommission":
                running.ask(f"decommission {cycle}")
            elif not list(tmp_path.glob("die-*")):  # A task has four tries.
                (tmp_path / f"die-{cycle}").touch()
        running.await_all()
        running.stop()
        check(running)


@pytest.mark.timeout(600)
def test_receivers_that_take_long_to_start_read_however_often_it_scales(tmp_path: Path) -> None:
    # Longer than one that is not connected has to stop.
    (tmp_path / "slow").write_text("7")
    counts = itertools.cycle((3, 2, 4, 2))
    with program(tmp_path, "local[6]", 50) as running:
        end_s = time.monotonic() + WAIT_S
        while not running.seen():
            assert time.monotonic() < end_s, running.driver.report()
            running.scale(next(counts))
            time.sleep(1)
        running.await_all()
        running.stop()
        check(running)
