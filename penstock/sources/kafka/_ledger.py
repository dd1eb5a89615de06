"""The offsets of a receiver: stored, durable, committed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from penstock.sources.kafka.records import TopicPartition, is_another

_ID = "id"
"""Stands in a position beside the numbers of a topic's partitions."""


class OffsetLedger:
    """How far each partition has got, as the offset that comes next. Safe for several threads.

    One condition guards all of it. Offsets belong to topics with an id: when another topic gets the
    name, they are forgotten (`begin_anew`), and what is still said of them is ignored.

    Args:
        durable_s: How long `await_durable` waits at most.

    Attributes:
        ids_now: Asks for the ids that topics have now, before anything is committed; None where
            no one can be asked.
    """

    def __init__(self, durable_s: float) -> None:
        self._durable_s = durable_s
        self._changed = threading.Condition()
        self._stored: dict[TopicPartition, int] = {}
        self._durable: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        # Of which it is not known yet how far other members have got.
        self._unknown: set[TopicPartition] = set()
        self._ids: dict[str, str] = {}
        # Offsets after markers of transactions, by those before them.
        self._passed: dict[TopicPartition, tuple[int, int]] = {}
        self.ids_now: Callable[[Iterable[str]], Mapping[str, str]] | None = None

    def __bool__(self) -> bool:
        with self._changed:
            return bool(self._stored)

    def restore(self, position: Mapping[str, Mapping[str, Any]]) -> None:
        """Begin with the position that an earlier attempt made durable."""
        with self._changed:
            for topic, found in position.items():
                for name, value in found.items():
                    if name == _ID:
                        self._ids[topic] = value
                    else:
                        self._stored[TopicPartition(topic, int(name))] = value
            self._durable = dict(self._stored)

    def position_after(self, partition: TopicPartition, end: int) -> dict[str, dict[str, Any]]:
        """Return the position of all that is stored, and of one partition up to an offset."""
        with self._changed:
            found: dict[str, dict[str, Any]] = {}
            for each, at in {**self._stored, partition: end}.items():
                found.setdefault(each.topic, {})[str(each.partition)] = at
            for topic, offsets in found.items():
                if self._ids.get(topic):
                    offsets[_ID] = self._ids[topic]
            return found

    def topic_id(self, topic: str) -> str:
        """Return the id of the topic whose offsets these are, or "" where it is not known."""
        with self._changed:
            return self._ids.get(topic, "")

    def note_topic(self, topic: str, topic_id: str) -> None:
        """Take note of the id of a topic for which none is known."""
        with self._changed:
            self._ids[topic] = topic_id

    def begin_anew(self, topic: str, topic_id: str, first: Mapping[TopicPartition, int]) -> None:
        """Forget the offsets of a topic, as another one has its name.

        Args:
            topic: The name.
            topic_id: The other one's id.
            first: The first offset of each of its partitions, also of those that other members
                have: a member that gets one begins at that, or where the group is.
        """
        with self._changed:
            for offsets in (self._stored, self._durable, self._committed, self._passed):
                for each in [each for each in offsets if each.topic == topic]:
                    del offsets[each]
            self._stored.update(first)
            self._durable.update(first)
            self._ids[topic] = topic_id
            self._changed.notify_all()

    def all_stored(self) -> dict[TopicPartition, int]:
        """Return what is stored, durable or not yet."""
        with self._changed:
            return dict(self._stored)

    def stored(self, partition: TopicPartition) -> int | None:
        """Return the offset that is to be stored next; None for a partition that is new."""
        with self._changed:
            at = self._stored.get(partition)
            return None if at is None else self._past(partition, at)

    def note_stored(self, partition: TopicPartition, end: int) -> None:
        """Take note that all before an offset is stored."""
        with self._changed:
            self._stored[partition] = end

    def note_passed(self, partition: TopicPartition, offset: int) -> None:
        """Take note that from what is stored up to an offset there is no record to be read."""
        with self._changed:
            if partition in self._stored:
                self._passed[partition] = (self._stored[partition], offset)

    def _past(self, partition: TopicPartition, at: int) -> int:
        before, after = self._passed.get(partition, (at, at))
        return max(at, after) if at >= before else at

    def note_durable(self, partition: TopicPartition, end: int, topic_id: str) -> None:
        """Take note that all before an offset of the topic with an id is durable."""
        with self._changed:
            if self._ids.get(partition.topic, "") != topic_id:
                return
            self._durable[partition] = max(self._durable.get(partition, 0), end)
            self._changed.notify_all()

    def await_durable(self, partitions: Iterable[TopicPartition]) -> None:
        """Wait, within the bound, until what is stored of partitions is durable."""
        with self._changed:
            wanted = {each: self._stored[each] for each in partitions if each in self._stored}
            self._changed.wait_for(
                lambda: all(self._durable.get(each, 0) >= at for each, at in wanted.items()),
                self._durable_s,
            )

    def to_commit(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return what is durable and not committed, of topics that still have their names."""
        with self._changed:
            durable = {
                each: self._past(each, self._durable[each])
                for each in partitions
                if each in self._durable and each not in self._unknown
            }
            new = {each: at for each, at in durable.items() if self._committed.get(each) != at}
            ids = {each.topic: self._ids.get(each.topic, "") for each in new}
        if not new or self.ids_now is None:
            return new
        now = self.ids_now(ids)
        return {
            each: at
            for each, at in new.items()
            if each.topic in now and not is_another(ids[each.topic], now[each.topic])
        }

    def note_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Take note of a commit."""
        with self._changed:
            self._committed.update(offsets)

    def note_assigned(self, partition: TopicPartition) -> None:
        """Take note that others may have committed since.

        Until it is known what (`note_group`) nothing is committed: what an earlier member had here
        may be long behind it.
        """
        with self._changed:
            self._committed.pop(partition, None)
            if partition in self._stored:
                self._unknown.add(partition)

    def note_group(self, partition: TopicPartition, committed: int | None) -> int | None:
        """Take note of what the group has of a partition that came.

        Args:
            partition: The partition.
            committed: The offset; None: none.

        Returns:
            Where to read on: the later of that and what is stored; None where nothing is stored.
        """
        with self._changed:
            self._unknown.discard(partition)
            at = self._stored.get(partition)
            if at is None:
                return None
            at = self._past(partition, at)
            if committed is not None and committed > at:
                at = self._stored[partition] = committed
                self._durable[partition] = max(self._durable.get(partition, 0), at)
                self._changed.notify_all()
            return at
