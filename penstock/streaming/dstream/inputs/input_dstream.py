"""`InputDStream`: an input that a program writes, which makes an RDD for each batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark import RDD

from penstock._arguments import as_count
from penstock.listeners.input_info import BatchInput
from penstock.streaming.dstream.dstream import DStream
from penstock.streaming.dstream.inputs.input_streams import InputDStream as InputNode
from penstock.streaming.dstream.stream_handle import T_co
from penstock.streaming.durations import batch_datetime, time_milliseconds

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext
    from penstock.streaming.dstream.graph import DStreamGraph


class InputDStream(DStream[T_co]):
    """A stream whose batches a program makes by itself, without a receiver.

    A subclass writes `compute`, and may write `start` and `stop`::

        class Seconds(InputDStream[int]):
            def compute(self, time):
                second = round(time.timestamp())
                return self.context().sparkContext.range(100 * second, 100 * (second + 1))

        Seconds(ssc).map(...).pprint()

    All three are called on the driver. With a checkpoint directory the object is a part of each
    checkpoint, with its attributes: what cannot be pickled belongs in `start`, and out of
    `__getstate__`. A restarted driver has it as it was after the last batch of the checkpoint. It
    asks again, the oldest first, for batches that were not complete, and for those before them from
    which its windows and states are made. So let what a batch has follow from its time, as here, or
    keep it by time in an attribute: then these are also exact.

    Args:
        ssc: The context.

    Attributes:
        stream_id: Its number among the program's inputs, as in listener events.

    Raises:
        TypeError: The subclass has no `compute`.
    """

    def __init__(self, ssc: StreamingContext) -> None:
        if type(self).compute is InputDStream.compute:
            raise TypeError(f"{type(self).__name__} must define compute(time)")
        node = ProgramInput(ssc._graph, self)
        super().__init__(ssc, node)
        self.stream_id = node.stream_id

    @abstractmethod
    def compute(self, time: datetime) -> RDD[T_co] | None:
        """Return the RDD of a batch, or None for a batch without one.

        Called once for each batch, in order, in the thread that makes batches, which waits for it;
        again for a batch for which it raised, as long as a window or a state needs that.

        Args:
            time: The batch time, naive and local.
        """

    def start(self) -> None:
        """Open what `compute` needs; called once, before the first batch."""

    def stop(self) -> None:
        """Close it; called once, after the last batch was made."""

    def reportInfo(
        self, time: datetime, numRecords: int, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Report to listeners how many records a batch has; called by `compute`, once at most.

        Args:
            time: The batch time.
            numRecords: How many records.
            metadata: More about them; the key ``Description`` is meant for people.
        """
        info = BatchInput(
            self.stream_id, as_count(numRecords, "numRecords", "records"), metadata or {}
        )
        self._node.graph.runtime.input_info.report_info(time_milliseconds(time), info)

    def __getstate__(self) -> dict[str, Any]:
        """Return what is kept in checkpoints: all attributes."""
        return dict(self.__dict__)


class ProgramInput(InputNode):
    """The node of an input that a program writes."""

    def __init__(self, graph: DStreamGraph, stream: InputDStream[Any]) -> None:
        super().__init__(graph)
        self.name = type(stream).__name__
        self._stream = stream

    def start(self) -> None:
        self._stream.start()

    def stop(self) -> None:
        self._stream.stop()

    def compute(self, time_ms: int) -> RDD[Any] | None:
        found: object = self._stream.compute(batch_datetime(time_ms))
        if found is None or isinstance(found, RDD):
            return found
        raise TypeError(
            f"{type(self._stream).__name__}.compute returned {type(found).__name__!r}, and not an "
            "RDD or None; sparkContext.parallelize(...) makes an RDD of a list"
        )
