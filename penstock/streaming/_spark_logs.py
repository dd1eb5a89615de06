"""Spark's own log lines of tasks that fail, where they say nothing that Penstock does not say."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["QuietTasks"]

_LOGGERS = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
)

_log = logging.getLogger("penstock.streaming")


class QuietTasks:
    """Keeps Spark from printing each error of a task twice, with its Java, on a local master.

    There the executor's log is the program's terminal, and each such error comes out of the
    operation that ran the task, with the program's frames. On a cluster the lines tell which
    executor it was, and stay.

    Args:
        spark_context: The Spark context.
    """

    def __init__(self, spark_context: SparkContext) -> None:
        self._spark_context = spark_context
        self._levels: dict[str, Any] = {}

    def begin(self) -> None:
        """Turn these log lines off; nothing happens where that cannot be done."""
        if re.match(r"local(\[|$)", str(self._spark_context.master)) is None:
            return
        try:
            jvm: Any = self._spark_context._jvm
            log4j = jvm.org.apache.logging.log4j
            for name in _LOGGERS:
                self._levels[name] = log4j.LogManager.getLogger(name).getLevel()
                log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
        except (Py4JError, AttributeError, TypeError, OSError) as error:
            _log.info("Spark's log lines of failed tasks stay: %s", error)

    def end(self) -> None:
        """Set the levels as they were."""
        levels, self._levels = self._levels, {}
        try:
            jvm: Any = self._spark_context._jvm
            for name, level in levels.items():
                jvm.org.apache.logging.log4j.core.config.Configurator.setLevel(name, level)
        except (Py4JError, AttributeError, TypeError, OSError) as error:
            _log.info("The levels of Spark's loggers are not as they were: %s", error)
