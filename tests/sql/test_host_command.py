"""``penstock host``, run as a user does, with a reader in another application."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.__main__ import main
from penstock.host.errors import ContinuousStreamError, PermanentReceiverError
from penstock.sql import SourceError, connect
from penstock.sql.host_cli import _await_end
from tests.bounds import HANG_S
from tests.examples.running import Run
from tests.system.running import SMALL

BOUND_S = HANG_S
APP = """
import sys
from penstock.receiver import receiver
from penstock.sql import ReceiverHost

COUNT = int(sys.argv[1])

@receiver(positions=True)
def numbers(ctx):
    number = ctx.last_position or 0
    while number < COUNT:
        yield str(number), number + 1
        number += 1
    ctx.stopped.wait()

def host(spark):
    host = ReceiverHost(spark, "host", share="share")
    host.stream("numbers", numbers)
    return host
"""
FAILS = """
from penstock.receiver import receiver
from penstock.sql import ReceiverHost

class NoSuchSource:
    def run(self):
        raise {error}

def host(spark):
    host = ReceiverHost(spark)
    host.stream("broken", NoSuchSource)
    return host
"""


SHORT_BOUNDS = """
from penstock.host.spark import ending
from penstock.sql import host as bounds

bounds._STOP_S = bounds._CANCEL_S = bounds._TRACKER_ENDS_S = 3.0
ending._SPARK_ENDS_S = 3.0
bounds.ReceiverHost.stopReceiving.__defaults__ = (3.0,)
"""
"""In place of the longest bounds of a stop, all of which are waited for."""


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def start(text: str, *arguments: str) -> Run:
        (tmp_path / "app.py").write_text(text)
        folder = tmp_path / f"run-{len(runs)}"
        folder.mkdir()
        conf = {**SMALL, "spark.ui.enabled": "false"}
        small = [text for pair in conf.items() for text in ("--conf", "=".join(pair))]
        program = ("-m", "penstock", "host", "--master", "local[2]", *small)
        runs.append(Run(folder, *program, str(tmp_path / "app.py"), *arguments))
        return runs[-1]

    yield start
    for program in runs:
        program.close()


def started(run: Run) -> None:
    run.wait_for_line(lambda line: "penstock host: receiving" in line, BOUND_S)


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("order", [signal.SIGTERM, signal.SIGINT])
def test_another_application_reads_what_it_receives_until_it_is_stopped(
    command: Callable[..., Run], sc: Any, tmp_path: Path, order: signal.Signals
) -> None:
    spark = SparkSession(sc)
    run = command(APP, "2000")
    started(run)
    share = tmp_path / "run-0" / "share"
    connect(spark, str(share))
    reader = spark.readStream.format("penstock").option("stream", "numbers")
    query = (
        reader.load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    end_s = time.monotonic() + BOUND_S
    while len(written(spark, tmp_path)) < 2000:
        assert query.isActive, query.exception()
        assert time.monotonic() < end_s, run.output
        time.sleep(0.5)
    query.stop()
    assert written(spark, tmp_path) == list(range(2000))
    if order == signal.SIGINT:
        run.interrupt()
    else:
        run.process.send_signal(order)
    assert run.wait_until_ended(BOUND_S) == 0, run.output
    assert "stopping gracefully" in run.output
    assert "Traceback" not in run.output
    assert not share.exists()
    with pytest.raises(SourceError, match="there is no share file"):
        connect(spark, str(share))


def written(spark: SparkSession, folder: Path) -> list[int]:
    if not list(folder.glob("out/_spark_metadata/0")):
        return []
    found = spark.read.parquet(str(folder / "out")).select("value").collect()
    return sorted(int(row[0]) for row in found)


@pytest.mark.exhaustive  # CI ends it by its JVM.
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_ends_when_no_receiver_is_left(command: Callable[..., Run]) -> None:
    run = command(FAILS.format(error="TypeError('no such source')"))
    assert run.wait_until_ended(BOUND_S) == 1, run.output
    assert "failed for good" in run.output
    assert "no such source" in run.output
    assert "no receiver is left" in run.output


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("host = 1", "defines no function host(spark)"),
        ("def host(spark):\n    return 'mine'", "returned 'mine', and not a ReceiverHost"),
    ],
)
def test_what_is_wrong_with_the_file_is_said(
    command: Callable[..., Run], text: str, told: str
) -> None:
    run = command(text)
    assert run.wait_until_ended(BOUND_S) == 1, run.output
    assert told in run.output


def jvm_of(run: Run) -> int:
    """Return the process of a host's JVM; Spark's script becomes it."""
    tasks = Path(f"/proc/{run.process.pid}/task").glob("*/children")
    children = [int(pid) for task in tasks for pid in task.read_text().split()]
    (found,) = (pid for pid in children if Path(f"/proc/{pid}/comm").read_text() == "java\n")
    return found


@pytest.mark.exhaustive  # `tests/system/test_silent_jvm.py` stops a context whose JVM hangs.
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_ends_at_the_first_signal_though_the_jvm_hangs(command: Callable[..., Run]) -> None:
    run = command(SHORT_BOUNDS + APP, "10")
    started(run)
    jvm = jvm_of(run)
    os.kill(jvm, signal.SIGSTOP)
    try:
        time.sleep(3.0)  # By now it asks whether Spark runs.
        run.process.send_signal(signal.SIGTERM)
        run.process.wait(BOUND_S)
    finally:
        os.kill(jvm, signal.SIGKILL)  # It has the output open.
    assert run.wait_until_ended(BOUND_S) == 0, run.output
    assert f"The JVM of Spark (process {jvm}) has not answered for" in run.output
    assert "Stopping receivers has not ended" in run.output
    assert "Traceback" not in run.output


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_it_ends_when_its_jvm_is_killed(command: Callable[..., Run]) -> None:
    run = command(APP, "10")
    started(run)
    os.kill(jvm_of(run), signal.SIGKILL)
    assert run.wait_until_ended(BOUND_S) == 1, run.output
    assert "penstock host: Spark does not answer any more" in run.output
    assert "Traceback" not in run.output, run.output


@pytest.mark.long
@pytest.mark.slow
def test_a_share_file_that_cannot_be_written_ends_it_without_a_traceback(
    command: Callable[..., Run],
) -> None:
    run = command(APP.replace('share="share"', 'share="none/share"'), "10")
    assert run.wait_until_ended(BOUND_S) == 1, run.output
    assert "the share file none/share cannot be used" in run.output
    assert "Traceback" not in run.output


UNREAD = """
import sys
sys.stdout.write("x" * 1_000_000)
sys.stdout.flush()
host = 1
"""


@pytest.mark.long
def test_signals_reach_it_while_nobody_reads_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(UNREAD)
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "host", str(tmp_path / "app.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.read(1) == b"x"  # It handles signals, and is about to wait for us.
        end_s = time.monotonic() + BOUND_S
        while process.poll() is None and time.monotonic() < end_s:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        assert process.poll() == 128 + signal.SIGTERM
        assert b"Traceback" not in process.stdout.read()
    finally:
        process.kill()
        process.communicate()


def test_wrong_usage_is_told(tmp_path: Path, capsys: Any) -> None:
    assert main(["host", str(tmp_path / "none.py")]) == 2
    assert "none.py" in capsys.readouterr().err
    assert main(["host"]) == 2
    assert main(["host", "--conf", "nothing", "app.py"]) == 2
    assert main(["host", "--help"]) == 0
    assert "exit codes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "code"), [(ContinuousStreamError, 0), (PermanentReceiverError, 1)]
)
def test_it_goes_on_without_a_function_that_is_given_up(
    capsys: pytest.CaptureFixture[str], kind: Any, code: int
) -> None:
    error = kind(0, "it failed so often", "")
    host: Any = SimpleNamespace(
        errors=lambda: (error,), streams=lambda: {"clicks": None}, isStopAsked=False
    )
    looks = iter([False, False, True])
    stop: Any = SimpleNamespace(wait=lambda _: next(looks))
    spark: Any = SimpleNamespace(look_now=lambda: None, ended="")
    assert _await_end(spark, host, stop) == code
    assert capsys.readouterr().err.count("it failed so often") == 1
