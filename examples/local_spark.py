"""A quiet local Spark that gives way to Ctrl-C and leaves nothing behind."""

from __future__ import annotations

import logging
import operator
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkConf, SparkContext


class Interrupts:
    """Takes note of Ctrl-C and SIGTERM, and raises `KeyboardInterrupt` where that does no harm.

    PySpark does not stand an exception in the middle of a call: it loses sight of a JVM that is
    starting, and breaks its connection to one that runs.
    """

    def __init__(self) -> None:
        self._came = False
        self._raises = False
        self.take()

    def take(self) -> None:
        """Take the signals (again)."""
        signal.signal(signal.SIGINT, self._note)
        signal.signal(signal.SIGTERM, self._note)

    def check(self) -> None:
        """Raise if one came."""
        if self._came:
            raise KeyboardInterrupt

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Raise at once, within."""
        self._raises = True
        try:
            self.check()
            yield
        finally:
            self._raises = False

    def _note(self, *_: object) -> None:
        if not self._came:
            # Not by `print`: the signal may have come in the middle of one.
            os.write(sys.stderr.fileno(), b"\nInterrupted; clearing up, which can take seconds\n")
        self._came = True
        if self._raises:
            raise KeyboardInterrupt


@contextmanager
def local_spark(scratch: Path, log_folder: Path, interrupts: Interrupts) -> Iterator[SparkContext]:
    """Run a Spark in this process and a JVM, all of whose files lie in `scratch`.

    Args:
        scratch: A folder that is there. Spark's own log is ``spark.log`` in it.
        log_folder: Where Penstock's logs go.
        interrupts: Are raised between the steps.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setMaster("local[4]").setAppName("penstock demo")
    conf.set("spark.ui.enabled", "false")
    # The demo tells by itself how it goes.
    conf.set("spark.ui.showConsoleProgress", "false").set("spark.penstock.console", "off")
    conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
    conf.set("spark.local.dir", str(scratch))
    conf.set("spark.driver.extraJavaOptions", f"-Djava.io.tmpdir={scratch}")
    conf.set("spark.streaming.gracefulStopTimeout", "120s")
    conf.set("spark.penstock.wal.dir", str(log_folder))
    log = scratch / "spark.log"
    interrupts.check()
    try:
        with _stderr_to(log):
            sc = SparkContext(conf=conf)
    except Exception:
        sys.stderr.write(log.read_text())
        raise
    try:
        interrupts.take()  # PySpark took them
        interrupts.check()
        # The first job starts the Python workers and takes seconds: not at the batches' cost.
        sc.parallelize(range(8), 8).map(lambda n: (n % 2, n)).reduceByKey(operator.add).collect()
        interrupts.check()
        yield sc
    finally:
        _stop(sc)


def _stop(sc: SparkContext) -> None:
    """Stop Spark and its JVM; otherwise that and its files would outlive this process a little."""
    assert sc._gateway is not None
    jvm = sc._gateway.proc
    # A batch that was given up may still ask the JVM, and Py4J would tell of each such call.
    logging.getLogger().addFilter(lambda record: "py4j" not in Path(record.pathname).parts)
    sc.stop()
    jvm.stdin.close()
    try:
        jvm.wait(10)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait(10)


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Let processes that start meanwhile write their standard error to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
