"""Steps of a stop: one that hangs or fails keeps no other from its turn (I12); Spark's end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from penstock.runtime.threads import OwnedThread

if TYPE_CHECKING:
    from pyspark import SparkContext


def run_bounded(name: str, step: Callable[[], object], timeout_s: float) -> bool:
    """Run `step` in a thread of its own, and wait for it no longer than `timeout_s`.

    For what waits for others without a bound that is known here: a disk, a NameNode, the JVM. A
    step that hangs goes on in its thread, which does not keep the interpreter from exiting.

    Args:
        name: Names the thread.
        step: What to run.
        timeout_s: How long to wait, in real time.

    Returns:
        False when the time was over first.

    Raises:
        BaseException: What the step raised.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            step()
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            errors.append(error)

    thread = OwnedThread(run, f"stop-{name}")
    try:
        thread.start()
    except RuntimeError:
        # Python 3.12.0 and 3.12.1 start no thread while the interpreter exits.
        step()
        return True
    thread.join(timeout_s)
    if errors:
        raise errors[0]
    return not thread.is_alive()


def stop_bounded(what: str, step: Callable[[], object], timeout_s: float) -> None:
    """Run a step of a stop as `run_bounded` does, and log when it hangs or fails.

    Args:
        what: What is stopped, as the log names it.
        step: What to run.
        timeout_s: How long to wait, in real time.
    """
    with told(what):
        if not run_bounded(what.replace(" ", "-"), step, timeout_s):
            _log.error(
                "Stopping %s has not ended after %.1f s; the stop goes on without", what, timeout_s
            )


@contextmanager
def told(what: str) -> Iterator[None]:
    """Log an error of a step of a stop, so that the steps after it have their turn."""
    try:
        yield
    except Exception:  # noqa: BLE001  # whatever it is, what is left must also be stopped
        _log.exception("Stopping %s failed; the stop goes on", what)


_SILENT_S = 5.0
"""Time without an answer to a trivial question after which a JVM counts as hanging."""

_SPARK_ENDS_S = 30.0
"""How long Spark may take to stop: executors and the cluster are notified, files are removed."""

_TASKS_END_S = 4.0
"""How long tasks of jobs that are over may take to end: PySpark looks every 2 s whether one was
cancelled, and gives it 2 s more (`spark.python.task.killTimeout`)."""

_TASK_THREAD = "Executor task launch worker for "
"""How the name of a thread begins that runs a task; it ends when its stopped executor is idle."""

_log = logging.getLogger("penstock.host")


def tell_of_silence(spark_context: SparkContext) -> None:
    """Let it be logged when the JVM does not answer, before each step of a stop has found that out.

    Args:
        spark_context: The Spark context.
    """
    java: Any = spark_context._jsc

    def ask() -> None:
        # One that is gone is not silent.
        with suppress(Py4JError, AttributeError, OSError):
            java.sc().isStopped()

    def look() -> None:
        if not run_bounded("jvm", ask, _SILENT_S):
            _log.critical(
                "%s has not answered for %.0f s. What needs Spark cannot end: each step of the "
                "stop waits for its time, and is then given up",
                name,
                _SILENT_S,
            )

    name = _name(spark_context)
    # Beside the stop, whose time it is. Not where no thread can be started: see `run_bounded`.
    with suppress(RuntimeError):
        OwnedThread(look, "stop-watch").start()


def stop_spark(spark_context: SparkContext) -> None:
    """Stop a Spark context, or say that it could not be stopped in time."""
    name = _name(spark_context)

    def end() -> None:
        await_tasks(spark_context)
        try:
            spark_context.stop()
        except (Py4JError, OSError) as error:
            _log.info("%s is gone, so there is no SparkContext to stop (%s)", name, error)

    if not run_bounded("spark", end, _SPARK_ENDS_S):
        _log.critical(
            "%s has not stopped the SparkContext within %.0f s; the program goes on without. End "
            "that process by hand (kill -9) if it is still there afterwards",
            name,
            _SPARK_ENDS_S,
        )


def await_tasks(spark_context: SparkContext) -> None:
    """Wait, not for long, until no task runs any more.

    A job that was cancelled is over before its tasks are. A task that ends while Spark stops, or
    after it, finds its blocks gone, and says so in forty lines of Java.
    """
    end_s = time.monotonic() + _TASKS_END_S
    pause = threading.Event()
    try:
        while _runs_tasks(spark_context) and time.monotonic() < end_s:
            pause.wait(0.05)
    except (Py4JError, AttributeError, OSError) as error:
        _log.info("The running tasks are not known: %s", error)


def _runs_tasks(spark_context: SparkContext) -> bool:
    untyped: Any = spark_context
    if untyped._jsc is None:
        # A stopped context has no tasks, but an executor in its JVM still has their threads.
        return _TASK_THREAD in untyped._jvm.Thread.getAllStackTraces().keySet().toString()
    executors = untyped._jsc.sc().statusTracker().getExecutorInfos()
    return any(info.numRunningTasks() for info in executors)


def _name(spark_context: SparkContext) -> str:
    gateway: Any = spark_context._gateway
    # With spark-submit it is the parent, which this process was started by.
    started: Any = getattr(gateway, "proc", None)
    return "The JVM of Spark" if started is None else f"The JVM of Spark (process {started.pid})"
