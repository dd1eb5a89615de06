"""Reading a range of offsets in a task: bounded waits, gaps passed over, losses found."""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

from penstock.sources.kafka._task_consumers import TaskConsumer, lend_consumer
from penstock.sources.kafka.errors import (
    KafkaDataLossError,
    KafkaPollTimeoutError,
    KafkaUnavailableError,
)
from penstock.sources.kafka.params import KafkaParams, kafka_client
from penstock.sources.kafka.records import KafkaRecord, OffsetRange

__all__ = ["Reading", "as_record", "as_records", "read_chunks"]

_SLICE_MS = 50
"""How long a poll waits. One that meets only markers of transactions returns nothing, and only
the position tells that it got further; the client goes on fetching between polls."""

_MAX_RECORDS = 20_000

_log = logging.getLogger("penstock.sources.kafka")

# A record of the client has more fields than ours; both steps run in C.
_our_fields = itemgetter(0, 1, 3, 4, 5, 6, 7, 8)
_make = partial(tuple.__new__, KafkaRecord)
_offset = attrgetter("offset")


@dataclass(frozen=True)
class Reading:
    """How tasks of a stream read; part of their closure.

    Attributes:
        params: The client's settings.
        poll_s: How long a task waits without getting further.
        capacity: How many consumers a Python worker keeps.
        fail_on_data_loss: Whether records that are gone are an error.
    """

    params: KafkaParams
    poll_s: float
    capacity: int
    fail_on_data_loss: bool


def as_records(params: KafkaParams, chunk: list[Any]) -> list[Any]:
    """Return records of the client as ours."""
    if params.key_deserializer is None and params.value_deserializer is None:
        return list(map(_make, map(_our_fields, chunk)))
    return [as_record(params, each) for each in chunk]


def as_record(params: KafkaParams, record: Any) -> KafkaRecord:
    """Return a record of the client as ours."""
    made: KafkaRecord = _make(_our_fields(record))
    return made._replace(
        key=_apply(params.key_deserializer, made.key),
        value=_apply(params.value_deserializer, made.value),
    )


def _apply(deserializer: Any, data: bytes | None) -> Any:
    return data if deserializer is None or data is None else deserializer(data)


def read_chunks(reading: Reading, wanted: OffsetRange, topic_id: str) -> Iterator[list[Any]]:
    """Yield the records of a range in order, as lists of the client's records.

    Raises:
        KafkaDataLossError: Records of the range are gone, and that is an error.
        KafkaPollTimeoutError: Nothing came for too long.
        KafkaUnavailableError: No broker answered in time.
    """
    if wanted.fromOffset >= wanted.untilOffset:
        return
    errors = kafka_client().errors
    try:
        with lend_consumer(
            reading.params, wanted.topicPartition(), topic_id, reading.capacity, reading.poll_s
        ) as consumer:
            yield from _Range(reading, wanted, consumer).chunks()
    except errors.KafkaTimeoutError as error:
        raise KafkaUnavailableError(reading.params.servers, reading.poll_s, str(error)) from error


class _Range:
    """One range while it is read."""

    def __init__(self, reading: Reading, wanted: OffsetRange, consumer: TaskConsumer) -> None:
        self._reading = reading
        self._wanted = wanted
        self._consumer = consumer
        self._errors = kafka_client().errors
        self._partition = kafka_client().TopicPartition(wanted.topic, wanted.partition)
        self._position = wanted.fromOffset

    def chunks(self) -> Iterator[list[Any]]:
        until = self._wanted.untilOffset
        self._seek()
        progress_s = time.monotonic()
        while self._position < until:
            before = self._position
            found = self._poll(min(_MAX_RECORDS, until - before))
            if found and found[-1].offset >= until:
                del found[bisect_left(found, until, key=_offset) :]
            if found:
                yield found
            if self._position > before:
                progress_s = time.monotonic()
            elif time.monotonic() - progress_s > self._reading.poll_s:
                topic, partition, _, until = self._wanted
                waited_s = self._reading.poll_s
                raise KafkaPollTimeoutError(topic, partition, self._position, until, waited_s)

    def _poll(self, most: int) -> list[Any]:
        """Return the records that came, and note how far that is."""
        client = self._consumer.client
        try:
            found: list[Any] = client.poll(_SLICE_MS, max_records=most).get(self._partition, [])
            # Markers and compaction leave gaps: the position may pass the last record's offset.
            position = client.position(self._partition, timeout_ms=_SLICE_MS)
        except (self._errors.OffsetOutOfRangeError, self._errors.LogTruncationError) as error:
            self._go_on_after_loss(error)
            return []
        except self._errors.RetriableError as error:
            _log.debug("polling %s again after %s", self._partition, error)
            time.sleep(_SLICE_MS / 1000)
            return []
        self._position = position
        self._consumer.position = position
        return found

    def _go_on_after_loss(self, error: BaseException) -> None:
        """Go to the first offset that is still there, or raise."""
        timeout_ms = self._reading.poll_s * 1000
        client, mine = self._consumer.client, self._partition
        first = client.beginning_offsets([mine], timeout_ms)[mine]
        last = client.end_offsets([mine], timeout_ms)[mine]
        what = f"the partition now has offsets {first} to {last}"
        topic, partition, _, until = self._wanted
        if self._reading.fail_on_data_loss:
            raise KafkaDataLossError(topic, partition, self._position, what) from error
        _log.warning(
            "Records of %s %d from %d are lost: %s", topic, partition, self._position, what
        )
        # Beyond the end there is nothing of this range left, and nothing to wait for.
        self._position = first if self._position < first < until else until
        self._seek()

    def _seek(self) -> None:
        if self._consumer.position != self._position:
            self._consumer.client.seek(self._partition, self._position)
            self._consumer.position = self._position
