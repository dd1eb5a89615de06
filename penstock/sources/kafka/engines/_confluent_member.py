"""A member of a group, by confluent-kafka."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import KafkaException

from penstock.sources.kafka.engines._confluent_chunk import (
    MessageChunk,
    error_of,
    offset_of,
    partition_of,
    topic_of,
)
from penstock.sources.kafka.engines._confluent_client import (
    Failures,
    Refusals,
    bounds_of,
    consumer,
    ours,
    translated,
    translated_errors,
)
from penstock.sources.kafka.engines.interface import (
    Chunk,
    ClientError,
    GroupMember,
    OffsetsOfMember,
)
from penstock.sources.kafka.records import TopicPartition

if TYPE_CHECKING:
    from penstock.sources.kafka.params import KafkaParams

__all__ = ["ConfluentMember"]


_ASK_S = 5.0
_MOST = 20_000

_log = logging.getLogger("penstock.sources.kafka")


class ConfluentMember(GroupMember):
    """A member whose client calls it, while it is polled, when partitions come and go."""

    def __init__(
        self,
        params: KafkaParams,
        topics: Sequence[str],
        instance: str,
        offsets: OffsetsOfMember,
    ) -> None:
        start = "error" if params.start == "none" else params.start
        self._refusals = Refusals(params)
        self._failures = Failures()
        self._client = consumer(
            params,
            {
                "group.id": params.group_id,
                "group.instance.id": instance,
                "auto.offset.reset": start,
                "error_cb": self._refusals,
            },
        )
        self._topics = tuple(topics)
        self._offsets = offsets
        self._owned: set[TopicPartition] = set()
        self._moved: set[TopicPartition] = set()
        strategy = str(params.values.get("partition.assignment.strategy", ""))
        self._is_cooperative = "cooperative" in strategy
        with translated_errors():
            self._client.subscribe(
                list(topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )

    def poll(self, wait_s: float) -> Iterable[tuple[TopicPartition, Chunk]]:
        self._moved.clear()
        self._refusals.check()
        self._failures.check()
        with translated_errors():
            # Two steps: many at once would wait until there are many.
            found = self._client.consume(1, wait_s)
            if found:
                found += self._client.consume(_MOST, 0)
        if any(map(error_of, found)):
            self._failures.take(each.error() for each in found if each.error() is not None)
            found = [each for each in found if each.error() is None]
            if not found:
                self._failures.check()
        chunks = []
        for _, run in groupby(found, partition_of):
            same = list(run)
            topics = self._topics if len(self._topics) == 1 else dict.fromkeys(map(topic_of, same))
            for topic in topics:
                mine = TopicPartition(topic, same[0].partition())
                of_topic = same
                if len(topics) > 1:
                    of_topic = [each for each in same if each.topic() == topic]
                if mine in self._moved:
                    self._drop(mine, of_topic)
                elif mine in self._owned:
                    chunks.append((mine, MessageChunk(of_topic)))
        return chunks

    def _drop(self, partition: TopicPartition, found: Sequence[Any]) -> None:
        """Read again what came while the partition went and maybe came back."""
        if partition in self._owned:
            stored = self._offsets.stored(partition)
            first = offset_of(found[0]) if stored is None else stored
            with translated_errors():
                self._client.seek(confluent_kafka.TopicPartition(*partition, first))

    def first_offset(self, partition: TopicPartition, timeout_s: float) -> int:
        return bounds_of(self._client, partition, timeout_s)[0]

    def assignment(self) -> set[TopicPartition]:
        return set(self._owned)

    def commit(self, offsets: Mapping[TopicPartition, int], timeout_s: float) -> None:
        wanted = [confluent_kafka.TopicPartition(*each, at) for each, at in offsets.items()]
        with translated_errors():
            for each in self._client.commit(offsets=wanted, asynchronous=False) or ():
                if each.error is not None:
                    raise translated(each.error)

    def close(self) -> None:
        self._client.close()

    # The client calls these while it is polled, in the thread that polls.

    def _on_assign(self, client: Any, assigned: Sequence[Any]) -> None:
        try:
            known = client.committed(assigned, timeout=_ASK_S)
        except KafkaException as error:
            _log.warning("What the group has committed is not known: %s", error)
            known = ()
        committed = {ours(each): each.offset for each in known}
        for each in assigned:
            partition = ours(each)
            self._offsets.note_assigned(partition)
            stored = self._offsets.stored(partition)
            if stored is not None:
                if committed.get(partition, -1) > stored:
                    stored = committed[partition]
                    self._offsets.go_on_from(partition, stored)
                each.offset = stored
        self._owned.update(map(ours, assigned))
        if self._is_cooperative:
            client.incremental_assign(assigned)
        else:
            client.assign(assigned)

    def _on_revoke(self, client: Any, revoked: Sequence[Any]) -> None:
        # The next owner starts where the group is: at the end of what is durable here.
        gone = [ours(each) for each in revoked]
        self._offsets.await_durable(gone)
        offsets = self._offsets.to_commit(gone)
        if offsets:
            try:
                self.commit(offsets, _ASK_S)
                self._offsets.note_committed(offsets)
            except ClientError as error:
                _log.warning("The offsets of partitions that go are not committed: %s", error)
        self._go(gone)

    def _on_lost(self, client: Any, lost: Sequence[Any]) -> None:
        # They are another member's already: nothing may be committed any more.
        self._go([ours(each) for each in lost])

    def _go(self, gone: Sequence[TopicPartition]) -> None:
        self._owned.difference_update(gone)
        self._moved.update(gone)
