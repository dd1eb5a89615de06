"""Spark's REST endpoints: its paths, its field names, its answers when there is nothing."""

from __future__ import annotations

import pytest

from penstock.monitor.web.rest import RestApi, time_text
from tests.monitor.asking import get, read, text
from tests.monitor.feeding import START_MS, Program

ROOT = "/api/v1/applications/local-1/streaming"

STATISTICS = {
    *("startTime", "batchDuration", "numReceivers", "numActiveReceivers", "numInactiveReceivers"),
    *("numTotalCompletedBatches", "numRetainedCompletedBatches", "numActiveBatches"),
    *("numProcessedRecords", "numReceivedRecords", "avgInputRate", "avgSchedulingDelay"),
    *("avgProcessingTime", "avgTotalDelay"),
}
"""The fields of Spark's classes in ``org.apache.spark.status.api.v1.streaming``."""
RECEIVER = {
    *("streamId", "streamName", "isActive", "executorId", "executorHost", "lastErrorTime"),
    *("lastErrorMessage", "lastError", "avgEventRate", "eventRates"),
}
BATCH = {
    *("batchId", "batchTime", "status", "batchDuration", "inputSize", "schedulingDelay"),
    *("processingTime", "totalDelay", "numActiveOutputOps", "numCompletedOutputOps"),
    *("numFailedOutputOps", "numTotalOutputOps", "firstFailureReason"),
}
OPERATION = {
    *("outputOpId", "name", "description", "startTime", "endTime", "duration", "failureReason"),
    "jobIds",
}


@pytest.fixture
def program() -> Program:
    program = Program(batch_ms=500)
    program.start()
    program.receiver(error="")
    program.receiver(error="lost the source", trace="Traceback ...")
    program.batch(1, records=100)
    program.batch(2, records=200, errors=(None, "no such table"))
    program.batch(3, records=50, takes_ms=None, errors=(None, None))
    program.batch(4, records=7, waits_ms=-1)
    program.model.tick()
    return program


@pytest.fixture
def api(program: Program) -> RestApi:
    return RestApi(program.model, lambda time_ms, number: [7, time_ms - START_MS + number])


def test_statistics_have_sparks_fields(api: RestApi) -> None:
    found = read(api.answer(get(f"{ROOT}/statistics")))
    assert set(found) == STATISTICS
    assert found["startTime"] == "2023-11-14T22:13:20.000GMT"
    assert (found["batchDuration"], found["numReceivers"]) == (500, 1)
    assert found["numActiveReceivers"] == 1
    assert (found["numTotalCompletedBatches"], found["numActiveBatches"]) == (2, 2)
    assert (found["numReceivedRecords"], found["numProcessedRecords"]) == (350, 300)


def test_averages_of_nothing_are_left_out() -> None:
    model = Program().start()
    found = read(RestApi(model).answer(get(f"{ROOT}/statistics")))
    averages = {name for name in STATISTICS if name.startswith("avg")}
    assert set(found) == STATISTICS - averages


def test_receivers_have_sparks_fields_and_their_rates_by_batch(api: RestApi) -> None:
    (found,) = read(api.answer(get(f"{ROOT}/receivers")))
    assert set(found) == RECEIVER
    assert (found["streamId"], found["streamName"], found["isActive"]) == (0, "numbers-0", True)
    assert (found["lastErrorMessage"], found["lastError"]) == ("lost the source", "Traceback ...")
    assert found["eventRates"][:2] == [[START_MS + 500, 200.0], [START_MS + 1000, 400.0]]
    assert read(api.answer(get(f"{ROOT}/receivers/0"))) == found
    missing = api.answer(get(f"{ROOT}/receivers/9"))
    assert missing is not None
    assert (missing.status, text(missing)) == (404, "unknown receiver: 9")


def test_a_stream_without_a_receiver_is_told_by_its_name() -> None:
    program = Program(streams={0: "textFileStream"})
    program.start()
    (found,) = read(RestApi(program.model).answer(get(f"{ROOT}/receivers")))
    assert found == {"streamId": 0, "streamName": "textFileStream-0", "eventRates": []}


def test_batches_come_newest_first_and_by_their_status(api: RestApi) -> None:
    found = read(api.answer(get(f"{ROOT}/batches")))
    assert [batch["status"] for batch in found] == [
        "QUEUED",
        "PROCESSING",
        "COMPLETED",
        "COMPLETED",
    ]
    failed = found[2]
    assert set(failed) == BATCH
    assert failed["batchId"] == START_MS + 1000
    assert (failed["numCompletedOutputOps"], failed["numFailedOutputOps"]) == (1, 1)
    assert "ValueError: no such table" in failed["firstFailureReason"]
    assert found[1]["numActiveOutputOps"] == 2
    assert set(found[0]) == BATCH - {
        *("schedulingDelay", "processingTime", "totalDelay", "firstFailureReason"),
    }
    (queued,) = read(api.answer(get(f"{ROOT}/batches?status=queued")))
    assert queued == found[0]
    both = read(api.answer(get(f"{ROOT}/batches?status=queued&status=PROCESSING")))
    assert both == found[:2]
    wrong = api.answer(get(f"{ROOT}/batches?status=queued&status=late"))
    assert wrong is not None
    assert wrong.status == 400
    assert text(wrong) == "status is not one of QUEUED, PROCESSING, COMPLETED"


def test_a_batch_and_its_operations_with_sparks_jobs(api: RestApi) -> None:
    batch = f"{ROOT}/batches/{START_MS + 1000}"
    assert set(read(api.answer(get(batch)))) == BATCH
    first, second = read(api.answer(get(f"{batch}/operations")))
    assert set(first) == OPERATION - {"failureReason"}
    assert set(second) == OPERATION
    assert (second["name"], second["description"]) == ("pprint at program.py:1", "the stack")
    assert (second["duration"], second["jobIds"]) == (300, [7, 1001])
    assert read(api.answer(get(f"{batch}/operations/1"))) == second
    for path, says in (
        (f"{ROOT}/batches/5", "unknown batch: 5"),
        (f"{ROOT}/batches/5/operations", "unknown batch: 5"),
        (f"{batch}/operations/2", "unknown output operation: 2"),
    ):
        missing = api.answer(get(path))
        assert missing is not None
        assert (missing.status, text(missing)) == (404, says)


def test_an_attempt_may_be_named_and_another_application_is_not_here(api: RestApi) -> None:
    assert api.answer(get("/api/v1/applications/local-1/1/streaming/statistics")) is not None
    other = api.answer(get("/api/v1/applications/local-2/streaming/statistics"))
    assert other is not None
    assert other.status == 404
    assert read(api.answer(get("/api/v1/applications"))) == [
        {"id": "local-1", "name": "a <b>program</b>"}
    ]
    for path in ("/", f"{ROOT}/", f"{ROOT}/nothing", f"{ROOT}/batches/x", f"{ROOT}/batches/1/2"):
        assert api.answer(get(path)) is None


def test_times_are_written_as_spark_writes_them() -> None:
    assert time_text(None) is None
    assert time_text(1_000_000_000_007) == "2001-09-09T01:46:40.007GMT"
