"""Spark's REST endpoints of a streaming application, with its paths and field names.

As in `org.apache.spark.status.api.v1.streaming` of Spark 4: what is not known is left out, times
are ISO 8601 in GMT, what does not exist is 404 with a line that says so.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from typing import Any

from penstock.errors import PenstockError
from penstock.monitor.model import Model
from penstock.monitor.records import Batch, BatchStatus, Operation, Receiver
from penstock.monitor.web.exchange import Answer, Request, json_answer, text_answer

_PATH = re.compile(r"/api/v1/applications/(?P<id>[^/]+)(?:/\d+)?/streaming/(?P<what>.+)")
"""An attempt of the application may follow its id."""

JobIds = Callable[[int, int], list[int]]
"""Returns the ids of Spark's jobs of a batch's output operation."""


class RestApi:
    """Answers what a client of Spark's REST asks.

    Args:
        model: The model.
        job_ids: Returns the jobs of an output operation.
    """

    def __init__(self, model: Model, job_ids: JobIds = lambda batch, operation: []) -> None:
        self._model = model
        self._job_ids = job_ids
        number = r"(\d{1,18})"
        self._paths: list[tuple[re.Pattern[str], Callable[..., Any]]] = [
            (re.compile(pattern), show)
            for pattern, show in (
                ("statistics", self._statistics),
                ("receivers", self._receivers),
                (f"receivers/{number}", self._receiver),
                ("batches", self._batches),
                (f"batches/{number}", self._batch),
                (f"batches/{number}/operations", self._operations),
                (f"batches/{number}/operations/{number}", self._operation),
            )
        ]

    def answer(self, request: Request) -> Answer | None:
        """Answer a request; None when its path is none of these."""
        application = self._model.application
        if request.path.rstrip("/") == "/api/v1/applications":
            return json_answer([{"id": application.application_id, "name": application.name}])
        found = _PATH.fullmatch(request.path.rstrip("/"))
        if found is None:
            return None
        if found["id"] != application.application_id:
            return text_answer(f"unknown app {found['id'][:200]}", 404)
        for pattern, show in self._paths:
            parts = pattern.fullmatch(found["what"])
            if parts is None:
                continue
            try:
                numbers = [int(number) for number in parts.groups()]
                return json_answer(show(request, *numbers))
            except PenstockError as error:
                return text_answer(str(error), 404)
            except ValueError as error:
                return text_answer(str(error), 400)
        return None

    def _statistics(self, _: Request) -> dict[str, Any]:
        totals = self._model.totals()
        receivers = self._model.receivers()
        active = sum(found.state == "running" for found in receivers)
        return _known(
            startTime=time_text(totals.started_ms),
            batchDuration=self._model.application.batch_ms,
            numReceivers=len(receivers),
            numActiveReceivers=active,
            numInactiveReceivers=len(receivers) - active,
            numTotalCompletedBatches=totals.completed_batches,
            numRetainedCompletedBatches=totals.retained,
            numActiveBatches=totals.waiting + totals.running,
            numProcessedRecords=totals.processed_records,
            numReceivedRecords=totals.received_records,
            avgInputRate=totals.input_rate,
            avgSchedulingDelay=totals.scheduling_delay_ms,
            avgProcessingTime=totals.processing_ms,
            avgTotalDelay=totals.total_delay_ms,
        )

    def _receivers(self, _: Request) -> list[dict[str, Any]]:
        batches = self._model.batches()
        known = {found.stream_id: found for found in self._model.receivers()}
        streams = self._model.application.streams
        return [
            self._told(number, known.get(number), batches) for number in sorted({*streams, *known})
        ]

    def _receiver(self, _: Request, stream_id: int) -> dict[str, Any]:
        known = {found.stream_id: found for found in self._model.receivers()}
        if stream_id not in known and stream_id not in self._model.application.streams:
            raise PenstockError(f"unknown receiver: {stream_id}")
        return self._told(stream_id, known.get(stream_id), self._model.batches())

    def _told(
        self, stream_id: int, receiver: Receiver | None, batches: tuple[Batch, ...]
    ) -> dict[str, Any]:
        interval_s = (self._model.application.batch_ms or 0) / 1000
        rates = [
            [batch.time_ms, batch.inputs[stream_id].records / interval_s]
            for batch in reversed(batches)
            if stream_id in batch.inputs and interval_s
        ]
        name = self._model.application.streams.get(stream_id, "Stream")
        told: dict[str, Any] = {"streamId": stream_id, "streamName": f"{name}-{stream_id}"}
        if receiver is not None:
            told |= _known(
                streamName=receiver.name,
                isActive=receiver.state == "running",
                executorId=receiver.executor_id,
                executorHost=receiver.host,
                lastErrorTime=time_text(receiver.last_error_ms),
                lastErrorMessage=receiver.last_error or None,
                lastError=receiver.last_error_detail or None,
            )
        mean = sum(rate for _, rate in rates) / len(rates) if rates else None
        return {**told, **_known(avgEventRate=mean), "eventRates": rates}

    def _batches(self, request: Request) -> list[dict[str, Any]]:
        try:
            wanted = [BatchStatus(text.upper()) for text in request.queries.get("status", ())]
        except ValueError:
            accepted = ", ".join(status.value for status in BatchStatus)
            raise ValueError(f"status is not one of {accepted}") from None
        return [self._of(batch) for batch in self._model.batches(*wanted)]

    def _batch(self, _: Request, time_ms: int) -> dict[str, Any]:
        return self._of(self._found(time_ms))

    def _found(self, time_ms: int) -> Batch:
        batch = self._model.batch(time_ms)
        if batch is None:
            raise PenstockError(f"unknown batch: {time_ms}")
        return batch

    def _of(self, batch: Batch) -> dict[str, Any]:
        operations = batch.operations
        return _known(
            batchId=batch.time_ms,
            batchTime=time_text(batch.time_ms),
            status=batch.status.value,
            batchDuration=self._model.application.batch_ms,
            inputSize=batch.records,
            schedulingDelay=batch.scheduling_delay_ms,
            processingTime=batch.processing_ms,
            totalDelay=batch.total_delay_ms,
            numActiveOutputOps=sum(
                found.start_ms is not None and found.end_ms is None for found in operations
            ),
            numCompletedOutputOps=sum(
                found.end_ms is not None and found.error is None for found in operations
            ),
            numFailedOutputOps=sum(found.error is not None for found in operations),
            numTotalOutputOps=len(operations),
            firstFailureReason=batch.error,
        )

    def _operations(self, _: Request, time_ms: int) -> list[dict[str, Any]]:
        return [self._of_operation(time_ms, found) for found in self._found(time_ms).operations]

    def _operation(self, _: Request, time_ms: int, number: int) -> dict[str, Any]:
        for found in self._found(time_ms).operations:
            if found.number == number:
                return self._of_operation(time_ms, found)
        raise PenstockError(f"unknown output operation: {number}")

    def _of_operation(self, time_ms: int, operation: Operation) -> dict[str, Any]:
        return _known(
            outputOpId=operation.number,
            name=operation.name,
            description=operation.description,
            startTime=time_text(operation.start_ms),
            endTime=time_text(operation.end_ms),
            duration=operation.duration_ms,
            failureReason=operation.error,
            jobIds=self._job_ids(time_ms, operation.number),
        )


def time_text(time_ms: int | None) -> str | None:
    """Return a time as Spark's REST writes it: ``2026-11-22T14:35:46.123GMT``; None: never."""
    if time_ms is None or time_ms < 0:
        return None
    moment = datetime.datetime.fromtimestamp(time_ms / 1000, datetime.timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03d}GMT"


def _known(**values: Any) -> dict[str, Any]:
    """Leave out what is not known, as Spark does."""
    return {name: value for name, value in values.items() if value is not None}
