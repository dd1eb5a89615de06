"""A batch's blocks as a DataFrame, handed over as Arrow batches without a Python row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa

from penstock.blockstore.arrow_frames import map_in_arrow, plain_schema, to_plain, to_spark_schema
from penstock.blockstore.builder import BlockKind
from penstock.blockstore.rdd import block_infos
from penstock.blockstore.reader import Block, BlockAccess, read_block_if_any
from penstock.errors import PenstockError
from penstock.wire.messages import ReceivedBlockInfo
from penstock.worker import begin_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS_PER_BATCH = 32_768
_VALUE_SCHEMAS = {
    BlockKind.BINARY.value: pa.schema([("value", pa.binary())]),
    BlockKind.STRING.value: pa.schema([("value", pa.string())]),
    BlockKind.LINES.value: pa.schema([("value", pa.string())]),
    BlockKind.BYTE_LINES.value: pa.schema([("value", pa.binary())]),
}


class NoSchemaError(PenstockError):
    """The records of a batch have no common Arrow schema, so they make no DataFrame.

    Attributes:
        found: The kinds of blocks that were found.
    """

    def __init__(self, found: tuple[str, ...]) -> None:
        super().__init__(
            f"the batch's blocks are of the kinds {', '.join(found)} and have no common columns; "
            "declare a schema on the receiver, or store bytes, str or Arrow batches only"
        )
        self.found = found


def blocks_to_dataframe(
    spark: SparkSession,
    blocks: Sequence[ReceivedBlockInfo],
    access: BlockAccess,
    schema: pa.Schema | None = None,
) -> DataFrame:
    """Return the records of blocks as a DataFrame.

    Args:
        spark: The session.
        blocks: The blocks of a batch, in order.
        access: How tasks reach blocks of other hosts.
        schema: The schema of the stream, for a batch without records; without it such a batch
            has one string column ``value``.

    Returns:
        A DataFrame with the columns of the stored Arrow batches; blocks of ``bytes`` or ``str``
        have one column ``value`` (binary or string). Each read of it reads the blocks again.

    Raises:
        NoSchemaError: The blocks hold pickled objects, or differ in schema.
        UnsupportedColumnError: Spark has no type for a column.
    """
    # One without records carries a position or acknowledgements, and has no columns to speak of.
    blocks = [info for info in blocks if info.num_records]
    schema = plain_schema(_common_schema(blocks, schema))
    sql_schema = to_spark_schema(schema)
    if not blocks:
        return spark.createDataFrame([], sql_schema)
    if len({host for info in blocks for host in info.hosts}) == 1:
        encoded = [msgspec.msgpack.encode(info) for info in blocks]
        numbers = spark.range(0, len(blocks), 1, len(blocks))
        return map_in_arrow(numbers, partial(_read_numbered, access, encoded, schema), sql_schema)
    placed = block_infos(spark.sparkContext, blocks).map(lambda data: (data,))
    frame = spark.createDataFrame(placed, "block binary")
    return map_in_arrow(frame, partial(_read_encoded, access, schema), sql_schema)


def _read_numbered(
    access: BlockAccess,
    encoded: Sequence[bytes],
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    begin_task()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from _read(encoded[number], access, schema)


def _read_encoded(
    access: BlockAccess, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    begin_task()
    for batch in batches:
        for data in batch.column(0).to_pylist():
            yield from _read(data, access, schema)


def _common_schema(blocks: Sequence[ReceivedBlockInfo], declared: pa.Schema | None) -> pa.Schema:
    kinds = {(info.kind, info.schema) for info in blocks}
    if not kinds:
        return declared or _VALUE_SCHEMAS[BlockKind.STRING.value]
    schemas = {block_schema(kind, serialized) for kind, serialized in kinds}
    if len(schemas) > 1 or None in schemas:
        raise NoSchemaError(tuple(sorted({kind for kind, _ in kinds})))
    return schemas.pop()


def block_schema(kind: str, serialized: bytes | None) -> pa.Schema | None:
    """Return the columns of a block; None for pickled objects, which have none.

    Args:
        kind: Its kind.
        serialized: The schema of an ``arrow`` block, serialised.
    """
    if serialized is not None:
        return pa.ipc.read_schema(pa.py_buffer(serialized))
    return _VALUE_SCHEMAS.get(kind)


def columns_of(block: Block) -> pa.Schema | None:
    """Return the columns of a block that was read; None for pickled objects, which have none."""
    if block.kind is BlockKind.ARROW:
        with pa.ipc.open_stream(pa.py_buffer(block.data)) as stream:
            return stream.schema
    return block_schema(block.kind.value, None)


def _read(data: bytes, access: BlockAccess, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    info = msgspec.msgpack.decode(data, type=ReceivedBlockInfo)
    with read_block_if_any(info, access) as block:
        for batch in block.batches() if block is not None else ():
            for start in range(0, batch.num_rows, _ROWS_PER_BATCH):
                yield to_plain(batch.slice(start, _ROWS_PER_BATCH), schema)
