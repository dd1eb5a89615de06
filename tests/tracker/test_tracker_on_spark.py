"""The tracker on a real Spark: jobs, placement, restarts, and a killed worker."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext

from penstock.blockstore import BlockRDD
from penstock.receiver import BlockLogs, Receiver
from penstock.settings import Settings
from penstock.tracker import (
    ExecutorLocation,
    HostLocation,
    ReceiverTracker,
    SparkCluster,
    TaskEnd,
)
from tests.tracker.tracker_cases import WAIT_S, Events, open_in

pytestmark = pytest.mark.slow


class Numbers(Receiver):
    """Stores 0, 1, 2, … and tells its process id as an error that is none."""

    def onStart(self) -> None:
        self.reportError(f"pid {os.getpid()}")
        threading.Thread(target=self.run, name="numbers", daemon=True).start()

    def onStop(self) -> None:
        pass

    def run(self) -> None:
        number = int(self.lastPosition or 0)
        pause = threading.Event()
        while not self.isStopped():
            self.store([str(number + n).encode() for n in range(10)], position=number + 10)
            number += 10
            pause.wait(0.1)


class CannotUnpickle(Receiver):
    def __setstate__(self, state: Any) -> None:
        raise ValueError("not in this process")

    def __getstate__(self) -> dict[str, Any]:
        return {"some": "state"}


@contextmanager
def tracker_on(
    sc: SparkContext, folder: Path, receiver: Receiver
) -> Iterator[tuple[ReceiverTracker, Events]]:
    events = Events()
    tracker = ReceiverTracker(
        SparkCluster(sc),
        {0: (receiver, f"{type(receiver).__name__} [0]")},
        Settings(block_interval_ms=200, memory_bytes=16 << 20, block_max_bytes=1 << 20),
        ledger=open_in(folder, [0]),
        logs=BlockLogs(
            str(folder / "receivedData"),
            "none",
            are_removed=True,
            application_id=sc.applicationId,
        ),
        events=events,
    )
    tracker.start()
    try:
        yield tracker, events
    finally:
        tracker.stop(graceful=True, timeout_s=WAIT_S)


def wait_for(what: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.01)):
        if what():
            return
        pause.wait(0.01)
    raise AssertionError("it did not happen in time")


def pid_of(info: Any) -> int:
    found = re.fullmatch(r"pid (\d+)", info.last_error_message)
    assert found is not None, info
    return int(found.group(1))


@pytest.mark.long
def test_records_arrive_and_nothing_is_lost_or_doubled_when_the_worker_is_killed(
    sc: SparkContext, tmp_path: Path
) -> None:
    numbers: list[int] = []
    with tracker_on(sc, tmp_path, Numbers()) as (tracker, events):
        time_ms = 0

        def batch() -> None:
            nonlocal time_ms
            time_ms += 1000
            tracker.allocate_blocks_to_batch(time_ms)
            blocks = tracker.get_blocks_of_batch_and_stream(time_ms, 0)
            numbers.extend(int(x) for x in BlockRDD(sc, blocks, tracker.block_access).collect())
            tracker.cleanup_old_blocks_and_batches(time_ms)

        for kill in (True, True, False):
            events.until("started")
            pid = pid_of(events.until("error"))
            before = tracker.ledger.received(0)[1]
            wait_for(lambda before=before: tracker.ledger.received(0)[1] > before + 2)
            if kill:
                batch()
                os.kill(pid, signal.SIGKILL)
        tracker.stop_receiving(True, WAIT_S)
        assert events.until("stopped").last_error_message
        batch()
        batch()
        assert not tracker.has_unallocated_blocks()
    assert len(numbers) > 50
    assert numbers == list(range(len(numbers)))


def test_a_receiver_that_cannot_be_unpickled_is_told_to_the_user_once(
    sc: SparkContext, tmp_path: Path
) -> None:
    with tracker_on(sc, tmp_path, CannotUnpickle()) as (_, events):
        stream_id, _, error = events.until("permanent")
        assert stream_id == 0
        assert "not in this process" in error
        assert "permanent" not in events.rest()


def test_receiver_jobs_are_named_and_leave_the_callers_properties_alone(
    sc: SparkContext, tmp_path: Path
) -> None:
    sc.setLocalProperty("penstock.test", "mine")
    try:
        with tracker_on(sc, tmp_path, Numbers()) as (_, events):
            events.until("started")
            status = sc.statusTracker()

            def active() -> set[int]:
                jobs = status.getJobIdsForGroup("receiver-0")
                return set(jobs).intersection(status.getActiveJobsIds())

            # Spark tells of the begin and the end of jobs later, on a busy machine.
            wait_for(lambda: len(active()) == 1)
            (job,) = active()
            assert sc.getLocalProperty("penstock.test") == "mine"
            assert sc.getLocalProperty("spark.jobGroup.id") is None
            store = sc._jsc.sc().statusStore().job(job)
            assert store.description().get() == "Streaming job running receiver 0"
            names = {thread.name for thread in threading.enumerate()}
            assert "penstock-receiver-job-0" in names
    finally:
        sc.setLocalProperty("penstock.test", None)  # type: ignore[arg-type]  # clears it
    # A stop waits with a bound for what it cancels, which a slow machine may not meet.
    wait_for(
        lambda: not any(t.name.startswith("penstock-receiver-job") for t in threading.enumerate())
    )


# -- SparkCluster ----------------------------------------------------------------------------------


class NotLocal(SparkCluster):
    """The same Spark, taken for a cluster."""

    is_local = False  # type: ignore[assignment]  # a property there


def test_spark_11063_the_task_gets_the_receivers_preferred_locations(sc: SparkContext) -> None:
    places = [ExecutorLocation("host1", "3"), HostLocation("host2")]
    rdd = NotLocal(sc)._one_partition(places)
    java_rdd: Any = rdd._jrdd.rdd()
    preferred = java_rdd.preferredLocations(java_rdd.partitions()[0])
    assert preferred.mkString(" ") == "executor_host1_3 host2"
    assert rdd.mapPartitions(list).collect() == [0]


def test_a_local_spark_is_one_executor_on_loopback(sc: SparkContext) -> None:
    cluster = SparkCluster(sc)
    assert cluster.is_local
    assert cluster.executors() == [ExecutorLocation("127.0.0.1", "driver")]
    assert cluster.addresses(None) == ("127.0.0.1", None)
    assert cluster.addresses("0.0.0.0") == ("0.0.0.0", "127.0.0.1")
    assert NotLocal(sc).addresses(None) == ("127.0.0.1", "127.0.0.1")
    assert NotLocal(sc).addresses("10.0.0.9") == ("10.0.0.9", None)


def test_ipv6_addresses_come_without_the_brackets_that_spark_puts_around_them(
    sc: SparkContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = SparkConf(loadDefaults=False).set("spark.driver.host", "[fd00::1]")
    monkeypatch.setattr(sc, "getConf", lambda: conf)
    cluster = NotLocal(sc)
    assert cluster.addresses(None) == ("fd00::1", "fd00::1")
    assert cluster.addresses("[::]") == ("::", "fd00::1")
    assert cluster.addresses("[fd00::2]") == ("fd00::2", None)
    conf.set("spark.driver.bindAddress", "[::]")
    assert cluster.addresses(None) == ("::", "fd00::1")
    assert SparkCluster(sc).addresses("::1") == ("::1", None)


def test_a_job_can_be_cancelled_by_its_tag_while_others_run(sc: SparkContext) -> None:
    cluster = SparkCluster(sc)
    ends: list[object] = []

    def wait_long() -> None:
        threading.Event().wait(60)

    def run() -> None:
        try:
            ends.append(cluster.run_task(7, "penstock-test-tag", wait_long, ()))
        except Exception as error:  # noqa: BLE001 - looked at below
            ends.append(error)

    thread = cluster.thread(run, "penstock-test-job")
    thread.start()
    wait_for(lambda: bool(sc.statusTracker().getJobIdsForGroup("receiver-7")))
    assert cluster.run_task(8, "penstock-other-tag", lambda: None, ()) is TaskEnd.ENDED
    cluster.cancel("penstock-test-tag")
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert "cancelled" in str(ends[0])
