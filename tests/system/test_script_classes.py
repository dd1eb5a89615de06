"""A program that is run as a script, and stores records of a class that stands in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bounds import HANG_S
from tests.examples.running import Run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROGRAM = """
from dataclasses import dataclass

from pyspark import SparkConf, SparkContext

from penstock.streaming import StreamingContext


@dataclass
class Reading:
    sensor: str
    value: int


def readings(ctx):
    for n in range(100):
        yield Reading("a", n)
    ctx.stopped.wait()


def row(reading):
    return type(reading) is Reading, reading.sensor, reading.value


if __name__ == "__main__":
    found = []
    sc = SparkContext(conf=SparkConf().setMaster("local[2]").setAppName("script"))
    sc.setLogLevel("OFF")
    ssc = StreamingContext(sc, 0.5)
    ssc.receiverStream(readings).map(row).foreachRDD(lambda rdd: found.extend(rdd.collect()))
    ssc.start()
    for _ in range(600):
        if len(found) >= 100 or ssc.awaitTerminationOrTimeout(0.1):
            break
    ssc.stop(stopSparkContext=True, stopGraceFully=True)
    print("found", found == [(True, "a", n) for n in range(100)])
"""


@pytest.mark.long
def test_records_of_a_class_in_the_script_itself_come_to_its_batches(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    run = Run(tmp_path, "program.py")
    try:
        assert run.wait_until_ended(HANG_S) == 0
        assert "found True" in run.lines
    finally:
        run.close()
