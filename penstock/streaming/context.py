"""`StreamingContext`: a streaming program from its first stream to its end."""

from __future__ import annotations

import atexit
import enum
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, overload

from pyspark import RDD, SparkContext

from penstock._arguments import as_folder, as_version, check_flag, check_timeout
from penstock._html import table_of
from penstock.errors import IllegalStateError, StreamGraphError
from penstock.files.addresses import is_on_objects
from penstock.host.durability import checkpoint_folder
from penstock.host.encryption import choose_encryption
from penstock.host.interrupts import (
    exit_on_termination,
    plain_interrupts,
    short_interrupts,
)
from penstock.host.orphans import ScratchClaim, remove_empty_rdd_folders
from penstock.host.preparation import (
    check_application,
    describe_run,
    needed_modules,
    prepare_run,
)
from penstock.host.receiver_arguments import check_picklable, numbers_of_receivers
from penstock.host.receiver_readings import ReceiverStatus
from penstock.host.receivers import HostedReceivers
from penstock.host.spark.contexts import hand_over_storage, read_settings, spark_context_of
from penstock.host.spark.ending import stop_spark
from penstock.host.spark.executor_python import use_own_python
from penstock.listeners.bus import StreamingListenerBus
from penstock.listeners.events import SchedulerStatistics
from penstock.listeners.listener import StreamingListener
from penstock.receiver.user_calls import blocked_at
from penstock.runtime.clock import Clock, SystemClock
from penstock.runtime.threads import OwnedThread
from penstock.streaming._engine import StreamingEngine
from penstock.streaming._live_view import LiveView, open_live_view
from penstock.streaming._running import RunOperations
from penstock.streaming.checkpoint.checkpointer import Checkpointing, Progress
from penstock.streaming.checkpoint.program_code import ProgramPart, parts_of
from penstock.streaming.checkpoint.record import Checkpoint, CheckpointHeader
from penstock.streaming.checkpoint.saved_states import take_up_states
from penstock.streaming.dstream.arity import check_arguments
from penstock.streaming.dstream.derived_streams import TransformedDStream, UnionDStream
from penstock.streaming.dstream.dstream import DStream
from penstock.streaming.dstream.graph import DStreamGraph
from penstock.streaming.dstream.inputs.input_operations import InputOperations, RateOperations
from penstock.streaming.dstream.inputs.input_streams import QueueInputDStream, ReceiverInputDStream
from penstock.streaming.dstream.inputs.receiver_dstream import ReceiverDStream, SplitDStream
from penstock.streaming.dstream.node import DStreamNode
from penstock.streaming.dstream.stream_handle import node_of
from penstock.streaming.durations import to_milliseconds
from penstock.streaming.recovery import (
    find_upgrade,
    make_checkpointing,
    recover_context,
    tell_of_changes,
)
from penstock.streaming.stop_report import StopReport
from penstock.streaming.waiter import ContextWaiter
from penstock.tracker import ReceivedBlockTracker, share_of
from penstock.wal import EncryptionKey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.host.receiver_arguments import (
        BulkSource,
        BulkSourceOfContext,
        CoroutineSource,
        Runs,
        Source,
        SourceOfContext,
    )
    from penstock.receiver import Receiver
    from penstock.settings import Settings

T = TypeVar("T")

_START_ENDS_S = 10.0
"""How long a stop waits for a start in another thread."""

_log = logging.getLogger("penstock.streaming")


class StreamingContextState(enum.Enum):
    """Where a context is in its life."""

    INITIALIZED = "initialized"
    """Made and not started; streams can be added."""
    ACTIVE = "active"
    """Started and not stopped."""
    STOPPED = "stopped"
    """Stopped, or failed to start; it cannot be started again."""


class StreamingContext(InputOperations, RateOperations, RunOperations):
    """Makes streams, and runs them batch by batch.

    ::

        ssc = StreamingContext(sc, 1)
        lines = ssc.socketTextStream("localhost", 9999)
        lines.flatMap(str.split).countByValue().pprint()
        ssc.start()
        ssc.awaitTermination()

    `run` does the last two and stops at Ctrl-C, SIGTERM or an error; as a context manager it stops
    the streams at the end of the ``with`` block.

    One context can be active in a process at a time. All methods may be called from any thread.
    A program that ends without `stop` is stopped when the interpreter exits.

    Args:
        sparkContext: The Spark context, or a `SparkSession` that has one.
        batchDuration: Seconds between two batches, as int or float.
        clock: Gives the batch times; for tests.

    Raises:
        ValueError: `batchDuration` is missing or not above zero.
        TypeError: `sparkContext` is neither, or a session of Spark Connect, which has none.
        IllegalStateError: The Spark context was stopped.
    """

    _active: ClassVar[StreamingContext | None] = None
    _active_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        sparkContext: SparkContext | SparkSession,
        batchDuration: float | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        if batchDuration is None:
            raise ValueError("batchDuration is needed: the seconds between two batches")
        self._sc = spark_context_of(sparkContext)
        use_own_python(self._sc)
        hand_over_storage(self._sc)
        self._clock = SystemClock() if clock is None else clock
        self._graph = DStreamGraph(self._sc, to_milliseconds(batchDuration, "batchDuration"))
        self._bus = StreamingListenerBus()
        self._waiter = ContextWaiter(self._spark_ended)
        self._engine: StreamingEngine | None = None
        self._rates = self._make_rates()
        self._checkpoint_directory: str | None = None
        self._recovered: Progress | None = None
        self._version = ""
        self._parts: tuple[ProgramPart, ...] = ()
        self._upgraded: CheckpointHeader | None = None
        self._is_first = False
        # Guards the state; held for all of a start or stop, so that they come one by one.
        self._changing = threading.RLock()
        self._state = StreamingContextState.INITIALIZED
        self._stopping = False
        self._starting: threading.Thread | None = None
        self._was_stopped_early = False
        self._stop_report = StopReport()
        self._view_lock = threading.Lock()
        self._view: LiveView | None = None
        directory = self._sc.getConf().get("spark.streaming.checkpoint.directory")
        if directory is not None:
            self.checkpoint(directory)

    @property
    def sparkContext(self) -> SparkContext:
        """The Spark context."""
        return self._sc

    def getState(self) -> StreamingContextState:
        """Return where the context is in its life."""
        return self._state

    @classmethod
    def getActive(cls) -> StreamingContext | None:
        """Return the context that is started and not stopped, or None."""
        with cls._active_lock:
            return cls._active

    @classmethod
    def getOrCreate(
        cls,
        checkpointPath: str,
        setupFunc: Callable[[], StreamingContext],
        version: str | None = None,
    ) -> StreamingContext:
        """Return the context that a checkpoint describes, or else a new one.

        From a checkpoint come the streams with their functions and states, the batch times, and
        what was received; listeners must be added again. `setupFunc` is then not called, and no
        stream can be added. `start` goes on where the run before ended: batches that were not
        complete are made again with the same data, so an output operation may see one twice.

        A checkpoint holds the program's code. So that changed code is used, name its version: when
        another version wrote the checkpoints, `setupFunc` is called, and `start` goes on where that
        one ended: with its batches, and with the positions, waiting records and states of the same
        names (docs/upgrading.md).

        Args:
            checkpointPath: The checkpoint directory; a new context is also given it.
            setupFunc: Makes a context with its streams.
            version: The version of the program's code, any text that is not empty; None for
                whatever version is in the checkpoints.

        Raises:
            TypeError: `setupFunc` is not callable or returned no context, or the path or the
                version is no text.
            ValueError: The path or the version is empty.
            CheckpointReadError: There is a checkpoint that cannot be used.
            DamagedLedgerError: The driver log, which holds it, is damaged.
            LogFolderInUseError: Another program of this host runs from the folder.
            CheckpointVersionError: It was written by another version of Python, PySpark
                or Penstock.
            EncryptionMismatchError, PenstockError: They are encrypted and
                there is no key for them, or not encrypted and there is one.
            OSError: The folder cannot be looked into, such as one on an HDFS that is away.
        """
        if not callable(setupFunc):
            raise TypeError("setupFunc should be callable.")
        checkpointPath = as_folder(checkpointPath, "checkpointPath")
        version = as_version(version)
        upgraded = find_upgrade(checkpointPath, version) if version else None
        recovered = recover_context(cls, checkpointPath) if upgraded is None else None
        if recovered is not None:
            if recovered._recovered is not None:
                tell_of_changes(checkpointPath, setupFunc, recovered._recovered, version)
            return recovered
        context: object = setupFunc()
        if not isinstance(context, StreamingContext):
            returned = type(context).__name__
            raise TypeError(f"setupFunc returned {returned!r}: it must return its StreamingContext")
        context.checkpoint(checkpointPath)
        context._version = version or ""
        context._parts = parts_of(setupFunc)
        context._upgraded = upgraded
        context._is_first = upgraded is None
        return context

    @classmethod
    def getActiveOrCreate(
        cls, checkpointPath: str | None, setupFunc: Callable[[], StreamingContext]
    ) -> StreamingContext:
        """Return the context that is started and not stopped, or else do as `getOrCreate`.

        Args:
            checkpointPath: The checkpoint directory; None for always a new context.
            setupFunc: Makes a context with its streams.

        Raises:
            TypeError: `setupFunc` is not callable.
            CheckpointReadError: There are checkpoints, and none can be used.
        """
        if not callable(setupFunc):
            raise TypeError("setupFunc should be callable.")
        active = cls.getActive()
        if active is not None:
            return active
        return setupFunc() if checkpointPath is None else cls.getOrCreate(checkpointPath, setupFunc)

    def _take_over(self, graph: DStreamGraph, progress: Progress) -> None:
        """Go on with the graph of an earlier run."""
        self._graph = graph
        self._recovered = progress
        self._version = progress.version
        self._parts = progress.parts

    def statistics(self) -> SchedulerStatistics:
        """Return how many batches wait, run and are done."""
        if self._engine is None:
            return SchedulerStatistics(0, 0, 0, 0, None)
        return self._engine.statistics()

    def receivers(self) -> tuple[ReceiverStatus, ...]:
        """Return the receivers as they are now, in the order of their streams; none before `start`.

        They are frozen records: state, host, attempts, records, position, last error, and what
        each waited for in the last second.
        """
        return () if self._engine is None else self._engine.receivers()

    def __repr__(self) -> str:
        parts = [f"a batch every {self._graph.batch_ms / 1000:g} s", self._state.value]
        parts.append(f"{len(self._graph.inputs)} inputs")
        if self._engine is not None:
            done = self._engine.statistics()
            parts.append(f"{done.completed_batches} batches done, {done.waiting_batches} wait")
        return f"<StreamingContext {self._sc.appName!r}: {', '.join(parts)}>"

    def _repr_html_(self) -> str:
        parts = [f"<p>{escape(repr(self))}</p>", table_of("Receivers", self.receivers())]
        if self._state is StreamingContextState.ACTIVE:
            parts.append(table_of("Rates per second", self.rates().values()))
        if self._engine is not None:
            parts.append(table_of("Batches", [self._engine.statistics()]))
        return "".join(parts)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """Return a widget that follows the context, for a notebook that has `ipywidgets`."""
        if self._state is not StreamingContextState.ACTIVE:
            return {}
        with self._view_lock:
            if self._view is None:
                self._view = open_live_view(self._repr_html_)
            return {} if self._view is None else self._view.mimebundle()

    # -- streams ---------------------------------------------------------------------------------

    @overload
    def receiverStream(
        self, receiver: Receiver | Runs | type[Runs], name: str | None = None
    ) -> ReceiverDStream[Any]: ...

    @overload
    def receiverStream(
        self, receiver: BulkSource[T] | BulkSourceOfContext[T], name: str | None = None
    ) -> ReceiverDStream[T]: ...

    @overload
    def receiverStream(
        self, receiver: Source[T] | SourceOfContext[T], name: str | None = None
    ) -> ReceiverDStream[T]: ...

    @overload
    def receiverStream(
        self, receiver: CoroutineSource, name: str | None = None
    ) -> ReceiverDStream[Any]: ...

    @overload
    def receiverStream(
        self,
        receiver: Any,
        name: str | None = None,
        *,
        numReceivers: int,
        maxReceivers: int | None = None,
    ) -> SplitDStream[Any]: ...

    def receiverStream(
        self,
        receiver: Any,
        name: str | None = None,
        *,
        numReceivers: int | None = None,
        maxReceivers: int | None = None,
    ) -> ReceiverDStream[Any] | SplitDStream[Any]:
        """Return the records that a receiver stores.

        Args:
            receiver: A `penstock.receiver.Receiver`, a generator function or async generator
                function that yields records, another callable that returns the same, or a class
                with `run()`. A copy of it runs in an executor.
            name: The stream's name, see `ReceiverDStream.named`; by default the receiver's type
                or function.
            numReceivers: How many receivers share the source, for a receiver that declares `splits`
                (`penstock.receiver.Receiver`). They are one stream, a `SplitDStream`, whose `scale`
                changes their number while the context runs. When None one receiver has them all.
            maxReceivers: How many `scale` may ask for; as many as `numReceivers` by default.

        Raises:
            NotAReceiverError: It is none of these.
            TypeError: It is a `Receiver` without one of the methods that it must define.
            ReceiverPickleError: It cannot be sent to an executor; names the variable.
            ValueError: The name is empty, the numbers are no numbers of receivers, or there are
                several of one that does not declare `splits`.
        """
        from penstock.receiver import as_receiver

        adapted = as_receiver(receiver)
        kind = adapted._receiver_type()
        numbers = numbers_of_receivers(adapted, numReceivers, maxReceivers)
        if name is not None:
            self._graph.check_new_name(name, "stream")
        check_picklable(adapted, kind, len(self._graph.inputs))
        if numbers is None:
            stream = self._received(ReceiverInputDStream(self._graph, adapted, kind))
            return stream if name is None else stream.named(name)
        wanted, most = numbers
        nodes = tuple(
            ReceiverInputDStream(self._graph, adapted, f"{kind}/{number}") for number in range(most)
        )
        for node in nodes:
            node.siblings, node.receivers = nodes, wanted
        shared: SplitDStream[Any] = SplitDStream(self, nodes)
        return shared if name is None else shared.named(name)

    def splitStream(self, name: str) -> SplitDStream[Any]:
        """Return the stream of several receivers by its name, for a program that has no handle.

        A context that was recovered from a checkpoint has its streams, and the program that made
        them did not run.

        Raises:
            StreamGraphError: There is none of that name.
        """
        inputs = self._graph.inputs
        leading = [node for node in inputs if isinstance(node, ReceiverInputDStream) and node.leads]
        for node in leading:
            if node.shared_name == name:
                return SplitDStream(self, node.siblings)
        others = ", ".join(repr(node.shared_name) for node in leading) or "none"
        raise StreamGraphError(
            f"no stream {name!r} has several receivers of one source; {others} has"
        )

    def _received(self, node: ReceiverInputDStream) -> ReceiverDStream[Any]:
        return ReceiverDStream(self, node)

    def queueStream(
        self,
        rdds: Sequence[RDD[T] | Iterable[T]],
        oneAtATime: bool = True,
        default: RDD[T] | Iterable[T] | None = None,
    ) -> DStream[T]:
        """Return the records of RDDs from a queue, mostly for tests.

        Args:
            rdds: RDDs or lists, as they are now; later changes are not seen.
            oneAtATime: Whether a batch takes one of them, or all at once.
            default: The records of each batch when the queue is empty.
        """
        queue = [self._as_rdd(rdd) for rdd in rdds]
        fallback = None if default is None else self._as_rdd(default)
        return self._stream(QueueInputDStream(self._graph, queue, oneAtATime, fallback))

    def _as_rdd(self, records: RDD[T] | Iterable[T]) -> RDD[T]:
        return records if isinstance(records, RDD) else self._sc.parallelize(list(records))

    def union(self, *dstreams: DStream[Any]) -> DStream[Any]:
        """Return the records of all the streams, which must have the same slide."""
        if not dstreams:
            raise ValueError("should have at least one DStream to union")
        nodes = self._nodes_of(dstreams)
        if len(dstreams) == 1:
            return dstreams[0]
        return self._stream(UnionDStream(nodes))

    def transform(
        self, dstreams: Sequence[DStream[Any]], transformFunc: Callable[..., RDD[T] | None]
    ) -> DStream[T]:
        """Return what `transformFunc` makes of the streams' RDDs, which it gets as one tuple."""
        if not dstreams:
            raise ValueError("should have at least one DStream to transform")
        check_arguments(transformFunc, "a tuple of RDDs", 1, "transformFunc")
        nodes = self._nodes_of(dstreams)
        return self._stream(TransformedDStream(nodes, lambda _, *rdds: transformFunc(rdds)))

    def _nodes_of(self, streams: Sequence[DStream[Any]]) -> list[DStreamNode]:
        nodes = [node_of(stream, "dstreams") for stream in streams]
        if any(node.graph is not self._graph for node in nodes):
            raise ValueError(
                "the DStreams belong to different contexts, or to another one than this"
            )
        return nodes

    def _stream(self, node: DStreamNode) -> DStream[Any]:
        return DStream(self, node)

    # -- settings --------------------------------------------------------------------------------

    def remember(self, duration: float) -> None:
        """Let every stream remember its RDDs for at least `duration` seconds; once only.

        Raises:
            IllegalStateError: The context was started already.
        """
        self._check_not_started(f"remember({duration!r})")
        self._graph.remember(to_milliseconds(duration, "duration"))

    def checkpoint(self, directory: str | os.PathLike[str] | None) -> None:
        """Set the folder for what must survive the driver; None clears it.

        A path of this host, or ``hdfs://…``, or on an object store (``s3://bucket/…``,
        ``gs://bucket/…``, ``abfss://container@account.dfs.core.windows.net/…``), which also survive
        the loss of the host.

        The driver's log goes there, and, unless a log folder is set, the receivers' logs; both are
        then synced to disk. RDDs are checkpointed there, and the graph with its functions, so that
        `getOrCreate` can go on after a crash. On an object store RDDs are not: Spark saves them by
        Hadoop's file systems. A program with states, or with other streams that are checkpointed,
        sets a folder for them by `SparkContext.setCheckpointDir`; `start` says so.

        Raises:
            SettingError: It is on another file system.
            UnwritableFolderError: It is on this host, and this user may not write to it.
            IllegalStateError: The context was started already.
        """
        self._check_not_started(f"checkpoint({directory!r})")
        self._is_first = False
        if directory is None:
            self._checkpoint_directory = None
            return
        directory = checkpoint_folder(directory)
        if not is_on_objects(directory):
            self._sc.setCheckpointDir(directory)
        self._checkpoint_directory = directory

    def _check_not_started(self, call: str) -> None:
        if self._state is not StreamingContextState.INITIALIZED:
            raise IllegalStateError(
                f"{call} has no effect on a context that was started; call it before start()"
            )

    def addStreamingListener(self, streamingListener: StreamingListener) -> None:
        """Notify `streamingListener` of receivers, batches and output operations from now on."""
        self._bus.add(streamingListener, of_program=True)

    def removeStreamingListener(self, streamingListener: StreamingListener) -> None:
        """Notify `streamingListener` no more."""
        self._bus.remove(streamingListener)

    # -- life ------------------------------------------------------------------------------------

    @short_interrupts()
    def start(self) -> None:
        """Start receivers and batches. A second call only warns.

        A start that fails leaves nothing behind; the context counts as stopped.

        Raises:
            IllegalStateError: The context was stopped, or another one is active.
            StreamGraphError: There is no output operation, or a stream cannot run as it is.
            NotEnoughCoresError: The receivers would hold every core.
            SettingError: A setting has an unknown key or a value that is not accepted.
            ExecutorPythonError: The executors' Python cannot run the program.
            UnwritableFolderError: A log folder cannot be written.
            UnpicklableFunctionError: A checkpoint directory is set, and a function of a stream
                cannot be written to checkpoints; names the variable.
            UpgradeError: It cannot take up another version's states, or be checkpointed itself.
            LogFolderInUseError: Another program that runs has the checkpoint directory.
            CheckpointReadError: Another program ran from it until after the checkpoint was read.
            CheckpointWriteError: The first checkpoint could not be written.
            PenstockError: `spark.io.encryption.enabled` is set, something outlives the
                program, and there is no key for it.
            EncryptionMismatchError: What an earlier run wrote is not encrypted with
                this key. Nothing of it was changed.
            SparkEndedError: Spark ended meanwhile.
        """
        with self._changing:
            if self._state is StreamingContextState.ACTIVE:
                _log.warning("StreamingContext has already been started")
                return
            if self._state is StreamingContextState.STOPPED:
                raise IllegalStateError("StreamingContext has already been stopped; make a new one")
            self._become_active()
            self._starting = threading.current_thread()
            try:
                spark_context_of(self._sc)  # It may have been stopped since.
                self._graph.close("starting")
                engine = self._make_engine()
                self._engine = engine
                engine.start()
                self._starting = None
                if self._was_stopped_early:
                    engine.stop(graceful=False)
                    engine.restore()
                    raise IllegalStateError("StreamingContext was stopped while it started")
            except BaseException as error:
                self._engine = None
                self._end(error)
                raise
            finally:
                self._starting = None
            self._state = StreamingContextState.ACTIVE
            atexit.register(self._stop_at_exit)
            if engine.is_graceful_on_shutdown:
                exit_on_termination()
            _log.info("StreamingContext started")

    def _become_active(self) -> None:
        with StreamingContext._active_lock:
            if StreamingContext._active is not None:
                raise IllegalStateError(
                    "Only one StreamingContext may be started in this process, and another one "
                    "is active; stop that one first (StreamingContext.getActive())"
                )
            StreamingContext._active = self

    def _make_engine(self) -> StreamingEngine:
        self._check_graph()
        settings = read_settings(self._sc)
        directory = self._checkpoint_directory
        encryption = choose_encryption(settings, directory, os.environ)
        self._graph.encryption = encryption
        receivers = [node for node in self._graph.inputs if isinstance(node, ReceiverInputDStream)]
        requires = {
            name
            for node in self._graph.inputs
            for name in (
                node.receiver.requires
                if isinstance(node, ReceiverInputDStream)
                else getattr(node, "requires", ())
            )
        }
        tasks = sum(node.continuous.parallelism for node in receivers if node.continuous)
        check_application(
            self._sc,
            list(_with_tasks(receivers, settings.receivers_per_slot)),
            HostedReceivers.running_in(self._sc),
            settings,
            needed_modules(requires, settings, directory, encryption),
            tasks,
            has_batches=bool(self._graph.outputs),
        )
        run = prepare_run(self._sc, settings, directory, len(receivers), encryption, self._clock)
        folder = run.durability.scratch
        scratch = None if folder is None else ScratchClaim(folder)
        ledger = None
        try:
            if receivers or directory is not None:
                ledger = run.open_ledger()
            made = self._make_checkpointing(settings, ledger, encryption)
            if directory is not None:
                remove_empty_rdd_folders(directory, self._sc.getCheckpointDir())
            describe_run(_log, run, [(node.name, node.receiver) for node in receivers])
            return StreamingEngine(
                self._graph,
                run,
                bus=self._bus,
                waiter=self._waiter,
                on_stop_asked=self._stop_asked,
                ledger=ledger,
                scratch=scratch,
                checkpoints=made,
                rates=self._rates,
            )
        except BaseException:
            if ledger is not None:
                ledger.close()
            if scratch is not None:
                scratch.release()
            raise

    def _check_graph(self) -> None:
        """Check that the streams can run; states need a folder, and the SparkContext's own will do.

        With that one alone only RDDs are saved: it bounds their lineage, and no driver goes on.
        """
        folder = self._checkpoint_directory or self._sc.getCheckpointDir()
        self._graph.validate(folder is not None)
        has_rdd_folder = self._sc.getCheckpointDir() is not None
        if folder is not None and not has_rdd_folder and self._graph.saves_rdds():
            raise StreamGraphError(
                "States and other streams that are checkpointed are saved by Spark, not in "
                f"{folder}: call sc.setCheckpointDir(...) with a folder that Spark can write to "
                "from all hosts, such as hdfs://… Logs and checkpoints stay on the object store"
            )
        if self._checkpoint_directory is None and folder is not None and self._graph.saves_rdds():
            _log.warning(
                "States are saved in %s, the checkpoint directory of the SparkContext, to bound "
                "their lineage only: when the driver ends, they and what was received are lost. "
                "Call StreamingContext.checkpoint(...) to go on after a restart",
                folder,
            )

    def _make_checkpointing(
        self,
        settings: Settings,
        ledger: ReceivedBlockTracker | None,
        encryption: EncryptionKey | None,
    ) -> Checkpointing | Checkpoint | None:
        directory = self._checkpoint_directory
        if directory is None or ledger is None:
            return None
        removed = settings.removed_states or ()
        return make_checkpointing(
            self._graph,
            directory,
            self._recovered,
            ledger,
            version=self._version,
            parts=self._parts,
            upgraded=self._upgraded,
            is_first=self._is_first,
            take_up=lambda before: take_up_states(
                self, self._graph, before, directory, self._version, removed, encryption
            ),
        )

    def awaitTermination(self, timeout: float | None = None) -> None:
        """Wait until the context has stopped, or `timeout` seconds have passed.

        Ctrl-C raises `KeyboardInterrupt` here and leaves the streams running, so that
        `stop(stopGraceFully=True)` can still drain them.

        Raises:
            OutputOperationError: An output operation failed; the cause is its error. The context
                goes on. The latest error is raised, and again by later calls.
            JobGenerationError: A batch could not be made.
            StateSavingError: A batch waits for long, for room on the disk of its states.
            PermanentReceiverError: A receiver failed in a way that a restart cannot solve.
            SparkEndedError: Spark is gone, and so the context has stopped.
        """
        self.awaitTerminationOrTimeout(timeout)

    def awaitTerminationOrTimeout(self, timeout: float | None) -> bool:
        """Wait like `awaitTermination`.

        Returns:
            True when the context has stopped, False when the time was over first.

        Raises:
            TypeError, ValueError: `timeout` is no number.
        """
        check_timeout(timeout)
        if timeout is None and self._state is StreamingContextState.INITIALIZED:
            _log.warning(
                "awaitTermination() waits for a context that was not started, until another thread "
                "starts and stops it; call start() before, or run() in place of both"
            )
        with plain_interrupts():
            return self._waiter.wait_for_stop_or_error(timeout)

    @short_interrupts()
    def stop(
        self, stopSparkContext: bool = True, stopGraceFully: bool = False
    ) -> StopReport | None:
        """Stop receivers and batches.

        May be called in every state and more than once; a later call can still stop the
        SparkContext. Called from an output operation, it does not wait for that one.

        A graceful stop waits for the next batch time if there are records that no batch has.
        Called from an output operation or a function of `transform`, it would wait for itself: it
        returns at once, and another thread stops the context when the function has returned.
        `awaitTermination` returns when that is done.

        Args:
            stopSparkContext: Whether the SparkContext is also stopped.
            stopGraceFully: Whether everything that was received is processed first, within
                `spark.streaming.gracefulStopTimeout` in total. Otherwise running output
                operations get two seconds.

        Returns:
            What was given up; None when another thread does the stop: also one that hangs in
            `start`, which stops the context when it comes out of it.

        Raises:
            IllegalStateError: It was called by a listener, whose thread it would wait for.
            TypeError: An argument is neither True nor False; nothing was stopped.
        """
        check_flag(stopSparkContext, "stopSparkContext")
        check_flag(stopGraceFully, "stopGraceFully")
        if self._bus.is_current_thread():
            raise IllegalStateError(
                "Cannot stop StreamingContext within listener bus thread; call stop from another "
                "thread, for example the one that waits in awaitTermination"
            )
        engine = self._engine
        if stopGraceFully and engine is not None and engine.is_batch_thread():
            self._stop_elsewhere(stopSparkContext)
            return None
        has_turn = self._take_turn()
        if has_turn:
            try:
                self._stop_streams(stopGraceFully)
            finally:
                self._changing.release()
        elif not self._was_stopped_early:
            return None
        if stopSparkContext:
            stop_spark(self._sc)
        if engine is not None:
            engine.restore()
        return self._stop_report if has_turn else None

    def _stop_elsewhere(self, stopSparkContext: bool) -> None:
        if self._stopping:
            return
        self._stopping = True
        _log.warning(
            "stop(stopGraceFully=True) was called by a function that a batch waits for: it returns "
            "now, and the context is stopped when that function has returned"
        )
        self._stop_soon(stopSparkContext, True)

    def _take_turn(self) -> bool:
        """Take the lock, except in a function that a stop may be waiting for.

        Another stop is waited for, for it has its bounds; a start only for some seconds.
        """
        engine = self._engine
        is_batch_thread = engine is not None and engine.is_batch_thread()
        start_by_s = time.monotonic() + _START_ENDS_S
        while not self._changing.acquire(timeout=0.05):
            if is_batch_thread and self._stopping:
                return False
            starting = self._starting
            if starting is not None and time.monotonic() >= start_by_s:
                self._was_stopped_early = True
                if self._starting is None:
                    continue  # It has just returned, and may have looked before.
                _log.critical(
                    "StreamingContext cannot be stopped yet: start() has not returned for %.0f s "
                    "in the thread %s, which stands at %s. It is stopped when start() returns",
                    _START_ENDS_S,
                    starting.name,
                    blocked_at(starting, frames=10),
                )
                return False
        return True

    def _stop_streams(self, graceful: bool) -> None:
        if self._state is StreamingContextState.STOPPED:
            return
        self._stopping = True
        self._graph.close("stopping")
        try:
            if self._engine is not None:
                self._stop_report = self._engine.stop(graceful)
                _log.info("StreamingContext stopped")
        except Exception as error:
            self._end(error)
            raise
        self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._state = StreamingContextState.STOPPED
        with StreamingContext._active_lock:
            if StreamingContext._active is self:
                StreamingContext._active = None
        atexit.unregister(self._stop_at_exit)
        with self._view_lock:
            view, self._view = self._view, None
        if view is not None:
            view.close()
        if error is not None:
            self._waiter.notify_error(error)
        self._waiter.notify_stop()

    def _stop_asked(self, graceful: bool) -> None:
        self._stop_soon(False, graceful)

    def _spark_ended(self) -> None:
        # In a thread of its own: the thread that reports it is one of those that a stop waits for.
        self._stop_soon(False, False, daemon=True)

    def _stop_soon(self, stop_spark: bool, graceful: bool, daemon: bool = False) -> None:
        # Not a daemon where it is to be graceful: the program may be over before it.
        OwnedThread(partial(self.stop, stop_spark, graceful), "stop", daemon=daemon).start()

    def _stop_at_exit(self) -> None:
        engine = self._engine
        graceful = engine is not None and engine.is_graceful_on_shutdown
        if not self._stopping:
            _log.warning("The program ends without StreamingContext.stop(); stopping it now")
        if engine is not None:
            engine.leave_logs()
        self.stop(stopSparkContext=False, stopGraceFully=graceful)


def _with_tasks(nodes: Iterable[ReceiverInputDStream], per_slot: int) -> Iterator[Receiver]:
    """Yield the receivers that hold tasks at first: of those that share slots all there may be."""
    for node in nodes:
        if not node.siblings or share_of(node.receiver, per_slot) < 1:
            yield node.receiver
        elif node.leads:
            yield from [node.receiver] * node.receivers
