"""`ReceiverDStream`: the stream of a receiver, whose rate a program can set and see."""

from __future__ import annotations

from penstock.streaming.dstream.rated_dstream import RatedDStream
from penstock.streaming.dstream.stream_handle import T_co

__all__ = ["ReceiverDStream"]


class ReceiverDStream(RatedDStream[T_co]):
    """The records that a receiver stores.

    A `DStream` with a rate. What is set holds at once, also for the block that the receiver has
    open (I8), for every later attempt of the receiver, and for a driver that is started again from
    a checkpoint. The lowest limit is in force: this one, ``spark.streaming.receiver.maxRate``, the
    stream's share of its group, and what backpressure found.
    """

    def set_byte_rate(self, rate: str | float | None) -> None:
        """Limit the bytes that the receiver takes; as `set_rate`, with bytes for records.

        Raises:
            ValueError: It is not one rate above 0.
        """
        self._ssc._rates.set_byte_rate(self.stream_id, rate)
