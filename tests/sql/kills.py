"""Kills a program with queries again and again, and checks that what they wrote is exact.

``python -m tests.sql.kills --kills 100`` (``make soak-queries``). Every kill is a SIGKILL of the
driver's whole process group: at a random moment, or while a batch of one of its three queries is
between its entry in Spark's log of offsets and that in its log of commits.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Any

from tests.services.jvm import hasten
from tests.sql.query_program import QUERIES
from tests.system.driver_process import DriverProcess, driver_process

__all__ = ["KilledQueries"]

_PATIENCE_S = 400.0
"""How long a program may take until it is killed."""
_ENDS_S = 1200.0


class KilledQueries:
    """One program with three queries, killed many times.

    Args:
        folder: Holds all that it writes.
        seed: Decides about the moments, and with which query those between offset and commit begin.
        count: How many numbers its receiver has.
        block_s: Seconds between each hundred of them.
        tell: Takes a line about each kill.

    Attributes:
        found: How often a kill left a batch with an offset and without a commit, by query, and for
            batch 0 apart.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        *,
        count: int,
        block_s: float,
        tell: Callable[[str], object] = print,
    ) -> None:
        self.found: Counter[str] = Counter()
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
            if number < between:
                query = QUERIES[(self._seed + number) % len(QUERIES)]
                ahead = 0 if number < 2 else number % 3
                hold = {"query": query, "batch": self._next_batch(query) + ahead}
            config = {**self._config, "hold": hold, "held": str(self._folder / f"held-{number}")}
            with driver_process(self._folder, config, module="tests.sql.query_program") as driver:
                if hold is not None:
                    driver.wait_for("held", timeout_s=_PATIENCE_S)
                    moment = f"in batch {hold['batch']} of {hold['query']}"
                else:
                    driver.wait_for("started", timeout_s=_PATIENCE_S)
                    wait_s = self._chance.uniform(0, 6)
                    moment = f"{wait_s:.1f} s after its start"
                    self._let_run(driver, wait_s)
                os.killpg(driver.process.pid, signal.SIGKILL)
                assert driver.process.wait(60) == -signal.SIGKILL, driver.report()
                assert not [event for event in driver.events if event["what"] == "failed"], (
                    driver.report()
                )
            left = self._incomplete()
            assert hold is None or left[hold["query"]] == hold["batch"], (hold, left)
            for query, batch in left.items():
                self.found[f"{query} in batch 0" if batch == 0 else query] += 1
            self._tell(f"kill {number + 1}: {moment}; offset without commit: {left}")
        last = {**self._config, "batch": 20_000, "block_s": 0.01, "ends": True}
        with driver_process(self._folder, last, module="tests.sql.query_program") as driver:
            driver.wait_for("done", timeout_s=_ENDS_S)
        self.check()

    def _let_run(self, driver: DriverProcess, wait_s: float) -> None:
        try:
            driver.process.wait(wait_s)
        except TimeoutExpired:
            return
        raise AssertionError(f"it ended before it was killed: {driver.report()}")

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
        assert json.loads((self._folder / "parquet.json").read_text()) == list(range(count))
        assert self._numbers("earliest") == list(range(count))
        latest = self._numbers("latest")
        assert latest
        assert latest == list(range(count - len(latest), count))
        self._tell(f"{count} numbers in three queries: exact")

    def _numbers(self, name: str) -> list[int]:
        folder = self._folder / name
        assert not list(folder.glob("*.differs.json"))
        return sorted(
            number for path in folder.glob("*.json") for number in json.loads(path.read_text())
        )


def main() -> None:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--between", type=int, default=20)
    parser.add_argument("--programs", type=int, default=5, help="that share the kills")
    parser.add_argument("--seed", type=int, default=1, help="of the first program")
    options = parser.parse_args()
    hasten(os.environ)
    kills, between = options.kills // options.programs, options.between // options.programs
    found: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.programs):
        with tempfile.TemporaryDirectory() as folder:
            killed = KilledQueries(Path(folder), seed, count=8000 * kills + 4000, block_s=0.2)
            killed.run(kills, between)
            found += killed.found
    print(
        f"{options.programs} programs, {options.programs * kills} kills: exact; "
        f"offset without commit: {dict(found)}"
    )


if __name__ == "__main__":
    main()
