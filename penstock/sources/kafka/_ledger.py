"""The offsets of a receiver: stored, durable, committed."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from penstock.sources.kafka.records import TopicPartition

__all__ = ["OffsetLedger"]


class OffsetLedger:
    """How far each partition has got, as the offset that comes next. Safe for several threads.

    One condition guards all of it.

    Args:
        durable_s: How long `await_durable` waits at most.
    """

    def __init__(self, durable_s: float) -> None:
        self._durable_s = durable_s
        self._changed = threading.Condition()
        self._stored: dict[TopicPartition, int] = {}
        self._durable: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}

    def __bool__(self) -> bool:
        with self._changed:
            return bool(self._stored)

    def restore(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Begin with what an earlier attempt made durable."""
        with self._changed:
            self._stored = dict(offsets)
            self._durable = dict(offsets)

    def all_stored(self) -> dict[TopicPartition, int]:
        """Return what is stored, durable or not yet."""
        with self._changed:
            return dict(self._stored)

    def stored(self, partition: TopicPartition) -> int | None:
        """Return the offset that is to be stored next; None for a partition that is new."""
        with self._changed:
            return self._stored.get(partition)

    def note_stored(self, partition: TopicPartition, end: int) -> None:
        """Take note that all before an offset is stored."""
        with self._changed:
            self._stored[partition] = end

    def note_durable(self, partition: TopicPartition, end: int) -> None:
        """Take note that all before an offset is durable."""
        with self._changed:
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
        """Return what is durable and not committed."""
        with self._changed:
            durable = {each: self._durable[each] for each in partitions if each in self._durable}
            return {each: at for each, at in durable.items() if self._committed.get(each) != at}

    def note_committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Take note of a commit."""
        with self._changed:
            self._committed.update(offsets)

    def note_assigned(self, partition: TopicPartition) -> None:
        """Take note that others may have committed since."""
        with self._changed:
            self._committed.pop(partition, None)

    def go_on_from(self, partition: TopicPartition, offset: int) -> None:
        """Take note that another member has got further."""
        with self._changed:
            self._stored[partition] = offset
            self._durable[partition] = max(self._durable.get(partition, 0), offset)
            self._changed.notify_all()
