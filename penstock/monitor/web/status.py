"""``/api/penstock/…``: what page and commands show, as JSON: the model's records, field by field.

Names end in their units (`Ms`, `PerSecond`, `Bytes`); what is not known is null.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from penstock.dead_letters import DeadLetter, LetterTail, origin_digest
from penstock.errors import encodable
from penstock.monitor.history import COARSE_S, FINE_POINTS, FINE_S, Point
from penstock.monitor.model import STREAM_FIGURES, TOTAL_FIGURES, WAIT_FIGURES, Model
from penstock.monitor.records import (
    TEXT_LIMIT,
    Batch,
    BatchStatus,
    Event,
    EventKind,
    Receiver,
    bounded,
    last_line,
)
from penstock.monitor.sentence import troubles
from penstock.monitor.web.exchange import Answer, Request, as_json, json_answer, text_answer
from penstock.tracker import EpochStatus, KeptStream

_Record = TypeVar("_Record")

_BATCHES = 100
_EVENTS = 200
_DETAIL = 2_000
"""Characters of an event's traceback in the status, which is sent every second to all who look,
also when every batch fails. The errors have all of it."""
_QUERIES = 100
"""Queries of a stream that are shown."""
_LINE = 500
"""Characters of the line that says what a batch failed of."""
_LONGEST_S = 86_400

_MOST_POINTS = 600
_LEAST_POINTS = 100
_FIGURES = 100_000
"""How many figures over time are sent at once, in at least and at most this many points: a day of
many receivers in steps of ten seconds would hold the driver up for seconds."""


class Status:
    """Answers for page and commands.

    Args:
        model: The model.
        shows_samples: Whether contents of discarded records may be shown.
    """

    def __init__(self, model: Model, *, shows_samples: bool = False) -> None:
        self._model = model
        self._shows_samples = shows_samples
        self._letters = Letters(model.application.letter_tail)
        self._batches_told: _Told[Batch] = _Told(_of_batch)
        self._events_told: _Told[Event] = _Told(partial(_of_event, most=_DETAIL))

    def snapshot(self) -> dict[str, Any]:
        """Return how it is now, some of it as JSON already: for `as_json`."""
        model = self._model
        application, totals = model.application, model.totals()
        batches = model.batches()
        return {
            "application": {
                "id": application.application_id,
                "name": application.name,
                "batchMs": application.batch_ms,
                "sparkUi": application.spark_ui,
            },
            "nowMs": model.now_ms(),
            "sentence": model.sentence(),
            "totals": {
                "startedMs": totals.started_ms,
                "completedBatches": totals.completed_batches,
                "failedBatches": totals.failed_batches,
                "receivedRecords": totals.received_records,
                "processedRecords": totals.processed_records,
                "waitingBatches": totals.waiting,
                "runningBatches": totals.running,
                "skippedBlocks": application.skipped_blocks,
                "inputRatePerSecond": totals.input_rate,
                "schedulingDelayMs": totals.scheduling_delay_ms,
                "processingMs": totals.processing_ms,
                "totalDelayMs": totals.total_delay_ms,
                "droppedEvents": totals.dropped_events,
            },
            "streams": [
                {"id": stream_id, "name": f"{name}-{stream_id}"}
                for stream_id, name in sorted(application.streams.items())
            ],
            "receivers": [_of_receiver(found) for found in model.receivers()],
            "kept": [self._of_kept(found) for found in model.kept()],
            "epochs": [self._of_epochs(*found) for found in model.epochs().items()],
            "batches": self._batches_told.of(batches[:_BATCHES]),
            "retainedBatches": len(batches),
            "events": self._events_told.of(model.events()[-_EVENTS:]),
        }

    def _of_epochs(self, stream_id: int, found: EpochStatus) -> dict[str, Any]:
        return {
            "stream": stream_id,
            "name": self._model.name_of(stream_id),
            "logged": found.number,
            "committed": found.committed,
            "ageMs": found.age_ms,
            "records": found.records,
            "deadLetters": found.letters,
            "late": found.late,
            "watermarkMs": found.watermark_ms,
            "failures": found.failures,
            "waitsFor": found.waits_for,
        }

    def _of_kept(self, found: KeptStream) -> dict[str, Any]:
        return {
            "stream": found.stream_id,
            "name": self._model.name_of(found.stream_id),
            "records": found.records,
            "bytes": found.size_bytes,
            "blocks": found.next - found.first,
            "queries": [
                {
                    "consumer": query.consumer,
                    "recordsBehind": query.records_behind,
                    "hasCommitted": query.is_committed,
                    "seenMs": query.at_ms,
                }
                for query in found.consumers[:_QUERIES]
            ],
        }

    def answer(self, request: Request) -> Answer | None:
        """Answer a request; None when its path is none of these."""
        if request.path == "/api/penstock/status":
            return json_answer(self.snapshot())
        if request.path == "/api/penstock/errors":
            return json_answer([_of_event(found) for found in self._model.errors()])
        if request.path == "/api/penstock/history":
            return self._history(request)
        if request.path == "/api/penstock/batches":
            return self._batches(request)
        if request.path == "/api/penstock/batch":
            return self._batch(request)
        if request.path == "/api/penstock/dead-letters":
            return self._dead_letters()
        return None

    def _dead_letters(self) -> Answer:
        counts, newest = self._letters.look()
        return json_answer(
            {
                "kinds": [
                    {
                        "stream": found.stream_id,
                        "receiver": found.receiver,
                        "error": found.error,
                        "count": found.count,
                        "lastMs": found.last_ms,
                    }
                    for found in counts
                ],
                "samples": [
                    {
                        "atMs": letter.time_ms,
                        "stream": letter.stream,
                        "reason": encodable(letter.reason)[:_LINE],
                        "position": letter.position_text,
                        "record": encodable(letter.shown)[:_LINE],
                    }
                    for letter in newest
                ]
                if self._shows_samples
                else None,
            }
        )

    def _history(self, request: Request) -> Answer:
        seconds = _number(request, "seconds", 600, _LONGEST_S)
        if not seconds:
            return text_answer(f"seconds is not a number from 1 to {_LONGEST_S}", 400)
        since = _number(request, "since", 0, 1 << 40)
        if since is None:
            return text_answer("since is not a number of seconds since the epoch", 400)
        until_s = self._model.now_ms() // 1000
        step_s = _step_s(seconds, len(self._model.receivers()))
        # The first point is whole, so that a client that has said where it left off can put it in
        # its place.
        since_s = max(until_s - seconds + 1, since // step_s * step_s)
        span = (since_s, until_s, step_s)
        streams = {
            str(number): {"figures": _rows(figures), "waits": _rows(waits)}
            for number, (figures, waits) in self._model.stream_histories(*span).items()
        }
        return json_answer(
            {
                "names": ["at_s", *TOTAL_FIGURES],
                "streamNames": ["at_s", *STREAM_FIGURES],
                "waitNames": ["at_s", *WAIT_FIGURES],
                "stepS": step_s,
                "totals": _rows(self._model.history(*span)),
                "streams": streams,
            }
        )

    def _batches(self, request: Request) -> Answer:
        offset = _number(request, "offset", 0, 1_000_000)
        count = _number(request, "count", _BATCHES, 1_000)
        if offset is None or count is None:
            return text_answer("offset or count is not a number that is accepted", 400)
        wanted = []
        if "status" in request.query:
            try:
                wanted = [BatchStatus(request.query["status"].upper())]
            except ValueError:
                return text_answer("there is no such status", 400)
        found = self._model.batches(*wanted)
        return json_answer([_of_batch(batch) for batch in found[offset : offset + count]])

    def _batch(self, request: Request) -> Answer:
        time_ms = _number(request, "id", -1, 1 << 60)
        batch = None if time_ms is None else self._model.batch(time_ms)
        if batch is None:
            return text_answer("there is no such batch, or it is not kept any more", 404)
        job_ids = self._model.application.job_ids
        return json_answer(
            {
                **_of_batch(batch),
                "slowBlocks": [
                    event.text
                    for event in self._model.events()
                    if event.kind is EventKind.BLOCK_SLOW and event.batch_ms == batch.time_ms
                ],
                "inputs": [
                    {
                        "stream": found.stream_id,
                        "records": found.records,
                        "description": found.description,
                    }
                    for found in batch.inputs.values()
                ],
                "operations": [
                    {
                        "number": found.number,
                        "name": found.name,
                        "description": found.description,
                        "startMs": found.start_ms,
                        "durationMs": found.duration_ms,
                        "error": found.error,
                        "jobs": job_ids(batch.time_ms, found.number),
                    }
                    for found in batch.operations
                ],
            }
        )


class _Told(Generic[_Record]):
    """JSON of records that never change, made once for as long as they are sent.

    Any thread may come: what one of them has not seen of another is made again.

    Args:
        make: Makes of a record what is shown of it.
    """

    def __init__(self, make: Callable[[_Record], dict[str, Any]]) -> None:
        self._make = make
        self._known: dict[int, tuple[_Record, msgspec.Raw]] = {}
        """By `id`, each with its record, so that no other one has it meanwhile."""

    def of(self, records: Iterable[_Record]) -> list[msgspec.Raw]:
        """Return what is shown of some records; of others, nothing is kept after that."""
        before, now = self._known, {}
        for record in records:
            known = before.get(id(record))
            now[id(record)] = known or (record, msgspec.Raw(as_json(self._make(record))))
        self._known = now
        return [told for _, told in now.values()]


def _of_receiver(receiver: Receiver) -> dict[str, Any]:
    told: dict[str, Any] = {
        "stream": receiver.stream_id,
        "name": receiver.name,
        "state": receiver.state,
        "host": receiver.host,
        "executor": receiver.executor_id,
        "attempts": receiver.attempts,
        "records": receiver.records,
        "blocks": receiver.blocks,
        "discardedRecords": receiver.discarded,
        "droppedRecords": receiver.dropped,
        "position": receiver.position or None,
        "addresses": list(receiver.addresses),
        "lastError": receiver.last_error or None,
        "lastErrorDetail": receiver.last_error_detail or None,
        "lastErrorMs": None if receiver.last_error_ms < 0 else receiver.last_error_ms,
        "troubles": troubles(receiver),
        "waits": None,
        "waitsFor": None,
        "limitPerSecond": None,
        "limitBy": None,
        "askedPerSecond": None,
        "recordsPerSecond": None,
        "bytesPerSecond": None,
    }
    if receiver.waits is not None:
        parts = receiver.waits.parts()
        told["waits"] = {name: round(part, 1) for name, part in parts.items()}
        told["waitsFor"] = str(receiver.waits)
    if receiver.rate is not None:
        told["limitPerSecond"] = receiver.rate.effective
        told["limitBy"] = receiver.rate.source.value
        told["askedPerSecond"] = receiver.rate.asked
    reading = receiver.reading
    if reading is not None:
        pipe = reading.pipe
        told |= {
            "recordsPerSecond": reading.records_per_second,
            "bytesPerSecond": reading.bytes_per_second,
            "openRecords": pipe.open_records,
            "queuedBlocks": pipe.queued_blocks,
            "storedBlocks": pipe.stored_blocks,
            "lagRecords": pipe.source_lag,
            "lagMs": pipe.source_lag_ms,
            "latencyMs": None if pipe.latency_ms is None else list(pipe.latency_ms),
            "log": None
            if pipe.log is None
            else {
                "segments": pipe.log.segments,
                "bytes": pipe.log.bytes,
                "syncs": pipe.log.syncs,
                "syncMs": 1000 * pipe.log.sync_s / pipe.log.syncs if pipe.log.syncs else None,
                "slowestSyncMs": 1000 * pipe.log.slowest_sync_s,
                "freeBytes": None if pipe.log.free_bytes < 0 else pipe.log.free_bytes,
            },
        }
    return told


def _of_batch(batch: Batch) -> dict[str, Any]:
    return {
        "id": batch.time_ms,
        "status": batch.status.value,
        "records": batch.records,
        "planningMs": batch.planning_ms,
        "schedulingDelayMs": batch.scheduling_delay_ms,
        "processingMs": batch.processing_ms,
        "totalDelayMs": batch.total_delay_ms,
        "operationsDone": sum(
            found.end_ms is not None and found.error is None for found in batch.operations
        ),
        "operationsFailed": sum(found.error is not None for found in batch.operations),
        "operationsTotal": len(batch.operations),
        "running": [
            encodable(found.name)[:_LINE]
            for found in batch.operations
            if found.start_ms is not None and found.end_ms is None
        ],
        "error": None if batch.error is None else bounded(last_line(batch.error), _LINE),
    }


def _step_s(seconds: int, receivers: int) -> int:
    """Return how far apart points are: with few receivers as near as they are kept."""
    width = len(TOTAL_FIGURES) + receivers * (len(STREAM_FIGURES) + len(WAIT_FIGURES))
    points = min(_MOST_POINTS, max(_LEAST_POINTS, _FIGURES // width))
    step_s = -(-seconds // points)
    if seconds <= FINE_S * FINE_POINTS:
        return step_s
    return -(-step_s // COARSE_S) * COARSE_S


def _rows(points: list[Point]) -> list[list[float | None]]:
    return [[point.at_s, *point.values] for point in points]


def _of_event(event: Event, most: int = TEXT_LIMIT) -> dict[str, Any]:
    return {
        "number": event.number,
        "atMs": event.at_ms,
        "kind": event.kind.value,
        "isError": event.kind.is_error,
        "text": event.text,
        "detail": bounded(event.detail, most) or None,
        "stream": event.stream_id,
        "batch": event.batch_ms,
    }


def _number(request: Request, name: str, default: int, most: int) -> int | None:
    text = request.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        return None
    return int(text) if int(text) <= most else None


_EVERY_S = 2.0
_MOST = 2_000
_MOST_BYTES = 4 << 20
"""The most that is read at a time, so that no one waits for all of a long log."""
_NEWEST = 20
_KINDS = 200
_ORIGINS = 100_000
"""Origins that are known, so that a record counts once whose batch is computed again."""


@dataclass(frozen=True)
class LetterCount:
    """How many dead letters there are of one kind.

    Attributes:
        stream_id: Their stream.
        receiver: The receiver that discarded them.
        error: The type of the error.
        count: How many.
        last_ms: When the last one was discarded.
    """

    stream_id: int
    receiver: str
    error: str
    count: int
    last_ms: int


class Letters:
    """Reads on in a program's dead letters when asked, at most every two seconds.

    `_lock` guards it; while one reads, others get what was known before.

    Args:
        open_tail: Opens what reads them; None: this driver sees none, as on hosts of a cluster.
    """

    def __init__(self, open_tail: Callable[[], LetterTail] | None) -> None:
        self._open_tail = open_tail
        self._tail: LetterTail | None = None
        self._lock = threading.Lock()
        self._read_at_s = float("-inf")
        self._after: dict[str, int] = {}
        self._counts: dict[tuple[int, str, str], LetterCount] = {}
        self._origins: dict[bytes, None] = {}
        self._newest: deque[DeadLetter] = deque(maxlen=_NEWEST)
        self._shown: tuple[list[LetterCount], list[DeadLetter]] = ([], [])

    def look(self) -> tuple[list[LetterCount], list[DeadLetter]]:
        """Return how many there are of each kind, and the newest, the last first."""
        if self._open_tail is not None and self._lock.acquire(blocking=False):
            try:
                if time.monotonic() - self._read_at_s >= _EVERY_S:
                    self._read(self._open_tail)
                    self._read_at_s = time.monotonic()
            finally:
                self._lock.release()
        return self._shown

    def _read(self, open_tail: Callable[[], LetterTail]) -> None:
        if self._tail is None:
            self._tail = open_tail()
        found, self._after = self._tail.read(self._after, most=_MOST, most_bytes=_MOST_BYTES)
        for stored in found:
            letter = stored.letter
            if self._is_known(origin_digest(letter)):
                continue
            key = (letter.stream, letter.receiver, letter.error)
            known = self._counts.get(key)
            if known is None and len(self._counts) >= _KINDS:
                key = (letter.stream, "", "others")
                known = self._counts.get(key)
            count, last_ms = (0, 0) if known is None else (known.count, known.last_ms)
            self._counts[key] = LetterCount(*key, count + 1, max(last_ms, letter.time_ms))
            self._newest.append(letter)
        self._shown = (
            sorted(self._counts.values(), key=lambda kind: -kind.last_ms),
            sorted(self._newest, key=lambda letter: -letter.time_ms),
        )

    def _is_known(self, digest: bytes | None) -> bool:
        if digest is None:
            return False
        if digest in self._origins:
            return True
        self._origins[digest] = None
        if len(self._origins) > _ORIGINS:
            del self._origins[next(iter(self._origins))]
        return False
