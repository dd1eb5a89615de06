"""Putting records into the open block: any types, in order, many at a time.

The assembler owns the open block and the list of pending records. Its `lock` guards both, but for
the pending list, to which storing threads append without it: ``list.append``, ``list[:]`` and
``del list[:n]`` are atomic in CPython, and a record is deleted only after it entered a block.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.blockstore import BlockBuilder, BlockKind, BlockStore, SealedBlock
from penstock.blockstore._lines import line_ends
from penstock.blockstore.builder import join_binary, join_text, pickle_record, rows_to_batch
from penstock.blockstore.memory import ArenaError
from penstock.errors import PenstockError

__all__ = ["MAX_LEASE", "BlockAssembler", "RecordTooLargeError"]

MAX_LEASE = 4096
"""Records that may wait in the pending list: with `LARGE_RECORD` this bounds its bytes (I7)."""
LARGE_RECORD = 8192
"""Larger records skip the pending list, which is counted in records."""
_CHUNK_BYTES = 128 << 10
"""The pending list is joined at about this size: it stays in the processor's cache."""
_pickle_of = itemgetter(0)


class RecordTooLargeError(PenstockError, ValueError):
    """A record is larger than a block can be.

    Attributes:
        size: Bytes of the record.
        limit: The largest size that fits.
    """

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"a record of {size} bytes does not fit into a block of {limit} bytes: split it, or "
            "raise spark.penstock.block.maxSize (and spark.penstock.memory.size with it)"
        )
        self.size = size
        self.limit = limit


class _Unexpected:
    """No record has this type: as the expected one it keeps all off the fast path."""


class BlockAssembler:
    """Fills blocks of one receiver attempt.

    Args:
        block_store: Gives empty blocks.
        schema: Arrow schema of the records, or None.
        block_id: Makes the next block's id.
        now_s: Monotonic time.
        sealed: Takes a sealed block; may wait, and then the lock is held for as long.
        discard: Told of records that fit nowhere: how many, their bytes, why.
        give_up: True ends a wait for memory.

    Attributes:
        lock: Held by whoever calls a method that is said to need it.
        pending: Records that wait to enter the block, appended to without the lock.
        lease_size: How many records to let wait, from the size of those seen last.
        records: Records in blocks so far.
        bytes: Their bytes.
        waited_for_memory_s: Seconds spent waiting for a slot.
    """

    def __init__(
        self,
        block_store: BlockStore,
        schema: pa.Schema | None,
        *,
        block_id: Callable[[], str],
        now_s: Callable[[], float],
        sealed: Callable[[SealedBlock], None],
        discard: Callable[[int, int, BaseException], None],
        give_up: Callable[[], bool],
    ) -> None:
        self.lock = threading.RLock()
        self.pending: list[Any] = []
        self.lease_size = 64
        self.records = 0
        self.bytes = 0
        self.waited_for_memory_s = 0.0
        self._block_store = block_store
        self._schema = schema
        self._block_id = block_id
        self._now_s = now_s
        self._sealed = sealed
        self._discard = discard
        self._give_up = give_up
        self._open: BlockBuilder | None = None
        self._undivided = False
        self._uncharged = 0

    @property
    def max_record_bytes(self) -> int:
        """The largest record that fits into a block."""
        return self._block_store.options.block_max_bytes - 4096

    def take_uncharged(self) -> int:
        """Return the bytes that entered blocks since the last call."""
        size, self._uncharged = self._uncharged, 0
        return size

    def prepare(self, record: Any) -> tuple[type[Any], Any, bool]:
        """Get a record ready to be kept pending.

        Returns:
            The type that the fast path may expect next, the record as it is kept, and whether it
            may wait in the pending list.

        Raises:
            Exception: Whatever pickling the record raises; the stream goes on.
        """
        kind = type(record)
        if kind is bytes or kind is str:
            return kind, record, len(record) < LARGE_RECORD
        if self._schema is not None:
            return kind if isinstance(record, Sized) else _Unexpected, record, True
        # A tuple is not bytes-like: it cannot be mistaken for a bytes record when joined.
        pickled = pickle_record(record)
        return _Unexpected, (pickled,), len(pickled) < LARGE_RECORD

    @contextmanager
    def undivided(self, whole: bool) -> Iterator[None]:
        """Within it, what is added enters one block or none. Needs the lock."""
        self._undivided = whole
        try:
            yield
        finally:
            self._undivided = False

    def flush_pending(self) -> None:
        pending = self.pending
        chunk = pending[:]
        if not chunk:
            return
        size = self.add_chunk(chunk)
        # Only now: a chunk that could not be added is tried again. Others may have appended.
        del pending[: len(chunk)]
        if size:
            self.lease_size = max(16, min(MAX_LEASE, _CHUNK_BYTES * len(chunk) // size))

    def add_chunk(self, chunk: list[Any]) -> int:
        """Append records, prepared by `prepare`, to the open block; returns their bytes."""
        if self._schema is not None:
            return self._add_rows(chunk)
        kind, joined, lengths = self._joined(chunk)
        self.append(kind, joined, lengths)
        return len(joined)

    def _joined(self, chunk: list[Any]) -> tuple[BlockKind, bytes, npt.NDArray[np.int32]]:
        first = type(chunk[0])
        try:
            if first is tuple:
                return BlockKind.PICKLED, *join_binary(list(map(_pickle_of, chunk)))
            if not self._is_open_as(BlockKind.PICKLED):
                if first is str:
                    return BlockKind.STRING, *join_text(chunk)
                return BlockKind.BINARY, *join_binary(chunk)
        except (IndexError, TypeError, UnicodeEncodeError):
            # Not all of one type, or text that UTF-8 cannot hold.
            pass
        # Types that change from record to record make one block of pickles, not many blocks.
        pickles = [item[0] if type(item) is tuple else pickle_record(item) for item in chunk]
        return BlockKind.PICKLED, *join_binary(pickles)

    def _is_open_as(self, kind: BlockKind) -> bool:
        return self._open is not None and self._open.kind is kind and self._open.num_records > 0

    def _add_rows(self, chunk: list[Any]) -> int:
        batches = list(self._rows_to_batches(chunk))
        if not batches:
            return 0
        batch = batches[0]
        if len(batches) > 1:
            batch = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        self.append_batch(batch)
        return int(batch.nbytes)

    def _rows_to_batches(self, rows: list[Any]) -> Iterator[pa.RecordBatch]:
        """Convert rows of the declared schema; those that do not fit are discarded one by one."""
        try:
            yield rows_to_batch(rows, self._schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            if len(rows) == 1:
                self._discard(1, len(repr(rows[0])), error)
                return
            half = len(rows) // 2
            yield from self._rows_to_batches(rows[:half])
            yield from self._rows_to_batches(rows[half:])

    def append(self, kind: BlockKind, joined: bytes | memoryview, lengths: Any) -> None:
        """Append records that lie one behind the other. Needs the lock."""
        count = len(lengths)
        if self._put(kind, len(joined), count, lambda block: block.append(joined, lengths)):
            return
        half = count // 2
        cut = int(lengths[:half].sum())
        self.append(kind, joined[:cut], lengths[:half])
        self.append(kind, joined[cut:], lengths[half:])

    def append_lines(self, kind: BlockKind, data: memoryview, count: int) -> None:
        """Append whole lines, each with its LF, to the open block. Needs the lock."""
        if self._put(kind, len(data), count, lambda block: block.append_lines(data, count)):
            return
        half = count // 2
        cut = int(line_ends(data)[half - 1]) + 1
        self.append_lines(kind, data[:cut], half)
        self.append_lines(kind, data[cut:], count - half)

    def _put(
        self, kind: BlockKind, size: int, records: int, put: Callable[[BlockBuilder], None]
    ) -> bool:
        """Put records into the open block, or a new one; False if they must be put in parts."""
        builder = self._builder_for(kind, None, size, records)
        if builder is None:
            if records == 1 or self._undivided:
                raise RecordTooLargeError(size, self.max_record_bytes)
            return False
        try:
            put(builder)
        except ArenaError:
            if builder.num_records == 0:
                raise
            # The memory file system is full: go on in memory that the arena has already.
            self.seal()
            return self._put(kind, size, records, put)
        self._count(records, size)
        return True

    def append_batch(self, batch: pa.RecordBatch) -> None:
        size = pa.ipc.get_record_batch_size(batch)
        builder = self._builder_for(BlockKind.ARROW, batch.schema, size, batch.num_rows)
        if builder is None:
            if batch.num_rows == 1 or self._undivided:
                raise RecordTooLargeError(size, self.max_record_bytes)
            half = batch.num_rows // 2
            self.append_batch(batch.slice(0, half))
            self.append_batch(batch.slice(half))
            return
        builder.append_batch(batch)
        self._count(batch.num_rows, size)

    def _count(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
        self._uncharged += size

    def _builder_for(
        self, kind: BlockKind, schema: pa.Schema | None, size: int, records: int
    ) -> BlockBuilder | None:
        """Return an open block with room, sealing one that does not fit; None if none can."""
        builder = self._open
        if builder is not None:
            if builder.num_records == 0 and builder.kind is not kind:
                builder.kind, builder.schema = kind, schema
            fits = builder.kind is kind and builder.schema == schema
            if fits and builder.room_for(size, records):
                return builder
            if builder.num_records or not fits:
                self.seal()
        builder = self._open_block(kind, schema)
        return builder if builder.room_for(size, records) else None

    def _open_block(self, kind: BlockKind, schema: pa.Schema | None = None) -> BlockBuilder:
        if self._open is None:
            began = time.monotonic()
            self._open = self._block_store.open_block(kind, schema, give_up=self._give_up)
            self.waited_for_memory_s += time.monotonic() - began
        return self._open

    def mark(self, position: bytes | None, ack: Callable[[], None] | None) -> None:
        """Attach a position and an acknowledgement to the open block. Needs the lock."""
        builder = self._open
        if builder is None:
            # Nothing was added, or what was added is sealed already: a block without records
            # carries them.
            builder = self._open_block(BlockKind.BINARY)
        if position is not None:
            builder.position = position
        if ack is not None:
            builder.acknowledge.append(ack)

    def seal(self) -> None:
        """Seal the open block, if there is anything in it, and pass it on. Needs the lock."""
        builder = self._open
        if builder is None:
            return
        if builder.num_records == 0 and not builder.acknowledge and builder.position is None:
            return
        self._open = None
        self._sealed(builder.seal(self._block_id(), self._now_s()))
