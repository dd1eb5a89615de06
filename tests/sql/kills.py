"""Kills a program with queries again and again, and checks that what they wrote is exact.

``python -m tests.sql.kills --kills 100`` (``make soak-queries``). Every kill is a SIGKILL of the
driver's whole process group: at a random moment, or while a batch of `foreachBatch` is between its
entry in Spark's log of offsets and that in its log of commits.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.system.driver_process import driver_process

__all__ = ["KilledQueries"]


class KilledQueries:
    """One program with three queries, killed many times.

    Args:
        folder: Holds all that it writes.
        seed: Decides about the moments.
        count: How many numbers its receiver has.
        block_s: Seconds between each hundred of them.
        tell: Takes a line about each kill.
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
        self._folder = folder
        self._chance = random.Random(seed)
        self._tell = tell
        self._config: dict[str, Any] = {
            "folder": str(folder),
            "count": count,
            "block_s": block_s,
            "batch": 400,
            "retention": 0,
        }

    def run(self, kills: int, between: int) -> None:
        """Kill, let it end, and check.

        Args:
            kills: How many.
            between: How many of them between the offset of a batch and its commit; the first in
                batch 0.
        """
        for number in range(kills):
            is_between = number < between
            hold_at = self._next_batch() + number % 3 if is_between else None
            with driver_process(
                self._folder,
                {**self._config, "hold_at": hold_at},
                module="tests.sql.query_program",
            ) as driver:
                if is_between:
                    driver.wait_for("held")
                    moment = f"in batch {hold_at}"
                else:
                    driver.wait_for("started")
                    wait_s = self._chance.uniform(0, 6)
                    with suppress(Exception):
                        driver.process.wait(wait_s)
                    moment = f"{wait_s:.1f} s after its start"
                with suppress(ProcessLookupError):
                    os.killpg(driver.process.pid, signal.SIGKILL)
                driver.process.wait(60)
                assert not [event for event in driver.events if event["what"] == "failed"], (
                    driver.report()
                )
            self._tell(f"kill {number + 1}: {moment}")
        with driver_process(self._folder, self._config, module="tests.sql.query_program") as driver:
            driver.wait_for("done", timeout_s=600)
        self.check()

    def _next_batch(self) -> int:
        done = self._folder / "cp-earliest" / "commits"
        found = [int(path.name) for path in done.glob("[0-9]*")] if done.exists() else []
        return max(found, default=-1) + 1

    def check(self) -> None:
        """Check that each query has each number once, and that no batch was made differently."""
        count = self._config["count"]
        assert json.loads((self._folder / "parquet.json").read_text()) == list(range(count))
        assert self._numbers("earliest") == list(range(count))
        latest = self._numbers("latest")
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
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        killed = KilledQueries(
            Path(folder), options.seed, count=400 * options.kills + 4000, block_s=0.2
        )
        killed.run(options.kills, options.between)


if __name__ == "__main__":
    main()
