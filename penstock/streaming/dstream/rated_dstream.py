"""`RatedDStream`: a stream straight from an input, whose rate a program can set and see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.streaming.dstream.dstream import DStream
from penstock.streaming.dstream.input_streams import DirectInputDStream, ReceiverInputDStream
from penstock.streaming.dstream.stream_handle import T_co
from penstock.streaming.rates.decision import StreamRate

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext


class RatedDStream(DStream[T_co]):
    """A `DStream` with a rate, of a receiver or of batches that take records by themselves.

    What is set is part of the stream, and so of every checkpoint that is written from then on. The
    lowest limit is in force: this one, that of the settings, and what backpressure found.
    """

    def __init__(
        self, ssc: StreamingContext, node: ReceiverInputDStream | DirectInputDStream
    ) -> None:
        super().__init__(ssc, node)
        self._input = node

    @property
    def stream_id(self) -> int:
        """Its number among the program's inputs, as in listener events.

        A received stream that an earlier version of the program had, too, may get that one's
        number when the context starts.
        """
        return self._input.stream_id

    def set_rate(self, rate: str | float | None) -> None:
        """Limit the records that are taken; may be called at any time.

        Args:
            rate: Such as ``"50000/second"`` or ``"600000 per minute"``; a number counts records per
                second. None clears the limit that was set here, not those of others.

        Raises:
            ValueError: It is not one rate above 0.
        """
        self._ssc._rates.set_rate(self.stream_id, rate)

    @property
    def rate(self) -> StreamRate:
        """What was asked for, what is in force, and whose decision that is, as of now."""
        return self._ssc._rates.rate(self.stream_id)
