"""Spark's lines of failed tasks are off while streams run in a local program, and come back."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.streaming import StreamingContext

EXECUTOR = "org.apache.spark.executor.Executor"


@pytest.mark.parametrize("is_configured", [False, True])
def test_the_levels_of_sparks_loggers_are_as_before_after_a_stop(
    sc: Any, is_configured: bool
) -> None:
    log4j = sc._jvm.org.apache.logging.log4j
    context = log4j.LogManager.getContext(False)

    def own_level() -> str:
        logger = context.getConfiguration().getLoggers().get(EXECUTOR)
        return "" if logger is None else str(logger.getLevel())

    if is_configured:
        log4j.core.config.Configurator.setLevel(EXECUTOR, log4j.Level.ERROR)
    before = own_level()
    ssc = StreamingContext(sc, 1)
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    ssc.start()
    during = own_level()
    ssc.stop(stopSparkContext=False)
    after = own_level()
    context.getConfiguration().removeLogger(EXECUTOR)
    context.updateLoggers()
    assert before == ("ERROR" if is_configured else "")
    assert (during, after) == ("OFF", before)
