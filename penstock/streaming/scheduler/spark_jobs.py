"""What Spark knows of the jobs of a batch: description, batch time, operation, tag.

Spark's local properties belong to a JVM thread. In PySpark's pinned-thread mode (the default) a
Python thread has its own, so each job sets all of them again: those that were in force when the
context started, as Spark Streaming does, and its own.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from penstock.streaming.dstream.job import Job
from penstock.streaming.dstream.output import allow_existing_folders
from penstock.streaming.durations import batch_datetime

if TYPE_CHECKING:
    from pyspark import SparkContext

BATCH_TIME_PROPERTY = "spark.streaming.internal.batchTime"
OUTPUT_OP_PROPERTY = "spark.streaming.internal.outputOpId"
_ALL_MARKED = "spark.checkpoint.checkpointAllMarkedAncestors"
"""Of two states in a chain Spark would save only the second one, and the lineage of the first would
grow for ever (SPARK-6847). Spark looks at this where an RDD is made, and where a job runs."""
_CALL_SITE_SHORT = "callSite.short"
_CALL_SITE_LONG = "callSite.long"
_DESCRIPTION = "spark.job.description"
_TAGS = "spark.job.tags"
_NOT_INHERITED = ("spark.jobGroup.id", _DESCRIPTION)

_log = logging.getLogger("penstock.streaming")


class SparkJobScope:
    """Sets the local properties for the jobs of one streaming context.

    Made in the thread that starts the context, whose local properties it takes over.
    """

    def __init__(self, spark_context: SparkContext) -> None:
        self._context = spark_context
        # Each call to the JVM costs; what is the same for all jobs is asked for once.
        self._java_context: Any = self._context._jsc.sc()
        self._templates: dict[int, Any] = {}
        self._of_thread = threading.local()
        self.tag = f"penstock-{uuid.uuid4().hex}"
        self._properties: Any = self._java_context.getLocalProperties().clone()
        for name in _NOT_INHERITED:
            self._properties.remove(name)
        self._properties.setProperty("spark.job.interruptOnCancel", "false")
        self._properties.setProperty(_ALL_MARKED, "true")
        tags = self._properties.getProperty(_TAGS)
        self._tags = f"{tags},{self.tag}" if tags else self.tag
        self._properties.setProperty(_TAGS, self._tags)

    def enter_thread(self) -> None:
        """Give the calling thread, which makes batches, the properties of the context's thread."""
        # A function of `transform` may save an RDD, and runs again with its batch.
        allow_existing_folders(self._context)
        self._java_context.setLocalProperties(self._properties.clone())

    @contextmanager
    def job(self, job: Job) -> Iterator[None]:
        """Give the calling thread, which runs nothing but jobs, the properties of `job`."""
        if not getattr(self._of_thread, "is_prepared", False):
            allow_existing_folders(self._context)
            self._of_thread.is_prepared = True
        properties = self._template(job).clone()
        when = batch_datetime(job.time_ms).strftime("%H:%M:%S.%f")[:-3]
        properties.setProperty(BATCH_TIME_PROPERTY, str(job.time_ms))
        properties.setProperty(
            _DESCRIPTION,
            f"{job.name} (output operation {job.output_op_id}, batch time {when})",
        )
        properties.setProperty(_TAGS, f"{self._tags},{self._tag_of(job.time_ms, job.output_op_id)}")
        self._java_context.setLocalProperties(properties)
        yield

    def _tag_of(self, time_ms: int, output_op_id: int) -> str:
        return f"{self.tag}-{time_ms}-{output_op_id}"

    def job_ids(self, time_ms: int, output_op_id: int) -> list[int]:
        """Return the ids of the Spark jobs of a batch's output operation, as far as Spark has them.

        Empty also when the JVM does not answer.
        """
        try:
            tracker: Any = self._java_context.statusTracker()
            return sorted(tracker.getJobIdsForTag(self._tag_of(time_ms, output_op_id)))
        except (Py4JError, AttributeError, OSError) as error:
            _log.debug("Spark does not tell the jobs of a batch: %s", error)
            return []

    def why_ended(self) -> str:
        """Return why Spark runs no more jobs; empty while it does."""
        try:
            return "its SparkContext was stopped" if self._java_context.isStopped() else ""
        except (Py4JError, AttributeError, OSError) as error:
            return f"its JVM does not answer ({type(error).__name__}: {error})"

    def _template(self, job: Job) -> Any:
        """Return the properties of an output operation's jobs, without the batch's."""
        found = self._templates.get(job.output_op_id)
        if found is None:
            found = self._properties.clone()
            found.setProperty(OUTPUT_OP_PROPERTY, str(job.output_op_id))
            # What Spark's UI shows of jobs and stages, unless an action of PySpark says more.
            found.setProperty(_CALL_SITE_SHORT, job.name)
            found.setProperty(_CALL_SITE_LONG, job.description)
            self._templates[job.output_op_id] = found
        return found

    def cancel_jobs(self) -> None:
        """Cancel all Spark jobs of this context's batches that run now."""
        try:
            self._context.cancelJobsWithTag(self.tag)
        except (Py4JError, AttributeError, OSError) as error:
            _log.warning("The running Spark jobs could not be cancelled: %s", error)
