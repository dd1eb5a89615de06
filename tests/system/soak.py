"""Kills a driver again and again and checks that its results are exact.

A feeder sends numbered words to `tests.system.recoverable`. That program is killed with SIGKILL,
by itself at a named moment or from outside at a random time, and started again at once, and so on.
At the end it stops gracefully. Then every number that was sent must be in exactly one batch, the
state after each batch must be the sum of the batches up to it, and no batch that ran twice may
have written two results.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.bounds import HANG_S
from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.recoverable import MOMENTS, word_of

PATIENCE_S = HANG_S
"""How long a named moment is waited for before the driver is killed from outside."""

STALLED_S = 90.0
"""How long there may be no new result while it is waited for some."""

CAUGHT_UP = "when it has caught up"

_SUBMIT = (
    "--conf spark.driver.host=127.0.0.1 --conf spark.driver.bindAddress=127.0.0.1 pyspark-shell"
)


class Soak:
    """One program, killed many times.

    Args:
        folder: Holds all that it writes.
        seed: Decides about the moments.
        tell: Takes a line about each kill.
        latest_occasion: How often a named moment may pass before it is the one.
        checkpoint: The checkpoint directory; None for one in `folder`.
        settings: Settings of the program.

    Attributes:
        first_conf: Spark's configuration in the first run that started.
        conf: That of the last one.
    """

    def __init__(
        self,
        folder: Path,
        seed: int,
        tell: Callable[[str], object] = print,
        latest_occasion: int = 25,
        checkpoint: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder
        self.latest_occasion = latest_occasion
        self.checkpoint = checkpoint or str(folder / "checkpoint")
        self.settings = dict(settings or {})
        self.first_conf: dict[str, str] = {}
        self.conf: dict[str, str] = {}
        self.chance = random.Random(seed)
        self.tell = tell
        self.batches = folder / "batches"
        self.states = folder / "states"
        self.batches.mkdir()
        self.states.mkdir()
        os.environ["PYSPARK_SUBMIT_ARGS"] = _SUBMIT

    def run(
        self,
        kills: int,
        moments: Sequence[str] | None = None,
        meanwhile: Callable[[], object] | None = None,
    ) -> None:
        """Kill so many times, then let it end, and check.

        Args:
            kills: How many.
            moments: The named moments to use, one for each kill; None for random ones.
            meanwhile: Called in the last run, while records come; records must come after it.
        """
        with Feeder() as feeder:
            for number in range(kills):
                self._killed(number, feeder, moments[number] if moments else self._choose())
            with self._driver(feeder, {}) as driver:
                self.conf = driver.wait_until_started()["conf"]
                feeder.await_acknowledged(1)
                if meanwhile is not None:
                    meanwhile()
                    feeder.await_acknowledged(4000)
                sent = feeder.finish()
                # A graceful stop is bounded, and there may be batches of many minutes to make.
                self._await_results(driver, lambda: self._processed() == sent)
                driver.stop()
            self.check(sent)
            self.tell(f"{sent} numbers in {len(list(self.batches.iterdir()))} batches: exact")

    def _choose(self) -> str:
        others = ("after the launch", "while it runs", CAUGHT_UP, CAUGHT_UP)
        return self.chance.choice([*MOMENTS, *others * 3])

    def _driver(self, feeder: Feeder, more: dict[str, Any]) -> Any:
        config = {
            "master": "local[3]",
            "batch_s": 1,
            "state_s": 3,
            "checkpoint": self.checkpoint,
            "batches": str(self.batches),
            "states": str(self.states),
            "trigger": str(self.folder / "trigger"),
            "feeder": feeder.address,
            "settings": self.settings,
            **more,
        }
        return DriverProcess(self.folder, config, module="tests.system.recoverable")

    def _killed(self, number: int, feeder: Feeder, moment: str) -> None:
        begin_s = time.monotonic()
        occasion = self.chance.randint(1, self.latest_occasion)
        more = {"moment": moment, "occasion": occasion} if moment in MOMENTS else {}
        with self._driver(feeder, more) as driver:
            if moment == "after the launch":
                occasion = self.chance.randint(500, 12_000)
                kill_after(driver, occasion / 1000)
            elif moment == "while it runs":
                driver.wait_until_started()
                occasion = self.chance.randint(0, 6000)
                kill_after(driver, occasion / 1000)
            elif moment == CAUGHT_UP:
                self._await_results(driver, lambda: self._newest_s() > time.time() - 3)
                occasion = self.chance.randint(0, 3000)
                kill_after(driver, occasion / 1000)
            else:
                if kill_after(driver, 60 + PATIENCE_S):
                    moment += ", which did not come"
            assert driver.process.returncode == -9, driver.report()
            for event in driver.events:
                if event["what"] == "started":
                    self.first_conf = self.first_conf or event["conf"]
        with suppress(FileNotFoundError):
            (self.folder / "trigger").unlink()
        self.tell(
            f"kill {number + 1}: {moment} ({occasion}), {time.monotonic() - begin_s:.1f} s, "
            f"{feeder.acknowledged} acknowledged, {len(list(self.batches.iterdir()))} batches"
        )

    def _await_results(self, driver: DriverProcess, condition: Callable[[], bool]) -> None:
        """Wait for results; fail when there was no new one for a while."""
        newest_s, since_s = 0.0, time.monotonic()
        while not condition():
            driver.process.poll()
            assert driver.process.returncode is None, driver.report()
            if self._newest_s() > newest_s:
                newest_s, since_s = self._newest_s(), time.monotonic()
            assert time.monotonic() < since_s + STALLED_S, driver.report()
            threading.Event().wait(0.3)

    def _newest_s(self) -> float:
        return (
            max((int(name) for name in os.listdir(self.states) if name.isdigit()), default=0) / 1e3
        )

    def _processed(self) -> int:
        return sum(sum(found["counts"].values()) for found in _results(self.batches).values())

    def check(self, sent: int) -> None:
        """Check all results against what was sent.

        Raises:
            AssertionError: They are not exact.
        """
        assert [path.name for path in self.folder.rglob("*.other")] == []
        batches, states = _results(self.batches), _results(self.states)
        # A batch has a state as long as no crash came between its two results.
        assert set(states) == set(batches)
        counts: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        for time_ms in sorted(batches):
            counts.update(batches[time_ms]["counts"])
            sums.update(batches[time_ms]["sums"])
            state = states[time_ms]
            assert state["counts"] == +counts, (time_ms, state["counts"], counts)
            assert {word: state["sums"][word] for word in counts} == sums, time_ms
        assert counts == Counter(map(word_of, range(sent)))
        expected: Counter[str] = Counter()
        for number in range(sent):
            expected[word_of(number)] += number
        assert sums == expected


def kill_after(driver: DriverProcess, delay_s: float) -> bool:
    """Kill a driver that has not killed itself by then; tell whether it was to be done."""
    is_late = not driver.ends_within(delay_s)
    if is_late:
        driver.kill()
    return is_late


def _results(folder: Path) -> dict[int, Any]:
    return {
        int(path.name): json.loads(path.read_text())
        for path in folder.iterdir()
        if path.name.isdigit()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path, help="is kept; default: a temporary one")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    if options.folder is not None:
        options.folder.mkdir(parents=True)
        Soak(options.folder, options.seed, _say).run(options.kills)
        return
    with tempfile.TemporaryDirectory(prefix="penstock-soak-") as folder:
        Soak(Path(folder), options.seed, _say).run(options.kills)


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
