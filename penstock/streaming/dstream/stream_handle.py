"""What every stream of a program has, whatever its operations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark import SparkContext, StorageLevel

from penstock._arguments import as_count
from penstock.errors import StreamGraphError
from penstock.streaming.dstream.node import DStreamNode
from penstock.streaming.durations import to_milliseconds

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext
    from penstock.streaming.dstream.dstream import DStream

T_co = TypeVar("T_co", covariant=True)


class StreamHandle(Generic[T_co]):
    """A handle on a node of the graph.

    Args:
        ssc: The context.
        node: The node.
    """

    def __init__(self, ssc: StreamingContext, node: DStreamNode) -> None:
        self._ssc = ssc
        self._sc = ssc.sparkContext
        self._node = node

    def __repr__(self) -> str:
        name = getattr(self._node, "name", "")
        named = f" {name!r}" if isinstance(name, str) and name else ""
        return f"<{type(self).__name__}{named} of {self._node.made_by or 'the program'}>"

    def context(self) -> StreamingContext:
        """Return the `StreamingContext` of this stream."""
        return self._ssc

    @property
    def is_cached(self) -> bool:
        """Whether its RDDs are persisted."""
        return self._node.storage_level is not None

    @property
    def is_checkpointed(self) -> bool:
        """Whether its RDDs are checkpointed."""
        return self._node.checkpoint_ms is not None

    @property
    def _slideDuration(self) -> float:
        """Seconds between two of its RDDs."""
        return self._node.slide_ms / 1000.0

    def named(self, name: str) -> Any:
        """Name what of this stream outlives the program's code; return the stream.

        The state of `updateStateByKey` and `mapWithState` has a name, and the stream of a receiver
        with its position and the records that wait. A later version of the program takes them up by
        it. Without one, the operation, or the receiver's type, is the name.

        Raises:
            StreamGraphError: This stream keeps nothing beyond the program's checkpoints.
            IllegalStateError: The context was started already.
            ValueError: The name is empty.
        """
        set_name = getattr(self._node, "set_name", None)
        if set_name is None:
            raise StreamGraphError(
                f"{self._node.made_by} keeps nothing that a later version could take up; name the "
                f"stream that updateStateByKey, mapWithState or a receiver's operation returned"
            )
        set_name(name)
        return self

    def _derive(self, node: DStreamNode) -> DStream[Any]:
        return self._ssc._stream(node)

    def _partitions(self, numPartitions: int | None) -> int:
        return partitions_of(self._sc, numPartitions)

    def _persist(self, level: StorageLevel) -> None:
        self._node.persist(level)

    def _checkpoint(self, interval: float) -> None:
        self._node.checkpoint(to_milliseconds(interval, "the checkpoint interval"))


def partitions_of(context: SparkContext, numPartitions: int | None) -> int:
    """Return how many partitions an operation has that was given that many, or None.

    Raises:
        TypeError, ValueError: It is no whole number, or below 1.
    """
    if numPartitions is None:
        return context.defaultParallelism
    return as_count(numPartitions, "numPartitions", "partitions", least=1)


def node_of(stream: Any, name: str) -> DStreamNode:
    """Return the node of a stream that a program gave as the argument `name`.

    Raises:
        TypeError: It is no stream.
    """
    if not isinstance(stream, StreamHandle):
        raise TypeError(f"{name}={stream!r} is not accepted: a DStream")
    return stream._node
