"""`ReceiverDStream`: the stream of a receiver, whose rate a program can set and see."""

from __future__ import annotations

from penstock.streaming.dstream.input_streams import ReceiverInputDStream
from penstock.streaming.dstream.rated_dstream import RatedDStream
from penstock.streaming.dstream.stream_handle import T_co


class ReceiverDStream(RatedDStream[T_co]):
    """The records that a receiver stores.

    A `DStream` with a rate. What is set holds at once, also for the block that the receiver has
    open (I8), for every later attempt of the receiver, and for a driver that is started again from
    a checkpoint. The lowest limit is in force: this one, ``spark.streaming.receiver.maxRate``, the
    stream's share of its group, and what backpressure found.
    """

    _input: ReceiverInputDStream

    @property
    def name(self) -> str:
        """Its name, or the type or function of its receiver."""
        return self._input.name

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where its receiver listens now; empty while it does not run, or if it does not listen."""
        found = {each.stream_id: each.addresses for each in self._ssc.receivers()}
        return found.get(self.stream_id, ())

    def named(self, name: str) -> ReceiverDStream[T_co]:
        """Name the stream, for later versions of the program; return it.

        The position and the records that wait belong to the name, whatever else changes. Without
        one, the receiver's type or function is the name. See docs/upgrading.md.

        Raises:
            IllegalStateError: The context was started already.
            ValueError: It is empty.
        """
        self._input.set_name(name)
        return self

    def set_byte_rate(self, rate: str | float | None) -> None:
        """Limit the bytes that the receiver takes; as `set_rate`, with bytes for records.

        Raises:
            ValueError: It is not one rate above 0.
        """
        self._ssc._rates.set_byte_rate(self.stream_id, rate)
