"""Reading a range of offsets in a task: bounded waits, gaps passed over, losses found.

The consumers of a Python worker are kept between tasks, with what they have fetched ahead. A
consumer belongs to one partition and one task at a time. A batch's task goes on where the one
before ended, so what its consumer has fetched beyond the end of a range is not fetched twice.
"""

from __future__ import annotations

import logging
import os
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from penstock.sources.kafka.engines.interface import (
    Chunk,
    ClientError,
    OffsetOutOfRangeError,
    RangeConsumer,
    RetriableError,
)
from penstock.sources.kafka.errors import (
    KafkaDataLossError,
    KafkaSourceError,
    as_source_error,
)
from penstock.sources.kafka.params import KafkaParams
from penstock.sources.kafka.records import KafkaRecord, OffsetRange, TopicPartition

_SLICE_S = 0.05
"""How long a poll waits. One that meets only markers of transactions returns nothing, and only the
position shows that it got further; the client goes on fetching between polls."""

_MAX_RECORDS = 20_000

_log = logging.getLogger("penstock.sources.kafka")

_IDLE_S = 240.0
"""How long an idle consumer is kept: less than the five minutes that Kafka allows between polls."""

# The third part distinguishes topics of the same name: what is fetched ahead belongs to one.
_Key = tuple[str, TopicPartition, str]
_owner_pid = 0


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


def read_chunks(reading: Reading, wanted: OffsetRange) -> Iterator[Chunk]:
    """Yield the records of a range in order.

    Raises:
        KafkaDataLossError: Records of the range are gone, and that is an error.
        KafkaSourceError: Nothing came for too long.
        KafkaRefusedError: TLS or the log-in fails, or the user may not read the topic.
        KafkaUnavailableError: No broker answered in time.
    """
    if wanted.fromOffset >= wanted.untilOffset:
        return
    try:
        with lend_consumer(
            reading.params,
            wanted.topicPartition(),
            wanted.topic_id,
            reading.capacity,
            reading.poll_s,
        ) as consumer:
            yield from _Range(reading, wanted, consumer).chunks()
    except ClientError as error:
        setting = "spark.streaming.kafka.consumer.poll.ms"
        raise as_source_error(error, reading.params.servers, reading.poll_s, setting) from error


class _Range:
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
                raise KafkaSourceError(
                    f"nothing came from {topic} {partition} at offset {self._position} (of a range "
                    f"up to {until}) for {self._reading.poll_s:.1f} s; is its leader up? "
                    "spark.streaming.kafka.consumer.poll.ms says how long to wait"
                )

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
        """Go to the first offset that still exists, or raise."""
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


@dataclass
class TaskConsumer:
    """A consumer of one partition.

    Attributes:
        client: The client's consumer.
        position: The offset that it reads next, or None for a new one.
        idle_since_s: When it was given back, on the monotonic clock.
    """

    client: RangeConsumer
    position: int | None = None
    idle_since_s: float = 0.0


_idle: OrderedDict[_Key, TaskConsumer] = OrderedDict()
_of_parents: list[TaskConsumer] = []


@contextmanager
def lend_consumer(
    params: KafkaParams, partition: TopicPartition, topic_id: str, capacity: int, timeout_s: float
) -> Iterator[TaskConsumer]:
    """Lend a consumer that is assigned to a partition; no one else has it meanwhile.

    Args:
        params: The client's settings.
        partition: The partition.
        topic_id: Distinguishes topics of the same name.
        capacity: How many idle consumers this process keeps.
        timeout_s: How long the connection of a new one may take.
    """
    _drop_those_of_a_parent()
    key = (params.identity, partition, topic_id)
    consumer = _idle.pop(key, None)
    if consumer is None:
        consumer = TaskConsumer(params.engine.range_consumer(params, partition, timeout_s))
    try:
        yield consumer
    except BaseException:
        # Also when a task ends early: what is fetched may then stand anywhere.
        consumer.client.close()
        raise
    consumer.idle_since_s = time.monotonic()
    if key in _idle or capacity == 0:
        consumer.client.close()
    else:
        _idle[key] = consumer
    oldest_s = time.monotonic() - _IDLE_S
    while _idle and (len(_idle) > capacity or next(iter(_idle.values())).idle_since_s < oldest_s):
        _idle.popitem(last=False)[1].client.close()


def _drop_those_of_a_parent() -> None:
    """Forget consumers that a fork has copied without their threads."""
    global _owner_pid
    if os.getpid() != _owner_pid:
        # Kept, because the end of such an object would wait for threads that do not exist.
        _of_parents.extend(_idle.values())
        _idle.clear()
        _owner_pid = os.getpid()
