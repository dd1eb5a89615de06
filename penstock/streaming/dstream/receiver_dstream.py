"""`ReceiverDStream`: the stream of a receiver, whose rate a program can set and see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.streaming.dstream.dstream import DStream
from penstock.streaming.dstream.input_streams import ReceiverInputDStream
from penstock.streaming.dstream.stream_handle import T_co
from penstock.streaming.rates.decision import StreamRate

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext

__all__ = ["ReceiverDStream"]


class ReceiverDStream(DStream[T_co]):
    """The records that a receiver stores.

    A `DStream` with a rate. What is set holds at once, also for the block that the receiver has
    open (I8), for every later attempt of the receiver, and for a driver that is started again from
    a checkpoint. The lowest limit is in force: this one, ``spark.streaming.receiver.maxRate``, the
    stream's share of its group, and what backpressure found.
    """

    def __init__(self, ssc: StreamingContext, node: ReceiverInputDStream) -> None:
        super().__init__(ssc, node)
        self._stream_id = node.stream_id

    @property
    def stream_id(self) -> int:
        """Its number among the program's inputs, as in listener events."""
        return self._stream_id

    def set_rate(self, rate: str | float | None) -> None:
        """Limit the records that the receiver takes; may be called at any time.

        Args:
            rate: Such as ``"50000/second"`` or ``"600000 per minute"``; a number counts records per
                second. None clears the limit that was set here, not those of others.

        Raises:
            ValueError: It is not one rate above 0.
        """
        self._ssc._rates.set_rate(self.stream_id, rate)

    def set_byte_rate(self, rate: str | float | None) -> None:
        """Limit the bytes that the receiver takes; as `set_rate`, with bytes for records.

        Raises:
            ValueError: It is not one rate above 0.
        """
        self._ssc._rates.set_byte_rate(self.stream_id, rate)

    @property
    def rate(self) -> StreamRate:
        """What was asked for, what is in force, and whose decision that is, as of now."""
        return self._ssc._rates.rate(self.stream_id)
