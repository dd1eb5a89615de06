"""A batch's blocks as a DataFrame, handed over as Arrow batches without a Python row."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark import RDD
from pyspark.core.rdd import PipelinedRDD
from pyspark.serializers import CPickleSerializer

from penstock.blockstore.arrow_frames import map_in_arrow, plain_schema, to_plain, to_spark_schema
from penstock.blockstore.building.builder import BlockKind
from penstock.blockstore.reading._readahead import Readahead
from penstock.blockstore.reading.access import BlockAccess
from penstock.blockstore.reading.reader import Block, read_block_if_any
from penstock.errors import PenstockError
from penstock.wire.messages import ReceivedBlockInfo
from penstock.worker import begin_task

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

_ROWS_PER_BATCH = 32_768
_VALUE_SCHEMAS = {
    BlockKind.BINARY.value: pa.schema([("value", pa.binary())]),
    BlockKind.STRING.value: pa.schema([("value", pa.string())]),
    BlockKind.LINES.value: pa.schema([("value", pa.string())]),
    BlockKind.BYTE_LINES.value: pa.schema([("value", pa.binary())]),
}


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
        PenstockError: The blocks hold pickled objects, or differ in schema.
        UnsupportedColumnError: Spark has no type for a column.
    """
    # One without records carries a position or acknowledgements, and has no columns to speak of.
    blocks = [info for info in blocks if info.num_records]
    schema = plain_schema(_common_schema(blocks, schema))
    sql_schema = to_spark_schema(schema)
    if not blocks:
        return spark.createDataFrame([], sql_schema)
    # Each block is a partition: of a larger one that Spark reads in part only, as for `isEmpty`,
    # PySpark's worker prints a traceback.
    runs = _packed(spark.sparkContext, [(info, 0, 1) for info in blocks], 0)
    if len({host for info in blocks for host in info.hosts}) == 1:
        encoded = [data for data, _ in runs]
        numbers = spark.range(0, len(encoded), 1, len(encoded))
        return map_in_arrow(numbers, partial(_read_numbered, access, encoded, schema), sql_schema)
    placed = _placed(spark.sparkContext, runs).map(lambda data: (data,))
    frame = spark.createDataFrame(placed, "blocks binary")
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
        found = ", ".join(sorted({kind for kind, _ in kinds}))
        raise PenstockError(
            f"the batch's blocks are of the kinds {found} and have no common columns; declare a "
            "schema on the receiver, or store bytes, str or Arrow batches only"
        )
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
    for block in _blocks(access, data):
        for batch in block.batches():
            for start in range(0, batch.num_rows, _ROWS_PER_BATCH):
                yield to_plain(batch.slice(start, _ROWS_PER_BATCH), schema)


# The RDD over blocks: a partition is a block, or neighbours that are small and on one host, where
# it is placed.
#
# Its partitions hold metadata only; a task finds and reads its blocks. A task costs Spark about as
# much as the reading of some megabytes, so a batch of many small blocks has about as many tasks as
# run at a time (`pack`). `BlockRDD.count` asks each task for the number of records in the blocks
# that it mapped and verified, and makes no Python objects of them. Where no one sees the
# partitions, `BlockRDD.map_parts` cuts large blocks: a receiver whose source comes in bursts may
# have all of a batch in one block, and other cores nothing to do.

Part = tuple[ReceivedBlockInfo, int, int]
"""A block, which part of it, and of how many."""

_decoder = msgspec.msgpack.Decoder(list[Part])

_TASKS_OF_CORE = 4
"""Parts of a batch for each core; with several, few cores are idle while the last ones run."""
_LEAST_PART_BYTES = 1 << 20
"""Smaller parts are not worth a task of their own."""
_BLOCK_COSTS_BYTES = 4 << 10
"""To open a block takes a task about as long as to read this much more of it."""
_MOST_PARTS = 8
"""Parts of one block: each reads and checks all of it, and fetches all of it from another host."""


def pack(
    sizes: Sequence[int], hosts: Sequence[str | None], tasks: int, most_bytes: int
) -> list[slice]:
    """Divide what tasks read into runs for one task each: neighbours of one host.

    Args:
        sizes: The bytes of each block, or part of one.
        hosts: Where each is best read.
        tasks: About how many runs there are at least, if there is that much to read.
        most_bytes: About the size of a run, unless one block is larger; 0: each is a run.
    """
    if not most_bytes or len(sizes) <= tasks:
        return [slice(at, at + 1) for at in range(len(sizes))]
    costs = [size + _BLOCK_COSTS_BYTES for size in sizes]
    total = sum(costs)
    count = max(tasks, -(-sum(sizes) // most_bytes))
    starts: list[int] = []
    before = 0
    last: tuple[int, str | None] | None = None
    for at, (cost, host) in enumerate(zip(costs, hosts, strict=True)):
        run = ((2 * before + cost) * count // (2 * total), host)
        if run != last:
            starts.append(at)
        before += cost
        last = run
    return list(map(slice, starts, [*starts[1:], len(sizes)]))


def _packed(
    sc: SparkContext, parts: Sequence[Part], partition_bytes: int, tasks_of_core: int = 1
) -> list[tuple[bytes, list[str]]]:
    """Return parts of blocks as runs, encoded, each with the hosts that have all of it."""
    runs = [slice(at, at + 1) for at in range(len(parts))]
    if partition_bytes and len(parts) > 1:
        sizes = [info.num_bytes // count for info, _, count in parts]
        hosts = [next(iter(info.hosts), None) for info, _, _ in parts]
        runs = pack(sizes, hosts, tasks_of_core * sc.defaultParallelism, partition_bytes)
    return [(msgspec.msgpack.encode(parts[run]), _hosts_of(parts[run])) for run in runs]


def _hosts_of(run: Sequence[Part]) -> list[str]:
    others = [set(info.hosts) for info, _, _ in run[1:]]
    return [host for host in run[0][0].hosts if all(host in hosts for hosts in others)]


def _placed(sc: SparkContext, items: Sequence[tuple[bytes, Sequence[str]]]) -> RDD[bytes]:
    """Return an RDD of bytes, one partition for each, placed at the hosts named with them.

    Placement is asked for only where there is a choice: with all blocks on one host and in local
    mode it would cost a round trip to the JVM per block and change nothing.
    """
    encoded = [data for data, _ in items]
    hosts = {host for _, at in items for host in at}
    if not encoded:
        return sc.emptyRDD()
    if len(hosts) == 1 and str(sc.master).startswith("local"):
        return sc.parallelize(encoded, len(encoded))
    jvm = sc._jvm
    assert jvm is not None
    pairs = jvm.java.util.ArrayList()
    for data, at in items:
        places = jvm.java.util.ArrayList()
        for host in at:
            places.add(host)
        pairs.add(jvm.scala.Tuple2(bytearray(pickle.dumps(data)), _to_scala(jvm, places)))
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
    placed = sc._jsc.sc().makeRDD(_to_scala(jvm, pairs), tag)
    return RDD(placed.toJavaRDD(), sc, CPickleSerializer())


def _to_scala(jvm: Any, values: Any) -> Any:
    return jvm.scala.jdk.javaapi.CollectionConverters.asScala(values).toSeq()


class _NotPlaced:
    """What a `BlockRDD` is made of, before the JVM knows of it."""

    _jrdd = _jrdd_deserializer = partitioner = None

    def __init__(self, sc: SparkContext) -> None:
        self.ctx = sc

    def _is_barrier(self) -> bool:
        return False


class BlockRDD(PipelinedRDD[bytes, Any]):
    """The records of a batch's blocks, in the blocks' order.

    The JVM hears of it when it is used: of a thousand that are united it never does.

    Args:
        sc: The Spark context.
        blocks: The blocks, in order; none gives an RDD without partitions.
        access: How tasks reach blocks of other hosts.
        partition_bytes: Small neighbours share a partition of at most that many bytes, as long as
            there are as many partitions as tasks run at a time; 0: none does.
    """

    def __init__(
        self,
        sc: SparkContext,
        blocks: Sequence[ReceivedBlockInfo],
        access: BlockAccess,
        partition_bytes: int = 0,
    ) -> None:
        self.blocks = tuple(blocks)
        self.access = access
        self._partition_bytes = partition_bytes
        not_placed: Any = _NotPlaced(sc)
        super().__init__(not_placed, partial(_records, access))

    @functools.cached_property
    def _infos(self) -> RDD[bytes]:
        parts = [(info, 0, 1) for info in self.blocks]
        return _placed(self.ctx, _packed(self.ctx, parts, self._partition_bytes))

    @property
    def _prev_jrdd(self) -> Any:
        return self._infos._jrdd

    @_prev_jrdd.setter
    def _prev_jrdd(self, value: Any) -> None:
        """Leave it to `_infos`."""

    @property
    def _prev_jrdd_deserializer(self) -> Any:
        return self._infos._jrdd_deserializer

    @_prev_jrdd_deserializer.setter
    def _prev_jrdd_deserializer(self, value: Any) -> None:
        """Leave it to `_infos`."""

    @staticmethod
    def united(rdds: Sequence[RDD[Any]]) -> BlockRDD | None:
        """Return one RDD of the blocks of several, in their order; None: some are not of blocks."""
        blocks: list[ReceivedBlockInfo] = []
        for rdd in rdds:
            if not (isinstance(rdd, BlockRDD) and rdd.lies_in_blocks):
                return None
            blocks += rdd.blocks
        first = rdds[0]
        assert isinstance(first, BlockRDD)
        return BlockRDD(first.ctx, blocks, first.access, first._partition_bytes)

    @property
    def lies_in_blocks(self) -> bool:
        """Whether its records are read from the blocks, and not from where Spark keeps them."""
        return not (self.is_cached or self.is_checkpointed)

    def count(self) -> int:
        """Return the number of records; each task opens and verifies its blocks."""
        if not self.lies_in_blocks:
            return super().count()
        return sum(self._infos.mapPartitions(partial(_counts, self.access)).collect())

    def map_parts(self, func: Callable[[Block], Iterator[Any]]) -> RDD[Any]:
        """Return an RDD of what `func` makes of each block; the block is valid meanwhile.

        Large blocks come in parts, in their order, so that all cores have something to do.
        """
        counts = self._part_counts()
        if all(count == 1 for count in counts):
            return self._infos.mapPartitions(partial(_mapped, self.access, func))
        return self._map_cut(func, counts)

    def by_block(self) -> RDD[Any]:
        """Return an RDD of the same records with one partition per block."""
        if not self.lies_in_blocks or self.getNumPartitions() == len(self.blocks):
            return self
        return BlockRDD(self.ctx, self.blocks, self.access)

    def in_parts(self) -> RDD[Any]:
        """Return an RDD of the same records in the same order, in more partitions if there are few.

        It is for what does not see how records are divided.
        """
        counts = self._part_counts() if self.lies_in_blocks else []
        if all(count == 1 for count in counts):
            return self
        return self._map_cut(Block.records, counts)

    def _map_cut(self, func: Callable[[Block], Iterator[Any]], counts: Sequence[int]) -> RDD[Any]:
        parts = [
            (info, number, count)
            for info, count in zip(self.blocks, counts, strict=True)
            for number in range(count)
        ]
        packed = _packed(self.ctx, parts, self._partition_bytes, _TASKS_OF_CORE)
        return _placed(self.ctx, packed).mapPartitions(partial(_mapped, self.access, func))

    def _part_counts(self) -> list[int]:
        """Return into how many parts each block is cut.

        A block that may be left out is left out whole.
        """
        total = sum(info.num_bytes for info in self.blocks)
        if self.access.skip_after is not None or total < 2 * _LEAST_PART_BYTES:
            return [1] * len(self.blocks)
        size = max(_LEAST_PART_BYTES, total // (_TASKS_OF_CORE * self.ctx.defaultParallelism))
        return [
            1
            if info.kind == BlockKind.ARROW.value
            else min(_MOST_PARTS, max(1, round(info.num_bytes / size)))
            for info in self.blocks
        ]


# What runs in tasks stands at the top of the module, so that a task's closure holds its name only.


def _records(access: BlockAccess, _: int, encoded: Iterable[bytes]) -> Iterator[Any]:
    # The generators are resumed once per block and chunk, not once per record.
    chunks = (chunk for block in _opened(access, encoded) for chunk in block.chunks())
    return chain.from_iterable(chunks)


def _counts(access: BlockAccess, encoded: Iterable[bytes]) -> Iterator[int]:
    return (block.num_records for block in _opened(access, encoded))


def _mapped(
    access: BlockAccess, func: Callable[[Block], Iterator[Any]], encoded: Iterable[bytes]
) -> Iterator[Any]:
    return chain.from_iterable(map(func, _opened(access, encoded)))


def _opened(access: BlockAccess, encoded: Iterable[bytes]) -> Iterator[Block]:
    """Yield each block, or part of one; it is valid until the next one is asked for."""
    begin_task()
    for data in encoded:
        yield from _blocks(access, data)


def _blocks(access: BlockAccess, data: bytes) -> Iterator[Block]:
    parts = _decoder.decode(data)
    ahead = Readahead([info for info, _, _ in parts])
    for info, number, count in parts:
        with read_block_if_any(info, access, ahead) as block:
            if block is not None:
                yield block if count == 1 else block.part(number, count)
