"""`Receiver`: what an author of a source writes, and all that they need to know."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import msgspec
from pyspark import StorageLevel

from penstock._arguments import as_storage_level
from penstock.errors import IllegalStateError
from penstock.receiver.splits import PositionError, split_of

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.receiver.door import Start

NOT_ATTACHED = (
    "A ReceiverSupervisor has not been attached to the receiver yet. Maybe you are starting some "
    "computation in the receiver before the Receiver.onStart() has been called."
)
"""Spark's message (`Receiver.scala`), kept so that a search for it finds the same cause."""

_BOUND = ("store", "storeFrom")
"""Names that the supervisor may set on the instance, to the block generator's own functions."""


class Receiver:
    """Takes records from outside and stores them; runs in an executor for as long as the stream.

    A subclass writes two methods, `onStart` and `onStop`, and calls `store`::

        class Ticks(Receiver):
            def onStart(self):
                self.thread = threading.Thread(target=self.receive)
                self.thread.start()

            def onStop(self):
                self.thread.join(5)

            def receive(self):
                while not self.isStopped():
                    self.store(str(time.time()))
                    time.sleep(1)

    A generator function is shorter: see `penstock.receiver.receiver`.

    **Life.** The object is made in the driver, pickled, and unpickled in an executor for each
    attempt to run it. What cannot be pickled (sockets, threads, clients) is therefore opened in
    `onStart`, not in `__init__`. There `streamId` and `lastPosition` are set, and `onStart` is
    called. Then it runs until the driver stops it, it calls `stop` or `restart`, or something
    raises. `onStop` is called before every restart and at every stop, once for each `onStart`.
    `onStart` and `onStop` of one object never run at the same time, except that an `onStart`
    which has not returned by then does not keep `onStop` from being called.

    **A start and the next.** A restart starts the same object again if `onStop` ended all threads
    that were begun since `onStart`. Else these keep the object, and a copy (`copy.copy`) of it is
    started: what it counted goes on. For the old one `isStopped` is true for good, `store` raises
    `ReceiverStoppedError`, and `restart` and `stop` do nothing. So a thread that `onStop` did not
    end doubles nothing. But what the copy has from the old one still refers to that, a callback
    that was made in `__init__` for example: when a new thread uses it, this is reported, the
    attempt ends, and the driver starts another.

    **A stop.** In this order: a `store` with an ``ack`` waits from now on; all that was taken is
    made durable, and its ``ack`` called; `isStopped` turns true, and each `store` with an ``ack``
    raises `ReceiverStoppedError`, so that the source gives that record again; `onStop` is called,
    and a `store` without an ``ack`` is still taken; after `onStop` nothing is, and the last blocks
    are made durable. So a source that takes acknowledgements has all of them before its connection
    is closed, wherever the author closes it. A restart does the same.

    **What is durable when.** `store` of one record returns when the record is in the open block
    of this process: it is lost if the process is killed within about a block interval. To
    acknowledge a record to its source, pass ``ack``: it is called after the record's block is
    stored to the log's durability policy *and* known to the driver's log (invariant I1), so the
    record will be in exactly one batch. `store` of many records at once, without ``ack``, returns
    only after that. At a graceful stop everything that `store` accepted becomes durable (I10): a
    call that returned has its record in, and one that came too late raises.

    **Backpressure.** Every record passes the rate limiter, and a full queue of blocks makes
    `store` wait. So a source is slowed down to what the batches take; memory stays bounded. A
    receive loop needs no buffer of its own and should have none. For a source that cannot be slowed
    down `whenFull` says what is dropped instead.

    **Positions.** A source that can be read again from a known place gives that place with what
    it stores: ``store(record, position=offset)`` means "after this record the source stands
    here". The position becomes durable together with the record or not at all. `onStart` finds in
    `lastPosition` where to go on; records after it were not taken and must be read again.

    **Threads.** `store` may be called from any number of threads. Records of one thread keep
    their order. An exception that ends a thread of the receiver is reported to the driver with
    its traceback, and the receiver is restarted after ``spark.streaming.receiverRestartDelay``.
    """

    storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_2
    """Which copies of a block must exist."""

    schema: pa.Schema | None = None
    """If set, every record must fit it; one that does not is discarded, counted and reported to the
    driver with its reason, and the stream goes on."""

    validate: Callable[[Any], Any] | None = None
    """If set, a method or function of one record, which is called in `store` before the record is
    taken: one for which it raises or returns False is discarded, as one that does not fit `schema`.
    True and None mean that it is valid. An Arrow batch, or each one of a table, it gets as a whole;
    it may then also return a bool for each row, as a list or array, and what it raises or a False
    holds for all rows. Several threads may call it at once. Framed bytes are not accepted with it.
    """

    splits: Callable[[], Iterable[str]] | None = None
    """If set, a method or function without arguments that returns the names of the parts that the
    source has: queues, shards, files, topics. The receivers of the stream share them: each split is
    one receiver's at a time, and its place goes with it. It is called in the driver, at `start` and
    again every ``spark.penstock.receiver.splitsInterval``: new splits are given to receivers, and
    those that are gone are taken away. A position is then a dict of places by split, for the splits
    that the records are of."""

    slots: float | None = None
    """How much of a Spark task it takes: with 0.1 ten such receivers share one, its core and its
    process. None: as ``spark.penstock.receivers.perSlot`` says."""

    whenFull: str | None = None
    """What becomes of records that come faster than they pass: ``"block"``, `store` waits;
    ``"dropNew"`` or ``"dropOld"``, they are dropped and counted; ``"spill"``, they wait on this
    host's disk; see ``spark.penstock.receiver.whenFull``, which holds for None."""

    requires: tuple[str, ...] = ()
    """Modules that its executor must be able to import, beside Penstock's own; looked for at
    `start()` where executors may have another Python than the driver."""

    streamId: int = -1
    """The number of the stream; -1 before it is known."""

    lastPosition: Any = None
    """In `onStart`: the position after the stream's last stored record, or None for a new stream
    (and for a source that gives no positions). With splits, a dict of the places of those that it
    has; a split that was not read yet is not in it."""

    assignedSplits: tuple[str, ...] = ()
    """In `onStart`: the `splits` that this receiver has. It is stopped and started when they
    change."""

    _position_type: ClassVar[Any] = Any
    """What its positions are, for msgspec: one of another source is refused."""

    _place_type: ClassVar[Any] = Any
    """The same of the place of a split."""

    _end_place: ClassVar[Any] = None
    """The place of a split that has ended: then it is asked at once which splits there are."""

    _has_splits_alone: ClassVar[bool] = True
    """Whether one that shares its source with no other also has splits."""

    _is_reliable: bool = False
    """Whether its source relies on what it stores, also where it declares no positions."""

    _supervisor: Start | None = None

    _tells_of_slow_stop = False
    """Whether `onStop` itself reports what it waits for."""

    def _source_lag(self) -> int | None:
        """Return how many records the source has that are not stored; None: that is not known.

        Asked once a second while it runs, by a thread that waits for it: it returns what is known.
        """
        return None

    def _source_lag_ms(self) -> int | None:
        """Return by how long it is behind the source's end, where it knows times and no counts."""
        return None

    def __init__(self, storageLevel: StorageLevel | str | None = None) -> None:
        """Take a storage level; without one that of the class holds."""
        self.storageLevel = as_storage_level(
            self.storageLevel if storageLevel is None else storageLevel
        )

    def __repr__(self) -> str:
        stream = f" of stream {self.streamId}" if self.streamId >= 0 else ""
        return f"<{type(self).__name__}, a receiver{stream}>"

    # -- what a subclass writes ------------------------------------------------------------------

    def onStart(self) -> None:
        """Open the source and start the threads that read it.

        Called once for every start and restart. It should return soon, as Spark asks for; one
        that blocks (because it reads the source itself) is tolerated, for it runs in a thread of
        its own, but it must return when `isStopped` turns true.

        Raises:
            Exception: Anything it raises is reported to the driver with its traceback; this
                attempt ends, and the driver starts another with a growing delay.
        """
        raise TypeError(f"{type(self).__name__} must define onStart()")

    def onStop(self) -> None:
        """Close the source and wait, for a bounded time, for the threads to end.

        `isStopped` is already true, and `store` still takes what the threads have in hand, but for
        what comes with an ``ack`` (see "A stop" above). After
        this method returned, the last block is sealed and stored. It runs in a thread of its own
        and may take what is left of ``spark.streaming.gracefulStopTimeout``, at least 5 s (5 s at a
        restart); then it is given up, which is reported. What it raises is reported and stops
        nothing.
        """
        raise TypeError(f"{type(self).__name__} must define onStop()")

    def preferredLocation(self) -> str | None:
        """Return the host, or ``executor_<host>_<executor id>``, to run on; None for any.

        Called in the driver. It is a wish: the receiver runs elsewhere if that place is gone.
        """
        return None

    # -- what a subclass calls -------------------------------------------------------------------

    def store(
        self,
        data: Any,
        position: Any = None,
        ack: Callable[[], None] | None = None,
        framing: Any = None,
    ) -> None:
        """Store one record or many.

        Args:
            data: One record: `bytes`, `str`, a number, `dict`, `Row`, dataclass, tuple, or any
                object that can be pickled. Many records: a `list`, an iterator or generator, a
                `pyarrow.RecordBatch` or `pyarrow.Table`. With ``framing``, `data` is a buffer of
                bytes that holds many records.
            position: The source's place after the last of these records: any value that
                MessagePack brings back as it was: None, bool, int, float, str, bytes, and lists
                and dicts of these (a tuple comes back as a list). Or `PositionChanges` of the last
                one, a dict, which may be as large as its source has parts.
            ack: Called without arguments, from another thread, once all of `data` is durable
                (I1). It must be quick, must not raise, and must not store: a `store` there that
                would have to wait raises. It is never called for data that was lost; the source
                then sends it again.
            framing: How `data` (bytes) is cut into records: ``"newline"``, or a length prefix
                (see `penstock.receiver.blocks.block_generator`).

        Returns after the data is durable (I1) if it is many records and no ``ack`` was given;
        else as soon as it is in the open block. May wait for the rate limiter and for the queue
        of blocks.

        Raises:
            IllegalStateError: Before `onStart`.
            ReceiverStoppedError: The receiver has stopped, or was started again since; or it stops,
                and this has an `ack`. Nothing of it counts as stored.
            PositionError: `position` holds something else; or it is a number, or a list of numbers,
                and less than the last one.
            PenstockError: The position is larger than 64 KB; or many records with a position, which
                must be in one block, do not fit into one together.
            Exception: A record cannot be pickled. Only this call fails; the stream goes on.

        A record that is larger than ``spark.penstock.block.maxSize`` allows, or that does not fit
        `schema`, is no error of the call: it is discarded, counted and reported to the driver with
        its reason and its start. Its position and its ``ack`` hold, for to read it again would not
        help.
        """
        self._attached().store(data, position, ack, framing)

    def storeFrom(self, readinto: Callable[[memoryview], int], framing: Any) -> None:
        """Store what `readinto` reads until it returns 0, without a Python object per record.

        Args:
            readinto: For example `socket.recv_into`: fills a part of the buffer that it is given,
                returns how many bytes it wrote, and 0 at the end of the source.
            framing: As for `store`.

        What was complete when `readinto` returned is in the open block before it is called again.

        Raises:
            Exception: What `readinto` raises, after what was complete by then has been stored;
                and what `store` raises.
        """
        self._attached().store_from(readinto, framing)

    def discard(
        self,
        data: Any,
        reason: str | Exception,
        position: Any = None,
        ack: Callable[[], None] | None = None,
    ) -> None:
        """Keep a record that the source gave and that cannot be stored, as a dead letter.

        Args:
            data: The record as it came.
            reason: Why; reported to the driver, and kept with the record.
            position: As for `store`.
            ack: As for `store`: called once the letter, and all that this thread stored before it,
                is durable. Without it, this returns before that.

        Raises:
            Exception: As `store`.
        """
        self._attached().discard(data, reason, position, ack)

    def seal(self) -> None:
        """Have what was stored made durable soon, and not at the end of the block interval.

        For a source that waits for an ``ack``, or gives no more before one: its block is sealed as
        soon as all blocks before it are durable and known, so that blocks become longer under load
        by themselves. Returns at once. Where each block is kept (``spark.penstock.wal.retention``),
        or each write is paid for, on an object store, blocks keep to the interval.
        """
        self._attached().seal()

    def restart(
        self, msg: str, error: BaseException | None = None, delay_ms: int | None = None
    ) -> None:
        """Stop this object and start it, or a copy, again after a delay; returns at once.

        `onStop` is called, then after `delay_ms` (default
        ``spark.streaming.receiverRestartDelay``) `onStart`. Blocks go on being stored meanwhile.
        Calls made while a restart is under way are one restart. `stop` during the delay wins.

        Args:
            msg: Why, for the driver's user.
            error: Its traceback travels to the driver.
            delay_ms: Milliseconds between `onStop` and `onStart`.
        """
        self._attached().restart(msg, error, delay_ms)

    def stop(self, msg: str, error: BaseException | None = None) -> None:
        """Stop this attempt; returns at once, and may be called from any thread.

        What was stored is made durable. As in Spark, the driver then starts the receiver afresh
        (from the driver's own copy of the object) as long as the context runs, with a growing
        delay if that happens again and again.
        """
        self._attached().stop(msg, error)

    def reportError(self, msg: str, error: BaseException | None = None) -> None:
        """Report an error to the driver, with its traceback, and go on."""
        self._attached().report_error(msg, error)

    def listening(self, *addresses: str) -> None:
        """Report where the source is to send: the log, `stream.addresses` and the page show it.

        Args:
            addresses: All of them, as a client is given them: ``"http://0.0.0.0:8080/hooks"``. For
                a host that means all addresses of this one (``0.0.0.0``, ``[::]``, or none), the
                name of this host is put. They hold until the next call, and to the end of this
                start.
        """
        self._attached().listening(addresses)

    def isStarted(self) -> bool:
        """True from before `onStart` is called until a stop or restart begins."""
        return self._attached().is_started()

    def isStopped(self) -> bool:
        """True once a stop or restart has begun; False before the first start.

        A receive loop ends when it sees this: ``while not self.isStopped(): ...``.
        """
        return self._attached().is_stopped()

    # -- what the supervisor does ----------------------------------------------------------------

    def _construct(self) -> None:
        """Make, in the executor, what could not be pickled. What it raises is permanent."""

    def _splits_after(self, places: Mapping[str, Any]) -> tuple[Iterable[str], dict[str, Any]]:
        """Return the names of the splits, and changes of their places; called in the driver.

        Args:
            places: The durable places of splits, also of those that are gone.

        Returns:
            By split: where one begins that has no place yet, and None for a place to forget.
        """
        assert self.splits is not None
        return self.splits(), {}

    def _take_position(self, last: bytes | None, splits: tuple[str, ...] | None = None) -> None:
        """Set `lastPosition`, which comes as MessagePack, and the splits that it has."""
        found = None if last is None else msgspec.msgpack.decode(last)
        if splits is not None:
            whole = {} if found is None else found
            if type(whole) is not dict:
                raise PositionError.of_another_source(found, self._receiver_type())
            own = set(splits)
            found = {key: place for key, place in whole.items() if split_of(key) in own}
            self.assignedSplits = splits
        self.lastPosition = found
        kind: Any = self._position_type if splits is None else dict[str, self._place_type]  # type: ignore[name-defined]
        if last is not None:
            try:
                msgspec.convert(self.lastPosition, kind)
            except msgspec.ValidationError as error:
                raise PositionError.of_another_source(
                    self.lastPosition, self._receiver_type()
                ) from error

    def _attached(self) -> Start:
        if self._supervisor is None:
            raise IllegalStateError(NOT_ATTACHED)
        return self._supervisor

    def _attach(self, start: Start) -> None:
        """Bind this object to the supervisor that runs it."""
        self._supervisor = start

    def _for_another_start(self) -> Receiver:
        """Return the object of the next start: like this one, which stays with its threads."""
        return copy.copy(self)

    def _bind_store(self, store: Callable[..., Any], store_from: Callable[..., Any]) -> None:
        """Put the generator's own functions in the place of the methods (no extra call per record).

        A subclass that overrides one of them keeps its own, which may call ``super()``.
        """
        for name, function in zip(_BOUND, (store, store_from), strict=True):
            if getattr(type(self), name) is getattr(Receiver, name):
                self.__dict__[name] = function

    def _receiver_type(self) -> str:
        """The name that the driver shows, followed by ``-<streamId>``."""
        return type(self).__name__

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what belongs to one process."""
        dropped = ("_supervisor", *_BOUND)
        return {name: value for name, value in self.__dict__.items() if name not in dropped}


def _not_given(*_: object) -> NoReturn:
    raise IllegalStateError(NOT_ATTACHED)


@dataclass(frozen=True)
class ReceiverContext:
    """Given to a generator function, or to `run`, at each start.

    Attributes:
        stream_id: The number of the stream.
        last_position: The position after the stream's last stored record, or None; the source goes
            on from it. With splits, a dict of their places.
        stopped: Set when a stop or restart begins. A source that waits for something can wait for
            this instead of sleeping: ``ctx.stopped.wait(1)``.
        store: `Receiver.store`. In a coroutine or an async generator it returns at once, and what
            it returns can be awaited: ``await ctx.store(record)`` goes on when that is durable,
            for which its block is sealed as by `Receiver.seal`.
        storeFrom: `Receiver.storeFrom`.
        discard: `Receiver.discard`; can be awaited as `store`.
        seal: `Receiver.seal`; in a coroutine of what it has called `store` with before.
        reportError: `Receiver.reportError`.
        listening: `Receiver.listening`.
        splits: `Receiver.assignedSplits`.
    """

    stream_id: int
    last_position: Any
    stopped: threading.Event
    store: Callable[..., Any]
    storeFrom: Callable[..., None]
    reportError: Callable[..., None]
    discard: Callable[..., Any] = _not_given
    seal: Callable[[], None] = _not_given
    listening: Callable[..., None] = lambda *addresses: None
    splits: tuple[str, ...] = ()
