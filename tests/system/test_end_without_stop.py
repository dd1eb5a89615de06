"""Programs that end without a stop: they are stopped when the interpreter exits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.programs import run_to_end

START = """
import logging, sys, time
from pyspark.sql import SparkSession
from penstock.receiver import receiver
from penstock.sql import ReceiverHost
from penstock.streaming import StreamingContext

logging.basicConfig(level=logging.INFO)
spark = SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false").getOrCreate()

@receiver(schema="n long")
def numbers(context):
    for n in range(100):
        yield {"n": n}
    context.stopped.wait()
    for n in range(100, 107):
        yield {"n": n}
"""
HOST = """
host = ReceiverHost(spark, sys.argv[1] + "/host")
host.stream("numbers", numbers)
host.start()
while host.streams()["numbers"].records < 100:
    time.sleep(0.05)
"""
CONTEXT = """
ssc = StreamingContext(spark.sparkContext, 0.5)
ssc.checkpoint(sys.argv[1] + "/checkpoint")
ssc.receiverStream(numbers, name="numbers").foreachRDD(lambda rdd: rdd.foreach(lambda _: None))
ssc.start()
while not any(found.records >= 100 for found in ssc.receivers()):
    time.sleep(0.05)
"""


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(720)
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(HOST, marks=pytest.mark.exhaustive),
        CONTEXT,
        pytest.param(HOST + CONTEXT, marks=pytest.mark.exhaustive),
    ],
    ids=["host", "context", "both"],
)
def test_its_receivers_end_as_at_a_stop(program: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    program = START + program
    ended = run_to_end("-c", program, folder, folder=tmp_path, stderr=subprocess.STDOUT)
    assert "didn't deregister" not in ended.stdout, ended.stdout[-3000:]
    assert "have not ended in time" not in ended.stdout
    assert "Exception ignored" not in ended.stdout
