"""What Spark is told of the jobs of a batch; with Spark itself: tests/streaming/test_batches.py."""

from __future__ import annotations

import pytest

from penstock.streaming.dstream.job import Job
from penstock.streaming.scheduler.spark_jobs import SparkJobScope
from tests.streaming.restarts.spark_stand_in import LocalContext


def job(time_ms: int, output_op_id: int) -> Job:
    name = f"operation {output_op_id}"
    return Job(time_ms, output_op_id, name, "program.py:7", lambda: None)


@pytest.mark.parametrize(("tags", "first"), [(None, ""), ("mine", "mine,")])
def test_each_job_gets_the_properties_of_the_program_and_its_own(
    tags: str | None, first: str
) -> None:
    context = LocalContext({})
    for name in ("the.program", "spark.jobGroup.id", "spark.job.description"):
        context.properties.setProperty(name, "kept")
    if tags is not None:
        context.properties.setProperty("spark.job.tags", tags)
    scope = SparkJobScope(context)
    expected = {
        "the.program": "kept",
        "spark.job.interruptOnCancel": "false",
        "spark.checkpoint.checkpointAllMarkedAncestors": "true",
    }
    context.properties.setProperty("the.program", "changed afterwards")
    for time_ms, operation, when in ((1000, 0, "01.000"), (2500, 1, "02.500"), (2500, 0, "02.500")):
        with scope.job(job(time_ms, operation)):
            found = dict(context.properties)
            # What a user's function sets is gone with the next job.
            context.properties.setProperty("a.function", "its own")
        description = found.pop("spark.job.description")
        assert found == {
            **expected,
            "spark.job.tags": f"{first}{scope.tag},{scope.tag}-{time_ms}-{operation}",
            "spark.streaming.internal.batchTime": str(time_ms),
            "spark.streaming.internal.outputOpId": str(operation),
            "callSite.short": f"operation {operation}",
            "callSite.long": "program.py:7",
        }
        assert description.startswith(f"operation {operation} (output operation {operation}, batch")
        assert description.endswith(f"{when})")
    scope.enter_thread()
    assert context.properties == {**expected, "spark.job.tags": f"{first}{scope.tag}"}


def test_the_tags_of_two_contexts_differ() -> None:
    context = LocalContext({})
    assert SparkJobScope(context).tag != SparkJobScope(context).tag
