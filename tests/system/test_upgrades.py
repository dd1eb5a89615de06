"""A program with receivers in Spark, upgraded three times over one folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.streaming import StreamingContext
from tests.system.receivers import Numbers
from tests.system.running import Events, settings

pytestmark = pytest.mark.slow

FIRST = {"orders": 0, "clicks": 1_000_000, "visits": 2_000_000}
"""The first number of each stream."""

# A stop that gave up a batch would be refused an upgrade.
PATIENT = {"spark.streaming.gracefulStopTimeout": "300s"}


def count(values: Iterable[int], state: int | None) -> int:
    return len(list(values)) + (state or 0)


def count_and_sum(values: Iterable[int], state: Any) -> Any:
    before, total = state if isinstance(state, tuple) else (state or 0, None)
    found = list(values)
    return before + len(found), (total or 0) + sum(found)


def kind_of(number: int) -> tuple[str, int]:
    return list(FIRST)[number // 1_000_000], number


class Keep:
    """Writes what a batch has to the file of its time, so that a second time is the same file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name

    def __call__(self, time: Any, rdd: Any) -> None:
        path = self.folder / f"{self.name}-{round(time.timestamp() * 1000)}"
        path.write_text(json.dumps(rdd.collect()))


class Program:
    """One version after the other; results are in `folder`."""

    def __init__(self, sc: Any, folder: Path) -> None:
        self.sc = sc
        self.checkpoint = str(folder / "checkpoint")
        self.results = folder / "results"
        self.results.mkdir()

    def build(self, ssc: StreamingContext, names: Sequence[str], update: Any) -> None:
        """Count the numbers of streams, made in this order."""
        streams = [ssc.receiverStream(Numbers(FIRST[name]), name=name) for name in names]
        pairs = ssc.union(*streams).map(kind_of)
        pairs.foreachRDD(Keep(self.results, "in"))
        totals = pairs.updateStateByKey(update, 1).named("totals")
        totals.foreachRDD(Keep(self.results, "totals"))

    def run(self, version: str, names: Sequence[str], update: Any) -> None:
        """Run a version until it has processed something, and stop it."""

        def setup() -> StreamingContext:
            ssc = StreamingContext(self.sc, 2)
            self.build(ssc, names, update)
            return ssc

        ssc = StreamingContext.getOrCreate(self.checkpoint, setup, version=version)
        events = Events()
        ssc.addStreamingListener(events)
        ssc.start()
        try:
            events.wait_for("batch", lambda batch: batch.numRecords() > 0)
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=True)

    def written(self, name: str) -> list[Any]:
        paths = sorted(self.results.glob(f"{name}-*"), key=lambda path: int(path.stem[-13:]))
        return [json.loads(path.read_text()) for path in paths]

    def numbers(self, name: str) -> list[int]:
        return [number for batch in self.written("in") for kind, number in batch if kind == name]


@pytest.mark.timeout(600)
def test_three_upgrades_process_every_number_once_and_keep_the_counts(
    sc: Any, tmp_path: Path
) -> None:
    program = Program(sc, tmp_path)
    with settings(sc, PATIENT):
        program.run("1", ("orders", "clicks"), count)
        program.run("2", ("clicks", "orders"), count_and_sum)
    with settings(sc, {**PATIENT, "spark.penstock.removedStreams": "orders"}):
        program.run("3", ("visits", "clicks"), count_and_sum)
    with settings(sc, {**PATIENT, "spark.penstock.removedStreams": "visits"}):
        program.run("4", ("clicks",), count_and_sum)
    totals = {name: found[0] for name, found in program.written("totals")[-1]}
    for name, first in FIRST.items():
        numbers = program.numbers(name)
        assert numbers == list(range(first, first + len(numbers)))
        assert totals.get(name, 0) == len(numbers)
    assert program.numbers("orders")
    assert program.numbers("clicks")
