"""Outputs: the nodes that do something with each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from py4j.clientserver import ClientServer
from pyspark import RDD, SparkContext

from penstock.errors import typed_text
from penstock.streaming.dstream.arity import TimedFunction
from penstock.streaming.dstream.inputs.input_streams import DirectInputDStream, ReceiverInputDStream
from penstock.streaming.dstream.job import Job
from penstock.streaming.dstream.node import DStreamNode
from penstock.streaming.durations import batch_datetime
from penstock.streaming.errors import JobGenerationError


class ForEachDStream(DStreamNode):
    """Calls a function with each RDD of a node, on the driver, in a thread of the scheduler.

    Args:
        parent: The node.
        func: Called with the batch time and the RDD; what it returns is not looked at.
        call_site: Short and long description of the place in the program.
    """

    def __init__(
        self, parent: DStreamNode, func: TimedFunction, call_site: tuple[str, str]
    ) -> None:
        super().__init__(parent.graph, (parent,), parent.slide_ms)
        self.parent = parent
        self.func = func
        self.name, self.description = call_site
        parent.graph.add_output(self)

    def compute(self, time_ms: int) -> RDD[Any] | None:
        return None

    def generate_job(self, time_ms: int, output_op_id: int) -> Job | None:
        """Return the job of a batch, or None when there is nothing to do in it.

        An error while the RDD is made becomes a job that fails with it.
        """
        try:
            run = self._job_body(time_ms)
        except Exception as error:  # noqa: BLE001  # the user's function; it travels in the job
            run = _Failing(time_ms, error, self.name)
        if run is None:
            return None
        return Job(time_ms, output_op_id, self.name, self.description, run)

    def _job_body(self, time_ms: int) -> Callable[[], None] | None:
        rdd = self.parent.get_or_compute(time_ms)
        if rdd is None:
            return None

        def run() -> None:
            self.func(batch_datetime(time_ms), rdd)

        return run


class ForEachBatchDStream(ForEachDStream):
    """Calls a function with each batch of an input as a DataFrame."""

    def __init__(
        self,
        parent: ReceiverInputDStream | DirectInputDStream,
        func: Callable[..., Any],
        call_site: tuple[str, str],
    ) -> None:
        super().__init__(parent, func, call_site)
        self._input = parent

    def _job_body(self, time_ms: int) -> Callable[[], None] | None:
        # The RDD is not used, but making it reports the batch's records to the listeners.
        if self._input.get_or_compute(time_ms) is None:
            return None

        def run() -> None:
            self.func(self._input.dataframe(time_ms), batch_datetime(time_ms))

        return run


class _Failing:
    """The body of a job that could not be made."""

    def __init__(self, time_ms: int, error: Exception, name: str) -> None:
        self.time_ms = time_ms
        self.error = error
        self.name = name

    def __call__(self) -> None:
        what = f"{typed_text(self.error)} (for {self.name})"
        raise JobGenerationError(self.time_ms, what) from self.error


def allow_existing_folders(context: SparkContext) -> None:
    """Let the calling thread save to existing folders from now on.

    Hadoop's output formats refuse that. A batch that runs again must be able to write again, so
    Spark switches the check off for the jobs of batches (SPARK-4835), by a variable of each JVM
    thread. With pinned threads, PySpark's default, such a thread belongs to one of Python, so that
    no one else is concerned; without, nothing is changed.
    """
    _set_unchecked(context, True)


@contextmanager
def refuse_existing_folders(context: SparkContext) -> Iterator[None]:
    """Forbid that for a while to the calling thread, which was allowed to."""
    _set_unchecked(context, False)
    try:
        yield
    finally:
        _set_unchecked(context, True)


def _set_unchecked(context: SparkContext, is_unchecked: bool) -> None:
    spark: Any = context
    if isinstance(spark._gateway, ClientServer):
        variable = spark._jvm.org.apache.spark.internal.io.SparkHadoopWriterUtils
        getattr(variable.disableOutputSpecValidation(), "value_$eq")(is_unchecked)
