"""`ReceiverDStream`: the stream of a receiver, whose rate a program can set and see.

`SplitDStream`: the stream of several receivers, whose number it can set and see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from penstock._arguments import as_count, refused
from penstock.continuous import ContinuousOperation, Sink, Watermark
from penstock.errors import IllegalStateError
from penstock.host.receiver_arguments import check_operation
from penstock.rates.decision import StreamRate
from penstock.streaming.dstream.derived_streams import UnionDStream
from penstock.streaming.dstream.dstream import DStream
from penstock.streaming.dstream.inputs.input_streams import DirectInputDStream, ReceiverInputDStream
from penstock.streaming.dstream.stream_handle import T_co

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.streaming.context import StreamingContext
    from penstock.tracker import EpochStatus


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

        A received stream that an earlier version of the program also had may get that one's number
        when the context starts.
        """
        return self._input.stream_id

    def set_rate(self, rate: str | float | None) -> None:
        """Limit the records that are taken; may be called at any time.

        Args:
            rate: Such as ``"50000/second"`` or ``"600000 per minute"``; a number counts records per
                second. None clears the limit that was set here, not others' limits.

        Raises:
            ValueError: It is not one rate above 0.
        """
        self._ssc._rates.set_rate(self.stream_id, rate)

    @property
    def rate(self) -> StreamRate:
        """What was asked for, what is in force, and whose decision that is, as of now."""
        return self._ssc._rates.rate(self.stream_id)


class ReceiverDStream(RatedDStream[T_co]):
    """The records that a receiver stores.

    A `DStream` with a rate. What is set holds at once, also for the block that the receiver has
    open (I8), for every later attempt of the receiver, and for a driver that is started again from
    a checkpoint. The lowest limit is in force: this one, ``spark.streaming.receiver.maxRate``, the
    stream's share of its group, and what backpressure found.
    """

    _input: ReceiverInputDStream

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            way = "one that several receivers share has it (numReceivers= of receiverStream)"
            raise _no_attribute(self, name, SplitDStream, way)

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

    def continuous(
        self,
        function: Callable[..., pa.RecordBatch | None],
        *,
        sink: Sink,
        epoch: str | float = "100 ms",
        parallelism: int = 1,
        timeout: str | float = "60 s",
        attempts: int = 10,
        dead_letters: bool = False,
        key_by: str | None = None,
        on_timer: Callable[..., pa.RecordBatch | None] | None = None,
        watermark: Watermark | None = None,
        deliver: Literal["durable", "stored"] = "durable",
    ) -> None:
        """Call a function with the records as they come, and give a sink what it returns, once.

        The function is called in long-lived tasks, each of which holds a core, with each block as
        soon as it is durable: a short ``spark.streaming.blockInterval`` makes it soon. What it
        returns is committed by epochs, exactly once over all crashes where the sink is; see
        docs/low-latency.md. No batch has the records of such a stream.

        Args:
            function: Is given a block's records, bytes and text in one column ``value``. Returns
                what goes to the sink, or None. After a crash, or a failure, it is called again with
                the same records, in a new process.
            sink: Where it goes.
            epoch: How long an epoch is, as Spark writes times, or in seconds.
            parallelism: How many tasks share the blocks; with one, all are in order.
            timeout: How long one call of the function or the sink may take; then its process ends.
            attempts: After that many failures of a task without an epoch between it ends, and
                `awaitTermination` raises `ContinuousStreamError`.
            dead_letters: Whether a record for which the function raises is a dead letter, and the
                epoch goes on. The function is called with ever smaller parts of its batch, down to
                that record; see docs/low-latency.md.
            key_by: A column of integers, text or bytes. All records of a key go to one task, in
                order, and the function is called with a second argument, a
                `penstock.streaming.KeyedState`: what it keeps by key, exact over all crashes as the
                epochs are. Each task reads all blocks, and takes its rows.
            on_timer: Is called as ``on_timer(expired, state, timers)`` with `ExpiredTimers`, and
                may also return what goes to the sink. The function is then called with a third
                argument, `Timers`, in which both register timers. Needs `key_by`.
            watermark: Which column has event times, and how late a record may be. Needs `key_by`.
            deliver: ``durable``: the function is called with blocks that are in both logs.
                ``stored``: it is called when they are stored, some milliseconds sooner, and what it
                returns waits until they are. If a receiver dies meanwhile, it has been called with
                records that are not received, or come again. Not with `key_by`.

        Raises:
            TypeError, ValueError: An argument is not accepted, or cannot be sent to an executor.
            IllegalStateError: The context was started, the stream has such a function already, or
                it is one of several receivers that share a source.
        """
        if self._input.siblings:
            raise IllegalStateError(
                "continuous() needs a stream of one receiver: of several that share a source, "
                "records of a split could be out of order, and those without splits hold cores"
            )
        operation = ContinuousOperation(
            *(function, sink, epoch, parallelism, timeout, attempts, dead_letters, key_by),
            on_timer=on_timer,
            watermark=watermark,
            deliver=deliver,
        )
        check_operation(operation, self.name, self._input.receiver)
        self._input.set_continuous(operation)

    @property
    def epochs(self) -> EpochStatus | None:
        """Where the epochs of its `continuous` are; None without one, or while it does not run."""
        engine = self._ssc._engine
        return None if engine is None else engine.epochs().get(self.stream_id)

    def set_byte_rate(self, rate: str | float | None) -> None:
        """Limit the bytes that the receiver takes; as `set_rate`, with bytes for records.

        Raises:
            ValueError: It is not one rate above 0.
        """
        self._ssc._rates.set_byte_rate(self.stream_id, rate)


class SplitDStream(DStream[T_co]):
    """The records of several receivers that share a source: each has some of its splits.

    The records of a split are in order, but for a batch in which it moved from one receiver to
    another: that one has two parts of it, in any order.
    """

    def __init__(self, ssc: StreamingContext, nodes: Sequence[ReceiverInputDStream]) -> None:
        super().__init__(ssc, UnionDStream(nodes))
        self._inputs = tuple(nodes)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            way = "each of its receivers' streams has it, in stream.members"
            raise _no_attribute(self, name, ReceiverDStream, way)

    @property
    def name(self) -> str:
        """Its name, or the type or function of its receiver."""
        return self._inputs[0].shared_name

    @property
    def members(self) -> tuple[ReceiverDStream[T_co], ...]:
        """A stream for each of its most receivers, as for `rateGroup`; named ``<name>/<number>``.

        Those without splits do not run.
        """
        return tuple(ReceiverDStream(self._ssc, node) for node in self._inputs)

    @property
    def splits(self) -> dict[int, tuple[str, ...]]:
        """Which splits the receivers have, by stream number; empty before the context runs.

        Only those that run are in it.
        """
        engine = self._ssc._engine
        found = {} if engine is None else engine.splits(self._inputs[0].stream_id)
        return {stream_id: splits for stream_id, splits in found.items() if splits}

    def named(self, name: str) -> SplitDStream[T_co]:
        """Name the stream, as `ReceiverDStream.named`; return it."""
        for number, node in enumerate(self._inputs):
            node.set_name(f"{name}/{number}")
        return self

    def scale(self, numReceivers: int) -> None:
        """Have another number of receivers, while the context runs.

        Returns when that is in the driver's log, so that it also holds after a crash. Splits are
        then divided evenly with as few moves as possible: receivers that gain or lose any are
        stopped, store what they have, and start with the positions of theirs. The others go on.

        Args:
            numReceivers: From 1 to the `maxReceivers` of the stream. Receivers for which there is
                no split do not run.

        Raises:
            TypeError, ValueError: It is no such number.
            IllegalStateError: The context does not run.
            NotEnoughCoresError: They would hold every core of a local master.
            LedgerWriteError: The driver's log did not take it; nothing was changed.
        """
        most = len(self._inputs)
        count = as_count(numReceivers, "numReceivers", "receivers", 1)
        if count > most:
            accepted = f"{most} receivers at most; maxReceivers of receiverStream allows more"
            raise ValueError(refused("numReceivers", count, accepted))
        engine = self._ssc._engine
        if engine is None:
            raise IllegalStateError(
                "scale() changes the number of receivers while the context runs; before, "
                "numReceivers=... of receiverStream says how many there are"
            )
        engine.scale(self._inputs[0].stream_id, count)


def _no_attribute(stream: object, name: str, other: type, way: str) -> AttributeError:
    """Return what to raise for an attribute; with the way to it, if the other kind has it."""
    told = f"{type(stream).__name__!r} object has no attribute {name!r}"
    has_it = not name.startswith("_") and hasattr(other, name)
    return AttributeError(f"{told}: {way}" if has_it else told)
