"""Programs that cannot run: `start()` says why, and names the way out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SettingError
from penstock.streaming import StreamGraphError, StreamingContext
from tests.programs import run_to_end
from tests.system.driver_process import DriverProcess
from tests.system.feeder import Feeder
from tests.system.running import run_on


def some() -> Iterator[int]:
    yield 1


@pytest.mark.long
@pytest.mark.slow
def test_a_receiver_on_one_core_is_an_error_that_names_local_2(tmp_path: Path) -> None:
    with (
        Feeder() as feeder,
        DriverProcess(tmp_path, {"master": "local[1]", "feeders": [feeder.address]}) as driver,
    ):
        assert driver.wait_until_ended() == 1
        assert "NotEnoughCoresError" in driver.log()
        assert "local[2]" in driver.log()
        driver.assert_no_process_left(30)
        assert feeder.pids == []


def test_streams_without_an_output_operation_are_an_error(sc: Any) -> None:
    with run_on(sc) as run:
        run.ssc.receiverStream(some).map(str)
        with pytest.raises(StreamGraphError, match="No output operations"):
            run.start()
        assert StreamingContext.getActive() is None


_NOTEBOOK = """
from pyspark import SparkConf, SparkContext
from penstock.errors import SettingError
from penstock.streaming import StreamingContext

def start(conf):
    sc = SparkContext("local[2]", "notebook", conf=conf.set("spark.ui.enabled", "false"))
    ssc = StreamingContext(sc, 60)
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    try:
        ssc.start()
        print("started")
    except SettingError as error:
        print(error)
    ssc.stop()

start(SparkConf().set("spark.penstock.blok.maxSize", "1m"))
start(SparkConf())
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_mistyped_setting_does_not_come_back_in_a_notebook(tmp_path: Path) -> None:
    """The JVM of the process keeps what its first SparkContext was given."""
    (tmp_path / "notebook.py").write_text(_NOTEBOOK)
    ended = run_to_end(tmp_path / "notebook.py")
    refused, started = ended.stdout.strip().splitlines()
    assert "spark.penstock.blok.maxSize='1m' is not accepted" in refused
    assert "Settings are those of the SparkContext: stop it, and make a new one" in refused
    assert started == "started"


@pytest.mark.parametrize(
    ("key", "value", "way_out"),
    [
        ("spark.penstock.blok.maxSize", "1m", "spark.penstock.block.maxSize"),
        ("spark.streaming.blockInterval", "soon", "200ms"),
        ("spark.penstock.block.maxSize", "32m", "spark.penstock.memory.size"),
        ("spark.penstock.wal.sync", "sometimes", "interval"),
        ("spark.streaming.receiver.writeAheadLog.enable", "true", "checkpoint"),
        ("spark.penstock.memory.dir", "/no/such/folder", "/dev/shm"),
    ],
)
def test_a_bad_setting_is_an_error_that_names_it_and_what_is_accepted(
    sc: Any, key: str, value: str, way_out: str
) -> None:
    with run_on(sc, {key: value}) as run:
        run.process(some)
        with pytest.raises(SettingError) as caught:
            run.start()
        assert key in str(caught.value)
        assert value in str(caught.value)
        assert way_out in str(caught.value)
        assert StreamingContext.getActive() is None
