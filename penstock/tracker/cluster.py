"""What the tracker asks of Spark: executors, slots, addresses, and a job for each receiver.

Where a receiver may run is a host, or one executor on a host (Spark's ``TaskLocation``).
"""

from __future__ import annotations

import contextlib
import enum
import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JError
from pyspark import RDD, InheritableThread, TaskContext
from pyspark.errors import PySparkException
from pyspark.serializers import CPickleSerializer

from penstock.wire.addresses import bare_host

if TYPE_CHECKING:
    from pyspark import SparkContext

_EXECUTOR_PREFIX = "executor_"

DRIVER_ID = "driver"
"""Spark's name for the driver's own block manager, and for the one executor of a local master."""

_WILDCARDS = ("0.0.0.0", "::")
"""What a server listens at for all addresses of its host; the second also for IPv4's."""

_WAKE_TASKS = 50
_WAKE_REDUCERS = 20
"""Tasks and reducers of the job that wakes the executors, as in Spark's `ReceiverTracker`."""


@dataclass(frozen=True, order=True)
class HostLocation:
    """Any executor of a host."""

    host: str

    def __str__(self) -> str:
        return self.host


@dataclass(frozen=True, order=True)
class ExecutorLocation:
    """One executor. As text it is what Spark's scheduler reads: ``executor_<host>_<id>``."""

    host: str
    executor_id: str

    def __str__(self) -> str:
        return f"{_EXECUTOR_PREFIX}{self.host}_{self.executor_id}"


TaskLocation = HostLocation | ExecutorLocation


def parse_location(text: str) -> TaskLocation:
    """Return the location that a receiver's ``preferredLocation`` names.

    Text that begins like an executor's location but has no executor id is taken as a host, so
    that a wrong wish never keeps a receiver from running.
    """
    if text.startswith(_EXECUTOR_PREFIX):
        host, _, executor_id = text[len(_EXECUTOR_PREFIX) :].rpartition("_")
        if host and executor_id:
            return ExecutorLocation(host, executor_id)
    return HostLocation(text)


class TaskEnd(enum.Enum):
    """How a receiver's task ended when it did not fail."""

    ENDED = "ended"
    """The receiver ended for good."""
    RETRY = "retry"
    """Spark had started the task a second time; only the tracker restarts receivers."""


class Cluster(Protocol):
    """Where receivers run."""

    @property
    def is_local(self) -> bool:
        """Whether the driver is the one executor."""
        ...

    @property
    def is_stopped(self) -> bool:
        """Whether the program has stopped its SparkContext."""
        ...

    def addresses(self, wanted: str | None) -> tuple[str, str | None]:
        """Return the address to listen at, and the one to give others (None: the same)."""
        ...

    def wait_for_executors(self, tasks: int) -> None:
        """Return when executors are up, and others may also have come up.

        Args:
            tasks: As many executors are enough.
        """
        ...

    def executors(self) -> list[ExecutorLocation]:
        """Return the executors that are up now, without those that take no tasks any more."""
        ...

    @property
    def decommissions(self) -> bool:
        """Whether executors give notice before they go."""
        ...

    def leaving(self) -> Mapping[str, str]:
        """Return the executors that are up and about to go: of each id the host."""
        ...

    def slots(self) -> int:
        """Return how many tasks the executors that are up run at a time."""
        ...

    def most_tries(self) -> int:
        """Return how often a task is tried before its job fails."""
        ...

    def run_task(
        self,
        streams: str,
        tag: str,
        task: Callable[[], None],
        locations: Sequence[TaskLocation],
    ) -> TaskEnd:
        """Run `task` in an executor, in a job of its own, and return when it has ended.

        Args:
            streams: Whose receivers it is, for people.
            tag: The job's tag.
            task: The task.
            locations: Where it should run.

        Raises:
            Exception: The task failed, or the job was cancelled.
        """
        ...

    def racks(self) -> Mapping[str, str]:
        """Return the racks of hosts, as far as Spark knows them."""
        ...

    def run_on_hosts(self, tag: str, task: Callable[[], None], hosts: Sequence[str]) -> None:
        """Run `task` once for each of these hosts, on it if Spark grants that; returns at the end.

        Raises:
            Exception: A task failed, or the job was cancelled.
        """
        ...

    def cancel(self, tag: str) -> None:
        """Cancel the job with this tag, if it runs."""
        ...

    def thread(self, target: Callable[[], None], name: str) -> Thread:
        """Return a thread that may run jobs; not started."""
        ...


class SparkCluster:
    """A Spark application, seen through its context. Safe to use from any thread."""

    def __init__(self, spark_context: SparkContext) -> None:
        self._sc = spark_context

    @property
    def is_local(self) -> bool:
        return re.match(r"local(\[|$)", str(self._sc.master)) is not None

    @property
    def is_stopped(self) -> bool:
        # PySpark takes it away with its stop, so that calls end in an `AttributeError`.
        untyped: Any = self._sc
        return untyped._jsc is None

    def addresses(self, wanted: str | None) -> tuple[str, str | None]:
        wanted = None if wanted is None else bare_host(wanted)
        if self.is_local:
            return wanted or "127.0.0.1", "127.0.0.1" if wanted in _WILDCARDS else None
        conf = self._sc.getConf()
        # Spark writes IPv6 addresses in brackets.
        host = bare_host(conf.get("spark.driver.host") or "")
        if wanted is not None:
            return wanted, host if wanted in _WILDCARDS else None
        bind = bare_host(conf.get("spark.driver.bindAddress") or "") or host
        # Where nothing is set, reachable from everywhere is what executors need; a stranger still
        # has to know the secret (I9).
        return bind or _WILDCARDS[0], host or None

    def wait_for_executors(self, tasks: int) -> None:
        """Run a short job on all executors, unless local (as ``ReceiverTracker.scala`` does).

        It gives those time that are about to come up. Where each task can have an executor of its
        own, it would only delay them: in JVMs that have just begun it takes seconds.
        """
        if self.is_local or len(self.executors()) >= max(tasks, 1):
            return
        self._sc.setJobDescription("Streaming job waiting for executors")
        try:
            # In the JVMs only: Python workers would have to be started for nothing else.
            jvm: Any = self._sc._jvm
            numbers = jvm.java.util.Collections.nCopies(_WAKE_TASKS, 0)
            java: Any = self._sc._jsc
            java.parallelize(numbers, _WAKE_TASKS).repartition(_WAKE_REDUCERS).count()
        finally:
            # PySpark's stub wants text; None clears it.
            self._sc.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]

    def executors(self) -> list[ExecutorLocation]:
        summaries = self._summaries()
        leaving = self._leaving(summaries)
        # Spark starts no task on those that it excludes (`spark.excludeOnFailure.enabled`).
        allowed = [
            summary
            for summary in summaries
            if not summary.isExcluded() and str(summary.id()) not in leaving
        ]
        return sorted(
            ExecutorLocation(_host_of(summary), str(summary.id()))
            for summary in allowed or summaries
        )

    @functools.cached_property
    def decommissions(self) -> bool:
        asked = self._sc.getConf().get("spark.decommission.enabled", "false")
        return not self.is_local and str(asked).strip().lower() == "true"

    def leaving(self) -> Mapping[str, str]:
        summaries = self._summaries() if self.decommissions else []
        leaving = self._leaving(summaries)
        found = {str(summary.id()): _host_of(summary) for summary in summaries}
        return {name: host for name, host in found.items() if name in leaving}

    def _leaving(self, summaries: Iterable[Any]) -> frozenset[str]:
        if not self.decommissions:
            return frozenset()
        scheduler = self._jsc().taskScheduler()
        up = [str(summary.id()) for summary in summaries]
        # What Spark learned from the cluster manager, a host or `decommissionExecutor`.
        return frozenset(
            one for one in up if scheduler.getExecutorDecommissionState(one).isDefined()
        )

    def slots(self) -> int:
        # Spark's own count of the tasks that an executor runs at a time.
        summaries = self._summaries()
        leaving = self._leaving(summaries)
        return sum(
            int(summary.maxTasks()) for summary in summaries if str(summary.id()) not in leaving
        )

    def most_tries(self) -> int:
        return most_tries(
            str(self._sc.master), self._sc.getConf().get("spark.task.maxFailures", None)
        )

    def _summaries(self) -> list[Any]:
        # The store behind Spark's own UI and REST pages; it exists also when those are off.
        summaries = self._jsc().statusStore().executorList(True).iterator()
        found = []
        while summaries.hasNext():
            summary = summaries.next()
            if (str(summary.id()) == DRIVER_ID) == self.is_local:
                found.append(summary)
        return found

    def run_task(
        self,
        streams: str,
        tag: str,
        task: Callable[[], None],
        locations: Sequence[TaskLocation],
    ) -> TaskEnd:
        def body(_: Iterable[int]) -> Iterable[str]:
            context = TaskContext.get()
            if context is not None and context.attemptNumber() > 0:
                # A restart by Spark would neither wait nor choose a place: the tracker does both.
                return [TaskEnd.RETRY.value]
            task()
            return [TaskEnd.ENDED.value]

        self._sc.setJobGroup(f"receiver-{streams}", f"Streaming job running receiver {streams}")
        self._sc.addJobTag(tag)
        try:
            rdd = self._one_partition(locations)
            rdd.setName(f"Receiver {streams}")
            (end,) = rdd.mapPartitions(body).collect()
        finally:
            self._sc.removeJobTag(tag)
        return TaskEnd(end)

    def racks(self) -> Mapping[str, str]:
        # What `spark.storage.replication.topologyMapper` said when the executors came up.
        manager = self._block_manager()
        peers = manager.master().getPeers(manager.blockManagerId()).iterator()
        found: dict[str, str] = {}
        while peers.hasNext():
            peer = peers.next()
            rack = peer.topologyInfo()
            if rack.isDefined():
                found[str(peer.host())] = str(rack.get())
        return found

    def _block_manager(self) -> Any:
        """Return the driver's ``SparkEnv.blockManager``.

        A plain call would make py4j look at all methods of `SparkEnv`, and some name classes that
        are not on Spark's class path.
        """
        jvm: Any = self._sc._jvm
        find = jvm.java.lang.Class.forName
        result = find("org.apache.spark.storage.BlockManager")
        method = jvm.java.lang.invoke.MethodHandles.publicLookup().findVirtual(
            find("org.apache.spark.SparkEnv"),
            "blockManager",
            jvm.java.lang.invoke.MethodType.methodType(result),
        )
        arguments = jvm.java.util.ArrayList()
        arguments.add(self._jsc().env())
        return method.invokeWithArguments(arguments)

    def run_on_hosts(self, tag: str, task: Callable[[], None], hosts: Sequence[str]) -> None:
        def body(_: Iterable[int]) -> Iterable[int]:
            task()
            return ()

        self._sc.setJobDescription("Streaming job starting block servers")
        self._sc.addJobTag(tag)
        try:
            rdd = self.placed(list(range(len(hosts))), [[HostLocation(host)] for host in hosts])
            rdd.mapPartitions(body).collect()
        finally:
            self._sc.removeJobTag(tag)

    def _one_partition(self, locations: Sequence[TaskLocation]) -> RDD[int]:
        if self.is_local or not locations:
            return self._sc.parallelize([0], 1)
        return self.placed([0], [locations])

    def placed(
        self, elements: Sequence[Any], locations: Sequence[Sequence[TaskLocation]]
    ) -> RDD[Any]:
        """Return an RDD with one partition per element, each with the places it prefers."""
        jvm: Any = self._sc._jvm
        scala = jvm.scala.jdk.javaapi.CollectionConverters
        serializer: Any = CPickleSerializer()
        pairs = []
        for element, places in zip(elements, locations, strict=True):
            preferred = scala.asScala([str(place) for place in places]).toSeq()
            pairs.append(jvm.scala.Tuple2(serializer.dumps(element), preferred))
        any_ref = jvm.scala.reflect.ClassTag.AnyRef()
        scala_rdd = self._jsc().makeRDD(scala.asScala(pairs).toSeq(), any_ref)
        java_rdd = jvm.org.apache.spark.api.java.JavaRDD.fromRDD(scala_rdd, any_ref)
        return RDD(java_rdd, self._sc, serializer)

    def cancel(self, tag: str) -> None:
        # When the context is already stopped, or its JVM is gone, so is the job.
        with contextlib.suppress(PySparkException, Py4JError, AttributeError, OSError):
            self._sc.cancelJobsWithTag(tag)

    def thread(self, target: Callable[[], None], name: str) -> Thread:
        # Takes the local properties of its starter (scheduler pool and the like) to the JVM's
        # thread that belongs to it, and no job of another thread sees those set in it.
        return InheritableThread(target, name=name, daemon=True)

    def _jsc(self) -> Any:
        return self._sc._jsc.sc()


def _host_of(summary: Any) -> str:
    return str(summary.hostPort()).rpartition(":")[0]


def most_tries(master: str, failures: str | None) -> int:
    """Return how often Spark tries a task before its job fails.

    Args:
        master: The application's master.
        failures: ``spark.task.maxFailures``, if it is set.
    """
    told = re.fullmatch(r"local(?:\[[^,]*(?:,\s*([0-9]+))?\s*\])?", master)
    if told is None:
        return int(failures or 4)
    # A local master has its own number: local[2,4] tries four times, local[2] once.
    return int(told[1] or 1)
