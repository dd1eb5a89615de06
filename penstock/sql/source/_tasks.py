"""What a task does: read its blocks as Arrow batches of the query's columns."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from penstock.blockstore import (
    Block,
    BlockAccess,
    BlockNotFoundError,
    block_schema,
    read_block,
    read_block_if_any,
)
from penstock.blockstore.arrow_frames import plain_column, to_arrow_schema
from penstock.position_changes import decoded_position, position_as_json
from penstock.runtime.clock import YEARS_S
from penstock.sql.errors import SourceError
from penstock.sql.source._options import SourceOptions
from penstock.wire.messages import ReceivedBlockInfo
from penstock.worker import begin_task

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_SMALL_BYTES = 1 << 20
"""Less than this is not worth another task."""

_LARGE_BYTES = 64 << 20
"""About as much as one task should read."""

_ROWS_PER_BATCH = 32_768

_MERGED_BYTES = 1 << 20
"""Small batches are sent to Spark as one of this size: each costs it about as much."""

_MOST_OPEN = 64
"""Small blocks that are open at a time."""

_WATERMARK = "_watermark"

_decoder = msgspec.msgpack.Decoder(ReceivedBlockInfo)


class BlocksPartition(InputPartition):
    """Neighbouring blocks of a stream.

    Attributes:
        blocks: Their metadata, encoded.
        places: Their places.
        added_ms: When each was added, ms since the epoch.
        servers: The block servers by host.
        names: Of the streams by their ids, where blocks of several are read.
    """

    def __init__(
        self,
        blocks: tuple[bytes, ...],
        places: tuple[int, ...],
        added_ms: tuple[int, ...],
        servers: dict[str, tuple[str, int]],
        names: Mapping[int, str],
    ) -> None:
        super().__init__(None)
        self.blocks = blocks
        self.places = places
        self.added_ms = added_ms
        self.servers = servers
        self.names = names


class ReadsInTasks:
    """A reader that is pickled into the tasks of a query.

    A task begins where its reader is unpickled. In `read` it would be too late: the worker reads
    the partition before that, and that is what the JVM holds back (see `penstock.worker`).
    """

    def __setstate__(self, state: dict[str, Any]) -> None:
        begin_task()
        self.__dict__.update(state)


def packed(
    blocks: Sequence[ReceivedBlockInfo],
    places: Sequence[int],
    added_ms: Sequence[int],
    servers: dict[str, tuple[str, int]],
    *,
    min_partitions: int,
    parallelism: int,
    names: Mapping[int, str] = MappingProxyType({}),
) -> list[BlocksPartition]:
    """Return blocks in order as partitions of about the same number of bytes.

    A batch of many small blocks has few tasks, and their time grows with the bytes.

    Args:
        blocks: The blocks.
        places: Their places.
        added_ms: When each was added.
        servers: The block servers by host.
        min_partitions: At least that many, if there are as many blocks.
        parallelism: How many tasks run at a time.
        names: Of the streams by their ids, where there are several.
    """
    total = sum(block.num_bytes for block in blocks)
    wanted = min(parallelism, -(-total // _SMALL_BYTES))
    wanted = max(wanted, -(-total // _LARGE_BYTES), min_partitions, 1)
    count = min(wanted, len(blocks))
    ends: list[int] = []
    size = 0
    for at, block in enumerate(blocks):
        size += block.num_bytes
        left = count - len(ends) - 1
        is_full = size * count >= total * (len(ends) + 1)
        if left and (is_full or len(blocks) - at - 1 == left):
            ends.append(at + 1)
    if blocks and (not ends or ends[-1] < len(blocks)):
        ends.append(len(blocks))
    return [
        BlocksPartition(
            tuple(msgspec.msgpack.encode(block) for block in blocks[start:end]),
            tuple(places[start:end]),
            tuple(added_ms[start:end]),
            servers,
            dict(names),
        )
        for start, end in pairwise([0, *ends])
    ]


def read_partition(
    partition: BlocksPartition,
    access: BlockAccess,
    options: SourceOptions,
    schema: StructType,
    check_place: Callable[[int], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a partition, in the order of its blocks.

    Args:
        partition: The partition.
        access: What reaches its blocks.
        options: The query's.
        schema: Its columns.
        check_place: Is called with the place of a block that no host has, and raises if it knows
            why.

    Raises:
        SourceError: No host has one of them, where that is an error.
        SourceError: Its columns are not the query's.
    """
    access = replace(access, servers=partition.servers)
    wanted = to_arrow_schema(schema)
    data = pa.schema(list(wanted)[: len(wanted) - len(options.metadata)])
    facts = zip(partition.blocks, partition.places, partition.added_ms, strict=True)
    with _Merged() as merged:
        for encoded, place, added_ms in facts:
            info = _decoder.decode(encoded)
            if partition.names:
                options = replace(options, stream=partition.names[info.stream_id])
            if not info.num_records:
                continue  # It carries a position or acknowledgements, and has no columns.
            if block_schema(info.kind, info.schema) is None:
                raise SourceError(
                    f"block {info.block_id} of stream {options.stream!r} holds pickled objects, "
                    "which have no columns: declare a schema on the receiver"
                )
            watermark_us = _watermark_us(info, options) if _WATERMARK in options.metadata else None
            opened = _opened(info, place, access, options, check_place)
            block = merged.open(opened, info.num_bytes)
            for batch in block.batches() if block is not None else ():
                try:
                    plain = _with_columns(batch, data)
                except (KeyError, pa.ArrowException) as error:
                    raise SourceError(
                        f"block {info.block_id} of stream {options.stream!r} has other columns "
                        f"than the query ({error}): it was stored with another schema. Load the "
                        "stream again, or keep columns by name and type; or begin behind it, "
                        f"which has the place {place}, with another checkpointLocation"
                    ) from error
                values = {
                    "_stream": options.stream,
                    "_place": place,
                    "_received_at": added_ms * 1000,
                    "_position": _position(info),
                    _WATERMARK: watermark_us,
                }
                for part in _slices(plain, wanted, [values[name] for name in options.metadata]):
                    yield from merged.add(part)
            yield from merged.end_block()
        yield from merged.flush()


class _Merged:
    """Makes one batch of neighbouring small ones, whose blocks stay open meanwhile.

    What it yields is valid until the next batch is asked for.
    """

    def __init__(self) -> None:
        self._blocks = contextlib.ExitStack()
        self._count = self._open_bytes = 0
        self._batches: list[pa.RecordBatch] = []
        self._rows = self._size_bytes = 0

    def __enter__(self) -> _Merged:
        return self

    def __exit__(self, *_: object) -> None:
        self._blocks.close()

    def open(
        self, block: contextlib.AbstractContextManager[Block | None], num_bytes: int
    ) -> Block | None:
        """Open a block until its batches have been yielded."""
        self._count += 1
        self._open_bytes += num_bytes
        return self._blocks.enter_context(block)

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield what there is, if this batch finds no room beside it."""
        rows, size_bytes = self._rows + batch.num_rows, self._size_bytes + batch.nbytes
        if self._batches and (rows > _ROWS_PER_BATCH or size_bytes > _MERGED_BYTES):
            yield self._take()
            rows, size_bytes = batch.num_rows, batch.nbytes
        self._batches.append(batch)
        self._rows, self._size_bytes = rows, size_bytes

    def end_block(self) -> Iterator[pa.RecordBatch]:
        """Yield what there is, if enough is open; the last block is read to its end."""
        if self._open_bytes >= _MERGED_BYTES or self._count >= _MOST_OPEN:
            yield from self.flush()

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield what there is, and close the blocks."""
        if self._batches:
            yield self._take()
        self._blocks.close()
        self._count = self._open_bytes = 0

    def _take(self) -> pa.RecordBatch:
        batches, self._batches = self._batches, []
        self._rows = self._size_bytes = 0
        if len(batches) == 1:
            return batches[0]
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


@contextlib.contextmanager
def _opened(
    info: ReceivedBlockInfo,
    place: int,
    access: BlockAccess,
    options: SourceOptions,
    check_place: Callable[[int], None] | None,
) -> Iterator[Block | None]:
    read = read_block if options.fails_on_loss else read_block_if_any
    with contextlib.ExitStack() as stack:
        try:
            block = stack.enter_context(read(info, access))
        except BlockNotFoundError as error:
            if check_place is not None:
                check_place(place)
            raise SourceError(
                f"place {place} of stream {options.stream!r} is lost: {error}. Its host may come "
                'back; with option("failOnDataLoss", "false") the query goes on without it'
            ) from error
        yield block


def _slices(
    batch: pa.RecordBatch, wanted: pa.Schema, values: Sequence[Any]
) -> Iterator[pa.RecordBatch]:
    fields = list(wanted)[batch.num_columns :]
    for start in range(0, batch.num_rows, _ROWS_PER_BATCH):
        part = batch.slice(start, _ROWS_PER_BATCH)
        if not fields:
            yield part
            continue
        added = [
            pa.repeat(pa.scalar(value, pa.int64()).cast(field.type), part.num_rows)
            if pa.types.is_timestamp(field.type)
            else pa.repeat(pa.scalar(value, field.type), part.num_rows)
            for field, value in zip(fields, values, strict=True)
        ]
        yield pa.RecordBatch.from_arrays([*part.columns, *added], schema=wanted)


def _with_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with exactly this schema; its columns are found by name.

    Raises:
        KeyError: A column is missing.
        pyarrow.ArrowException: A value does not fit its type.
    """
    if batch.schema.equals(schema):
        return batch
    columns = [plain_column(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _watermark_us(info: ReceivedBlockInfo, options: SourceOptions) -> int | None:
    """Return the watermark that a block's position states, us since the epoch, or None.

    Raises:
        SourceError: It is no time.
    """
    position = None if info.position is None else decoded_position(info.position)
    stated = position.get("watermark") if isinstance(position, dict) else None
    if stated is None:
        return None
    if type(stated) is int and stated // 1000 in YEARS_S:
        return stated * 1000
    raise SourceError(
        f"the position of block {info.block_id} of stream {options.stream!r} states the watermark "
        f"{stated!r:.100}, which is none: it is a whole number, in milliseconds since the epoch. "
        "Without the metadata column _watermark no one asks for it"
    )


def _position(info: ReceivedBlockInfo) -> str | None:
    return None if info.position is None else position_as_json(info.position)
