"""The rates of a context's receivers, as a program sets and sees them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock._arguments import refused
from penstock.clock import Clock
from penstock.settings import Settings
from penstock.streaming.dstream.input_streams import DirectInputDStream, ReceiverInputDStream
from penstock.streaming.dstream.stream_handle import node_of
from penstock.streaming.errors import StreamGraphError
from penstock.streaming.rates.book import RateBook
from penstock.streaming.rates.decision import RateLimits, StreamRate
from penstock.streaming.rates.group import RateGroup
from penstock.streaming.rates.memory import RateMemory

if TYPE_CHECKING:
    from penstock.streaming.dstream.graph import DStreamGraph
    from penstock.streaming.dstream.receiver_dstream import ReceiverDStream

_KEYS = (
    "spark.streaming.receiver.maxRate",
    "spark.streaming.backpressure.enabled",
    "spark.streaming.backpressure.initialRate",
    "spark.penstock.receiver.rate",
    "spark.penstock.receiver.byteRate",
    "spark.penstock.backpressure.slowStartRate",
)


class RateOperations(ABC):
    """The part of `StreamingContext` that deals with rates."""

    _graph: DStreamGraph
    _clock: Clock
    _rates: RateBook

    @abstractmethod
    def _settings_of(self, keys: tuple[str, ...]) -> Settings: ...

    @abstractmethod
    def _received(self, node: ReceiverInputDStream) -> ReceiverDStream[Any]: ...

    def receivedStream(self, streamId: int) -> ReceiverDStream[Any]:
        """Return the stream of a receiver by its number, for a program that has no handle on it.

        A context that was recovered from a checkpoint has its streams, and the program that made
        them did not run.

        Raises:
            StreamGraphError: The stream has no receiver.
        """
        for node in self._graph.inputs:
            if isinstance(node, ReceiverInputDStream) and node.stream_id == streamId:
                return self._received(node)
        raise StreamGraphError(f"stream {streamId} has no receiver")

    def rates(self) -> dict[int, StreamRate]:
        """Return the rates of receivers and direct streams as they are now, by stream number.

        The numbers are those of the listener events.
        """
        return self._rates.rates()

    def rateGroup(
        self,
        rate: str | float,
        streams: Sequence[ReceiverDStream[Any]],
        *,
        inBytes: bool = False,
    ) -> RateGroup:
        """Let streams share one total rate; may be called at any time.

        The driver divides the total anew, several times a second, by what each receiver uses: who
        has nothing to receive leaves its share to those who wait. The shares in force never add up
        to more than the total. Other limits of a stream hold beside its share.

        Args:
            rate: The total, such as ``"300000/second"``; a number counts records per second.
            streams: Streams of receivers; each in one group at most.
            inBytes: Whether the rate counts bytes, as `set_byte_rate` does, and not records.

        Returns:
            A handle by which the total can be seen and changed.

        Raises:
            ValueError: It is not one rate above 0; no stream, or one of another context.
            TypeError: They are no list of streams of receivers.
            StreamGraphError: A stream has no receiver, or is in a group already.
        """
        stream_ids = _stream_ids(streams)
        if any(node_of(stream, "streams").graph is not self._graph for stream in streams):
            raise ValueError(
                "the DStreams belong to different contexts, or to another one than this"
            )
        return self._rates.make_group(rate, stream_ids, in_bytes=inBytes)

    def _make_rates(self) -> RateBook:
        def memories() -> dict[int, RateMemory]:
            return {
                node.stream_id: node.rate
                for node in self._graph.inputs
                if isinstance(node, (ReceiverInputDStream, DirectInputDStream))
            }

        def limits() -> RateLimits:
            return RateLimits.of(self._settings_of(_KEYS))

        return RateBook(memories, limits, self._clock)


def _stream_ids(streams: Any) -> list[int]:
    listed: list[Any] = list(streams) if isinstance(streams, Iterable) else [None]
    if not all(hasattr(stream, "stream_id") for stream in listed):
        raise TypeError(refused("streams", streams, "a list of streams of receivers"))
    return [stream.stream_id for stream in listed]
