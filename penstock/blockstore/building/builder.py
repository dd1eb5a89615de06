"""Building a block in place: chunks of records go in, a sealed payload comes out.

A `BlockBuilder` owns one reserved slot. The data of binary columns are appended as they come and
the offsets are kept as lengths until `seal`, which writes them behind the data. Lines are appended
with their ends and have no offsets: their reader cuts them. An ``arrow`` block is an IPC stream
written straight into the slot. No record is touched by a Python loop.

An append happens as a whole or not at all (I11): what counts as the block's contents changes after
everything that can fail. How much an Arrow batch takes is known to Arrow's writer alone (schema,
dictionaries that changed, padding), so a batch is written, and if it met the end of the slot, what
was written of it is no part of the block.

Not thread-safe: the block generator's lock guards the builder.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.blockstore.building.kept_values import check_cast, check_kept, check_made
from penstock.blockstore.building.memory import Slot
from penstock.blockstore.building.record_pickles import definitions

HEADER_ROOM = 64
"""Bytes that the log's record header takes before the payload."""
DESCRIPTOR = struct.Struct("<4sHHIIQQQQQ8x")
"""magic, kind, flags, reserved, length of the definitions, records, data offset, data length,
offsets' offset, when it was sealed in ms since the epoch (0: a release before this did not say)."""
MAGIC = b"PBK1"
DATA_START = 64
MAX_DATA = (1 << 31) - 1
"""Arrow's int32 offsets reach no further."""
_MANY = 1 << 20
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
"""Ends an Arrow IPC stream."""


class BlockKind(enum.Enum):
    """How a block's records are laid out; the value is what travels in `ReceivedBlockInfo.kind`."""

    BINARY = "binary"
    STRING = "string"
    PICKLED = "pickled"
    ARROW = "arrow"
    LINES = "lines"
    """Lines of text as they came, each with its LF; without offsets."""
    BYTE_LINES = "byte-lines"
    """The same for lines that are ``bytes``."""


KIND_CODES = {kind: code for code, kind in enumerate(BlockKind, start=1)}
WITHOUT_OFFSETS = frozenset({BlockKind.ARROW, BlockKind.LINES, BlockKind.BYTE_LINES})


@dataclass(frozen=True)
class SealedBlock:
    """A block that takes no more records and waits to be stored.

    Attributes:
        block_id: ``input-<streamId>-<n>``.
        slot: Holds header room and payload.
        payload_length: Bytes of the payload.
        num_records: Records in it.
        kind: How they are laid out.
        schema: The Arrow schema of an ``arrow`` block.
        position: MessagePack of the source position after the last record, or None.
        acknowledge: Called once after the block is durable (I1), in order.
        sealed_at_s: Monotonic time of sealing.
        since_s: Monotonic time at which its first record came at the earliest.
    """

    block_id: str
    slot: Slot
    payload_length: int
    num_records: int
    kind: BlockKind
    schema: pa.Schema | None
    position: bytes | None
    acknowledge: tuple[Callable[[], None], ...]
    sealed_at_s: float = field(compare=False, default=0.0)
    since_s: float = field(compare=False, default=0.0)


class BlockBuilder:
    """An open block.

    Args:
        slot: A reserved slot; all of it may be used.
        kind: How the records are laid out; fixed for the block's life.
        schema: The schema, for `BlockKind.ARROW`.
    """

    def __init__(self, slot: Slot, kind: BlockKind, schema: pa.Schema | None = None) -> None:
        self.slot = slot
        self.kind = kind
        self.schema = schema
        self.num_records = 0
        self.position: bytes | None = None
        self.acknowledge: list[Callable[[], None]] = []
        self._payload = slot.view[HEADER_ROOM:]
        self._end = DATA_START
        self._lengths: list[npt.NDArray[np.int32]] = []
        self._definitions = b""
        self._counted: bytes | None = None
        self._sink: pa.FixedSizeBufferWriter | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None
        self._takes_batches = True

    @property
    def size(self) -> int:
        """Bytes of the records so far."""
        return self._end - DATA_START

    def room(self, records: int) -> int:
        """Return the bytes that that many more records may have; not for `BlockKind.ARROW`.

        Of pickles it is asked when the records have been pickled: what defines their classes is
        counted here, and what other threads define from then on is not theirs.
        """
        if self.kind in WITHOUT_OFFSETS:
            return len(self._payload) - self._end
        end = min(len(self._payload), MAX_DATA)
        if self.kind is BlockKind.PICKLED:
            self._counted = definitions()
            end -= len(self._counted)
        return end - self._end - 4 * (self.num_records + records + 1) - 64

    def append(self, data: bytes | memoryview, lengths: npt.NDArray[np.int32]) -> None:
        """Append records that follow each other.

        Args:
            data: Their bytes.
            lengths: int32, one per record; they add up to ``len(data)``.

        Raises:
            ArenaError: The memory file system is full; the block is as before.
        """
        end = self._end + len(data)
        defined = b""
        if self.kind is BlockKind.PICKLED:
            defined = definitions() if self._counted is None else self._counted
            self._counted = None
        # Also room for what comes behind the data, so that sealing never needs memory.
        behind = 4 * (self.num_records + len(lengths) + 1) + 64 + len(defined)
        self.slot.grow_to(HEADER_ROOM + end + behind)
        _copy(data, self._payload[self._end : end])
        self._end = end
        self._definitions = defined
        self._lengths.append(lengths)
        self.num_records += len(lengths)

    def append_lines(self, data: bytes | memoryview, count: int) -> None:
        """Append lines to a block of lines.

        Args:
            data: Their bytes, each line with its LF.
            count: How many.

        Raises:
            ArenaError: The memory file system is full; the block is as before.
        """
        end = self._end + len(data)
        self.slot.grow_to(HEADER_ROOM + end)
        _copy(data, self._payload[self._end : end])
        self._end = end
        self.num_records += count

    def append_batch(self, batch: pa.RecordBatch) -> bool:
        """Append a record batch of the block's schema.

        Returns:
            False when it does not fit. An empty block can then be tried with another batch; one
            that has records takes no more and is to be sealed.

        Raises:
            ArenaError: The memory file system is full; the block is as before.
            pa.ArrowException: Arrow cannot write the batch; it left nothing, as if it did not fit.
        """
        if not self._takes_batches:
            return False
        if not self.num_records:
            self.slot.grow_to(HEADER_ROOM + len(self._payload))
            room = self._payload[DATA_START : len(self._payload) - len(_END_OF_STREAM)]
            self._sink, self._writer = pa.FixedSizeBufferWriter(pa.py_buffer(room)), None
        assert self._sink is not None
        fits = False
        try:
            if self._writer is None:
                self._writer = pa.ipc.new_stream(self._sink, batch.schema)
            self._writer.write_batch(batch)
            fits = True
        except OSError:
            # The end of the slot: nothing else is in the way of writing to memory.
            return False
        finally:
            # A writer keeps in mind which dictionaries it has written: one that failed is not used
            # again.
            self._takes_batches = fits or not self.num_records
        self._end = DATA_START + self._sink.tell()
        self.num_records += batch.num_rows
        return True

    def seal(
        self, block_id: str, now_s: float, since_s: float = 0.0, time_ms: int = 0
    ) -> SealedBlock:
        """Write offsets and descriptor; the builder takes no more records.

        Args:
            block_id: The block's id.
            now_s: Monotonic time.
            since_s: Monotonic time at which its first record came at the earliest.
            time_ms: Wall time, for reading the log again.

        Raises:
            ArenaError: The memory file system is full; the builder can be sealed later.
        """
        if not self.num_records:
            # Whatever kind was tried: it carries a position or an acknowledgement only.
            self.kind, self.schema = BlockKind.BINARY, None
            self._end = DATA_START
        data_length = self._end - DATA_START
        offsets_at = 0
        definitions_length = 0
        if self.kind is BlockKind.ARROW:
            payload_length = self._end + len(_END_OF_STREAM)
            self._payload[self._end : payload_length] = _END_OF_STREAM
            data_length += len(_END_OF_STREAM)
        elif self.kind in WITHOUT_OFFSETS:
            payload_length = self._end
        else:
            offsets_at = -(-self._end // 64) * 64
            offsets_end = offsets_at + 4 * (self.num_records + 1)
            if self.kind is BlockKind.PICKLED:
                definitions_length = len(self._definitions)
            payload_length = offsets_end + definitions_length
            self.slot.grow_to(HEADER_ROOM + payload_length)  # an empty block has no pages yet
            offsets = np.frombuffer(
                self._payload, dtype=np.int32, count=self.num_records + 1, offset=offsets_at
            )
            offsets[0] = 0
            if self._lengths:
                np.cumsum(np.concatenate(self._lengths), out=offsets[1:])
            self._payload[offsets_end:payload_length] = self._definitions[:definitions_length]
        DESCRIPTOR.pack_into(
            self._payload,
            0,
            MAGIC,
            KIND_CODES[self.kind],
            0,
            0,
            definitions_length,
            self.num_records,
            DATA_START,
            data_length,
            offsets_at,
            max(0, time_ms),
        )
        self.slot.trim(HEADER_ROOM + payload_length)
        return SealedBlock(
            block_id=block_id,
            slot=self.slot,
            payload_length=payload_length,
            num_records=self.num_records,
            kind=self.kind,
            schema=self.schema,
            position=self.position,
            acknowledge=tuple(self.acknowledge),
            sealed_at_s=now_s,
            since_s=since_s,
        )


def _copy(data: bytes | memoryview, to: memoryview) -> None:
    """Copy bytes; many of them without the interpreter's lock, for which an event loop may wait."""
    if len(data) < _MANY:
        to[:] = data
    else:
        np.copyto(np.frombuffer(to, np.uint8), np.frombuffer(data, np.uint8))


def lengths_of(records: Sequence[bytes] | Sequence[str]) -> npt.NDArray[np.int32]:
    """Return the lengths of records as int32, at C speed."""
    return np.fromiter(map(len, records), dtype=np.int32, count=len(records))


def join_binary(records: Sequence[bytes]) -> tuple[bytes, npt.NDArray[np.int32]]:
    """Join ``bytes`` records for `BlockBuilder.append`.

    Raises:
        TypeError: A record is not bytes-like.
    """
    return b"".join(records), lengths_of(records)


def join_text(records: Sequence[str]) -> tuple[bytes, npt.NDArray[np.int32]]:
    """Join ``str`` records as UTF-8 for `BlockBuilder.append`.

    Raises:
        TypeError: A record is not a string.
        UnicodeEncodeError: A record has a lone surrogate, which UTF-8 cannot hold.
    """
    joined = "".join(records)
    if joined.isascii():
        return joined.encode("ascii"), lengths_of(records)
    return join_binary(list(map(str.encode, records)))


def rows_to_batch(records: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Convert rows to a record batch of a declared schema.

    Args:
        records: ``dict``, ``Row``, dataclass instances, tuples in the order of the columns, or,
            for a schema of one column, plain values.
        schema: The columns.

    Raises:
        ArrowInvalid, TypeError, ValueError: A record does not fit.
    """
    first = type(records[0])
    if first is not dict or set(map(type, records)) != {dict}:
        records = [_as_dict(record, schema) for record in records]
    _check_names(set().union(*records), schema)
    columns = [_column_of(records, wanted) for wanted in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    _check_nulls(batch)
    return batch


def batch_to_schema(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Convert a record batch to the columns of a declared schema; what it lacks is null.

    Raises:
        ArrowException, ValueError: A row does not fit.
    """
    if not batch.schema.equals(schema):
        names = batch.schema.names
        _check_names(set(names), schema)
        columns = [
            batch.column(field.name) if field.name in names else pa.nulls(batch.num_rows)
            for field in schema
        ]
        converted = [
            _converted(column, field) for column, field in zip(columns, schema, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(converted, schema=schema)
    _check_nulls(batch)
    return batch


def _check_names(names: set[str], schema: pa.Schema) -> None:
    unknown = names - set(schema.names)
    if unknown:
        raise ValueError(f"no column of the schema is named {', '.join(sorted(map(str, unknown)))}")


def _column_of(records: Sequence[dict[str, Any]], wanted: pa.Field) -> pa.Array:
    values = [record.get(wanted.name) for record in records]
    try:
        check_kept(values, wanted.type, is_declared=True)
        return pa.array(values, wanted.type)
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(f"column {wanted.name} ({wanted.type}): {error}") from error


def _converted(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        check_cast(column.type, field.type)
        made = column.cast(field.type)
        check_made(column, made)
        return made
    except (pa.ArrowException, TypeError) as error:
        raise ValueError(f"column {field.name} ({field.type}): {error}") from error


def _check_nulls(batch: pa.RecordBatch) -> None:
    """Arrow does not look whether a column that is declared without nulls has some."""
    for declared, column in zip(batch.schema, batch.columns, strict=True):
        if not declared.nullable and column.null_count:
            raise ValueError(f"column {declared.name} must not be null")


def _as_dict(record: Any, schema: pa.Schema) -> dict[str, Any]:
    if isinstance(record, dict):
        return record
    if hasattr(record, "asDict"):
        return dict(record.asDict(recursive=True))
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return dataclasses.asdict(record)
    if isinstance(record, tuple):
        if len(record) != len(schema):
            values = f"a tuple of {len(record)}"
            raise ValueError(f"{values} is no row of the schema's {len(schema)} columns")
        return dict(zip(schema.names, record, strict=True))
    if len(schema) == 1:
        return {schema.names[0]: record}
    found = type(record).__name__
    raise TypeError(f"{found!r} is no row of the schema's {len(schema)} columns")
