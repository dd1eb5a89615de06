"""Inputs: the nodes that records come from."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark import RDD

from penstock.errors import IllegalStateError
from penstock.listeners.input_info import BatchInput
from penstock.rates.memory import RateMemory
from penstock.streaming.dstream.node import DStreamNode
from penstock.streaming.kernels.deferred import no_partitions

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.continuous import ContinuousOperation
    from penstock.receiver import Receiver
    from penstock.streaming.dstream.graph import DStreamGraph
    from penstock.wire.messages import ReceivedBlockInfo


class InputDStream(DStreamNode):
    """An input: has no dependencies, and an RDD for every batch.

    A subclass implements `compute`. It is asked once per batch, in the order of the batches, from
    the job generator's thread, unless not `is_asked_each_batch` and nothing needs the batch; again
    for a batch for which it raised, when one with a window or a state needs it.

    Attributes:
        stream_id: Its number among the program's inputs, from 0.
    """

    is_received = False
    """Whether its records are in blocks of the ledger, also those of earlier batches."""

    is_asked_each_batch = True
    """Whether it is asked at each batch time, needed or not: what it has depends on when."""

    refusal = ""
    """Why a program with such an input cannot be recovered from a checkpoint."""

    transient: ClassVar[tuple[str, ...]] = ("_failure",)

    def __init__(self, graph: DStreamGraph) -> None:
        super().__init__(graph, (), graph.batch_ms)
        self.stream_id = graph.add_input(self)
        self._failure: tuple[int, Exception] | None = None

    @abstractmethod
    def compute(self, time_ms: int) -> RDD[Any] | None: ...

    def ask(self, time_ms: int) -> None:
        """Have the RDD of a batch made, before anything else asks for it.

        An error comes to all that ask while this batch is made: one of them must not get what
        another one could not.
        """
        self._failure = None
        try:
            self.get_or_compute(time_ms)
        except Exception as error:  # noqa: BLE001  # raised where the RDD is asked for
            self._failure = (time_ms, error)

    def get_or_compute(self, time_ms: int) -> RDD[Any] | None:
        if self._failure is not None and self._failure[0] == time_ms:
            raise self._failure[1]
        return super().get_or_compute(time_ms)

    def start(self) -> None:
        """Called once, when the graph starts and before the first batch."""

    def stop(self) -> None:
        """Called when the context stops, after the last batch was made."""

    def must_be_saved_before(self, time_ms: int) -> bool:
        """Return whether the input chose for that batch what only a checkpoint would know."""
        return False


class DirectInputDStream(InputDStream):
    """An input without a receiver: its batches take from a store what a rate allows.

    Args:
        graph: The graph.
        is_bounded: Whether it has limits of its own, so that its first batches are no danger.

    Attributes:
        rate: What is known of its rate: plain values, of the context's `RateBook`.
    """

    def __init__(self, graph: DStreamGraph, is_bounded: bool) -> None:
        super().__init__(graph)
        self.rate = RateMemory(has_receiver=False, is_bounded=is_bounded)

    @abstractmethod
    def update_rate(self, records_per_second: float | None) -> None:
        """Take the rate for all batches that are made from now on; None is no limit.

        Called at the start, before the first batch, and from any thread. It must not wait.
        """

    @abstractmethod
    def dataframe(self, time_ms: int) -> Any:
        """Return the records of a batch as a DataFrame."""


class QueueInputDStream(InputDStream):
    """RDDs from a queue, one or all per batch.

    Args:
        graph: The graph.
        rdds: The queue, as it is now: later changes are not seen.
        one_at_a_time: Whether a batch takes one RDD, or all that are left.
        default: The RDD of a batch when the queue is empty; None for an empty one.
    """

    refusal = (
        "queueStream doesn't support checkpointing. Please don't use queueStream when "
        "checkpointing is enabled."
    )
    transient = ("_queue", "_default")

    # As in Spark: a batch that nothing asks for leaves the queue as it is.
    is_asked_each_batch = False

    def __init__(
        self,
        graph: DStreamGraph,
        rdds: Iterable[RDD[Any]],
        one_at_a_time: bool,
        default: RDD[Any] | None,
    ) -> None:
        super().__init__(graph)
        self._queue = deque(rdds)
        self._one_at_a_time = one_at_a_time
        self._default = default
        self._has_ended = False

    def compute(self, time_ms: int) -> RDD[Any] | None:
        if not self._queue:
            if not self._has_ended:
                self._has_ended = True
                self._default = _known_if_empty(self._default)
            if self._default is None:
                # One empty partition, as in PySpark: `count` gives 0 and not nothing.
                self._default = self.graph.spark_context.parallelize([], 1)
            return self._default
        if self._one_at_a_time:
            return self._queue.popleft()
        rdds = list(self._queue)
        self._queue.clear()
        return rdds[0] if len(rdds) == 1 else self.graph.spark_context.union(rdds)


def _known_if_empty(rdd: RDD[Any] | None) -> RDD[Any] | None:
    """Return an RDD, or one that is known to have no partitions."""
    if rdd is None or rdd.getNumPartitions():
        return rdd
    return no_partitions(rdd.context)


class ReceiverInputDStream(InputDStream):
    """The blocks of a receiver; small ones share a partition of a batch's RDD.

    Attributes:
        receiver: The program's receiver; a copy of it runs in an executor.
        name: The stream's name, or the type or function of its receiver.
        is_named: Whether the program gave the name.
        rate: What is known of its rate: plain values, of the context's `RateBook`.
        continuous: What its blocks are given to as they come; None: batches take them.
        siblings: The nodes of all receivers that share the source; none: it has it for itself.
        receivers: How many of them the program asks for.
    """

    is_received = True
    is_asked_each_batch = False
    transient = ("_empty",)
    # Of the class: nodes of older checkpoints have none.
    continuous: ContinuousOperation | None = None
    siblings: tuple[ReceiverInputDStream, ...] = ()
    receivers = 1

    def __init__(self, graph: DStreamGraph, receiver: Receiver, name: str) -> None:
        super().__init__(graph)
        self.receiver = receiver
        self.name = name
        self.is_named = False
        self.rate = RateMemory()
        self._empty: RDD[Any] | None = None
        self._last_schema: pa.Schema | None = None

    def set_name(self, name: str) -> None:
        """Name the stream.

        Raises:
            IllegalStateError: The context was started already.
            ValueError: It is empty.
        """
        self.graph.check_new_name(name, "stream")
        self.name = name
        self.is_named = True

    @property
    def leads(self) -> bool:
        """Whether it stands for all receivers that share its source."""
        return self.siblings[:1] == (self,)

    @property
    def shared_name(self) -> str:
        """The name of a stream whose receivers share its source."""
        return self.name.rpartition("/")[0]

    def set_continuous(self, operation: ContinuousOperation) -> None:
        """Give its blocks to a function as they come.

        Raises:
            IllegalStateError: The context was started, or it has such a function already.
        """
        self.graph.check_can_grow()
        if self.continuous is not None:
            raise IllegalStateError(
                f"the stream {self.name!r} has a continuous function already: put both in one"
            )
        self.continuous = operation

    def blocks(self, time_ms: int) -> tuple[ReceivedBlockInfo, ...]:
        """Return the blocks of a batch, in order."""
        if self.graph.start_ms is None or time_ms < self.graph.start_ms:
            return ()
        received = self.graph.runtime.received_blocks
        return tuple(received.get_blocks_of_batch_and_stream(time_ms, self.stream_id))

    def compute(self, time_ms: int) -> RDD[Any] | None:
        from penstock.blockstore import BlockRDD

        blocks = self.blocks(time_ms)
        runtime = self.graph.runtime
        records = sum(block.num_records for block in blocks)
        runtime.input_info.report_info(time_ms, BatchInput(self.stream_id, records))
        if not blocks:
            if self._empty is None:
                self._empty = no_partitions(runtime.spark_context)
            return self._empty
        access = runtime.received_blocks.block_access
        return BlockRDD(runtime.spark_context, blocks, access, runtime.partition_bytes)

    def check_columns(self) -> None:
        """Raise `UnsupportedColumnError` when the declared schema makes no DataFrame."""
        import pyarrow as pa

        from penstock.blockstore.arrow_frames import plain_schema

        schema = getattr(self.receiver, "schema", None)
        if isinstance(schema, pa.Schema):
            plain_schema(schema)

    def dataframe(self, time_ms: int) -> Any:
        """Return the records of a batch as a DataFrame, read from its Arrow blocks.

        A batch without records has the schema that the receiver declares, else that of the last
        batch with records; before the first, one string column ``value``.
        """
        from pyspark.sql import SparkSession

        from penstock.blockstore import blocks_to_dataframe
        from penstock.blockstore.arrow_frames import to_arrow_schema

        blocks = self.blocks(time_ms)
        runtime = self.graph.runtime
        spark = SparkSession(runtime.spark_context)
        schema = getattr(self.receiver, "schema", None) or self._last_schema
        access = runtime.received_blocks.block_access
        frame = blocks_to_dataframe(spark, blocks, access, schema)
        if any(block.num_records for block in blocks):
            self._last_schema = to_arrow_schema(frame.schema)
        return frame
