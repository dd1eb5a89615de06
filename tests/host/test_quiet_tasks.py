"""Spark's lines of failed tasks are off while streams run in a local program, and come back."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import py4j
import pytest
from pyspark.sql import SparkSession

from penstock.host.spark.logs import is_not_of_py4j
from penstock.sql import ReceiverHost
from penstock.streaming import FileSink, StreamingContext
from tests.sql.sources import numbers

EXECUTOR = "org.apache.spark.executor.Executor"
TASK = "org.apache.spark.TaskContextImpl"


@pytest.mark.parametrize(
    ("name", "is_configured"), [(EXECUTOR, False), (EXECUTOR, True), (TASK, False)]
)
def test_the_levels_of_sparks_loggers_are_as_before_after_a_stop(
    sc: Any, name: str, is_configured: bool
) -> None:
    log4j = sc._jvm.org.apache.logging.log4j
    context = log4j.LogManager.getContext(False)

    def own_level() -> str:
        logger = context.getConfiguration().getLoggers().get(name)
        return "" if logger is None else str(logger.getLevel())

    if is_configured:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.ERROR)
    before = own_level()
    ssc = StreamingContext(sc, 1)
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    ssc.start()
    during = own_level()
    ssc.stop(stopSparkContext=False)
    after = own_level()
    context.getConfiguration().removeLogger(name)
    context.updateLoggers()
    assert before == ("ERROR" if is_configured else "")
    assert (during, after) == ("OFF", before)


@pytest.mark.parametrize("has_function", [True, False])
def test_failures_of_a_hosts_function_are_not_told_by_spark_too(
    sc: Any, tmp_path: Path, has_function: bool
) -> None:
    """Those of queries are: they may be of any operation of the program."""
    log4j = sc._jvm.org.apache.logging.log4j

    def level() -> str:
        loggers = log4j.LogManager.getContext(False).getConfiguration().getLoggers()
        logger = loggers.get(EXECUTOR)
        return "" if logger is None else str(logger.getLevel())

    host = ReceiverHost(SparkSession(sc))
    host.stream("numbers", numbers(10))
    if has_function:
        host.continuous("numbers", lambda batch: batch, sink=FileSink(tmp_path))
    ssc = StreamingContext(sc, 1)
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    host.start()
    assert level() == ("OFF" if has_function else "")
    # One beside it leaves it as it is, and sets nothing back.
    ssc.start()
    ssc.stop(stopSparkContext=False)
    assert level() == ("OFF" if has_function else "")
    host.stop()
    assert level() == ""


def test_what_py4j_logs_by_the_root_logger_is_left_out_while_streams_run(
    sc: Any, caplog: pytest.LogCaptureFixture
) -> None:
    # As it logs that a JVM is gone, with a traceback.
    says = compile("import logging; logging.error(text)", "/lib/py4j/clientserver.py", "exec")

    def is_shown(text: str) -> bool:
        exec(says, {"text": text})
        return text in caplog.text

    ssc = StreamingContext(sc, 1)
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    assert is_shown("before")
    ssc.start()
    assert not is_shown("while it runs")
    logging.getLogger().warning("of the program")
    ssc.stop(stopSparkContext=False)
    assert "of the program" in caplog.text
    assert is_shown("after")


def test_tracebacks_of_py4j_are_left_out() -> None:
    def is_shown(path: str) -> bool:
        record = logging.LogRecord("root", logging.ERROR, path, 1, "Exception", (), None)
        return is_not_of_py4j(record)

    assert not is_shown(str(Path(py4j.__file__).with_name("java_gateway.py")))
    assert is_shown(__file__)
