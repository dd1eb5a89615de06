"""`ExecutorAllocationManager`: as many executors as the batches need.

A program that receives holds its executors for ever, so Spark's own dynamic allocation, which lets
go of idle ones, never lets go of any of them, or of all but the receivers'. This one looks at how
long batches take.
"""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError

from penstock.listeners.events import BatchCompleted
from penstock.listeners.listener import StreamingListener
from penstock.runtime.clock import Clock
from penstock.settings import Settings
from penstock.streaming.scheduler.recurring_timer import RecurringTimer

if TYPE_CHECKING:
    from pyspark import SparkContext

_log = logging.getLogger("penstock.streaming")


class ExecutorAllocationClient(Protocol):
    """The cluster, as far as it gives and takes executors."""

    def executor_ids(self) -> list[str]:
        """Return the executors that the application has."""
        ...

    def request_total(self, count: int) -> None:
        """Ask for that many executors, with the present ones. They come when there is room."""
        ...

    def remove(self, executor_id: str) -> bool:
        """Let go of an executor, unless it is busy; no other takes its place.

        Returns:
            Whether it goes. It may be among `executor_ids` for some more seconds.
        """
        ...


class SparkExecutors:
    """The executors of a Spark application; see `ExecutorAllocationClient`.

    Args:
        spark_context: The application.
        decommission: Whether an executor may first move what it holds
            (`spark.decommission.enabled`).
    """

    def __init__(self, spark_context: SparkContext, decommission: bool) -> None:
        self._sc = spark_context
        self._decommission = decommission

    def is_able(self) -> bool:
        """Return whether the cluster manager gives and takes executors; a local one does not."""
        gateway: Any = self._sc._gateway
        interface = "org.apache.spark.ExecutorAllocationClient"
        return bool(is_instance_of(gateway, self._backend(), interface))

    def executor_ids(self) -> list[str]:
        ids, found = self._backend().getExecutorIds().iterator(), []
        while ids.hasNext():
            found.append(str(ids.next()))
        return found

    def request_total(self, count: int) -> None:
        jvm: Any = self._sc._jvm
        no_places = jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(jvm.java.util.HashMap())
        self._context().requestTotalExecutors(count, 0, no_places)

    def remove(self, executor_id: str) -> bool:
        if self._decommission:
            jvm: Any = self._sc._jvm
            why = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo(
                "spark scale down", jvm.scala.Option.empty()
            )
            return bool(self._backend().decommissionExecutor(executor_id, why, True, False))
        return bool(self._backend().killExecutor(executor_id))

    def _context(self) -> Any:
        java: Any = self._sc._jsc
        return java.sc()

    def _backend(self) -> Any:
        return self._context().schedulerBackend()


class ExecutorAllocationManager(StreamingListener):
    """Asks for executors when batches take long, and lets go of one when they are short.

    Spark's ``ExecutorAllocationManager`` (streaming), with its arithmetic: every scaling interval
    the mean processing time of the batches that were completed without a failure is divided by the
    batch interval. From the upper ratio on, as many more executors are asked for as the quotient
    says, rounded, at least one; down to the lower ratio one is let go, chosen at random among those
    without a receiver. The least and the largest number bound both; the least wins. An interval
    without such a batch changes nothing.

    Unlike Spark's, it lets go of none while a receiver is being placed, as no one knows yet where;
    and one that is on its way out counts no more, or a short interval would end below the least.

    Receivers that share the splits of a source follow: there is one more for each executor that
    came, and one less when all executors hold receivers and one is to go.

    Threads: `onBatchCompleted` is called by the listener bus; ``penstock-executor-allocation``
    decides. `_lock` guards the sums. A cluster that fails to answer is logged, and asked again
    after the next interval.

    Args:
        client: The cluster.
        settings: `spark.streaming.dynamicAllocation.*`.
        batch_ms: The batch interval.
        receivers: How many there are: the least number of executors, if none is set.
        occupied: Returns the executors that hold a receiver; None while one is being placed.
        clock: Time.
        scale: Has that many receivers more, or less, share a source, within the program's bounds.
    """

    def __init__(
        self,
        client: ExecutorAllocationClient,
        settings: Settings,
        batch_ms: int,
        receivers: int,
        occupied: Callable[[], Iterable[str] | None],
        clock: Clock,
        scale: Callable[[int], None],
    ) -> None:
        self._client = client
        self._scale = scale
        self._before: int | None = None
        """How many executors there were when more were asked for."""
        self._batch_ms = batch_ms
        self._up = settings.scaling_up_ratio
        self._down = settings.scaling_down_ratio
        self._least = settings.min_executors or max(1, receivers)
        self._most = math.inf if settings.max_executors is None else settings.max_executors
        self._occupied = occupied
        self._clock = clock
        self._interval_ms = round(settings.scaling_interval_s * 1000)
        self._timer = RecurringTimer(clock, self._interval_ms, self._tick, "executor-allocation")
        self._lock = threading.Lock()
        self._sum_ms = 0
        self._count = 0
        self._leaving: set[str] = set()

    def start(self) -> None:
        """Begin to decide, a scaling interval from now."""
        self._timer.start(self._timer.first_time(self._clock.time_ms()))

    def stop(self, timeout_s: float) -> None:
        """Decide no more; idempotent."""
        self._timer.stop(timeout_s)

    def onBatchCompleted(self, batchCompleted: BatchCompleted) -> None:
        """Take note of how long a batch took."""
        batch = batchCompleted.batchInfo()
        failed = any(each.failureReason() for each in batch.outputOperationInfos().values())
        if failed or batch.processingDelay() < 0:
            return
        with self._lock:
            self._sum_ms += batch.processingDelay()
            self._count += 1

    def manage_allocation(self) -> None:
        """Decide once, and begin to count again."""
        with self._lock:
            sum_ms, count = self._sum_ms, self._count
            self._sum_ms = self._count = 0
        if self._before is not None:
            came, self._before = len(self._staying()) - self._before, None
            if came > 0:
                self._scale(came)
        if count == 0:
            return
        ratio = (sum_ms // count) / self._batch_ms
        if ratio >= self._up:
            self._request(max(math.floor(ratio + 0.5), 1), ratio)
        elif ratio <= self._down:
            self._let_go(ratio)

    def _tick(self, _time_ms: int) -> None:
        try:
            self.manage_allocation()
        except Py4JError as error:
            _log.warning("The number of executors was left as it is: %s", error)

    def _request(self, more: int, ratio: float) -> None:
        now = len(self._staying())
        total = int(max(min(self._most, now + more), self._least))
        _log.info("Batches take %.2f of their interval: %d executors, not %d", ratio, total, now)
        self._client.request_total(total)
        self._before = now

    def _let_go(self, ratio: float) -> None:
        staying = self._staying()
        if len(staying) <= self._least:
            return
        occupied = self._occupied()
        free = [] if occupied is None else sorted(staying.difference(occupied))
        if not free:
            if occupied is not None:
                self._scale(-1)
            return
        chosen = random.choice(free)
        if self._client.remove(chosen):
            self._leaving.add(chosen)
            _log.info("Batches take %.2f of their interval: executor %s goes", ratio, chosen)

    def _staying(self) -> set[str]:
        ids = set(self._client.executor_ids())
        self._leaving &= ids
        return ids - self._leaving


def make_executor_allocation(
    spark_context: SparkContext,
    settings: Settings,
    batch_ms: int,
    receivers: int,
    occupied: Callable[[], Iterable[str] | None],
    clock: Clock,
    scale: Callable[[int], None],
) -> ExecutorAllocationManager | None:
    """Return the manager if the settings ask for one and the cluster is able to; else None."""
    if not settings.streaming_allocation_enabled:
        return None
    conf = spark_context.getConf()
    decommission = conf.get("spark.decommission.enabled", "false")
    client = SparkExecutors(spark_context, str(decommission).strip().lower() == "true")
    if not client.is_able():
        _log.warning(
            "spark.streaming.dynamicAllocation.enabled has no effect: the master %s neither gives "
            "nor takes executors",
            spark_context.master,
        )
        return None
    return ExecutorAllocationManager(client, settings, batch_ms, receivers, occupied, clock, scale)
