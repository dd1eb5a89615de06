"""Log lines of Spark and Py4J that say nothing that Penstock does not say; Spark's progress bar."""

from __future__ import annotations

import contextlib
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from penstock.host.spark.ending import await_tasks

if TYPE_CHECKING:
    from pyspark import SparkContext

_LOGGERS = (
    "org.apache.spark.TaskContextImpl",
    "org.apache.spark.api.python.PythonRunner",
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
)

_log = logging.getLogger("penstock.host")


def is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Leave out Py4J's tracebacks of a JVM that ends, by the root logger: the end is logged."""
    return "py4j" not in Path(record.pathname).parts


def end_progress_bar(spark_context: SparkContext) -> None:
    """End Spark's progress bar, if there is one, and clear its line."""
    java: Any = spark_context._jsc
    with contextlib.suppress(Py4JError, AttributeError):
        bar = java.sc().progressBar()
        if bar.isDefined():
            bar.get().finishAll()
            bar.get().stop()


def has_large_stacks(spark_context: SparkContext) -> bool:
    """Whether the size of the stacks of the JVM's threads was chosen, or no one can say."""
    jvm: Any = spark_context._jvm
    try:
        runtime = jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
        arguments = [str(argument) for argument in runtime.getInputArguments()]
    except (Py4JError, AttributeError, TypeError, OSError):
        return True
    return any(found.startswith(("-Xss", "-XX:ThreadStackSize=")) for found in arguments)


class QuietTasks:
    """Keeps Spark from printing each error of a task twice, with its Java, on a local master.

    There the executor's log is the program's terminal, and each such error comes out of the
    operation that ran the task, with the program's frames. On a cluster the lines say which
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
            configured = log4j.LogManager.getContext(False).getConfiguration().getLoggers()
            for name in _LOGGERS:
                logger = configured.get(name)
                level = None if logger is None else logger.getLevel()
                if str(level) == "OFF":
                    continue  # It is turned on by what turned it off.
                self._levels[name] = level
                log4j.core.config.Configurator.setLevel(name, log4j.Level.OFF)
        except (Py4JError, AttributeError, TypeError, OSError) as error:
            _log.info("Spark's log lines of failed tasks stay: %s", error)

    def leave(self) -> None:
        """Let `end` leave them off."""
        self._levels = {}

    def end(self) -> None:
        """Set the levels as they were, when tasks that were cancelled have ended."""
        levels, self._levels = self._levels, {}
        if not levels:
            return
        await_tasks(self._spark_context)
        try:
            jvm: Any = self._spark_context._jvm
            log4j = jvm.org.apache.logging.log4j
            context = log4j.LogManager.getContext(False)
            for name, level in levels.items():
                if level is None:
                    # One that is given the same level would not be Spark's any more: its filter for
                    # programs like this passes what has a level of its own.
                    context.getConfiguration().removeLogger(name)
                else:
                    log4j.core.config.Configurator.setLevel(name, level)
            context.updateLoggers()
        except (Py4JError, AttributeError, TypeError, OSError) as error:
            _log.info("The levels of Spark's loggers are not as they were: %s", error)
