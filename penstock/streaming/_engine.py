"""What runs while a context is active: tracker, scheduler, generator, listeners; start and stop.

A stop ends whatever hangs (I12): what waits for a disk, another host or the JVM is a bounded step,
and a step that fails is reported and keeps no other from its turn.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from penstock.errors import StreamGraphError
from penstock.files.addresses import is_shared
from penstock.host.durability import check_writable
from penstock.host.interrupts import IgnoredTermination
from penstock.host.orphans import ScratchClaim
from penstock.host.preparation import Run, tail_of_run
from penstock.host.receiver_readings import ReceiverStatus
from penstock.host.spark.ending import stop_bounded, tell_of_silence, told
from penstock.host.spark.logs import QuietTasks, end_progress_bar, is_not_of_py4j
from penstock.host.terminal import some_of
from penstock.listeners.bus import StreamingListenerBus
from penstock.listeners.events import SchedulerStatistics, StreamingStarted
from penstock.listeners.input_info import InputInfoTracker
from penstock.rates import RateBook
from penstock.streaming._receivers import ReceiverSide
from penstock.streaming.checkpoint.checkpointer import Checkpointing
from penstock.streaming.checkpoint.record import Checkpoint
from penstock.streaming.console import Console, ConsoleFacts
from penstock.streaming.dstream.derived_streams import NarrowDStream
from penstock.streaming.dstream.graph import BatchRuntime, DStreamGraph
from penstock.streaming.dstream.inputs.dead_letter_stream import DeadLetterInputDStream
from penstock.streaming.dstream.states.state_saver import StateSaver
from penstock.streaming.errors import SparkEndedError
from penstock.streaming.kernels.dead_letters import LetterOperation, LettersOfRun
from penstock.streaming.scheduler.executor_allocation import make_executor_allocation
from penstock.streaming.scheduler.job_generator import JobGenerator
from penstock.streaming.scheduler.job_scheduler import JobScheduler
from penstock.streaming.scheduler.spark_jobs import SparkJobScope
from penstock.streaming.stop_report import GivenUpBatch, StopReport
from penstock.streaming.waiter import ContextWaiter

if TYPE_CHECKING:
    from penstock.monitor import Monitor
    from penstock.tracker import EpochStatus, ReceivedBlockTracker


def letters_of_run(graph: DStreamGraph, run: Run) -> LettersOfRun | None:
    """Return where the dead letters of the program go.

    Args:
        graph: The graph.
        run: The run.

    Returns:
        None where no stream of the graph writes or reads any, or they are not to be kept.

    Raises:
        UnwritableFolderError: They are to be on this host and cannot be written.
        StreamGraphError: They are to be read, and are on other hosts.
    """
    nodes = graph.nodes()
    writes = any(
        isinstance(node, NarrowDStream) and isinstance(node.operation, LetterOperation)
        for node in nodes
    )
    reads = any(isinstance(node, DeadLetterInputDStream) for node in nodes)
    if not (writes or reads):
        return None
    settings = run.settings
    if not settings.dead_letters_enabled:
        if reads:
            _log.warning(
                "deadLetters() stays empty: spark.penstock.deadLetters.enabled is false, so that "
                "none are kept"
            )
        return None
    place = run.letters_place()
    on_all_hosts = is_shared(place.folder)
    if reads and not run.is_local and not on_all_hosts:
        raise StreamGraphError(
            f"deadLetters() is read by the driver, and dead letters are in {place.folder} on each "
            "host; set spark.penstock.deadLetters.dir to a folder on HDFS or an object store, or "
            "read those of a host there with penstock.dead_letters.letters"
        )
    if run.is_local and settings.dead_letters_dir is not None and not on_all_hosts:
        check_writable(settings.dead_letters_dir)
    if writes and settings.dead_letters_dir is None and not run.durability.keeps_blocks:
        _log.warning(
            "The dead letters of mapOrDeadLetter and flatMapOrDeadLetter are in %s, which goes "
            "with the program; set spark.penstock.deadLetters.dir, spark.penstock.wal.dir or a "
            "checkpoint directory to keep them",
            place.folder,
        )
    return LettersOfRun(run.run_id, place)


_FAST_STOP_S = 2.0
"""How long running output operations may take at a stop that is not graceful, as in Spark."""

_THREADS_END_S = 5.0
"""How long the driver's own threads may take to end."""

_RECEIVERS_END_S = 10.0
"""How long receivers may take to end at a stop that is not graceful, as in Spark."""

_RECEIVERS_CANCEL_S = 15.0
"""How long the jobs of receivers that have not ended may take to be cancelled."""

_log = logging.getLogger("penstock.streaming")


class StreamingEngine:
    """Everything that runs between `start` and `stop` of one context.

    Args:
        graph: The graph, checked.
        run: The run.
        bus: The listeners.
        waiter: Notified of errors.
        on_stop_asked: Notified when the context is to stop, and whether gracefully; called from any
            thread, does not wait.
        ledger: The driver log; None without receivers and without a checkpoint directory. The
            engine closes it when it stops; one that was not made leaves it open.
        scratch: What claims the scratch folder, if there is one; the engine removes the folder when
            it stops, and not if it was not made.
        checkpoints: What there is to checkpoint and where; of a program that cannot be recovered,
            what a restart finds, to say so; None without a checkpoint directory.
        rates: The rates of the receivers' streams.
    """

    def __init__(
        self,
        graph: DStreamGraph,
        run: Run,
        *,
        bus: StreamingListenerBus,
        waiter: ContextWaiter,
        on_stop_asked: Callable[[bool], None],
        rates: RateBook,
        ledger: ReceivedBlockTracker | None = None,
        scratch: ScratchClaim | None = None,
        checkpoints: Checkpointing | Checkpoint | None = None,
    ) -> None:
        settings, spark_context, clock = run.settings, graph.spark_context, run.clock
        checkpointing = checkpoints if isinstance(checkpoints, Checkpointing) else None
        self._graph = graph
        self._settings = settings
        self._durability = run.durability
        self._clock = clock
        self._bus = bus
        self._spark_context = spark_context
        self._quiet_tasks = QuietTasks(spark_context)
        self._started_s: float | None = None
        self._termination = IgnoredTermination(spark_context)
        self._scope = scope = SparkJobScope(spark_context)
        self._waiter = waiter
        waiter.watch(scope.why_ended)
        self._receivers = ReceiverSide(
            graph,
            run,
            bus=bus,
            on_error=waiter.tell,
            ledger=ledger,
            checkpointing=checkpointing,
            rates=rates,
        )
        self._ledger = ledger
        self._only_checkpoint = checkpoints if isinstance(checkpoints, Checkpoint) else None
        self._scratch = scratch
        self._monitor: Monitor | None = None
        self._on_stop_asked = on_stop_asked
        self._rates = rates
        try:
            self._writer = (
                None
                if checkpointing is None
                else checkpointing.writer(waiter.tell, settings.ask_timeout_s, clock)
            )
            self._state_saver = StateSaver(waiter.tell, settings.ask_timeout_s, clock)
            input_info = InputInfoTracker()
            self._letter_tail = tail_of_run(run)
            self._scheduler = JobScheduler(
                scope,
                batch_ms=graph.batch_ms,
                concurrent_jobs=settings.concurrent_jobs,
                clock=clock,
                bus=bus,
                on_error=waiter.tell,
            )
            self._generator = JobGenerator(
                graph,
                self._scheduler,
                BatchRuntime(
                    spark_context,
                    self._receivers.blocks,
                    input_info,
                    clock,
                    self._state_saver,
                    letters_of_run(graph, run),
                    settings.batch_partition_bytes,
                ),
                settings=settings,
                on_error=waiter.tell,
                checkpointer=(
                    None
                    if checkpointing is None or self._writer is None
                    else checkpointing.checkpointer(graph, self._writer, waiter.tell)
                ),
                recovered=None if checkpointing is None else checkpointing.recovered,
                makes_empty=lambda: (
                    settings.recovery_empty_batches == "all"
                    or bus.has_listeners_of_program
                    or graph.needs_empty_batches()
                ),
                after_ms=(
                    checkpointing.upgraded.last_batch_ms
                    if checkpointing is not None and checkpointing.upgraded is not None
                    else -1
                ),
            )
            self._console = Console(
                ConsoleFacts(
                    self._introduction(), self._scheduler.statistics, self._receivers.running
                ),
                settings.console,
                clock,
            )
            self._allocation = make_executor_allocation(
                spark_context,
                settings,
                graph.batch_ms,
                self._receivers.tasks,
                self._receivers.executors,
                clock,
                self._receivers.scale_by,
            )
        except BaseException:
            self._receivers.stop(_THREADS_END_S)
            raise

    def start(self) -> None:
        """Start everything; when something fails, stop what was started and raise."""
        try:
            self._termination.begin()
            self._quiet_tasks.begin()
            logging.getLogger().addFilter(is_not_of_py4j)
            self._bus.add(self._console)
            self._monitor = self._start_monitor()
            self._bus.start()
            if self._receivers.count:
                end_progress_bar(self._spark_context)
            self._receivers.start()
            if self._writer is not None:
                self._writer.start()
            if self._only_checkpoint is not None:
                # As late as the first of others: a start that fails leaves the existing one.
                assert self._ledger is not None
                self._ledger.write_checkpoint(self._only_checkpoint.encode())
            self._generator.start()
            if self._allocation is not None:
                self._bus.add(self._allocation)
                self._allocation.start()
        except BaseException as error:
            reason = self._scope.why_ended() if isinstance(error, (Py4JError, OSError)) else ""
            self.stop(graceful=False)
            self.restore()
            if reason:
                # Py4J's own words for it name a port, and not Spark.
                raise SparkEndedError(reason) from None
            raise
        self._bus.post(StreamingStarted(self._clock.time_ms()))
        self._started_s = time.monotonic()
        self._console.start()

    def _start_monitor(self) -> Monitor | None:
        # Where the page is off, nothing of it is imported.
        from penstock.monitor import Application, start_monitor

        application = Application(
            name=self._spark_context.appName or "",
            application_id=self._spark_context.applicationId,
            batch_ms=self._graph.batch_ms,
            streams=self._input_names(),
            statistics=self.statistics,
            unfinished=self._scheduler.unfinished,
            dropped_events=lambda: self._bus.dropped,
            receivers=self.receivers,
            readings=self._receivers.readings,
            rates=self._rates.rates,
            hosted=self._receivers.hosted,
            kept=self._receivers.kept,
            spark_conf=dict(self._spark_context.getConf().getAll()),
            job_ids=self._scope.job_ids,
            spark_ui=self._spark_context.uiWebUrl,
            spark_context=self._spark_context,
            newest_records=self._receivers.newest_records,
            letter_tail=self._letter_tail,
            take_traces=self._receivers.take_traces,
            blocks_of_batch=self._receivers.blocks_of_batch,
            set_rate=self._rates.set_rate,
            set_paused=self._rates.set_paused,
            stop=self._on_stop_asked,
        )
        return start_monitor(
            application, self._settings, self._bus.add, self._console.say, self._clock
        )

    def _introduction(self) -> str:
        inputs = [f"{name}-{stream_id}" for stream_id, name in self._input_names().items()]
        names = some_of(inputs) or "no input"
        every = f"a batch every {self._graph.batch_ms / 1000:g} s of {names}"
        parts = [f"Penstock runs {self._spark_context.appName}: {every}"]
        if self._receivers.count:
            parts.append(self._durability.promise)
        if self._spark_context.uiWebUrl:
            parts.append(f"Spark's UI at {self._spark_context.uiWebUrl}")
        return "; ".join(parts)

    def _input_names(self) -> dict[int, str]:
        return {
            node.stream_id: getattr(node, "name", "") or type(node).__name__
            for node in self._graph.inputs
        }

    @property
    def is_graceful_on_shutdown(self) -> bool:
        """Whether the end of the program drains first (`stopGracefullyOnShutdown`)."""
        return self._settings.stop_gracefully_on_shutdown

    def is_job_thread(self) -> bool:
        """Return whether the caller is an output operation."""
        return self._scheduler.is_job_thread()

    def is_batch_thread(self) -> bool:
        """Return whether the caller is a function of the program that a batch waits for."""
        return self._scheduler.is_job_thread() or self._generator.is_current_thread()

    def receivers(self) -> tuple[ReceiverStatus, ...]:
        """Return the receivers as they are."""
        return self._receivers.status()

    def splits(self, stream_id: int) -> dict[int, tuple[str, ...] | None]:
        """Return which splits the receivers have that share a source with this one."""
        return self._receivers.splits(stream_id)

    def scale(self, stream_id: int, count: int) -> None:
        """Have another number of receivers share that source; see `SplitDStream.scale`."""
        self._receivers.scale(stream_id, count)

    def epochs(self) -> dict[int, EpochStatus]:
        """Return where the epochs of continuous streams are, by stream."""
        return self._receivers.epochs()

    def statistics(self) -> SchedulerStatistics:
        """Return how many batches wait, run and are done."""
        return replace(self._scheduler.statistics(), skipped_blocks=self._receivers.skipped_blocks)

    def stop(self, graceful: bool) -> StopReport:
        """Stop everything. May be called again after it was interrupted.

        A graceful stop drains within `spark.streaming.gracefulStopTimeout` in total: the receivers
        stop, their last blocks go to the next batch, and all batches are processed (I10).

        Returns:
            What was given up.
        """
        begin_s = time.monotonic()
        self._waiter.stopping()
        tell_of_silence(self._spark_context)
        if self._allocation is not None:
            with told("the allocation of executors"):
                self._allocation.stop(_THREADS_END_S)
                self._bus.remove(self._allocation)
        if graceful:
            with told("draining"):
                self._drain(begin_s + self._settings.graceful_stop_timeout_ms / 1000)
        with told("the batch timer"):
            self._generator.stop_timer(_THREADS_END_S)
        if not graceful:
            self._stop_receiving(False, _RECEIVERS_END_S)
        if graceful:
            with told("the last checkpoint"):
                # Its states are also saved, which may take longer than a file.
                left_s = begin_s + self._settings.graceful_stop_timeout_ms / 1000 - time.monotonic()
                self._generator.save_last(max(_THREADS_END_S, left_s))
        with told("the job generator"):
            self._generator.stop(_THREADS_END_S)
        self._state_saver.give_up()
        with told("output operations"):
            self._scheduler.stop(_FAST_STOP_S)
        stop_bounded("the ledger", self._generator.note_complete, _THREADS_END_S)
        with told("the checkpoint writer"):
            writer = self._writer
            if writer is not None and not writer.stop(_THREADS_END_S) and not writer.is_lost:
                _log.warning(
                    "The last checkpoint is not written; a restart goes on from the one before it"
                )
        report = StopReport()
        with told("the count of what was given up"):
            report = self._report(graceful, time.monotonic() - begin_s)
        with told("the monitor"):
            if self._monitor is not None:
                # It asks the tracker, which stops next.
                self._monitor.stop(_THREADS_END_S)
                self._bus.remove(self._monitor.model)
        stop_bounded(
            "the tracker", lambda: self._receivers.stop(_THREADS_END_S), _RECEIVERS_CANCEL_S
        )
        if self._ledger is not None:
            stop_bounded("the driver log", self._ledger.close, _THREADS_END_S)
        with told("the console"):
            self._console.stop(_THREADS_END_S)
        with told("listeners"):
            if graceful:
                self._bus.wait_until_empty(_THREADS_END_S)
            self._bus.stop(_THREADS_END_S)
            self._bus.remove(self._console)
        stop_bounded("the scratch folder", self._remove_scratch, _THREADS_END_S)
        self._waiter.stopped()
        return report

    def restore(self) -> None:
        """Let Spark log, and end, as it did before; after the stop, also that of Spark."""
        stop_bounded("the signals of Spark", self._termination.end, _THREADS_END_S)
        stop_bounded("the log levels of Spark", self._quiet_tasks.end, _THREADS_END_S)
        logging.getLogger().removeFilter(is_not_of_py4j)

    def leave_logs(self) -> None:
        """Leave the levels of Spark as they are: its JVM ends with this process."""
        self._quiet_tasks.leave()

    def _remove_scratch(self) -> None:
        if self._scratch is not None:
            self._scratch.release()

    def _drain(self, end_s: float) -> None:
        def left_s() -> float:
            return max(0.0, end_s - time.monotonic())

        self._stop_receiving(True, left_s())
        self._receivers.drain(left_s())
        is_drained = self._generator.finish(left_s())
        is_drained = self._scheduler.wait_until_idle(left_s()) and is_drained
        if self._generator.ledger_lost:
            _log.warning("Nothing is drained: the driver log takes nothing any more")
        elif not is_drained:
            left = self._scheduler.statistics()
            waiting, running, not_made = (
                left.waiting_batches,
                left.running_batches,
                self._generator.not_made,
            )
            _log.warning(
                "Graceful stop took longer than spark.streaming.gracefulStopTimeout (%d ms): %s",
                self._settings.graceful_stop_timeout_ms,
                f"{waiting} batches wait, {running} run and {not_made} are not made; "
                "they are given up"
                if waiting or running or not_made
                else "it waited for receivers; no batch is given up",
            )
        elif self._generator.unseen():
            _log.warning(
                "Output operations with a slide longer than the batch interval have not seen the "
                "last batches: the time for that is still to come. %s",
                "A restart on this folder shows them"
                if self._durability.keeps_blocks
                else "Without a checkpoint directory or spark.penstock.wal.dir nothing will",
            )

    def _stop_receiving(self, graceful: bool, timeout_s: float) -> None:
        stop_bounded(
            "receivers",
            lambda: self._receivers.stop_receiving(graceful, timeout_s),
            timeout_s + _RECEIVERS_CANCEL_S,
        )

    def _report(self, graceful: bool, duration_s: float) -> StopReport:
        names = {number: f"{name}-{number}" for number, name in self._input_names().items()}
        batches = tuple(
            GivenUpBatch(
                time_ms, {names[stream_id]: count for stream_id, count in records.items() if count}
            )
            for time_ms, records in self._scheduler.given_up().items()
        )
        waiting = {
            names[stream_id]: count
            for stream_id, count in self._receivers.unallocated_records().items()
            if count
        }
        done = self._scheduler.statistics()
        now_s = time.monotonic()
        ran_s = 0.0 if self._started_s is None else now_s - duration_s - self._started_s
        is_resumed = self._writer is not None or self._receivers.count > 0
        report = StopReport(
            graceful,
            batches,
            self._generator.not_made,
            waiting,
            self._durability.keeps_blocks and is_resumed and not self._generator.ledger_lost,
            duration_s,
            ran_s,
            done.completed_batches,
            done.failed_batches,
            done.records,
        )
        if self._started_s is not None:
            self._console.say(report.summary)
        if not report.is_complete:
            level = logging.WARNING if graceful or batches else logging.INFO
            _log.log(level, "%s", report)
        return report
