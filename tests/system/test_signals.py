"""Signals to a program that runs by `run`, with a real Spark, wherever it is at that moment."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.host.interrupts import SAME_SIGNAL_S
from tests.programs import Program

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PROGRAM = """
import sys
import threading
from pyspark import SparkConf, SparkContext
from penstock.streaming import StreamingContext

hangs = sys.argv[1] == "hangs"
conf = SparkConf().setMaster("local[3]").setAppName("signals").set("spark.ui.enabled", "false")
conf.set("spark.driver.host", "127.0.0.1").set("spark.penstock.memory.size", "64m")
conf.set("spark.penstock.block.maxSize", "8m").set("spark.streaming.gracefulStopTimeout", "200s")
sc = SparkContext(conf=conf)
sc.setLogLevel("OFF")
ssc = StreamingContext(sc, 1)

class Numbers:
    def run(self, ctx):
        while not ctx.stopped.wait(0.05):
            ctx.store(1)

    def __getstate__(self):
        print("on its way", flush=True)
        return {}

def show(rdd):
    print(f"batch of {rdd.count()}", flush=True)
    if hangs:
        threading.Event().wait(600)

ssc.receiverStream(Numbers()).foreachRDD(show)
print("made", flush=True)
report = ssc.run()
print("after", report, flush=True)
"""


class Signalled(Program):
    """A program that gets signals."""

    def __init__(self, folder: Path, mode: str = "") -> None:
        script = folder / "program.py"
        script.write_text(PROGRAM)
        command = [sys.executable, script, mode]
        super().__init__(command, folder, stdin=subprocess.DEVNULL, TMPDIR=str(folder))

    def until(self, part: str) -> None:
        self.wait_for_line(lambda line: part in line)

    def send(self, number: int) -> None:
        """Send what a terminal sends to all of it, and ``timeout`` to its first process first."""
        if number == signal.SIGTERM:
            self.process.send_signal(number)
        self.signal(number)

    def end(self) -> tuple[int, list[str]]:
        """Return the exit code, and what was said but for the batches."""
        code = self.wait_until_ended()
        self.assert_no_process_left()
        # A machine may be slow, and say so.
        left_out = ("batch of", "on its way", "slow disk:")
        said = [line for line in self.lines if line and not line.startswith(left_out)]
        assert not any("py4j" in line.lower() or "Traceback" in line for line in said), said
        return code, said[said.index("made") + 1 :]


@pytest.mark.long
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="Ctrl-C"),
        pytest.param(signal.SIGTERM, id="SIGTERM", marks=pytest.mark.exhaustive),
    ],
)
def test_a_signal_while_it_starts_stops_it_once_it_has_started(tmp_path: Path, number: int) -> None:
    with Signalled(tmp_path) as running:
        running.until("made")
        running.until("on its way")
        running.send(number)
        code, said = running.end()
    assert code == 0
    assert [line.partition(":")[0] for line in said] == [
        _name(number),
        "after The stop gave up nothing",
    ]


@pytest.mark.long
@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, id="Ctrl-C", marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGTERM, id="SIGTERM"),
    ],
)
def test_a_signal_while_it_runs_stops_gracefully(tmp_path: Path, number: int) -> None:
    with Signalled(tmp_path) as running:
        running.until("batch of")
        running.send(number)
        code, said = running.end()
    assert code == 0
    assert len(said) == 2
    assert said[0].startswith(f"{_name(number)}: stopping gracefully")
    assert said[1] == "after The stop gave up nothing"


@pytest.mark.long
def test_a_second_signal_while_it_stops_ends_that_at_once_and_says_what_was_given_up(
    tmp_path: Path,
) -> None:
    with Signalled(tmp_path, "hangs") as running:
        running.until("batch of")
        running.send(signal.SIGTERM)
        running.until("SIGTERM: stopping gracefully")
        # What comes sooner is the same one.
        time.sleep(1.5 * SAME_SIGNAL_S)
        running.send(signal.SIGINT)
        code, said = running.end()
    assert code == 3
    assert said[0].startswith("SIGTERM: stopping gracefully")
    assert said[1].startswith("Ctrl-C: stopping at once")
    assert "after" not in said


def _name(number: int) -> str:
    return "Ctrl-C" if number == signal.SIGINT else "SIGTERM"
