"""Versions of a program over one folder, on a real Spark: every record once, states exact."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.receiver import Receiver
from penstock.streaming import StreamingContext
from penstock.wal import KEY_VARIABLE, EncryptionKey
from tests.doubles import Events
from tests.services.hdfs import Hdfs
from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.leftovers import await_that
from tests.system.receivers import Numbers
from tests.system.running import settings

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
        driver = stack.enter_context(DriverProcess(self.folder, config, module=module))
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


@pytest.mark.exhaustive
@pytest.mark.timeout(1500)
def test_a_program_upgraded_three_times_is_exact_also_when_one_was_killed_and_one_failed(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:
        feeders = {name: stack.enter_context(Feeder()) for name in ("orders", "clicks", "visits")}
        program = Upgraded(tmp_path, feeders)
        orders, clicks, visits = feeders.values()

        driver = program.start(stack, "orders", "clicks", update="add")
        orders.await_acknowledged(1000)
        driver.wait_for("batch", lambda batch: batch["records"] > 0)
        driver.kill()

        # Another order, another function, and an output that fails in every batch.
        driver = program.start(stack, "clicks", "orders", update="count", fails=["sums"])
        orders.await_acknowledged(1000)
        driver.wait_for("batch", lambda batch: batch["records"] > 0)
        driver.stop()
        assert any(event["what"] == "failed" for event in driver.events)
        last_failed = max(program.written("orders"))

        # Another operation, and one stream more.
        driver = program.start(stack, "orders", "visits", "clicks", update="map")
        visits.await_acknowledged(1000)
        sent = {"orders": orders.finish(), "visits": visits.finish()}
        driver.stop()
        assert last_failed in program.written("sums"), "the batch that failed is tried again"

        # One stream fewer.
        removed = {"spark.penstock.removedStreams": "orders,visits"}
        driver = program.start(stack, "clicks", update="map", settings=removed)
        clicks.await_acknowledged(1000)
        sent["clicks"] = clicks.finish()
        driver.stop()

        sums = dict(list(program.written("sums").values())[-1])
        for name, count in sent.items():
            assert program.numbers(name) == list(range(count))
            # The first version kept sums only.
            assert sums[name][1] == sum(range(count))
        assert sums["visits"][0] == sent["visits"]


# -- in this process -------------------------------------------------------------------------------


def count(values: Iterable[int], state: int | None) -> int:
    return len(list(values)) + (state or 0)


def with_one_key(number: int) -> tuple[str, int]:
    return "all", number


class Keep:
    """Writes what a batch has to the file of its time, so that a second time is the same file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name

    def __call__(self, time: Any, rdd: Any) -> None:
        path = self.folder / f"{self.name}-{round(time.timestamp() * 1000)}"
        path.write_text(json.dumps(rdd.collect()))


class Counted:
    """Counts numbers, one version after the other; results are in `folder`."""

    def __init__(self, sc: Any, folder: Path, checkpoint: str) -> None:
        self.sc = sc
        self.checkpoint = checkpoint
        self.results = folder / "results"
        self.results.mkdir()

    def _setup(self) -> StreamingContext:
        ssc = StreamingContext(self.sc, 1)
        pairs = ssc.receiverStream(Numbers(), name="numbers").map(with_one_key)
        pairs.foreachRDD(Keep(self.results, "in"))
        counts = pairs.updateStateByKey(count, 1).named("counts")
        counts.foreachRDD(Keep(self.results, "counts"))
        return ssc

    def run(self, version: str, *, graceful: bool) -> None:
        """Run a version until it has processed something, and stop it."""
        ssc = StreamingContext.getOrCreate(self.checkpoint, self._setup, version=version)
        events = Events()
        ssc.addStreamingListener(events)
        ssc.start()
        try:
            events.wait_for("batch", lambda batch: batch.numRecords() > 0)
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=graceful)

    def written(self, name: str) -> list[Any]:
        paths = sorted(self.results.glob(f"{name}-*"), key=lambda path: int(path.stem[-13:]))
        return [json.loads(path.read_text()) for path in paths]

    def run_three(self) -> None:
        """Run three versions, of which one ends in the midst of things, and check what they did."""
        self.run("1", graceful=False)
        self.run("2", graceful=True)
        self.run("3", graceful=True)
        numbers = [number for batch in self.written("in") for _, number in batch]
        assert numbers == list(range(len(numbers)))
        assert self.written("counts")[-1] == [["all", len(numbers)]]


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_an_upgrade_with_encryption_is_exact(
    sc: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = base64.b64encode(EncryptionKey.generate().secret).decode()
    monkeypatch.setenv(KEY_VARIABLE, key)
    with settings(sc, {"spark.io.encryption.enabled": "true"}):
        Counted(sc, tmp_path, str(tmp_path / "checkpoint")).run_three()


@pytest.mark.exhaustive
@pytest.mark.timeout(600)
def test_an_upgrade_on_hdfs_is_exact(sc: Any, tmp_path: Path, hdfs: Hdfs) -> None:
    with settings(sc, {}):
        Counted(sc, tmp_path, hdfs.new_folder()).run_three()


class Rows(Receiver):
    """Stores ten rows with these columns."""

    def __init__(self, *columns: str) -> None:
        super().__init__()
        self.columns = columns

    def onStart(self) -> None:
        values = pa.array(range(10), pa.int64())
        self.store(pa.RecordBatch.from_arrays([values] * len(self.columns), list(self.columns)))

    def onStop(self) -> None:
        """Nothing runs."""


class KeepRows:
    """Writes the columns of a DataFrame and how many rows it has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, frame: Any, time: Any) -> None:
        path = self.folder / str(round(time.timestamp() * 1000))
        path.write_text(json.dumps([frame.columns, frame.count()]))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    folder = tmp_path / "rows"
    folder.mkdir()
    return folder


@pytest.mark.exhaustive  # `tests/streaming/restarts/test_upgrades.py` has schemas.
@pytest.mark.timeout(600)
def test_rows_of_an_old_schema_that_wait_have_a_batch_of_their_own(
    sc: Any, tmp_path: Path, rows: Path
) -> None:
    checkpoint = str(tmp_path / "checkpoint")

    def run(version: str, columns: tuple[str, ...], batches: int) -> None:
        def setup() -> StreamingContext:
            # So long that the rows of the first version have no batch when it ends.
            ssc = StreamingContext(sc, 8)
            ssc.receiverStream(Rows(*columns), name="rows").foreachBatch(KeepRows(rows))
            return ssc

        ssc = StreamingContext.getOrCreate(checkpoint, setup, version=version)
        events = Events()
        ssc.addStreamingListener(events)
        ssc.start()
        try:
            if batches:
                events.wait_for("batch", lambda batch: batch.numRecords() > 0, count=batches)
            else:
                engine: Any = ssc._engine
                await_that(
                    "rows that wait", lambda: any(engine._receivers.unallocated_records().values())
                )
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=False)

    with settings(sc, {}):
        run("1", ("price",), 0)
        run("2", ("price", "currency"), 2)
    found = [json.loads(path.read_text()) for path in sorted(rows.iterdir())]
    assert [(columns, count) for columns, count in found if count] == [
        (["price"], 10),
        (["price", "currency"], 10),
    ]
