"""Spark's lines of failed tasks are off while streams run in a local program, and come back."""

from __future__ import annotations

from typing import Any

from penstock.streaming import StreamingContext

EXECUTOR = "org.apache.spark.executor.Executor"


def test_the_levels_of_sparks_loggers_are_as_before_after_a_stop(sc: Any) -> None:
    log4j = sc._jvm.org.apache.logging.log4j
    configurator = log4j.core.config.Configurator

    def level() -> str:
        return str(log4j.LogManager.getLogger(EXECUTOR).getLevel())

    configurator.setLevel(EXECUTOR, log4j.Level.INFO)
    ssc = StreamingContext(sc, 1)
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    ssc.start()
    during = level()
    ssc.stop(stopSparkContext=False)
    after = level()
    configurator.setLevel(EXECUTOR, log4j.Level.OFF)
    assert (during, after) == ("OFF", "INFO")
