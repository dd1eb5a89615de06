"""`KeptBlocks`: the blocks of a stream that is read by places, and how far each consumer has read.

What must hold:

- *A place is a block for good.* The n-th block that the ledger took of the stream has the place n,
  over snapshots and restarts. (Block numbers would not do: they have gaps that are filled later.)
- *Each consumer has a place of its own*, which only grows: what is before it, that consumer asks
  for no more.
- *Both must be over.* A block goes when all consumers have passed it and its retention is over.
  Stopping one of them takes nothing from the others, and one that comes later finds what the
  retention keeps.
- *Gone is not nothing* (I15). Asked for places that were released, it says which are still kept.

A stream is read either by places or by batches; a `StreamingContext`'s are one consumer that takes
each block away when it is allocated, so that its place is always that of the first waiting block,
and there is nothing to keep beside the batches themselves.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from penstock.tracker.ledger.events import Consumer, block_number
from penstock.wire.messages import ReceivedBlockInfo


@dataclass(frozen=True)
class Retention:
    """How long blocks stay that all consumers have passed.

    Attributes:
        time_ms: So long after they were added; 0: not at all, the stream is a queue, and nothing of
            it goes before it has a consumer. None: time does not matter.
        size_bytes: And at most that many bytes of them. None: size does not matter. Without both
            they stay for ever.
    """

    time_ms: int | None
    size_bytes: int | None = None


class KeptBlocks:
    """Not locked: it is part of `LedgerState`.

    Attributes:
        epoch: Names this stream of this ledger: places of another one are other blocks.
        first: The place of the first block that is kept.
        consumers: Its readers, by id.
        kind: How the newest block with records holds them, also when it is gone; empty before the
            first.
        schema: Its serialised Arrow schema, or None.
        released_ms: When the last block that is gone was added, ms since the epoch; -1: none is.
    """

    def __init__(
        self, epoch: str, first: int = 0, records_before: int = 0, bytes_before: int = 0
    ) -> None:
        self.epoch = epoch
        self.first = first
        self.consumers: dict[str, Consumer] = {}
        self.kind = ""
        self.schema: bytes | None = None
        self.released_ms = -1
        self._blocks: list[ReceivedBlockInfo] = []
        self._added_ms: list[int] = []
        # Those that filled a gap, and stand behind one with a higher number.
        self._newest = -1
        self._late: set[int] = set()
        # Of the stream, up to the first block, and up to and with each one.
        self._records = [records_before]
        self._bytes = [bytes_before]

    @property
    def next(self) -> int:
        """The place that the next block will have."""
        return self.first + len(self._blocks)

    def __len__(self) -> int:
        return len(self._blocks)

    @property
    def size_bytes(self) -> int:
        """Bytes of the blocks that are kept."""
        return self._bytes[-1] - self._bytes[0]

    def append(self, number: int, block: ReceivedBlockInfo, added_ms: int) -> None:
        """Give a block the next place. A clock that was set back does not make it older."""
        if block.num_records:
            self.kind, self.schema = block.kind, block.schema
        if number < self._newest:
            self._late.add(number)
        self._newest = max(self._newest, number)
        self._blocks.append(block)
        latest = self._added_ms[-1] if self._added_ms else self.released_ms
        self._added_ms.append(max(added_ms, latest))
        self._records.append(self._records[-1] + block.num_records)
        self._bytes.append(self._bytes[-1] + block.num_bytes)

    def between(self, start: int, end: int) -> list[ReceivedBlockInfo]:
        """Return the blocks from `start` up to `end`, as far as they are kept."""
        return self._blocks[self._at(start) : self._at(end)]

    def change(
        self,
        numbers: Iterable[int],
        change: Callable[[int, ReceivedBlockInfo], ReceivedBlockInfo],
    ) -> None:
        """Put other metadata in the place of a block's.

        Args:
            numbers: The blocks' numbers; those that are not there any more are passed over.
            change: Is given number and metadata, and returns what takes their place.
        """
        for number in numbers:
            at = self._index(number)
            if at is not None:
                self._blocks[at] = change(number, self._blocks[at])

    def find(self, number: int) -> ReceivedBlockInfo | None:
        """Return the block with a number; None when it is gone."""
        at = self._index(number)
        return None if at is None else self._blocks[at]

    def _index(self, number: int) -> int | None:
        blocks = self._blocks
        at = bisect_left(blocks, number, key=_number)
        if at < len(blocks) and _number(blocks[at]) == number:
            return at
        if not self._late:
            return None
        return next((at for at, one in enumerate(blocks) if _number(one) == number), None)

    def times_between(self, start: int, end: int) -> list[int]:
        """Return when the same blocks were added, ms since the epoch."""
        return self._added_ms[self._at(start) : self._at(end)]

    def records_before(self, place: int) -> int:
        """Return how many records the stream has before a place that is kept, or is next."""
        return self._records[self._at(place)]

    def bytes_before(self, place: int) -> int:
        """Return the same in bytes."""
        return self._bytes[self._at(place)]

    def place_at(self, time_ms: int) -> int:
        """Return the place of the first block that was added at a time or later."""
        return self.first + bisect_left(self._added_ms, time_ms)

    def end_of(self, start: int, until: int, max_records: int | None, max_bytes: int | None) -> int:
        """Return how far from `start` one may go without more records or bytes than are allowed.

        At least one block, so that a large one keeps no one waiting for ever.
        """
        until = min(until, self.next)
        start = max(start, self.first)
        if until <= start:
            return start
        end = until
        if max_records is not None:
            most = self.records_before(start) + max_records
            end = min(end, self.first + bisect_right(self._records, most) - 1)
        if max_bytes is not None:
            most = self.bytes_before(start) + max_bytes
            end = min(end, self.first + bisect_right(self._bytes, most) - 1)
        return max(end, start + 1)

    def unread(self, reached: Mapping[str, int]) -> tuple[int, str]:
        """Return the bytes that a consumer has not read yet, and the one that has read least.

        Args:
            reached: What is before these places does not count for these consumers.

        Returns:
            Bytes and consumer; without consumers all bytes that are kept, and no one.
        """
        if not self.consumers:
            return self.size_bytes, ""
        place, slowest = min(
            (max(consumer.place, reached.get(name, 0)), name)
            for name, consumer in self.consumers.items()
        )
        return self._bytes[-1] - self.bytes_before(place), slowest

    def releasable(self, now_ms: int, retention: Retention) -> int:
        """Return the place before which nothing is needed any more."""
        passed = min((consumer.place for consumer in self.consumers.values()), default=None)
        if retention.time_ms == 0:
            return max(self.first, self.first if passed is None else min(passed, self.next))
        over = self.first
        if retention.time_ms is not None:
            over = max(over, self.place_at(now_ms - retention.time_ms))
        if retention.size_bytes is not None:
            least = self._bytes[-1] - retention.size_bytes
            over = max(over, self.first + bisect_left(self._bytes, least))
        return max(self.first, min(over, self.next if passed is None else passed))

    def release(self, before: int) -> list[ReceivedBlockInfo]:
        """Let the blocks before a place go, and return them."""
        count = self._at(before)
        released = self._blocks[:count]
        if released:
            self.released_ms = self._added_ms[count - 1]
        del self._blocks[:count], self._added_ms[:count]
        del self._records[:count], self._bytes[:count]
        if self._late:
            self._late.difference_update(map(_number, released))
        self.first += count
        return released

    def forget(self, consumers: Iterable[str]) -> None:
        """Drop consumers: they hold nothing any more."""
        for consumer in consumers:
            self.consumers.pop(consumer, None)

    def _at(self, place: int) -> int:
        return min(max(place - self.first, 0), len(self._blocks))


def _number(block: ReceivedBlockInfo) -> int:
    return block_number(block.stream_id, block.block_id)
