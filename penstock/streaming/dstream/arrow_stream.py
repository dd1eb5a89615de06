"""`ArrowStream`: the records of a stream as Arrow record batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import RDD

from penstock._arguments import refused
from penstock.streaming.dstream.arity import check_arguments
from penstock.streaming.dstream.derived_streams import NarrowDStream, ShuffledDStream
from penstock.streaming.dstream.node import DStreamNode
from penstock.streaming.dstream.stream_handle import partitions_of
from penstock.streaming.kernels.arrow import (
    VALUE,
    CountValues,
    MapBatches,
    SplitColumn,
    SumValues,
    batches_of,
    count_parts,
    records_of,
    split_records,
)
from penstock.streaming.kernels.combine import ADDITION, EXACT_ADDITION, Combiner
from penstock.streaming.kernels.fusion import PartitionOperation

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext
    from penstock.streaming.dstream.dstream import DStream


class ArrowDStream(DStreamNode):
    """The records of another node as record batches, these as they are split, or their counts."""

    is_counted = False
    """Graphs in older checkpoints do not have this."""

    def __init__(
        self, parent: DStreamNode, split: SplitColumn | None = None, *, is_counted: bool = False
    ) -> None:
        super().__init__(parent.graph, (parent,), parent.slide_ms)
        self.parent = parent
        self.split = split
        self.is_counted = is_counted

    def compute(self, time_ms: int) -> RDD[Any] | None:
        rdd = self.parent.get_or_compute(time_ms)
        if rdd is None:
            return None
        if self.split is None:
            return batches_of(rdd)
        return (count_parts if self.is_counted else split_records)(rdd, self.split)


class ArrowStream:
    """The records of a stream as Arrow record batches, from `DStream.arrow`.

    Its operations work on whole columns, so they take a fraction of the time of Python functions of
    single records. Rows have the columns of the receiver's schema; ``bytes`` and ``str`` are one
    column ``value``. They are read from the receiver's blocks as they are; what comes from any
    other operation (a `map`, a window, a direct stream) is made into batches first, which costs
    more than it gains, unless much follows.
    """

    def __init__(self, ssc: StreamingContext, node: DStreamNode) -> None:
        self._ssc = ssc
        self._node = node

    def __repr__(self) -> str:
        return f"<ArrowStream of {self._node.made_by or 'the program'}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            told = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith("_") and hasattr(self._ssc._stream(self._node), name):
                told += f": records() has it, as in stream.arrow.records().{name}(...)"
            raise AttributeError(told)

    def map(
        self, f: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table | pa.Array]
    ) -> ArrowStream:
        """Return what `f` makes of each batch; a single array is the column ``value``.

        How rows are divided into batches may change, so each has to be looked at by itself. The
        batch is valid during the call only.
        """
        check_arguments(f, "a record batch", 1, "f")
        return self._then(MapBatches(f))

    def split(self, separator: str = " ", column: str = "value") -> ArrowStream:
        """Return the parts between separators, as `str.split` has them, as the column ``value``.

        Args:
            separator: One character or more. One of ASCII is quickest.
            column: Has text or bytes; without its nulls.
        """
        if type(separator) is not str or separator == "":
            raise ValueError(refused("separator", separator, "a text, not an empty one"))
        _check_name(column, "column")
        split = SplitColumn(column, separator)
        if isinstance(self._node, ArrowDStream) and self._node.split is None:
            # Lines are split as they are in a block.
            return ArrowStream(self._ssc, ArrowDStream(self._node.parent, split))
        return self._then(split)

    def value_counts(
        self, column: str = "value", numPartitions: int | None = None
    ) -> DStream[tuple[Any, int]]:
        """Return each value of a column with its number of occurrences, null as None.

        NaN is equal to nothing, itself included: it may come several times.
        """
        _check_name(column, "column")
        node = self._node
        if isinstance(node, ArrowDStream) and node.split is not None and column == VALUE:
            # Parts of lines are counted as they are in a block.
            return self._added(
                ArrowDStream(node.parent, node.split, is_counted=True), numPartitions
            )
        return self._summed(CountValues(column), numPartitions)

    def sums(
        self, key: str, column: str, numPartitions: int | None = None
    ) -> DStream[tuple[Any, Any]]:
        """Return each value of the column `key` with the sum of its values of another column.

        Nulls count as 0. Whole numbers may be of any size; decimals keep all their digits.
        """
        _check_name(key, "key")
        _check_name(column, "column")
        return self._summed(SumValues(key, column), numPartitions, EXACT_ADDITION)

    def records(self) -> DStream[Any]:
        """Return the rows as Python objects: dicts, or values if ``value`` is the only column."""
        return self._ssc._stream(NarrowDStream(self._node, PartitionOperation(records_of)))

    def _then(self, func: Callable[..., Any]) -> ArrowStream:
        return ArrowStream(self._ssc, NarrowDStream(self._node, PartitionOperation(func)))

    def _summed(
        self, func: Callable[..., Any], numPartitions: int | None, combiner: Combiner = ADDITION
    ) -> DStream[Any]:
        pairs = NarrowDStream(self._node, PartitionOperation(func))
        return self._added(pairs, numPartitions, combiner)

    def _added(
        self, pairs: DStreamNode, numPartitions: int | None, combiner: Combiner = ADDITION
    ) -> DStream[Any]:
        partitions = partitions_of(self._ssc.sparkContext, numPartitions)
        return self._ssc._stream(ShuffledDStream(pairs, combiner, partitions))


def _check_name(name: object, argument: str) -> None:
    if not isinstance(name, str):
        raise TypeError(refused(argument, name, "the name of a column, as text"))
