"""The executors of a master: whether they can be had, their Python, clocks and open files."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark import SparkConf, SparkContext

from penstock.errors import text_of
from penstock.host.spark.ending import run_bounded
from penstock.host.spark.executor_python import (
    ExecutorAnswer,
    ExecutorPythonError,
    ask_executors,
    use_own_python,
)
from penstock.monitor.doctor.driver import Finding, Level, of_open_files
from penstock.runtime.threads import OwnedThread

_STARTS_S = 15.0
"""How long Spark may take at least to begin with a master that answers."""

_FAR_S = 1.0
"""Batches and positions are the driver's time alone; logs and Kerberos want clocks nearer than
that."""


def check_cluster(
    master: str, conf: Mapping[str, str], modules: Sequence[str], patience_s: float
) -> list[Finding]:
    """Start Spark with a master, and ask its executors in one short job.

    Args:
        master: Spark's master.
        conf: Spark's configuration beside it.
        modules: What the executors must be able to import, beside what is always needed.
        patience_s: How long they may take to come.
    """
    silent = _silent_masters(master, patience_s)
    if silent:
        change = "start it, or mend its address (--master spark://HOST:PORT, as its page shows it)"
        found = f"{master}: no master answers there: {'; '.join(silent)}"
        return [Finding("cluster", Level.PROBLEM, found, change)]
    settings = SparkConf().setAppName("penstock doctor").setMaster(master)
    settings.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    for key, value in conf.items():
        settings.set(key, value)
    change = "mend the master's address (--master), or start it; Spark's log above says more"
    limit_s = max(patience_s, _STARTS_S)
    try:
        spark_context = _started(settings, limit_s)
    except Exception as error:  # noqa: BLE001  # Spark's, Py4J's and the JVM's are of many kinds
        return [Finding("cluster", Level.PROBLEM, f"{master}: {_line(error)}", change)]
    if spark_context is None:
        found = f"{master}: Spark had no answer from it within {limit_s:g} s"
        return [Finding("cluster", Level.PROBLEM, found, change)]
    try:
        use_own_python(spark_context)
        return _ask(spark_context, modules, patience_s)
    finally:
        spark_context.stop()


def _started(settings: SparkConf, limit_s: float) -> SparkContext | None:
    """Start Spark; None when that takes too long. What listens there may be no master of Spark."""
    untyped: Any = SparkContext
    untyped._ensure_initialized(conf=settings)
    made: list[SparkContext] = []
    run_bounded("doctor", lambda: made.append(SparkContext(conf=settings)), limit_s)
    return made[0] if made else None


def _silent_masters(master: str, patience_s: float) -> list[str]:
    """Return why no master of a standalone cluster can be reached; empty when one can.

    Spark itself asks for a minute, and then says that the application was stopped.
    """
    scheme, _, addresses = master.partition("://")
    if scheme != "spark":
        return []
    end_s = time.monotonic() + patience_s
    reasons = []
    for address in addresses.split(","):
        host, _, port = address.rpartition(":")
        left_s = max(0.1, end_s - time.monotonic())
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=left_s):
                return []
        except (OSError, ValueError, OverflowError) as error:
            reasons.append(f"{address} ({getattr(error, 'strerror', None) or error})")
    return reasons


def _ask(spark_context: SparkContext, modules: Sequence[str], patience_s: float) -> list[Finding]:
    is_late = False
    is_over = threading.Event()

    def give_up_late() -> None:
        nonlocal is_late
        if not is_over.wait(patience_s):
            is_late = True
            spark_context.cancelAllJobs()

    OwnedThread(give_up_late, "doctor-patience").start()
    master = spark_context.master
    try:
        # The first job waits for executors and loads classes; the second reads the clocks.
        ask_executors(spark_context, modules)
        before_s = time.time()
        answers = ask_executors(spark_context, modules)
        after_s = time.time()
    except ExecutorPythonError as error:
        found = f"{error.executable}: {'; '.join(error.lacks)}"
        return [Finding("executors' Python", Level.PROBLEM, found, error.way_out)]
    except Exception as error:  # noqa: BLE001  # Spark's, Py4J's and the JVM's are of many kinds
        if is_late:
            found = f"{master} gave no executor within {patience_s:g} s"
            change = "free cores or memory of the cluster, start workers, or wait (--timeout)"
            return [Finding("cluster", Level.PROBLEM, found, change)]
        change = "Spark's log above says more"
        return [Finding("cluster", Level.PROBLEM, f"{master}: {_line(error)}", change)]
    finally:
        is_over.set()
    hosts = sorted({answer.host for answer in answers})
    found = f"{master} answers from {len(hosts)} host(s): {', '.join(hosts)}"
    return [
        Finding("cluster", Level.OK, found),
        *_of_pythons(answers),
        *of_clocks(answers, before_s, after_s),
        *_of_files(answers),
    ]


def _of_pythons(answers: Sequence[ExecutorAnswer]) -> list[Finding]:
    check = "executors' Python"
    change = "set PYSPARK_PYTHON to a Python that has these on every host, or install them there"
    found = []
    for answer in _each_host(answers):
        shown = (
            f"{answer.python} with PySpark {answer.pyspark}, {answer.executable} on {answer.host}"
        )
        if answer.lacks:
            told = f"{shown} lacks {'; '.join(answer.lacks)}"
            found.append(Finding(check, Level.PROBLEM, told, change))
        else:
            found.append(Finding(check, Level.OK, shown))
    return found


def of_clocks(answers: Sequence[ExecutorAnswer], before_s: float, after_s: float) -> list[Finding]:
    """Compare clocks.

    A clock is off by as much as its answer is outside the time in which it was asked, by the
    driver's clock: smaller differences cannot be told from the time that the answer took.

    Args:
        answers: What the executors say.
        before_s: When the driver began to ask.
        after_s: When it had all answers.
    """
    found = []
    within = f"within {after_s - before_s:.1f} s of the driver's"
    for answer in _each_host(answers):
        off_s = max(before_s - answer.time_s, answer.time_s - after_s, 0.0)
        if off_s > _FAR_S:
            side = "behind" if answer.time_s < before_s else "ahead"
            told = f"that of {answer.host} is {off_s:.1f} s {side}"
            change = "have the hosts' clocks set by NTP (timedatectl, chronyc tracking)"
            found.append(Finding("clocks", Level.WARNING, told, change))
        else:
            found.append(Finding("clocks", Level.OK, f"that of {answer.host} is {within}"))
    return found


def _of_files(answers: Sequence[ExecutorAnswer]) -> list[Finding]:
    return [
        of_open_files("executors' files", answer.open_files, f" on {answer.host}")
        for answer in _each_host(answers)
    ]


def _each_host(answers: Sequence[ExecutorAnswer]) -> list[ExecutorAnswer]:
    """Return an answer of each host, the worst one of it."""
    worst: dict[str, ExecutorAnswer] = {}
    for answer in answers:
        known = worst.get(answer.host)
        if known is None or len(answer.lacks) > len(known.lacks):
            worst[answer.host] = answer
    return [worst[host] for host in sorted(worst)]


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in text_of(error).splitlines() if line.strip()]
    # Py4J says first that there was an error, and then which one.
    said = next((line for line in lines if line.startswith(": ")), lines[0] if lines else "")
    return said.removeprefix(": ")[:300]
