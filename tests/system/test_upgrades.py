"""Versions of a program over one folder, on a real Spark: every record once, states exact."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.system.driver_process import DriverProcess, driver_process
from tests.system.feeder import Feeder

pytestmark = pytest.mark.slow


class Upgraded:
    """A program in processes of its own, one version after the other; results are in `folder`."""

    def __init__(self, folder: Path, feeders: dict[str, Feeder]) -> None:
        self.folder = folder
        self.results = folder / "results"
        self.results.mkdir()
        self.feeders = feeders
        self.version = 0

    def start(self, stack: ExitStack, *names: str, **config: Any) -> DriverProcess:
        """Start the next version, with streams in this order."""
        self.version += 1
        config = {
            "checkpoint": str(self.folder / "checkpoint"),
            "results": str(self.results),
            "version": str(self.version),
            "streams": {name: self.feeders[name].address for name in names},
            **config,
        }
        module = "tests.system.upgraded"
        driver = stack.enter_context(driver_process(self.folder, config, module=module))
        driver.wait_until_started()
        return driver

    def written(self, name: str) -> dict[int, list[Any]]:
        """Return what an output wrote, by batch time."""
        assert not list(self.results.glob("*.other")), "a batch had other records a second time"
        paths = [path for path in self.results.glob(f"{name}-*") if path.suffix == ""]
        found = {int(path.name.split("-")[1]): json.loads(path.read_text()) for path in paths}
        return dict(sorted(found.items()))

    def numbers(self, name: str) -> list[int]:
        return [number for batch in self.written(name).values() for _, number in batch]


@pytest.mark.timeout(300)
def test_a_program_upgraded_three_times_is_exact_also_when_one_was_killed_and_one_failed(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        feeders = {name: stack.enter_context(Feeder()) for name in ("orders", "clicks", "visits")}
        program = Upgraded(tmp_path, feeders)
        orders, clicks, visits = feeders.values()

        driver = program.start(stack, "orders", "clicks", update="add")
        orders.await_acknowledged(3000)
        driver.wait_for("batch", lambda batch: batch["records"] > 0, count=2)
        driver.kill()

        # Another order, another function, and an output that fails in every batch.
        driver = program.start(stack, "clicks", "orders", update="count", fails=["sums"])
        orders.await_acknowledged(3000)
        driver.wait_for("batch", lambda batch: batch["records"] > 0, count=2)
        driver.stop()
        assert any(event["what"] == "failed" for event in driver.events)
        last_failed = max(program.written("orders"))

        # Another operation, and one stream more.
        driver = program.start(stack, "orders", "visits", "clicks", update="map")
        visits.await_acknowledged(3000)
        sent = {"orders": orders.finish(), "visits": visits.finish()}
        driver.stop()
        assert last_failed in program.written("sums"), "the batch that failed is tried again"

        # One stream fewer.
        removed = {"spark.penstock.removedStreams": "orders,visits"}
        driver = program.start(stack, "clicks", update="map", settings=removed)
        clicks.await_acknowledged(3000)
        sent["clicks"] = clicks.finish()
        driver.stop()

        sums = dict(list(program.written("sums").values())[-1])
        for name, count in sent.items():
            assert program.numbers(name) == list(range(count))
            # The first version kept sums only.
            assert sums[name][1] == sum(range(count))
        assert sums["visits"][0] == sent["visits"]
