"""`ReceiverHost`: runs receivers for queries of Structured Streaming, and continuous functions."""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from penstock._arguments import check_flag, check_stored_name, check_timeout, refused
from penstock.continuous import ContinuousOperation, Sink, Watermark
from penstock.errors import IllegalStateError, SettingError
from penstock.host.durability import checkpoint_folder
from penstock.host.encryption import choose_encryption
from penstock.host.errors import ContinuousStreamError, PermanentReceiverError
from penstock.host.interrupts import (
    IgnoredTermination,
    StopSignals,
    plain_interrupts,
    short_interrupts,
)
from penstock.host.orphans import ScratchClaim
from penstock.host.preparation import (
    check_application,
    describe_run,
    needed_modules,
    prepare_run,
    tail_of_run,
)
from penstock.host.receiver_arguments import check_operation, check_picklable
from penstock.host.receiver_readings import ReceiverReadings, ReceiverStatus
from penstock.host.receivers import HostedReceivers
from penstock.host.spark.contexts import (
    hand_over_storage,
    is_stopped,
    read_settings,
    spark_context_of,
)
from penstock.host.spark.ending import stop_bounded, stop_spark, tell_of_silence, told
from penstock.host.spark.executor_python import use_own_python
from penstock.host.spark.logs import QuietTasks, end_progress_bar, has_large_stacks
from penstock.host.terminal import TerminalLines
from penstock.rates import RateBook, RateLimits, RateMemory
from penstock.receiver import Receiver, as_receiver
from penstock.runtime.clock import SystemClock
from penstock.runtime.threads import OwnedThread, Repeated
from penstock.sql._host_monitor import HostEvents, WatchedHost, start_host_monitor
from penstock.sql._query_rates import FollowedStream, QueryRate, QueryRates, follow
from penstock.sql._run import QueriesOfRun
from penstock.sql.source.data_source import ShareFile, check_share_file, register, write_share_file
from penstock.tracker import (
    EpochStatus,
    KeptStream,
    KeptStreamSettings,
    LedgerLostError,
    Places,
    Retention,
)
from penstock.tracker.ledger.places import CONTINUOUS

if TYPE_CHECKING:
    from typing import Self

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from penstock.monitor import Monitor

_UNITS_MS = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_RELEASE_S = 1.0
_THREAD_ENDS_S = 5.0
_TRACKER_ENDS_S = 15.0
_STOP_S = 30.0
_CANCEL_S = 12.0
"""How long jobs of receivers that have not ended may take to be cancelled."""
_LOOK_S = 0.2
_STACKS = (
    "A query that is stopped within its foreachBatch function makes Spark print a thousand lines "
    "of Java; spark.driver.extraJavaOptions=-Xss8m avoids that"
)
_RATE_SOURCES = '"query", or None: the rate does not depend on queries'

_log = logging.getLogger("penstock.sql")


@dataclass(frozen=True)
class _Stream:
    receiver: Receiver
    retention: Retention
    consumer_timeout_s: float | None
    max_backlog_bytes: int | None
    follows_queries: bool


class ReceiverHost:
    """Runs receivers, and gives what they store to any number of queries.

    ::

        host = ReceiverHost(spark, directory="/var/lib/app")
        host.stream("clicks", clicks, retention="24 hours")
        host.start()
        clicks_df = spark.readStream.format("penstock").option("stream", "clicks").load()

    It outlives queries: one that is started again finds its stream. One host can be active in a
    process at a time. All methods may be called from any thread. A program that ends without
    `stop` is stopped when the interpreter exits. As a context manager it stops at the end of the
    ``with`` block.

    Args:
        spark: The session; the source ``penstock`` is registered with it.
        directory: The folder for what was received and the ledger, on this host or ``hdfs://…``.
            None: they are lost with the driver, and the log says so.
        share: A file that is written at the start, readable by this user only, with which
            `penstock.sql.connect` reads the streams from other applications.

    Raises:
        TypeError: `spark` is no session of this process.
        SettingError, UnwritableFolderError: The folder is not accepted, or cannot be written.
    """

    _active: ClassVar[ReceiverHost | None] = None
    _active_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        spark: SparkSession,
        directory: str | os.PathLike[str] | None = None,
        *,
        share: str | os.PathLike[str] | None = None,
    ) -> None:
        self._sc = spark_context_of(spark)
        if not isinstance(spark, SparkSession):
            raise TypeError(refused("spark", spark, "a SparkSession"))
        use_own_python(self._sc)
        hand_over_storage(self._sc)
        self._spark = spark
        self._directory = None if directory is None else checkpoint_folder(directory)
        if share is not None and not isinstance(share, (str, os.PathLike)):
            raise TypeError(refused("share", share, "a file's path"))
        self._share = None if share is None else os.fspath(share)
        self._shared: ShareFile | None = None
        self._clock = SystemClock()
        # Guards what follows; held for all of a start or stop.
        self._lock = threading.RLock()
        self._streams: dict[str, _Stream] = {}
        self._operations: dict[str, ContinuousOperation] = {}
        self._is_started = False
        self._is_stopped = self._is_ended = False
        self._hosted: HostedReceivers | None = None
        self._scratch: ScratchClaim | None = None
        self._numbers: dict[str, int] = {}
        self._errors: list[PermanentReceiverError | ContinuousStreamError] = []
        self._rates: QueryRates | None = None
        self._following: list[Callable[[], None]] = []
        self._releasing: Repeated | None = None
        self._has_told_of_spark = False
        self._monitor: Monitor | None = None
        self._termination = IgnoredTermination(self._sc)
        self._quiet_tasks = QuietTasks(self._sc)
        self._is_stop_asked = False

    def stream(
        self,
        name: str,
        receiver: Any,
        retention: str | float = "24 hours",
        *,
        retentionSize: str | int | None = None,
        consumerTimeout: str | float | None = "7 days",
        maxBacklog: str | int | None = "32g",
        rateSource: str | None = None,
    ) -> None:
        """Add a stream: what a receiver stores, under a name.

        Args:
            name: The name; by it the stream goes on after a restart. Without commas, or spaces
                around it.
            receiver: A `penstock.receiver.Receiver`, a generator function or async generator
                function, or a class with `run()`. A copy of it runs in an executor.
            retention: How long blocks stay that all queries have passed: seconds, or text such as
                ``"24 hours"``. 0 makes it a queue: a block goes when all queries have passed it,
                and none goes before there is one.
            retentionSize: And at most that many bytes of them, as a number or text such as
                ``"10g"``.
            consumerTimeout: A query that was not connected and committed nothing for this long is
                forgotten, with a warning: what only it needed goes. A host that is started again
                waits a day, or this time if it is shorter, for queries whose time was over
                meanwhile. None: never.
            maxBacklog: The receiver waits in `store` while this many bytes are stored that the
                slowest query has not read since it came; without queries, that are stored at all,
                unless `retentionSize` bounds them. A number or text such as ``"100g"``. Nothing is
                deleted by it. None: it does not wait.
            rateSource: ``"query"``: the receiver is as fast as the slowest query of this session
                that reads the stream (`spark.streaming.backpressure.rateEstimator` and its settings
                hold). None: its rate does not depend on queries.

        Raises:
            IllegalStateError: The host was started already.
            NotAReceiverError: It is no receiver.
            TypeError: It is a `Receiver` without one of the methods that it must define.
            ReceiverPickleError: It cannot be sent to an executor; names the variable.
            TypeError, ValueError: A name, time or size is not accepted, or the name is taken.
        """
        if rateSource is not None and not isinstance(rateSource, str):
            raise TypeError(refused("rateSource", rateSource, _RATE_SOURCES))
        if rateSource not in (None, "query"):
            raise ValueError(refused("rateSource", rateSource, _RATE_SOURCES))
        check_stored_name(name, "stream")
        adapted = as_receiver(receiver)
        with self._lock:
            if self._is_started:
                raise IllegalStateError(f"stream({name!r}) comes too late: the host was started")
            if name in self._streams:
                raise ValueError(f"there is a stream {name!r} already")
            check_picklable(adapted, name, len(self._streams))
            timeout_ms = (
                None if consumerTimeout is None else _time_ms(consumerTimeout, "consumerTimeout")
            )
            size = None if retentionSize is None else _size_bytes(retentionSize, "retentionSize")
            backlog = None if maxBacklog is None else _size_bytes(maxBacklog, "maxBacklog")
            if backlog == 0:
                raise ValueError(refused("maxBacklog", maxBacklog, "a size above 0, or None"))
            self._streams[name] = _Stream(
                adapted,
                Retention(_time_ms(retention, "retention"), size),
                None if timeout_ms is None else timeout_ms / 1000,
                backlog,
                rateSource is not None,
            )

    def continuous(
        self,
        name: str,
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
        """Call a function with the records of a stream as they come, beside its queries.

        What it returns is given to a sink, once. It is to the stream as a query is, with the
        consumer ``continuous``: it begins with the first record that is kept, what it has not
        committed stays for it, also while a host does not run, and `maxBacklog` has the receiver
        wait for it. A stream has one. It needs no session and no checkpoint: how far it is, the
        host's directory has. See docs/low-latency.md.

        Args:
            name: The stream; see `stream`.
            function: Is given the records. This and what follows is what
                `penstock.streaming.ReceiverDStream.continuous` has.
            sink: Where it goes.
            epoch: How long an epoch is.
            parallelism: How many tasks share the blocks; each holds a core.
            timeout: How long one call of the function or the sink may take.
            attempts: After that many failures of a task without an epoch between it ends; `run`
                then raises `ContinuousStreamError`, and `errors` has it.
            dead_letters: Whether a record for which the function raises is a dead letter.
            key_by: A column by whose keys the tasks share the records, with a state by key.
            on_timer: Is called with timers that have expired.
            watermark: Where event time comes from.
            deliver: Whether blocks are shown to it when they are durable, or already when stored.

        Raises:
            TypeError, ValueError: An argument is not accepted, or cannot be sent to an executor.
            KeyError: There is no such stream.
            IllegalStateError: The host was started, or the stream has such a function already.
        """
        operation = ContinuousOperation(
            *(function, sink, epoch, parallelism, timeout, attempts, dead_letters, key_by),
            on_timer=on_timer,
            watermark=watermark,
            deliver=deliver,
        )
        with self._lock:
            if self._is_started or self._is_stopped:
                what = "stopped" if self._is_stopped else "started"
                raise IllegalStateError(f"continuous({name!r}) comes too late: the host was {what}")
            if name not in self._streams:
                there = ", ".join(self._streams) or "none; call stream(name, receiver) first"
                raise KeyError(f"there is no stream {name!r}; there are {there}")
            if name in self._operations:
                raise IllegalStateError(
                    f"the stream {name!r} has a continuous function already: put both in one"
                )
            check_operation(operation, name, self._streams[name].receiver)
            self._operations[name] = operation

    # -- life ----------------------------------------------------------------------------------

    @short_interrupts()
    def start(self) -> None:
        """Start the receivers, and let the session know the source.

        A start that fails leaves nothing behind.

        Raises:
            IllegalStateError: It was started or stopped before, or is stopped meanwhile; another
                host is active, or has not been stopped to its end; or it has no stream.
            NotEnoughCoresError: The receivers and continuous functions would hold every core, with
                those that a `StreamingContext` beside them has.
            SettingError: A setting is not accepted, or a receiver's storage level keeps records
                in memory alone, where they would have to be kept for queries.
            ExecutorPythonError: The executors' Python cannot run the receivers.
            UnwritableFolderError: A log folder cannot be written.
            LogFolderInUseError: Another program receives with this directory.
            SourceError: `share` cannot be written, or is that of another host that lives.
            LedgerError: The directory is that of a `StreamingContext`.
            StreamsDoNotFitError: The directory has records of a stream that the host no longer has.
            LedgerError: A continuous function has another `key_by`, or with it another
                `parallelism`, than its epochs in the ledger.
            PenstockError: `spark.io.encryption.enabled` is set, and there is no key.
        """
        with self._lock:
            if self._is_started or self._is_stopped:
                raise IllegalStateError(
                    "a ReceiverHost is started once, and not again after it was stopped or its "
                    "start failed; make another"
                )
            if not self._streams:
                raise IllegalStateError("there is no stream: call stream(name, receiver) first")
            try:
                with ReceiverHost._active_lock:
                    if ReceiverHost._active is not None:
                        raise IllegalStateError(
                            "another ReceiverHost is active in this process; stop that one first, "
                            "or give it all streams (ReceiverHost.getActive())"
                        )
                    self._is_started = True
                    ReceiverHost._active = self
                # First: a host that is interrupted below, and again as that ends, is stopped at the
                # exit.
                atexit.register(self.stop)
                self._start()
                if self._is_stopped:
                    # By the handler of a signal, which ran in between and has ended what was
                    # started.
                    raise IllegalStateError("the ReceiverHost was stopped while it started")
            except BaseException:
                if self._is_started:
                    self._end()
                raise

    @classmethod
    def getActive(cls) -> ReceiverHost | None:
        """Return the host that is started and not stopped to its end, or None."""
        with cls._active_lock:
            return cls._active

    def _start(self) -> None:
        self._termination.begin()
        if self._operations:
            # Each of their failures ends a task, and is logged with its traceback.
            self._quiet_tasks.begin()
        if self._share is not None:
            check_share_file(self._share)
        settings = read_settings(self._sc)
        encryption = choose_encryption(settings, self._directory, os.environ)
        receivers = {name: found.receiver for name, found in self._streams.items()}
        requires = {module for found in receivers.values() for module in found.requires}
        check_application(
            self._sc,
            list(receivers.values()),
            HostedReceivers.running_in(self._sc),
            settings,
            needed_modules(requires, settings, self._directory, encryption),
            sum(operation.parallelism for operation in self._operations.values()),
        )
        run = prepare_run(
            self._sc, settings, self._directory, len(receivers), encryption, self._clock
        )
        durability = run.durability
        is_kept = self._directory is not None or settings.wal_dir is not None
        if is_kept and not durability.keeps_blocks:
            raise SettingError(
                "spark.streaming.receiver.writeAheadLog.enable",
                "false",
                "without a directory only: what the ledger keeps for queries would be gone after "
                "a restart",
            )
        for name, found in self._streams.items():
            level = found.receiver.storageLevel
            is_queue = found.retention.time_ms == 0 and not is_kept
            if durability.sync == "none" and not level.useDisk and not is_queue:
                raise SettingError(
                    "storageLevel",
                    str(level),
                    f"for stream {name!r} one with a copy on disk, such as MEMORY_AND_DISK: what "
                    "queries may still want would fill the memory for blocks, and nothing more "
                    "would come",
                )
        describe_run(_log, run, list(receivers.items()))
        if durability.scratch is not None:
            self._scratch = ScratchClaim(durability.scratch)
        lines = TerminalLines(_log, settings.console)
        ledger = run.open_ledger()
        try:
            self._numbers = ledger.register_streams(
                {name: number for number, name in enumerate(receivers)},
                settings.removed_streams or (),
                are_kept=True,
            )
            memories = {number: RateMemory() for number in self._numbers.values()}
            book = RateBook(lambda: memories, lambda: RateLimits.of(settings), self._clock)
            readings = ReceiverReadings(book, self._clock)
            events = HostEvents(self._failed, readings, lines)
            self._hosted = HostedReceivers(
                self._sc,
                {self._numbers[name]: (found, name) for name, found in receivers.items()},
                run,
                ledger,
                events=events,
                readings=readings,
                kept={self._numbers[name]: self._kept(name) for name in receivers},
            )
        except BaseException:
            ledger.close()
            raise
        self._hosted.check()
        tracker = self._hosted.tracker
        followed = {
            ledger.places.stream(self._numbers[name]).epoch: FollowedStream(
                self._numbers[name], name
            )
            for name, found in self._streams.items()
            if found.follows_queries
        }
        if followed:
            self._rates = QueryRates(
                followed,
                settings,
                lambda number: ledger.places.stream(number).records,
                book,
                self._clock,
            )
        book.start(settings, None, tracker.send_rate_update, tracker.waits_for_consumers)
        end_progress_bar(self._sc)
        self._monitor = start_host_monitor(
            WatchedHost(
                self._sc,
                {number: name for name, number in self._numbers.items()},
                self._hosted,
                tail_of_run(run),
                self._ask_to_stop,
            ),
            settings,
            events,
            lines.say,
            self._clock,
        )
        lines.say(self._introduction(durability.promise))
        if not has_large_stacks(self._sc):
            lines.say(_STACKS)
        self._hosted.tracker.start()
        self._follow(self._spark)
        access = self._hosted.tracker.block_access
        register(self._spark, access)
        if self._share is not None:
            self._shared = write_share_file(self._share, access)
        self._releasing = Repeated(self._release, _RELEASE_S, "retention")
        self._releasing.start()

    def _introduction(self, promise: str) -> str:
        names = ", ".join(f"{name}-{number}" for name, number in self._numbers.items())
        parts = [f"Penstock receives {names} for queries of {self._sc.appName}", promise]
        if self._sc.uiWebUrl:
            parts.append(f"Spark's UI at {self._sc.uiWebUrl}")
        return "; ".join(parts)

    def connect(self, spark: SparkSession) -> None:
        """Let another session of this application also read the streams.

        Raises:
            IllegalStateError: The host does not run.
        """
        with self._lock:
            if self._hosted is None or self._is_stopped:
                raise IllegalStateError("the host does not run")
            register(spark, self._hosted.tracker.block_access)
            self._follow(spark)

    def _follow(self, spark: SparkSession) -> None:
        # The queries of a client of Spark Connect are reported to the client alone.
        if self._rates is not None and isinstance(spark, SparkSession):
            self._following.append(follow(spark, self._rates))

    def _kept(self, name: str) -> KeptStreamSettings:
        found = self._streams[name]
        schema = found.receiver.schema
        return KeptStreamSettings(
            name,
            found.retention,
            found.consumer_timeout_s,
            None if schema is None else schema.serialize().to_pybytes(),
            found.max_backlog_bytes,
            self._operations.get(name),
        )

    def _failed(self, error: PermanentReceiverError | ContinuousStreamError) -> None:
        self._errors.append(error)
        if isinstance(error, ContinuousStreamError):
            # The tracker has logged others, and the failure with its traceback.
            _log.error("%s", str(error).splitlines()[0])
        elif self._hosted is not None:
            self._hosted.tracker.fail_places(error.stream_id, str(error))

    def _lost_receivers(self) -> set[int]:
        """Return the streams whose receivers are given up, by number."""
        return {each.stream_id for each in self._errors if isinstance(each, PermanentReceiverError)}

    def _tell_of_removal(self, places: Places) -> None:
        """Take note that no receiver has anything to do any more, if the ledger was removed."""
        try:
            places.check_more_can_come()
        except LedgerLostError as error:
            for stream_id in {*self._numbers.values()} - self._lost_receivers():
                self._failed(PermanentReceiverError(stream_id, str(error), ""))

    def _release(self) -> None:
        hosted = self._hosted
        assert hosted is not None
        if not self._has_told_of_spark and is_stopped(self._sc):
            self._has_told_of_spark = True
            _log.warning(
                "The SparkContext was stopped before the ReceiverHost: its receivers ended "
                "without storing what they had. Call host.stop() first, or use the host in a "
                "with block"
            )
        try:
            hosted.tracker.release_places()
        finally:
            self._tell_of_removal(hosted.tracker.ledger.places)

    def run(
        self,
        *queries: DataStreamWriter | StreamingQuery,
        timeout: float | None = None,
        stopSparkContext: bool = True,
    ) -> None:
        """Run queries until a signal, the time, or their end, and stop them and the host.

        For the main thread of a program. Ctrl-C and SIGTERM stop gracefully: the receivers store
        and report what they have, continuous functions commit it, and the queries end; with a
        directory they go on at the next start, without one they first read all that is stored;
        within `spark.streaming.gracefulStopTimeout`. A second signal ends the process. It also
        stops when it is asked to from outside, and when all queries have ended. How far each has
        come is said.

        Args:
            queries: What ``writeStream`` returns, to be started; or queries that were. One to be
                started is started again where Spark's Python process for it came too late.
            timeout: Seconds to run; None: without an end.
            stopSparkContext: Whether the SparkContext is also stopped.

        Raises:
            TypeError, ValueError: An argument is not accepted; nothing was started or stopped.
            StreamingQueryException: A query has failed; all was stopped.
            ContinuousStreamError: A continuous function has failed too often; all was stopped.
            PermanentReceiverError: There are no queries, and no receiver is left.
            Exception: See `start`, which is called where it was not.
        """
        check_timeout(timeout)
        check_flag(stopSparkContext, "stopSparkContext")
        run = QueriesOfRun(queries)
        begin_s = time.monotonic()
        with StopSignals() as signals:
            is_graceful = False
            try:
                if not self._is_started:
                    self.start()
                run.start()
                self._await_end(run, signals, None if timeout is None else begin_s + timeout)
                is_graceful = True
            finally:
                self._stop_run(run, begin_s, is_graceful)
                if stopSparkContext:
                    stop_spark(self._sc)

    def _await_end(self, run: QueriesOfRun, signals: StopSignals, end_s: float | None) -> None:
        while not signals.wait(_LOOK_S):
            if self._is_ending() or is_stopped(self._sc):
                return
            if end_s is not None and time.monotonic() >= end_s:
                return
            try:
                if run.look():
                    return
            except StreamingQueryException:
                if self._is_ending() or signals.is_asked:
                    return
                raise
            for error in self._errors:
                if isinstance(error, ContinuousStreamError):
                    raise error
            if not run.has_queries and len(self._lost_receivers()) == len(self._streams):
                raise self._errors[0]

    def _is_ending(self) -> bool:
        return self._is_stop_asked or self._is_stopped

    def _stop_run(self, run: QueriesOfRun, begin_s: float, is_graceful: bool) -> None:
        if self._hosted is None or self._is_stopped:
            run.stop()
            return
        stop_s = time.monotonic()
        settings = read_settings(self._sc)
        if is_graceful:
            patience_s = settings.graceful_stop_timeout_ms / 1000
            self._drain(patience_s)
            if self._directory is None and settings.wal_dir is None:
                self.stopReceiving()
                with told("the queries"):
                    if not run.drain(patience_s):
                        _log.error("The queries have not read all within %.0f s", patience_s)
        run.stop()
        streams = self.streams()
        self.stop()
        end_s = time.monotonic()
        with told("the queries"):
            lines = TerminalLines(_log, settings.console)
            lines.say(
                f"Stopped after {stop_s - begin_s:,.1f} s, in {end_s - stop_s:.1f} s: "
                f"{run.told(streams)}"
            )

    def stopReceiving(self, timeout: float = _STOP_S) -> None:
        """Stop the receivers, and go on giving what they stored to queries.

        Each stores and reports its last blocks first, so that a query can then be let to its end
        by `processAllAvailable`.

        Args:
            timeout: Seconds that this may take.
        """
        with plain_interrupts(), self._lock:
            hosted = self._hosted
            if hosted is not None:
                stop_bounded(
                    "receivers",
                    lambda: hosted.tracker.stop_receiving(True, timeout),
                    timeout + _CANCEL_S,
                )

    @property
    def isStopAsked(self) -> bool:
        """Whether the host was asked to stop from outside (`penstock stop`, or the page).

        The receivers are then stopped. A program that waits can look at it, let its queries come to
        their end, and stop the host.
        """
        return self._is_stop_asked

    def _ask_to_stop(self, graceful: bool) -> None:
        self._is_stop_asked = True
        OwnedThread(self.stopReceiving if graceful else self.stop, "host-stop").start()

    def _drain(self, timeout_s: float) -> None:
        """Let continuous functions commit what is left, once nothing more comes."""
        hosted = self._hosted
        if hosted is not None and self._operations and not is_stopped(self._sc):
            self.stopReceiving()
            with plain_interrupts(), told("continuous functions"):
                hosted.drain(timeout_s)

    def stop(self, stopGraceFully: bool = False) -> None:
        """Stop the receivers, and the host. May be called more than once, and after an interrupt.

        Each receiver stores and reports its last blocks. Queries that still run fail, and say that
        the host does not answer; so stop them first. With a directory nothing is lost that was
        stored; without one all is.

        Args:
            stopGraceFully: Whether continuous functions commit all that was received first, within
                `spark.streaming.gracefulStopTimeout`. Otherwise the rest is for the next start.

        Raises:
            TypeError: It is neither True nor False; nothing was stopped.
        """
        check_flag(stopGraceFully, "stopGraceFully")
        with self._lock:
            if self._is_ended or not self._is_started:
                self._is_stopped = True
                return
            tell_of_silence(self._sc)
            if stopGraceFully:
                self._drain(read_settings(self._sc).graceful_stop_timeout_ms / 1000)
            with plain_interrupts():
                self.stopReceiving()
                self._end()

    def _end(self) -> None:
        self._is_stopped = True
        if self._releasing is not None:
            self._releasing.stop(_THREAD_ENDS_S)
        if self._hosted is not None:
            self._hosted.readings.rates.stop()
        if self._following:
            stop_bounded(
                "the listener of queries",
                lambda: [end() for end in self._following],
                _THREAD_ENDS_S,
            )
        with told("the monitor"):
            if self._monitor is not None:
                # It asks the tracker, which stops next.
                self._monitor.stop(_THREAD_ENDS_S)
        hosted = self._hosted
        if hosted is not None:
            stop_bounded("the tracker", lambda: hosted.stop(_THREAD_ENDS_S), _TRACKER_ENDS_S)
            stop_bounded("the block server", hosted.end_block_server, _THREAD_ENDS_S)
        stop_bounded("the signals of Spark", self._termination.end, _THREAD_ENDS_S)
        stop_bounded("the log levels of Spark", self._quiet_tasks.end, _THREAD_ENDS_S)
        with told("the share file"):
            if self._shared is not None:
                self._shared.remove()
        with told("the scratch folder"):
            if self._scratch is not None:
                self._scratch.release()
        # Not before: after an interrupt above it is stopped again, at the latest at the exit, and
        # until then it is in the way of another.
        self._is_ended = True
        with ReceiverHost._active_lock:
            if ReceiverHost._active is self:
                ReceiverHost._active = None
        atexit.unregister(self.stop)

    def __enter__(self) -> Self:
        """Return the host; it is stopped at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- what is kept --------------------------------------------------------------------------

    def receivers(self) -> tuple[ReceiverStatus, ...]:
        """Return the receivers as they are now; none before `start`."""
        return () if self._hosted is None else self._hosted.status()

    def rates(self) -> Mapping[str, QueryRate]:
        """Return the rates of the streams with ``rateSource="query"``; empty before `start`."""
        return {} if self._rates is None else self._rates.rates()

    def setRate(self, name: str, rate: str | float | None) -> None:
        """Set the rate of a stream; queries and the settings may have it lower.

        Args:
            name: The stream.
            rate: Records per second as a number, or text such as ``"5000/second"``; None: no rate
                of its own. It holds until the host stops.

        Raises:
            IllegalStateError: The host does not run, or the receiver is not started again.
            KeyError: There is no such stream.
            ValueError, TypeError: It is no rate above 0.
        """
        rates, number = self._rates_of(name)
        rates.set_rate(number, rate)

    def pause(self, name: str) -> None:
        """Let nothing of a stream pass until `resume`, so that its source waits.

        A host that is started again goes on.

        Raises:
            IllegalStateError: The host does not run, or the receiver is not started again.
            KeyError: There is no such stream.
        """
        rates, number = self._rates_of(name)
        rates.set_paused(number, True)

    def resume(self, name: str) -> None:
        """Go on with a stream that was paused: by `pause`, from outside, or by its budget.

        Raises:
            IllegalStateError: The host does not run, or the receiver is not started again.
            KeyError: There is no such stream.
        """
        rates, number = self._rates_of(name)
        rates.set_paused(number, False)

    def _rates_of(self, name: str) -> tuple[RateBook, int]:
        if self._hosted is None or self._is_stopped:
            raise IllegalStateError("the host does not run")
        number = self._number_of(name)
        self._hosted.check_not_over(number)
        return self._hosted.readings.rates, number

    def _number_of(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            raise KeyError(f"there is no stream {name!r}; there are {', '.join(self._numbers)}")
        return number

    def streams(self) -> Mapping[str, KeptStream]:
        """Return what each stream has, and its readers; empty before `start`."""
        if self._hosted is None:
            return {}
        places = self._hosted.tracker.ledger.places
        return {name: places.stream(number) for name, number in self._numbers.items()}

    def epochs(self) -> Mapping[str, EpochStatus]:
        """Return where the epochs of continuous functions are, by stream; empty before `start`."""
        if self._hosted is None:
            return {}
        found = self._hosted.tracker.epochs()
        return {name: found[at] for name, at in self._numbers.items() if at in found}

    def errors(self) -> tuple[PermanentReceiverError | ContinuousStreamError, ...]:
        """Return what starting again could not mend, of receivers and continuous functions."""
        return tuple(self._errors)

    def dropConsumer(self, name: str, consumer: str) -> None:
        """Forget a consumer of a stream: what only it needs may go.

        Args:
            name: The stream.
            consumer: Its id, as `streams` gives it.

        Raises:
            IllegalStateError: The host does not run, or it is the stream's continuous function.
            KeyError: There is no such stream, or no such consumer.
        """
        if self._hosted is None or self._is_stopped:
            raise IllegalStateError("the host does not run")
        number = self._number_of(name)
        places = self._hosted.tracker.ledger.places
        consumers = [found.consumer for found in places.stream(number).consumers]
        if consumer not in consumers:
            there = ", ".join(consumers) or "none"
            raise KeyError(f"stream {name!r} has no consumer {consumer!r}; there are {there}")
        if consumer == CONTINUOUS and name in self._operations:
            raise IllegalStateError(
                f"{consumer} is the function of stream {name!r} in this program: drop it in one "
                "without it, or with `penstock consumers --drop` while no host runs"
            )
        places.drop(number, [consumer])


def readStream(
    spark: SparkSession,
    receiver: Any,
    directory: str | os.PathLike[str] | None = None,
    name: str | None = None,
    **options: Any,
) -> DataFrame:
    """Start a host with one receiver, and return its stream as a streaming DataFrame.

    The host is `ReceiverHost.getActive()`; it ends with the program.

    Args:
        spark: The session.
        receiver: See `ReceiverHost.stream`.
        directory: See `ReceiverHost`.
        name: The stream's name; by default its function's or type's.
        options: Options of the source, such as ``startingOffsets="latest"``.

    Raises:
        Exception: See `ReceiverHost.start`.
    """
    chosen = name or str(getattr(receiver, "__name__", type(receiver).__name__))
    host = ReceiverHost(spark, directory)
    host.stream(chosen, receiver)
    host.start()
    try:
        reader = spark.readStream.format("penstock").option("stream", chosen)
        return reader.options(**options).load()
    except BaseException:
        host.stop()
        raise


def _time_ms(value: str | float, name: str) -> int:
    accepted = 'seconds as a number, 0 or more, or text such as "90 seconds" or "24 hours"'
    if isinstance(value, str):
        number, _, unit = value.strip().partition(" ")
        factor = _UNITS_MS.get(unit.strip().lower().removesuffix("s"))
        if not number.isdigit() or factor is None:
            raise ValueError(refused(name, value, accepted))
        return int(number) * factor
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(refused(name, value, accepted))
    if not 0 <= value < float("inf"):
        raise ValueError(refused(name, value, accepted))
    return round(value * 1000)


def _size_bytes(value: str | int, name: str) -> int:
    accepted = 'a number of bytes, 0 or more, or text such as "10g"'
    if isinstance(value, str):
        text = value.strip().lower().removesuffix("b")
        factor = _SIZES.get(text[-1:], 1)
        digits = text[:-1] if text[-1:] in _SIZES else text
        if not digits.isdigit():
            raise ValueError(refused(name, value, accepted))
        return int(digits) * factor
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(refused(name, value, accepted))
    if value < 0:
        raise ValueError(refused(name, value, accepted))
    return value
