"""Kills a program with queries again and again, and checks that what they wrote is exact.

``python -m tests.sql.kills --kills 100`` (``make soak-queries``). Every kill is a SIGKILL of the
driver's whole process group: at a random moment, or while a batch of one of its four queries is
between its entry in Spark's log of offsets and that in its log of commits. Before one at a random
moment a part of the program is killed: a receiver, the block server, a query's reader, an executor.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.programs import kill_one
from tests.services.jvm import hasten
from tests.sql.query_program import QUERIES, STREAMS
from tests.system.driver_process import DriverProcess
from tests.system.leftovers import await_that

__all__ = ["KilledQueries"]

_PATIENCE_S = 400.0
"""How long a program may take until it is killed."""
_ENDS_S = 1200.0
_CLUSTER = "local-cluster[2,3,1024]"
_PARTS = {
    "block server": "-m penstock.blockstore.server.block_server",
    "reader": "python_streaming_source_runner",
    "executor": "CoarseGrainedExecutorBackend",
}
"""What the command of a part has in it."""


class KilledQueries:
    """One program with four queries, killed many times.

    Args:
        folder: Holds all that it writes.
        seed: Decides about the moments, and with which query those between offset and commit begin.
        count: How many numbers its receiver has.
        block_s: Seconds between each hundred of them.
        parts: How many parts of a program are killed before it is.
        tell: Takes a line about each kill.

    Attributes:
        found: How often a kill left a batch with an offset and without a commit, by query, and for
            batch 0 apart.
        killed: How often each part was killed.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        count: int,
        block_s: float,
        parts: int = 0,
        tell: Callable[[str], object] = print,
    ) -> None:
        self.found: Counter[str] = Counter()
        self.killed: Counter[str] = Counter()
        self._folder = folder
        self._seed = seed
        self._chance = random.Random(seed)
        self._tell = tell
        self._config: dict[str, Any] = {
            "folder": str(folder),
            "count": count,
            "block_s": block_s,
            "batch": 400,
            "retention": 0,
            "ends": False,
            "parts": parts,
            "master": _CLUSTER if parts and seed % 2 else "local[5]",
        }

    def run(self, kills: int, between: int) -> None:
        """Kill, let it end, and check.

        Args:
            kills: How many.
            between: How many of them between the offset of a batch and its commit, of one query
                after the other; the first two in the earliest batch that is not complete.
        """
        for number in range(kills):
            hold = None
            victims: list[str] = []
            if number < between:
                query = QUERIES[(self._seed + number) % len(QUERIES)]
                ahead = 0 if number < 2 else number % 3
                hold = {"query": query, "batch": self._next_batch(query) + ahead}
            config = {**self._config, "hold": hold, "held": str(self._folder / f"held-{number}")}
            with DriverProcess(self._folder, config, module="tests.sql.query_program") as driver:
                if hold is not None:
                    driver.wait_for("held", timeout_s=_PATIENCE_S)
                    moment = f"in a batch of {hold['query']}"
                else:
                    # On a busy machine a query needs long for its first batch.
                    begun = self._chance.choice(["started", "reads", "reads"])
                    driver.wait_for(begun, timeout_s=_PATIENCE_S)
                    victims = [self._kill_part(driver) for _ in range(self._config["parts"])]
                    wait_s = self._chance.uniform(0, 6)
                    moment = ", ".join([*victims, f"{wait_s:.1f} s later the driver"])
                    self._let_run(driver, wait_s)
                driver.kill_group()
                assert driver.process.returncode == -signal.SIGKILL, driver.report()
                self._check_failures(driver, victims)
            left = self._incomplete()
            assert hold is None or left[hold["query"]] >= hold["batch"], (hold, left)
            for query, batch in left.items():
                self.found[f"{query} in batch 0" if batch == 0 else query] += 1
            self._tell(f"kill {number + 1}: {moment}; offset without commit: {left}")
        last = {**self._config, "batch": 20_000, "block_s": 0.01, "ends": True}
        with DriverProcess(self._folder, last, module="tests.sql.query_program") as driver:
            driver.wait_for("done", timeout_s=_ENDS_S)
        self.check()

    def _kill_part(self, driver: DriverProcess) -> str:
        parts = ["receiver", *_PARTS]
        if self._config["master"] != _CLUSTER:
            parts.remove("executor")
        part = self._chance.choice(parts)
        self._let_run(driver, self._chance.uniform(0, 4))
        found: list[int] = []

        def is_there() -> bool:
            found[:] = self._processes(driver, part)
            return bool(found)

        await_that(f"there is a {part}", is_there, _PATIENCE_S, driver.report)
        kill_one(found, self._chance)
        self.killed[part] += 1
        return part

    def _processes(self, driver: DriverProcess, part: str) -> list[int]:
        if part != "receiver":
            return [*driver.processes(_PARTS[part])]
        running = driver.processes()
        files = [self._folder / f"receiver-{name}" for name in STREAMS]
        pids = [int(path.read_text() or 0) for path in files if path.exists()]
        return [pid for pid in pids if pid in running]

    def _check_failures(self, driver: DriverProcess, victims: Sequence[str]) -> None:
        """Check that no query has failed but those whose reader was killed."""
        failed = [event for event in driver.events if event["what"] == "failed"]
        assert len(failed) <= len(QUERIES) * victims.count("reader"), driver.report()

    def _let_run(self, driver: DriverProcess, wait_s: float) -> None:
        assert not driver.ends_within(wait_s), f"it ended before it was killed: {driver.report()}"

    def _next_batch(self, query: str) -> int:
        return max(self._logged(query, "commits"), default=-1) + 1

    def _logged(self, query: str, log: str) -> set[int]:
        folder = self._folder / f"cp-{query}" / log
        return {int(path.name) for path in folder.glob("*") if path.name.isdigit()}

    def _incomplete(self) -> dict[str, int]:
        """Return the batch of each query that has an offset and no commit."""
        found = {}
        for query in QUERIES:
            for batch in self._logged(query, "offsets") - self._logged(query, "commits"):
                found[query] = batch
        return found

    def check(self) -> None:
        """Check that each query has each number once, and that no batch was made differently."""
        count = self._config["count"]
        parquet = json.loads((self._folder / "parquet.json").read_text())
        latest = self._numbers("latest")
        assert latest
        wrong = [
            *_wrong("parquet", parquet, range(count)),
            *_wrong("earliest", self._numbers("earliest"), range(count)),
            *_wrong("both", self._numbers("both"), range(2 * count)),
            *_wrong("latest", latest, range(latest[0], count)),
        ]
        assert not wrong, "; ".join(wrong)
        self._tell(f"{count} numbers in four queries: exact")

    def _numbers(self, name: str) -> list[int]:
        folder = self._folder / name
        assert not list(folder.glob("*.differs.json"))
        return sorted(
            number for path in folder.glob("*.json") for number in json.loads(path.read_text())
        )


def _wrong(query: str, found: Sequence[int], wanted: range) -> Iterator[str]:
    """Yield what is wrong with the numbers of a query: their number, the first and the last one."""
    counts = Counter(found)
    for what, numbers in (
        ("missing", sorted(set(wanted) - counts.keys())),
        ("doubled", sorted(number for number, times in counts.items() if times > 1)),
        ("unknown", sorted(counts.keys() - set(wanted))),
    ):
        if numbers:
            yield f"{query}: {len(numbers)} {what}, from {numbers[0]} to {numbers[-1]}"


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--between", type=int, default=20)
    parser.add_argument("--programs", type=int, default=5, help="that share the kills")
    parser.add_argument("--parts", type=int, default=1, help="killed before each random kill")
    parser.add_argument("--seed", type=int, default=1, help="of the first program")
    options = parser.parse_args()
    hasten(os.environ)
    kills, between = options.kills // options.programs, options.between // options.programs
    found: Counter[str] = Counter()
    killed: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.programs):
        folder = tempfile.mkdtemp(prefix="killed-queries-")
        print(f"program {seed}, in {folder}, which is kept if it fails", flush=True)
        count = 8000 * kills * (1 + options.parts) + 4000
        program = KilledQueries(Path(folder), seed, count=count, block_s=0.2, parts=options.parts)
        program.run(kills, between)
        shutil.rmtree(folder)
        found += program.found
        killed += program.killed
    print(
        f"{options.programs} programs, {options.programs * kills} kills of the driver, of parts "
        f"{dict(killed)}: exact; offset without commit: {dict(found)}"
    )


if __name__ == "__main__":
    main()
