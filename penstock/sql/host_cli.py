"""``penstock host``: a driver that only receives, for queries of other applications."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from pyspark.sql import SparkSession

from penstock.commands import Command, conf_option
from penstock.errors import PenstockError
from penstock.host.errors import PermanentReceiverError
from penstock.host.interrupts import StopSignals
from penstock.host.spark.ending import run_bounded, stop_spark
from penstock.host.spark.logs import is_not_of_py4j
from penstock.runtime.threads import Repeated
from penstock.sql.host import ReceiverHost

_EPILOG = """\
The first Ctrl-C or SIGTERM stops gracefully: receivers store and report what they have. The second
one ends the process.

exit codes: 0 stopped by a signal or by penstock stop, 1 the host could not be started, has no
            receiver left, or lost Spark, 2 wrong usage or no such file, 128 + N ended by a second
            signal N
"""
_LOOK_S = 1.0

# Not in `sys.modules`, so that what receivers need of the file is sent to executors with them.
_MODULE = "__penstock_host__"


@click.command(
    cls=Command,
    epilog=_EPILOG,
    context_settings={"allow_interspersed_args": False},
)
@click.option("--master", help="Spark's; by default its configuration's, or local[*].")
@conf_option
@click.argument("file", metavar="FILE")
@click.argument("arguments", metavar="...", nargs=-1, type=click.UNPROCESSED)
def host(master: str | None, conf: dict[str, str], file: str, arguments: Sequence[str]) -> int:
    """Run the receivers that FILE describes, until Ctrl-C or SIGTERM.

    FILE is a Python file with a function host(spark), which returns a ReceiverHost with its
    streams; this command starts it, with a Spark application of its own. What follows FILE is its
    sys.argv[1:]. Queries read the streams from other applications, also from clients of Spark
    Connect, by the share file of the host: penstock.sql.connect(spark, share).
    """
    path = Path(file)
    text = path.read_bytes()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("penstock").setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.addFilter(is_not_of_py4j)
    stop = StopSignals("penstock host: ")
    stop.listen()
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        described = _described(path, text)
    except PenstockError as error:
        return _fail(str(error), 1)
    except Exception:  # noqa: BLE001  # the file is its author's
        return _fail(f"{path} failed:\n{traceback.format_exc()}", 1)
    if described is None:
        return _fail(f"{path} defines no function host(spark) that returns a ReceiverHost", 1)
    return _run(path, described, master, conf, stop)


def _described(path: Path, text: bytes) -> Callable[[SparkSession], Any] | None:
    module = ModuleType(_MODULE)
    module.__file__ = str(path)
    exec(compile(text, str(path), "exec"), module.__dict__)
    found = getattr(module, "host", None)
    return found if callable(found) else None


def _run(
    path: Path,
    described: Callable[[SparkSession], Any],
    master: str | None,
    conf: dict[str, str],
    stop: StopSignals,
) -> int:
    # Receivers are run by a driver of its own, whatever queries connect to.
    for name in ("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED"):
        os.environ.pop(name, None)
    builder = SparkSession.builder.appName(path.stem).config("spark.api.mode", "classic")
    for key, value in conf.items():
        builder = builder.config(key, value)
    if master is not None:
        builder = builder.master(master)
    try:
        spark = builder.getOrCreate()
    except Exception as error:  # noqa: BLE001  # whatever Spark does not accept
        return _fail(f"Spark could not be started: {error}", 1)
    # PySpark's own handler would cancel the receivers' jobs.
    stop.listen()
    host: Any = None
    try:
        host = described(spark)
        if not isinstance(host, ReceiverHost):
            return _fail(f"host(spark) of {path} returned {host!r}, and not a ReceiverHost", 1)
        host.start()
        _say(f"receiving {', '.join(sorted(host.streams()))}; Ctrl-C stops")
        watch = _SparkWatch(spark)
        try:
            code = _await_end(watch, host, stop)
        finally:
            watch.end()
        host.stop(stopGraceFully=code == 0)
        return code
    except PenstockError as error:
        return _fail(str(error), 1)
    except Exception:  # noqa: BLE001  # the file is its author's
        return _fail(f"{path} failed:\n{traceback.format_exc()}", 1)
    finally:
        if isinstance(host, ReceiverHost):
            host.stop()
        stop_spark(spark.sparkContext)


class _SparkWatch:
    """Asks Spark whether it runs, in another thread: a JVM that hangs does not answer."""

    def __init__(self, spark: SparkSession) -> None:
        self.ended = ""
        """Why it does not run any more; empty while it does."""
        self._java: Any = spark.sparkContext._jsc
        self._looks = Repeated(self._look, _LOOK_S, "spark-watch")
        self._looks.start()

    def _look(self) -> None:
        try:
            if self._java.sc().isStopped():
                self.ended = "Spark was stopped"
        except Exception as error:  # noqa: BLE001  # of Py4J and of a JVM that goes, of many kinds
            self.ended = f"Spark does not answer any more: {error}"

    def end(self) -> None:
        """Ask no more."""
        self._looks.stop(_LOOK_S)

    def look_now(self) -> None:
        """Ask now, and wait for the answer, but not for long."""
        run_bounded("spark-watch", self._look, _LOOK_S)


def _await_end(spark: _SparkWatch, host: ReceiverHost, stop: StopSignals) -> int:
    told = 0
    while not stop.wait(_LOOK_S):
        errors = host.errors()
        if errors[told:]:
            # Without Spark each receiver fails, in its own way.
            spark.look_now()
        if spark.ended:
            return _fail(spark.ended, 1)
        for error in errors[told:]:
            _fail(str(error), 1)
        told = len(errors)
        if host.isStopAsked:
            _say("asked to stop from outside")
            return 0
        lost = {each.stream_id for each in errors if isinstance(each, PermanentReceiverError)}
        if len(lost) == len(host.streams()):
            return _fail("no receiver is left", 1)
    return 0


def _say(text: str) -> None:
    print(f"penstock host: {text}", flush=True)


def _fail(text: str, code: int) -> int:
    print(f"penstock host: {text}", file=sys.stderr, flush=True)
    return code
