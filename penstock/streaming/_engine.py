"""What runs while a context is active: tracker, scheduler, generator, listeners; start and stop."""

from __future__ import annotations

import logging
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.clock import Clock
from penstock.settings import Settings
from penstock.streaming._durability import Durability
from penstock.streaming._receivers import ReceiverSide
from penstock.streaming.checkpoint.checkpointer import Checkpointing
from penstock.streaming.dstream.graph import BatchRuntime, DStreamGraph
from penstock.streaming.rates import RateBook
from penstock.streaming.scheduler._spark_jobs import SparkJobScope
from penstock.streaming.scheduler.executor_allocation import make_executor_allocation
from penstock.streaming.scheduler.input_info import InputInfoTracker
from penstock.streaming.scheduler.job_generator import JobGenerator
from penstock.streaming.scheduler.job_scheduler import JobScheduler, SchedulerStatistics
from penstock.streaming.scheduler.listener_bus import StreamingListenerBus
from penstock.streaming.scheduler.listener_events import StreamingStarted
from penstock.streaming.waiter import ContextWaiter
from penstock.wal import EncryptionKey

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["StreamingEngine"]

_FAST_STOP_S = 2.0
"""How long running output operations may take at a stop that is not graceful, as in Spark."""

_THREADS_END_S = 5.0
"""How long the driver's own threads may take to end."""

_RECEIVERS_END_S = 10.0
"""How long receivers may take to end at a stop that is not graceful, as in Spark."""

_log = logging.getLogger("penstock.streaming")


class StreamingEngine:
    """Everything that runs between `start` and `stop` of one context.

    Args:
        spark_context: The Spark context.
        graph: The graph, checked.
        settings: The settings.
        durability: Where the logs lie.
        run_id: Names this run's files and processes on every host.
        clock: The clock of the batches.
        bus: The listeners.
        waiter: Told of errors.
        checkpointing: What there is to checkpoint and where; None without a checkpoint directory.
        rates: The rates of the receivers' streams.
        encryption: The key that logs are encrypted with; None: they are in clear.
    """

    def __init__(
        self,
        spark_context: SparkContext,
        graph: DStreamGraph,
        settings: Settings,
        durability: Durability,
        *,
        run_id: str,
        clock: Clock,
        bus: StreamingListenerBus,
        waiter: ContextWaiter,
        rates: RateBook,
        checkpointing: Checkpointing | None = None,
        encryption: EncryptionKey | None = None,
    ) -> None:
        self._graph = graph
        self._settings = settings
        self._durability = durability
        self._clock = clock
        self._bus = bus
        scope = SparkJobScope(spark_context)
        self._receivers = ReceiverSide(
            spark_context,
            graph,
            settings,
            durability,
            run_id=run_id,
            clock=clock,
            bus=bus,
            on_error=waiter.notify_error,
            keep_batches=checkpointing is not None and checkpointing.recovered is not None,
            rates=rates,
            encryption=encryption,
        )
        self._writer = (
            None
            if checkpointing is None
            else checkpointing.writer(waiter.notify_error, settings.ask_timeout_s, clock)
        )
        input_info = InputInfoTracker()
        self._scheduler = JobScheduler(
            scope,
            batch_ms=graph.batch_ms,
            concurrent_jobs=settings.concurrent_jobs,
            clock=clock,
            bus=bus,
            on_error=waiter.notify_error,
        )
        self._generator = JobGenerator(
            graph,
            self._scheduler,
            BatchRuntime(spark_context, self._receivers.blocks, input_info),
            clock=clock,
            enter_thread=scope.enter_thread,
            on_error=waiter.notify_error,
            unpersist=settings.unpersist,
            allocation_patience_s=settings.ask_timeout_s,
            checkpointer=(
                None
                if checkpointing is None or self._writer is None
                else checkpointing.checkpointer(graph, self._writer, waiter.notify_error)
            ),
            recovered=None if checkpointing is None else checkpointing.recovered,
        )
        self._allocation = make_executor_allocation(
            spark_context,
            settings,
            graph.batch_ms,
            self._receivers.count,
            self._receivers.executors,
            clock,
        )

    def start(self) -> None:
        """Start everything; when something fails, stop what was started and raise."""
        try:
            self._bus.start()
            self._receivers.start()
            if self._writer is not None:
                self._writer.start()
            self._generator.start()
            if self._allocation is not None:
                self._bus.add(self._allocation)
                self._allocation.start()
        except BaseException:
            self.stop(graceful=False)
            raise
        self._bus.post(StreamingStarted(self._clock.time_ms()))

    @property
    def is_graceful_on_shutdown(self) -> bool:
        """Whether the end of the program drains first (`stopGracefullyOnShutdown`)."""
        return self._settings.stop_gracefully_on_shutdown

    def is_job_thread(self) -> bool:
        """Tell whether the caller is an output operation."""
        return self._scheduler.is_job_thread()

    def statistics(self) -> SchedulerStatistics:
        """Return how many batches wait, run and are done."""
        return replace(self._scheduler.statistics(), skipped_blocks=self._receivers.skipped_blocks)

    def stop(self, graceful: bool) -> None:
        """Stop everything. May be called again after it was interrupted.

        A graceful stop drains within `spark.streaming.gracefulStopTimeout` in total: the receivers
        stop, their last blocks go to one more batch, and all batches are processed (I10).
        """
        if self._allocation is not None:
            self._allocation.stop(_THREADS_END_S)
            self._bus.remove(self._allocation)
        if graceful:
            self._drain(time.monotonic() + self._settings.graceful_stop_timeout_ms / 1000)
        self._generator.stop_timer(_THREADS_END_S)
        if not graceful:
            self._receivers.stop_receiving(False, _RECEIVERS_END_S)
        if graceful:
            self._generator.save_last(_THREADS_END_S)
        self._generator.stop(_THREADS_END_S)
        self._scheduler.stop(_FAST_STOP_S)
        if self._writer is not None and not self._writer.stop(_THREADS_END_S):
            _log.warning("A checkpoint is still being written; it ends with the process")
        self._receivers.stop(_THREADS_END_S)
        if graceful:
            self._bus.wait_until_empty(_THREADS_END_S)
        self._bus.stop(_THREADS_END_S)
        if self._durability.scratch is not None:
            shutil.rmtree(self._durability.scratch, ignore_errors=True)

    def _drain(self, end_s: float) -> None:
        def left_s() -> float:
            return max(0.0, end_s - time.monotonic())

        self._receivers.stop_receiving(True, left_s())
        self._generator.stop_timer(left_s())
        drained = self._generator.generate_last_batches(left_s())
        drained = self._scheduler.wait_until_idle(left_s()) and drained
        if not drained:
            left = self._scheduler.statistics()
            _log.warning(
                "Graceful stop took longer than spark.streaming.gracefulStopTimeout (%d ms): "
                "%d batches wait and %d run; they are given up",
                self._settings.graceful_stop_timeout_ms,
                left.waiting_batches,
                left.running_batches,
            )
