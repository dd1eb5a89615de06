"""A program that stops its SparkContext under its streams is told that once by Penstock."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.programs import run_to_end

_JAVA = ("\t", "org.", "java.", "Caused by")
_OF_TASK = re.compile(r" ERROR (TaskContextImpl|Executor): ")

_PROGRAM = """
import os, sys, time
from pyspark import SparkConf, SparkContext
from penstock.receiver import Receiver
from penstock.streaming import StreamingContext

folder, moment = sys.argv[1:]

class Numbers(Receiver):
    def __setstate__(self, state):
        self.__dict__.update(state)
        open(f"{folder}/arrived", "w").close()
        time.sleep(1 if moment == "arrived" else 0)

    def onStart(self):
        open(f"{folder}/running", "w").close()
        while not self.isStopped():
            self.store(1)
            time.sleep(0.01)

    def onStop(self):
        pass

sc = SparkContext("local[2]", "stopped", conf=SparkConf().set("spark.ui.enabled", "false"))
ssc = StreamingContext(sc, 1)
ssc.receiverStream(Numbers()).foreachRDD(lambda rdd: None)
ssc.start()
end_s = time.monotonic() + 60
while moment != "at once" and not os.path.exists(f"{folder}/{moment}"):
    assert time.monotonic() < end_s
    time.sleep(0.01)
sc.stop()
while ssc.getState().name != "STOPPED":
    time.sleep(0.05)
print("ended")
"""


_HOST_PROGRAM = """
import time
from pyspark.sql import SparkSession
from penstock.sql import ReceiverHost

def numbers(context):
    while not context.stopped.wait(0.01):
        yield "1"

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
host = ReceiverHost(spark)
host.stream("numbers", numbers)
host.start()
while not host.streams()["numbers"].records:
    time.sleep(0.05)
spark.stop()
while not host.errors():
    time.sleep(0.05)
time.sleep(2)
host.stop()
print("ended")
"""


@pytest.mark.exhaustive  # The next one stops a context's.
@pytest.mark.slow
def test_a_host_whose_spark_was_stopped_says_so_once(tmp_path: Path) -> None:
    done = run(_HOST_PROGRAM, tmp_path)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
    told = done.stderr.count("The SparkContext was stopped before the ReceiverHost")
    assert told == 1, done.stderr
    assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    [
        "running",
        pytest.param("at once", marks=pytest.mark.exhaustive),
        pytest.param("arrived", marks=pytest.mark.exhaustive),
    ],
)
def test_whenever_spark_is_stopped_the_terminal_says_so_once(moment: str, tmp_path: Path) -> None:
    done = run(_PROGRAM, tmp_path, moment)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
    told = list(without_tasks(done.stderr.splitlines()))
    assert sum("the streams have ended because Spark has" in line for line in told) == 1
    ours = ("Traceback", "Receiver", "The job")
    assert not [line for line in told if line.startswith((*ours, *_JAVA))], done.stderr
    assert not [line for line in told if " ERROR " in line], done.stderr


def run(program: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(program)
    return run_to_end("program.py", folder, *arguments, folder=folder, code=None)


def without_tasks(lines: list[str]) -> Iterator[str]:
    """Leave out what Spark logs of a task that runs when it stops, and finds its blocks gone."""
    is_of_task = False
    for line in lines:
        if "WARN" in line or not line.strip():
            continue
        is_of_task = (is_of_task and line.startswith(_JAVA)) or bool(_OF_TASK.search(line))
        if not is_of_task:
            yield line
