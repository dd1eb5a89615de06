"""Nodes made of other nodes: narrow operations, shuffles, and the user's own functions of RDDs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark import RDD, SparkContext

from penstock.blockstore import BlockRDD
from penstock.streaming.dstream.arity import TimedFunction
from penstock.streaming.dstream.graph import common_slide, first_input
from penstock.streaming.dstream.node import DStreamNode
from penstock.streaming.durations import batch_datetime
from penstock.streaming.kernels.combine import Combiner, combine_by_key, reduce_records
from penstock.streaming.kernels.dead_letters import LetterOperation
from penstock.streaming.kernels.deferred import Content, content_of, narrow, no_partitions
from penstock.streaming.kernels.fusion import FusedFunction, NarrowOperation, split_inlined


class NarrowDStream(DStreamNode):
    """One narrow operation on the records of another node.

    Consecutive ones become one function of a partition when the first RDD is made; a node whose
    RDDs are kept (persisted or checkpointed) stays a stage of its own.
    """

    def __init__(self, parent: DStreamNode, operation: NarrowOperation) -> None:
        super().__init__(parent.graph, (parent,), parent.slide_ms)
        self.parent = parent
        self.operation = operation

    def plan(self) -> tuple[DStreamNode, tuple[NarrowOperation, ...]]:
        """Return the node whose RDDs are read, and the operations on its records, in order."""
        operations = [self.operation]
        source = self.parent
        while isinstance(source, NarrowDStream) and not source.is_materialised:
            operations.append(source.operation)
            source = source.parent
        return source, tuple(reversed(operations))

    def compute(self, time_ms: int) -> RDD[Any] | None:
        return _fused_rdd(*self.plan(), time_ms)


def _fused_rdd(
    source: DStreamNode,
    operations: Sequence[NarrowOperation],
    time_ms: int,
    *,
    in_parts: bool = False,
) -> RDD[Any] | None:
    """Return the operations on the RDD of `source`, as one function of a partition.

    `in_parts` where no one sees how records are divided: then large blocks are cut.
    """
    rdd = source.get_or_compute(time_ms)
    if isinstance(rdd, BlockRDD):
        if any(isinstance(operation, LetterOperation) for operation in operations):
            # Dead letters are named by their place in a partition, also where a later run, on other
            # cores, makes the batch again.
            rdd = rdd.by_block()
        elif in_parts and all(operation.is_per_record for operation in operations):
            rdd = rdd.in_parts()
    if rdd is None or not operations:
        return rdd
    function = FusedFunction(_in_batch(operations, source, time_ms))
    return narrow(
        rdd,
        function,
        preserves_partitioning=function.preserves_partitioning,
        is_per_record=function.is_per_record,
    )


def _planned(node: DStreamNode) -> tuple[DStreamNode, tuple[NarrowOperation, ...]]:
    """Return the node whose RDDs are read for `node`, and the operations on its records."""
    if isinstance(node, NarrowDStream) and not node.is_materialised:
        return node.plan()
    return node, ()


def _in_batch(
    operations: Sequence[NarrowOperation], source: DStreamNode, time_ms: int
) -> list[NarrowOperation]:
    """Hand the operations that keep dead letters the batch, and where the letters go."""
    letters = source.graph.runtime.letters
    number, name = first_input(source)
    return [
        operation.in_batch(time_ms, number, letters, name)
        if isinstance(operation, LetterOperation)
        else operation
        for operation in operations
    ]


class ShuffledDStream(DStreamNode):
    """The combined values of each key."""

    def __init__(self, parent: DStreamNode, combiner: Combiner, partitions: int) -> None:
        super().__init__(parent.graph, (parent,), parent.slide_ms)
        self.parent = parent
        self.combiner = combiner
        self.partitions = partitions

    def compute(self, time_ms: int) -> RDD[Any] | None:
        source, operations = _planned(self.parent)
        first, inlined = split_inlined(operations)
        rdd = _fused_rdd(source, first, time_ms, in_parts=True)
        if rdd is None:
            return None
        return combine_by_key(rdd, self.combiner, self.partitions, inlined)


class ReducedDStream(DStreamNode):
    """All records reduced to one; nothing when there is no record."""

    def __init__(self, parent: DStreamNode, func: Any) -> None:
        super().__init__(parent.graph, (parent,), parent.slide_ms)
        self.parent = parent
        self.func = func

    def compute(self, time_ms: int) -> RDD[Any] | None:
        rdd = _fused_rdd(*_planned(self.parent), time_ms, in_parts=True)
        return None if rdd is None else reduce_records(rdd, self.func)


class TransformedDStream(DStreamNode):
    """The user's function of the batch time and the RDDs of one or more nodes.

    With one parent, a batch without a parent RDD has none here either. With several, a missing RDD
    becomes an empty one, as long as there is one.
    """

    def __init__(self, parents: Sequence[DStreamNode], func: TimedFunction) -> None:
        slide_ms = common_slide(
            (parent.slide_ms for parent in parents), "the DStreams should have same slide duration"
        )
        if any(parent.graph is not parents[0].graph for parent in parents):
            raise ValueError("the DStreams belong to different contexts")
        super().__init__(parents[0].graph, parents, slide_ms)
        self.func = func

    def compute(self, time_ms: int) -> RDD[Any] | None:
        found = [parent.get_or_compute(time_ms) for parent in self.dependencies]
        if all(rdd is None for rdd in found):
            return None
        context = self.graph.spark_context
        rdds = [no_partitions(context) if rdd is None else rdd for rdd in found]
        result = self.func(batch_datetime(time_ms), *rdds)
        if result is None or isinstance(result, RDD):
            return result
        raise TypeError(
            f"the function given to {self.made_by} must return an RDD or None, not "
            f"{type(result).__name__}"
        )


class UnionDStream(DStreamNode):
    """The records of several nodes."""

    def __init__(self, parents: Sequence[DStreamNode]) -> None:
        slide_ms = common_slide(
            (parent.slide_ms for parent in parents),
            "All DStreams should have same slide duration",
        )
        if any(parent.graph is not parents[0].graph for parent in parents):
            raise ValueError("the DStreams belong to different contexts")
        super().__init__(parents[0].graph, parents, slide_ms)

    def compute(self, time_ms: int) -> RDD[Any] | None:
        found = [parent.get_or_compute(time_ms) for parent in self.dependencies]
        rdds = [rdd for rdd in found if rdd is not None]
        return union_of(self.graph.spark_context, rdds) if rdds else None


def union_of(context: SparkContext, rdds: Sequence[RDD[Any]]) -> RDD[Any]:
    """Return the records of RDDs; those without partitions cost nothing."""
    there = [rdd for rdd in rdds if content_of(rdd) is not Content.NO_PARTITIONS]
    if not there:
        return no_partitions(context)
    if len(there) == 1:
        return there[0]
    return BlockRDD.united(there) or context.union(there)
