"""Reading a range of offsets in a task: bounded waits, gaps passed over, losses found."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.sources.kafka._task_consumers import TaskConsumer, lend_consumer
from penstock.sources.kafka.engines.interface import (
    Chunk,
    ClientError,
    OffsetOutOfRangeError,
    RetriableError,
)
from penstock.sources.kafka.errors import (
    KafkaDataLossError,
    KafkaPollTimeoutError,
    as_source_error,
)
from penstock.sources.kafka.params import KafkaParams
from penstock.sources.kafka.records import KafkaRecord, OffsetRange

__all__ = ["Reading", "as_records", "read_chunks"]

_SLICE_S = 0.05
"""How long a poll waits. One that meets only markers of transactions returns nothing, and only
the position tells that it got further; the client goes on fetching between polls."""

_MAX_RECORDS = 20_000

_log = logging.getLogger("penstock.sources.kafka")


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


def as_records(params: KafkaParams, chunk: Chunk) -> list[KafkaRecord]:
    """Return a chunk's records, with keys and values as the program wants them."""
    key, value = params.key_deserializer, params.value_deserializer
    records = chunk.records()
    if key is None and value is None:
        return records
    return [
        each._replace(key=_apply(key, each.key), value=_apply(value, each.value))
        for each in records
    ]


def _apply(deserializer: Any, data: bytes | None) -> Any:
    return data if deserializer is None or data is None else deserializer(data)


def read_chunks(reading: Reading, wanted: OffsetRange, topic_id: str) -> Iterator[Chunk]:
    """Yield the records of a range in order.

    Raises:
        KafkaDataLossError: Records of the range are gone, and that is an error.
        KafkaPollTimeoutError: Nothing came for too long.
        KafkaRefusedError: TLS or the log-in fails, or the user may not read the topic.
        KafkaUnavailableError: No broker answered in time.
    """
    if wanted.fromOffset >= wanted.untilOffset:
        return
    try:
        with lend_consumer(
            reading.params, wanted.topicPartition(), topic_id, reading.capacity, reading.poll_s
        ) as consumer:
            yield from _Range(reading, wanted, consumer).chunks()
    except ClientError as error:
        raise as_source_error(error, reading.params.servers, reading.poll_s) from error


class _Range:
    """One range while it is read."""

    def __init__(self, reading: Reading, wanted: OffsetRange, consumer: TaskConsumer) -> None:
        self._reading = reading
        self._wanted = wanted
        self._consumer = consumer
        self._position = wanted.fromOffset

    def chunks(self) -> Iterator[Chunk]:
        until = self._wanted.untilOffset
        self._seek()
        progress_s = time.monotonic()
        while self._position < until:
            before = self._position
            found = self._poll(min(_MAX_RECORDS, until - before))
            if found is not None:
                found = found.before(until)
                if len(found):
                    yield found
            if self._position > before:
                progress_s = time.monotonic()
            elif time.monotonic() - progress_s > self._reading.poll_s:
                topic, partition, _, until = self._wanted
                waited_s = self._reading.poll_s
                raise KafkaPollTimeoutError(topic, partition, self._position, until, waited_s)

    def _poll(self, most: int) -> Chunk | None:
        """Return the records that came, and note how far that is."""
        try:
            found, position = self._consumer.client.poll(_SLICE_S, most)
        except OffsetOutOfRangeError as error:
            self._go_on_after_loss(error)
            return None
        except RetriableError as error:
            _log.debug("polling %s again after %s", self._wanted.topicPartition(), error)
            time.sleep(_SLICE_S)
            return None
        if position is not None:
            self._position = self._consumer.position = position
        return found

    def _go_on_after_loss(self, error: BaseException) -> None:
        """Go to the first offset that is still there, or raise."""
        first, last = self._consumer.client.bounds(self._reading.poll_s)
        what = f"the partition now has offsets {first} to {last}"
        topic, partition, _, until = self._wanted
        if self._reading.fail_on_data_loss:
            raise KafkaDataLossError(topic, partition, self._position, what) from error
        _log.warning(
            "Records of %s %d from %d are lost: %s", topic, partition, self._position, what
        )
        # Beyond the end there is nothing of this range left, and nothing to wait for.
        self._position = first if self._position < first < until else until
        self._consumer.position = None
        self._seek()

    def _seek(self) -> None:
        if self._consumer.position != self._position:
            self._consumer.client.seek(self._position)
            self._consumer.position = self._position
