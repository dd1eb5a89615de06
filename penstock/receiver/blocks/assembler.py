"""Putting records into the open block: any types, in order, many at a time.

The assembler owns the open block and the list of pending records. Its `lock` guards both, but for
the pending list, to which storing threads append without it: ``list.append``, ``list[:]`` and
``del list[:n]`` are atomic in CPython. A record is deleted there at the moment when it entered a
block, or was discarded: whatever fails in the middle of a flush, the next one begins behind it.

A record that fits nowhere, since it is larger than a block or no row of the declared schema, is
discarded and reported. That is no error of the call that stores it: the source must not read it
again.
"""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.blockstore import BlockBuilder, BlockKind, BlockStore, SealedBlock
from penstock.blockstore.arrow_frames import compacted, stream_size
from penstock.blockstore.building.builder import (
    DATA_START,
    HEADER_ROOM,
    batch_to_schema,
    join_binary,
    join_text,
    rows_to_batch,
)
from penstock.blockstore.building.lines import line_ends
from penstock.blockstore.building.memory import ArenaError
from penstock.blockstore.building.record_pickles import pickle_record
from penstock.dead_letters import DeadLetterWriter, PickledRecord, start_shown
from penstock.errors import IllegalStateError, PenstockError, text_of
from penstock.position_changes import merged
from penstock.runtime.clock import Clock, WaitClock

_log = logging.getLogger("penstock.receiver")

MAX_LEASE = 4096
"""Records that may wait in the pending list: with `LARGE_RECORD` this bounds its bytes (I7)."""
LARGE_RECORD = 8192
"""Larger records skip the pending list, which is counted in records. (Of objects, their pickle.)"""
_CHUNK_BYTES = 128 << 10
"""The pending list is joined at about this size: it stays in the processor's cache."""
_LETTER_BYTES = 1 << 20
"""Bytes of dead letters after which a block is sealed, with which they are written."""
_POSITION_BYTES = 64 << 10
_pickle_of = itemgetter(0)


def _nothing() -> None:
    """Acknowledge a block that has no records, and no one who waits for it."""


class RecordPickleError(PenstockError, TypeError):
    """A record cannot be pickled, so no task could read it. What pickling raised is the cause.

    Attributes:
        record_type: The name of its type.
    """

    def __init__(self, record: object, error: Exception) -> None:
        self.record_type = type(record).__name__
        super().__init__(
            f"a record of type {self.record_type} cannot be pickled: {text_of(error)}; it is "
            f"{start_shown(lambda: record)}. Store what the batch needs of it"
        )


class RecordTooLargeError(PenstockError, ValueError):
    """A record is larger than a block can be, or records that must be in one block together are.

    Attributes:
        size: Bytes of the records.
        limit: The largest size that fits.
        records: How many they are.
    """

    def __init__(self, size: int, limit: int, records: int = 1) -> None:
        what = "a record of" if records == 1 else f"{records} records with one position, of"
        super().__init__(
            f"{what} {size} bytes {'does' if records == 1 else 'do'} not fit into a block of "
            f"{limit} bytes: split {'it' if records == 1 else 'them'}, or raise "
            "spark.penstock.block.maxSize (and spark.penstock.memory.size with it)"
        )
        self.size = size
        self.limit = limit
        self.records = records


def _unpickled(data: bytes | memoryview) -> Any:
    """Return the object of a pickle, or what stands for it."""
    try:
        return pickle.loads(data)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - the program's class may raise what it likes
        return PickledRecord(bytes(data), error)


def row_of(batch: pa.RecordBatch) -> Any:
    """Return the row of a batch of one: as Python has it, or as Arrow does where Python cannot."""
    try:
        return batch.to_pylist()[0]
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - such as a time that Python lacks
        return compacted(batch)


class _Unexpected:
    """No record has this type: as the expected one it keeps all off the fast path."""


def _texts_of_flat(schema: pa.Schema) -> tuple[str, ...] | None:
    """Return the text columns of a schema whose values cannot change; None for any other schema."""
    texts = []
    for column in schema:
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            texts.append(column.name)
        elif not pa.types.is_primitive(kind):
            return None
    return tuple(texts)


class BlockAssembler:
    """Fills blocks of one receiver attempt.

    Args:
        block_store: Gives empty blocks.
        schema: Arrow schema of the records, or None.
        block_id: Makes the next block's id.
        clock: Time; blocks are marked with it.
        sealed: Takes a sealed block; may wait, and then the lock is held for as long.
        discard: Takes a record that fits nowhere: why, and what returns it.
        tell: Notified of trouble that passes.
        give_up: True ends a wait for memory.
        letters: Keeps what is discarded until a block that is sealed later has been logged; None:
            nothing is kept.

    Attributes:
        lock: Held by anyone who calls a method that is said to need it.
        pending: Records that wait to enter the block, appended to without the lock.
        lease_size: How many records to let wait, from the size of those seen last.
        records: Records in blocks so far.
        bytes: Their bytes.
        memory_waits: How long a slot was waited for.
    """

    def __init__(
        self,
        block_store: BlockStore,
        schema: pa.Schema | None,
        *,
        block_id: Callable[[], str],
        clock: Clock,
        sealed: Callable[[SealedBlock], None],
        discard: Callable[[BaseException, Callable[[], Any]], None],
        tell: Callable[[str, BaseException], None],
        give_up: Callable[[], bool],
        letters: DeadLetterWriter | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self.pending: list[Any] = []
        self.lease_size = 64
        self.records = 0
        self.bytes = 0
        self.memory_waits = WaitClock()
        self._block_store = block_store
        self._schema = schema
        self._texts = None if schema is None else _texts_of_flat(schema)
        self._block_id = block_id
        self._clock = clock
        self._since_s = clock.monotonic_s()
        self._sealed = sealed
        self._discard = discard
        self._tell = tell
        self._give_up = give_up
        self._letters = letters
        self._sealed_letters = 0
        self._sealed_letter_bytes = 0
        self._open: BlockBuilder | None = None
        self._next_id: str | None = None
        self._undivided = False
        self._is_flushing = False
        self._is_short_of_memory = False
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
        if kind is dict and self._texts is not None:
            size = 0
            for name in self._texts:
                if (value := record.get(name)) is not None:
                    size += len(value) if type(value) is str else LARGE_RECORD
            # A copy: its author may change it before it is converted.
            return _Unexpected, record.copy(), size < LARGE_RECORD
        if kind is bytes or kind is str:
            return kind, record, len(record) < LARGE_RECORD
        try:
            # A tuple is not bytes-like: it cannot be mistaken for a bytes record when joined.
            kept = (pickle_record(record),)
        except MemoryError:
            raise
        except Exception as error:
            if self._schema is None:
                raise RecordPickleError(record, error) from error
            return _Unexpected, record, False
        return _Unexpected, kept, len(kept[0]) < LARGE_RECORD

    @property
    def has_schema(self) -> bool:
        """Whether the records are rows of a declared schema."""
        return self._schema is not None

    @property
    def is_undivided(self) -> bool:
        """Whether what is added now enters one block or none."""
        return self._undivided

    @staticmethod
    def copy_of_row(row: Any) -> tuple[Any, int]:
        """Return a copy of a row, which its author may change, and about its size in bytes."""
        if type(row) is bytes or type(row) is str:
            return row, len(row)
        try:
            pickled = pickle_record(row)
        except Exception:  # noqa: BLE001 - then it is converted as it is, if it can be
            return row, 0
        return pickle.loads(pickled), len(pickled)

    @contextmanager
    def undivided(self, whole: bool) -> Iterator[None]:
        """Within it, what is added enters one block or none. Needs the lock."""
        self._undivided = whole
        try:
            yield
        finally:
            self._undivided = False

    def flush_pending(self) -> None:
        """Put what is pending into blocks. Needs the lock."""
        chunk = self.pending[:]
        if not chunk:
            return
        before = self.bytes
        self._is_flushing = True
        try:
            if self._schema is None:
                self.add_chunk(chunk)
            else:
                self.add_rows(chunk)
        finally:
            self._is_flushing = False
        if size := self.bytes - before:
            self.lease_size = max(16, min(MAX_LEASE, _CHUNK_BYTES * len(chunk) // size))

    def add_record(self, record: Any, kept: Any) -> None:
        """Append one record, and what `prepare` made of it. Needs the lock."""
        if self._schema is None:
            self.add_chunk([kept])
        else:
            self.add_rows([record])

    def add_chunk(self, chunk: list[Any]) -> None:
        """Append records, prepared by `prepare`, to the open block. Needs the lock."""
        self.append(*self._joined(chunk))

    def _leave(self, records: int) -> None:
        """These are in a block now, or nowhere: they are not pending any more."""
        if self._is_flushing:
            del self.pending[:records]

    def _discard_one(self, reason: BaseException, record: Callable[[], Any]) -> None:
        self._discard(reason, record)
        self._leave(1)
        if not self._undivided:
            self.bound_letters()

    def bound_letters(self) -> None:
        """Wait while there are too many dead letters. Needs the lock; not within `undivided`.

        They are written with the blocks, and bounded as they are. Code that discards something
        without this class also calls it.
        """
        letters = self._letters
        if letters is None:
            return
        if letters.added_bytes - self._sealed_letter_bytes >= _LETTER_BYTES:
            self.seal()
            letters.wait_for_room(self._give_up)

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

    def open_records(self) -> int:
        """Return about how many records are in no sealed block yet; from any thread."""
        builder = self._open
        return len(self.pending) + (0 if builder is None else builder.num_records)

    def _is_open_as(self, kind: BlockKind) -> bool:
        return self._open is not None and self._open.kind is kind and self._open.num_records > 0

    def add_rows(self, rows: list[Any]) -> None:
        """Append rows of the declared schema; what does not fit it is discarded. Needs the lock."""
        batches = self._converted(rows)
        if self._undivided:
            self.append_together(list(batches))
            return
        for batch in batches:
            self.append_batch(batch)

    def add_batches(self, batches: list[pa.RecordBatch]) -> None:
        """Append batches; rows that do not fit a declared schema are discarded. Needs the lock."""
        if self._schema is not None:
            batches = [part for batch in batches for part in self._fitting(batch)]
        if self._undivided:
            self.append_together(batches)
            return
        for batch in batches:
            self.append_batch(batch)

    def _converted(self, rows: list[Any]) -> Iterator[pa.RecordBatch]:
        """Convert rows of the declared schema; those that do not fit are discarded one by one."""
        try:
            batch = rows_to_batch(self._unpickled(rows), self._schema)
        except MemoryError:
            # It says nothing of the row, which stays where it is: pending, or its author's.
            raise
        except Exception as error:  # noqa: BLE001 - a row may raise what it likes, at any time
            if len(rows) == 1:
                self._discard_misfit(error, lambda: self._stored(rows[0]))
                return
        else:
            yield batch
            return
        half = len(rows) // 2
        yield from self._converted(rows[:half])
        yield from self._converted(rows[half:])

    def _fitting(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Convert a batch to the declared schema; rows that do not fit are discarded."""
        try:
            fitting = batch_to_schema(batch, self._schema)
        except Exception as error:  # noqa: BLE001 - as for rows
            if batch.num_rows == 1:
                self._discard_misfit(error, lambda: row_of(batch))
            if batch.num_rows <= 1:
                return
        else:
            yield fitting
            return
        half = batch.num_rows // 2
        yield from self._fitting(batch.slice(0, half))
        yield from self._fitting(batch.slice(half))

    def _discard_misfit(self, reason: Exception, record: Callable[[], Any]) -> None:
        # Its message says all: where in these modules it was raised helps no one.
        reason.__cause__ = reason.__context__ = None
        self._discard_one(reason.with_traceback(None), record)

    def _unpickled(self, rows: list[Any]) -> list[Any]:
        """Return rows as their author stored them; those that were pending are pickled."""
        if not self._is_flushing:
            return rows
        return [pickle.loads(row[0]) if type(row) is tuple else row for row in rows]

    def _stored(self, row: Any) -> Any:
        """Return a row as its author stored it, or what stands for it."""
        is_pickled = self._is_flushing and type(row) is tuple
        return _unpickled(row[0]) if is_pickled else row

    def append(self, kind: BlockKind, joined: bytes | memoryview, lengths: Any) -> None:
        """Append records that follow each other. Needs the lock."""
        count = len(lengths)
        if self._put(kind, len(joined), count, lambda block: block.append(joined, lengths)):
            return
        if count == 1:
            self._discard_large(kind, joined)
            return
        if self._undivided:
            joined, lengths = self._without_large(kind, memoryview(joined), lengths)
            self.append(kind, joined, lengths)
            return
        half = count // 2
        cut = int(lengths[:half].sum())
        self.append(kind, joined[:cut], lengths[:half])
        self.append(kind, joined[cut:], lengths[half:])

    def append_lines(self, kind: BlockKind, data: memoryview, count: int) -> None:
        """Append whole lines, each with its LF, to the open block. Needs the lock."""
        if self._put(kind, len(data), count, lambda block: block.append_lines(data, count)):
            return
        if count == 1:
            self._discard_large(kind, data)
            return
        if self._undivided:
            lengths = np.diff(line_ends(data), prepend=-1)
            data, lengths = self._without_large(kind, data, lengths)
            self.append_lines(kind, data, len(lengths))
            return
        half = count // 2
        cut = int(line_ends(data)[half - 1]) + 1
        self.append_lines(kind, data[:cut], half)
        self.append_lines(kind, data[cut:], count - half)

    def _without_large(
        self, kind: BlockKind, joined: memoryview, lengths: npt.NDArray[Any]
    ) -> tuple[memoryview, npt.NDArray[Any]]:
        """Discard those records that fit into no block, of some that must be in one block.

        Raises:
            RecordTooLargeError: There is none such, or the others do not fit together either.
        """
        block = self._block_for(kind)
        fits = lengths <= block.room(1)
        left = lengths[fits]
        if fits.all() or int(left.sum()) > block.room(len(left)):
            raise RecordTooLargeError(len(joined), self.max_record_bytes, len(lengths))
        ends = np.cumsum(lengths, dtype=np.int64)
        parts = [joined[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        for part, fitting in zip(parts, fits, strict=True):
            if not fitting:
                self._discard_large(kind, part)
        return memoryview(
            b"".join(part for part, fit in zip(parts, fits, strict=True) if fit)
        ), left

    def _discard_large(self, kind: BlockKind, record: bytes | memoryview) -> None:
        def made() -> Any:
            if kind is BlockKind.PICKLED:
                return _unpickled(record)
            found = bytes(record)
            if kind in (BlockKind.STRING, BlockKind.LINES):
                try:
                    return found.decode()
                except UnicodeDecodeError:
                    pass
            return found

        self._discard_one(RecordTooLargeError(len(record), self.max_record_bytes), made)

    def _put(
        self, kind: BlockKind, size: int, records: int, put: Callable[[BlockBuilder], None]
    ) -> bool:
        """Put records into the open block, or a new one; False if they do not fit into any."""
        if not records:
            return True
        builder = self._block_for(kind)
        if size > builder.room(records):
            if not builder.num_records:
                return False
            self.seal()
            return self._put(kind, size, records, put)
        try:
            put(builder)
        except ArenaError as error:
            self._wait_for_memory(error)
            return self._put(kind, size, records, put)
        self._count(records, size)
        return True

    def append_batch(self, batch: pa.RecordBatch) -> None:
        """Append the rows of a batch, to several blocks if need be. Needs the lock."""
        if self._put_batch(batch):
            return
        if batch.num_rows == 1:
            if not self._put_batch(compacted(batch)):
                self._discard_row(batch)
            return
        # One that is much larger than a block is not tried as a whole.
        most = 2 * self.max_record_bytes
        parts = [batch]
        while parts:
            part = parts.pop()
            half = part.num_rows // 2
            parts += [compacted(part.slice(half)), compacted(part.slice(0, half))]
            while parts and (parts[-1].num_rows == 1 or parts[-1].nbytes <= most):
                self.append_batch(parts.pop())

    def append_together(self, batches: list[pa.RecordBatch]) -> None:
        """Append the rows of batches to one block. Needs the lock.

        Raises:
            RecordTooLargeError: They do not fit, though each row would.
        """
        batches = [batch for batch in batches if batch.num_rows]
        if not batches or self._put_together(batches):
            return
        runs = [run for batch in batches for run in self._runs(batch)]
        fitting = [batch for batch, fits in runs if fits]
        if stream_size(fitting) > self._room_for_batches():
            rows = sum(batch.num_rows for batch in batches)
            raise RecordTooLargeError(stream_size(batches), self.max_record_bytes, rows)
        for batch, fits in runs:
            if not fits:
                self._discard_row(batch)
        if fitting:
            self._put_together(fitting)

    def _runs(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Cut a batch into parts that fit into a block, and rows that do not."""
        if stream_size([batch]) <= self._room_for_batches():
            yield batch, True
        elif batch.num_rows == 1:
            small = compacted(batch)
            yield small, stream_size([small]) <= self._room_for_batches()
        else:
            half = batch.num_rows // 2
            yield from self._runs(compacted(batch.slice(0, half)))
            yield from self._runs(compacted(batch.slice(half)))

    def _room_for_batches(self) -> int:
        return self._block_store.options.block_max_bytes - HEADER_ROOM - DATA_START

    def _discard_row(self, batch: pa.RecordBatch) -> None:
        error = RecordTooLargeError(stream_size([batch]), self.max_record_bytes)
        self._discard_one(error, lambda: row_of(batch))

    def _put_batch(self, batch: pa.RecordBatch) -> bool:
        """Put a batch into the open block, or a new one; False if it does not fit into any."""
        while True:
            builder = self._block_for(BlockKind.ARROW, batch.schema)
            before = builder.size
            try:
                fits = builder.append_batch(batch)
            except ArenaError as error:
                self._wait_for_memory(error)
                continue
            if fits:
                self._count(batch.num_rows, builder.size - before)
                return True
            if not builder.num_records:
                return False
            self.seal()

    def _put_together(self, batches: list[pa.RecordBatch]) -> bool:
        """Put batches of one schema into one block; False if they do not fit into any."""
        # As the beginning of a stream they take the most: they bring schema and dictionaries.
        size = stream_size(batches)
        if size > self._room_for_batches():
            return False
        builder = self._block_for(BlockKind.ARROW, batches[0].schema)
        if builder.num_records and builder.size + size > self._room_for_batches():
            self.seal()
        for batch in batches:
            self._put_batch(batch)
        return True

    def _count(self, records: int, size: int) -> None:
        self.records += records
        self.bytes += size
        self._uncharged += size
        self._leave(records)

    def _block_for(self, kind: BlockKind, schema: pa.Schema | None = None) -> BlockBuilder:
        """Return an open block of a kind, sealing one of another."""
        builder = self._open
        if builder is not None and (builder.kind is not kind or builder.schema != schema):
            if builder.num_records:
                self.seal()
            else:
                builder.kind, builder.schema = kind, schema
        return self._open_block(kind, schema)

    def _open_block(self, kind: BlockKind, schema: pa.Schema | None = None) -> BlockBuilder:
        if self._open is None:
            with self.memory_waits:
                self._open = self._block_store.open_block(
                    kind, schema, give_up=self._give_up, on_full=self._tell_full
                )
            if self._is_short_of_memory and not self._block_store.memory_is_full:
                self._is_short_of_memory = False
                _log.info("there is memory for blocks again")
        return self._open

    def _wait_for_memory(self, error: ArenaError) -> None:
        """Make way for another block: the open one cannot grow, the memory file system is full."""
        self._tell_full(error)
        builder = self._open
        assert builder is not None
        if builder.num_records:
            self.seal()
            return
        if self._give_up():
            # Before it is gone, with the position and the acknowledgements that it may have.
            raise IllegalStateError(str(error)) from error
        # Its slot has no pages; the next one has, or is waited for.
        self._open = None
        self._block_store.discard(builder)
        opened = self._open_block(builder.kind, builder.schema)
        opened.position, opened.acknowledge = builder.position, builder.acknowledge

    def _tell_full(self, error: ArenaError) -> None:
        if not self._is_short_of_memory:
            self._is_short_of_memory = True
            self._tell("There is no memory for more blocks, so storing waits until there is", error)

    def mark(self, position: bytes | None, ack: Callable[[], None] | None) -> None:
        """Attach a position and an acknowledgement to the open block. Needs the lock."""
        builder = self._open
        if builder is None:
            # Nothing was added, or what was added is sealed already: a block without records
            # carries them.
            builder = self._open_block(BlockKind.BINARY)
        if position is not None:
            builder.position = merged(builder.position, position)
        if ack is not None:
            builder.acknowledge.append(ack)
        if builder.position is not None and len(builder.position) > _POSITION_BYTES:
            # Changes of a position add up: what goes into the ledger with a block stays small.
            self.seal()

    def seal(self) -> None:
        """Seal the open block, if there is anything in it, and pass it on. Needs the lock.

        Dead letters are written with a block: if there are new ones, it may have no records.
        """
        letters = self._letters
        if letters is not None and letters.added != self._sealed_letters:
            added, added_bytes = letters.added, letters.added_bytes
            self.mark(None, _nothing)
            # Only now: they are sealed with this block, or with the next one.
            self._sealed_letters, self._sealed_letter_bytes = added, added_bytes
        builder = self._open
        now_s = self._clock.monotonic_s()
        if builder is None or (
            builder.num_records == 0 and not builder.acknowledge and builder.position is None
        ):
            self._since_s = now_s
            return
        if self._next_id is None:
            self._next_id = self._block_id()
        sealed = builder.seal(self._next_id, now_s, self._since_s, self._clock.time_ms())
        # Only now: behind a number that no block has, the ledger takes no position any more.
        self._next_id = None
        self._open = None
        self._since_s = now_s
        self._sealed(sealed)
