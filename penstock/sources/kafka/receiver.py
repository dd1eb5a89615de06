"""`KafkaReceiver`: a member of a consumer group whose offsets are committed after its blocks."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from pyspark import StorageLevel

from penstock.errors import PenstockError
from penstock.receiver import Receiver, RecordTooLargeError
from penstock.sources.kafka._reading import as_record
from penstock.sources.kafka.params import KafkaParams, kafka_client
from penstock.sources.kafka.records import KafkaRecord, TopicPartition

__all__ = ["KafkaReceiver"]

_POLL_MS = 200
_COMMIT_EVERY_S = 1.0
_DURABLE_S = 5.0
"""How long partitions are held back in a rebalance, and a stop's last commit waits, for blocks
to be durable. What was not durable by then comes again."""

_CONNECT_S = 30.0
_END_S = 3.0
_ASK_MS = 5000

_log = logging.getLogger("penstock.sources.kafka")


class KafkaReceiver(Receiver):
    """Joins a consumer group and stores the values of its partitions' records.

    The offsets of all partitions become durable together with the records, as the stream's
    position, so a receiver that was killed goes on exactly where its last block ended. The group
    gets offsets only when their block is durable and known to the driver's log (I1), about once a
    second, before partitions go to another member, and at a stop. A partition is read from the
    later of both.

    Several receivers of one group share its topics. When one of them is killed and a partition
    goes to another before it is back, the other begins where the group has committed: up to about
    a second of that partition's records come twice. Otherwise each record is stored once.

    Args:
        topics: The topics.
        kafkaParams: The client's settings; `group.id` is needed.
        convert: Makes what is stored of a `KafkaRecord`; None for its value. It runs in the
            executor, for each record.
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingKafkaClientError: kafka-python is not installed.
        ValueError: A setting is not accepted, or `group.id` is missing.
    """

    def __init__(
        self,
        topics: Iterable[str],
        kafkaParams: Mapping[str, Any],
        convert: Callable[[KafkaRecord], Any] | None = None,
        storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_2,
    ) -> None:
        super().__init__(storageLevel)
        if isinstance(topics, str):
            raise TypeError("topics are a list of names, and not one str")
        self.topics = sorted(set(topics))
        self.params = KafkaParams(kafkaParams)
        if not self.topics:
            raise ValueError("a Kafka receiver needs at least one topic")
        if self.params.group_id is None:
            raise ValueError("a Kafka receiver needs group.id in kafkaParams")
        self.convert = convert
        # The same for all attempts: the broker lets the next one take the place of the last at
        # once, instead of waiting until the session of the killed one is over.
        self.member = f"penstock-{uuid.uuid4().hex}"
        self._reset()

    def _reset(self) -> None:
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._stored: dict[TopicPartition, int] = {}
        self._durable: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._changed = threading.Condition()
        self._unchecked: set[TopicPartition] = set()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        own = ("_thread", "_ended", "_stored", "_durable", "_committed", "_changed", "_unchecked")
        return {name: value for name, value in state.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    # -- life ------------------------------------------------------------------------------------

    def onStart(self) -> None:
        """Start the thread that connects and receives."""
        if not self._stored:
            self._stored = {
                TopicPartition(topic, int(partition)): offset
                for topic, offsets in (self.lastPosition or {}).items()
                for partition, offset in offsets.items()
            }
            self._durable = dict(self._stored)
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run,
            args=(self._ended,),
            name=f"penstock-kafka-{self.streamId}",
            daemon=True,
        )
        self._thread.start()

    def onStop(self) -> None:
        """Wait until nothing more is stored; the last commit follows when that is durable."""
        self._ended.wait(_END_S)

    def _run(self, ended: threading.Event) -> None:
        client = kafka_client()
        consumer = None
        try:
            try:
                consumer = self.params.consumer(
                    group_id=self.params.group_id,
                    auto_offset_reset=self.params.start,
                    group_instance_id=self.member,
                    bootstrap_timeout_ms=round(_CONNECT_S * 1000),
                )
            except client.errors.KafkaError as error:
                self.restart(f"Error connecting to Kafka at {self.params.servers}", error)
                return
            try:
                consumer.subscribe(self.topics, listener=_listener(self, consumer))
                self._receive(consumer)
            except (client.errors.KafkaError, PenstockError) as error:
                if self.isStopped():
                    return
                self.restart(f"Error receiving from Kafka: {error}", error)
        finally:
            ended.set()
            if consumer is not None:
                self._end(consumer)

    def _end(self, consumer: Any) -> None:
        """Commit what becomes durable after the stop, then close."""
        self._await_durable(self._stored)
        try:
            self._commit(consumer)
        except kafka_client().errors.KafkaError as error:
            # The position of the stream has it as well; the group would only see it again.
            _log.info("The last offsets were not committed: %s", error)
        consumer.close(autocommit=False, timeout_ms=1000)

    # -- records ---------------------------------------------------------------------------------

    def _receive(self, consumer: Any) -> None:
        next_commit_s = time.monotonic() + _COMMIT_EVERY_S
        while not self.isStopped():
            self._check_offsets(consumer)
            for partition, records in consumer.poll(_POLL_MS).items():
                self._store_all(TopicPartition(*partition), records)
                if self.isStopped():
                    return
            if time.monotonic() >= next_commit_s:
                self._commit(consumer)
                next_commit_s = time.monotonic() + _COMMIT_EVERY_S

    def _store_all(self, partition: TopicPartition, records: list[Any]) -> None:
        """Store records with the position after them; halve what does not fit into a block."""
        end = records[-1].offset + 1
        if self.convert is None and self.params.value_deserializer is None:
            data = [record.value for record in records]
        else:
            data = [self._converted(record) for record in records]
        positions = {**self._stored, partition: end}
        place: dict[str, dict[str, int]] = {}
        for (topic, number), offset in positions.items():
            place.setdefault(topic, {})[str(number)] = offset
        try:
            self.store(data, position=place, ack=partial(self._note_durable, partition, end))
        except RecordTooLargeError as error:
            if len(records) == 1:
                told = (
                    f"A record of {partition.topic} {partition.partition} at {end - 1} is dropped"
                )
                self.reportError(f"{told}: {error}", error)
                return
            half = len(records) // 2
            self._store_all(partition, records[:half])
            self._store_all(partition, records[half:])
            return
        self._stored = positions

    def _converted(self, record: Any) -> Any:
        made = as_record(self.params, record)
        return made.value if self.convert is None else self.convert(made)

    # -- offsets ---------------------------------------------------------------------------------

    def _note_durable(self, partition: TopicPartition, end: int) -> None:
        with self._changed:
            self._durable[partition] = max(self._durable.get(partition, 0), end)
            self._changed.notify_all()

    def _await_durable(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = {each: self._stored[each] for each in partitions if each in self._stored}
        with self._changed:
            self._changed.wait_for(
                lambda: all(self._durable.get(each, 0) >= at for each, at in wanted.items()),
                _DURABLE_S,
            )

    def _commit(self, consumer: Any) -> None:
        """Commit what is durable and still this member's."""
        offsets = self._to_commit(TopicPartition(*each) for each in consumer.assignment())
        errors = kafka_client().errors
        if offsets:
            try:
                consumer.commit(_as_commit(offsets), timeout_ms=_ASK_MS)
            except (
                errors.CommitFailedError,
                errors.RebalanceInProgressError,
                errors.RetriableError,
            ) as error:
                # The group is changing, or a broker is away: a later commit has these, too.
                _log.info("Offsets are not committed yet: %s", error)
            else:
                self._committed.update(offsets)

    def _to_commit(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        with self._changed:
            durable = {each: self._durable[each] for each in partitions if each in self._durable}
        return {each: at for each, at in durable.items() if self._committed.get(each) != at}

    def _check_offsets(self, consumer: Any) -> None:
        """Let partitions that came back go on where another member may have got to meanwhile."""
        partition_of = kafka_client().TopicPartition
        for each in sorted(self._unchecked):
            mine = partition_of(*each)
            if mine in consumer.assignment():
                committed = consumer.committed(mine, timeout_ms=_ASK_MS)
                if committed is not None and committed > self._stored[each]:
                    consumer.seek(mine, committed)
                    self._note_durable(each, committed)
                    self._stored = {**self._stored, each: committed}
                consumer.resume(mine)
            self._unchecked.discard(each)


def _as_commit(offsets: Mapping[TopicPartition, int]) -> dict[Any, Any]:
    client = kafka_client()
    return {
        client.TopicPartition(*each): client.OffsetAndMetadata(offset, "", -1)
        for each, offset in offsets.items()
    }


def _listener(receiver: KafkaReceiver, consumer: Any) -> Any:
    """Return what the client tells of partitions that come and go, from a thread of its own."""
    from kafka.consumer.subscription_state import AsyncConsumerRebalanceListener

    class Listener(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # the client is untyped
        async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
            # The next owner starts where the group is: at the end of what is durable here.
            gone = [TopicPartition(*each) for each in revoked]
            receiver._await_durable(gone)
            offsets = receiver._to_commit(gone)
            if offsets:
                await consumer.commit_async(_as_commit(offsets))
                receiver._committed.update(offsets)

        async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
            for each in assigned:
                offset = receiver._stored.get(TopicPartition(*each))
                receiver._committed.pop(TopicPartition(*each), None)
                if offset is not None:
                    # Not before the next poll may the client be asked what the group has.
                    consumer.seek(each, offset)
                    consumer.pause(each)
                    receiver._unchecked.add(TopicPartition(*each))

    return Listener()
