"""When executors are asked for and let go; the cluster is a list here, and real in tests/system."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from py4j.protocol import Py4JError

from penstock.listeners.events import (
    BatchCompleted,
    BatchInfo,
    OutputOperationInfo,
    Time,
)
from penstock.runtime.clock import ManualClock
from penstock.settings import Settings
from penstock.streaming.scheduler.executor_allocation import (
    ExecutorAllocationManager,
    make_executor_allocation,
)
from tests.bounds import HANG_S

BATCH_MS = 1000
WAIT_S = HANG_S


class Cluster:
    """Executors as they are asked for."""

    def __init__(self, count: int = 3) -> None:
        self.ids = [str(number) for number in range(count)]
        self.requested: list[int] = []
        self.removed: list[str] = []
        self.asked = threading.Event()
        self.is_broken = False
        self.is_busy = False

    def executor_ids(self) -> list[str]:
        self.asked.set()
        if self.is_broken:
            raise Py4JError("no answer")
        return list(self.ids)

    def request_total(self, count: int) -> None:
        self.requested.append(count)

    def remove(self, executor_id: str) -> bool:
        self.removed.append(executor_id)
        return not self.is_busy


def manager(
    cluster: Cluster,
    *,
    receivers: int = 1,
    occupied: Any = (),
    clock: Any = None,
    scale: Any = lambda more: None,
    **settings: str,
) -> ExecutorAllocationManager:
    prefix = "spark.streaming.dynamicAllocation."
    read = Settings.from_pairs((prefix + key, value) for key, value in settings.items())
    return ExecutorAllocationManager(
        cluster, read, BATCH_MS, receivers, lambda: occupied, clock or ManualClock(), scale
    )


def complete(made: ExecutorAllocationManager, *took_ms: int, failure: str | None = None) -> None:
    for took in took_ms:
        operation = OutputOperationInfo(Time(0), 0, "", "", 0, took, failure)
        made.onBatchCompleted(BatchCompleted(BatchInfo(Time(0), {}, 0, 0, took, {0: operation})))


@pytest.mark.parametrize(
    ("took_ms", "total"),
    [
        ((900,), 4),
        ((899,), None),
        ((1499,), 4),
        ((1500,), 5),
        ((2500,), 6),
        # The mean is a whole number of milliseconds, cut off: 899.5 is not enough.
        ((900, 899), None),
        ((0, 1800), 4),
    ],
)
def test_long_batches_ask_for_as_many_more_as_the_ratio_says(
    took_ms: tuple[int, ...], total: int | None
) -> None:
    cluster = Cluster(3)
    made = manager(cluster)
    complete(made, *took_ms)
    made.manage_allocation()
    assert cluster.requested == ([] if total is None else [total])
    assert cluster.removed == []


@pytest.mark.parametrize(("took_ms", "is_let_go"), [(300, True), (301, False), (0, True)])
def test_short_batches_let_one_go(took_ms: int, is_let_go: bool) -> None:
    cluster = Cluster(3)
    made = manager(cluster)
    complete(made, took_ms)
    made.manage_allocation()
    assert (len(cluster.removed) == 1) is is_let_go
    assert cluster.requested == []


def test_an_executor_with_a_receiver_is_never_let_go() -> None:
    for _ in range(50):
        cluster = Cluster(3)
        made = manager(cluster, occupied={"0", "2"})
        complete(made, 10)
        made.manage_allocation()
        assert cluster.removed == ["1"]


def test_none_is_let_go_while_all_hold_receivers_or_one_is_being_placed() -> None:
    for occupied in ({"0", "1", "2"}, None):
        cluster = Cluster(3)
        made = manager(cluster, occupied=occupied)
        complete(made, 10)
        made.manage_allocation()
        assert cluster.removed == []


def test_receivers_that_share_a_source_follow_the_executors_that_came() -> None:
    cluster, scaled = Cluster(2), []
    made = manager(cluster, scale=scaled.append)
    complete(made, 2000)
    made.manage_allocation()
    assert (cluster.requested, scaled) == ([4], [])
    cluster.ids.append("2")
    complete(made, 2000)
    made.manage_allocation()
    assert (cluster.requested, scaled) == ([4, 5], [1])
    # None has come; and one that comes without a request stands for one that was lost.
    made.manage_allocation()
    cluster.ids.append("3")
    made.manage_allocation()
    assert scaled == [1]


def test_one_receiver_less_shares_a_source_where_an_executor_could_go_but_for_them() -> None:
    cluster, scaled = Cluster(2), []
    for occupied in (None, {"0"}, {"0", "1"}):
        made = manager(cluster, scale=scaled.append, occupied=occupied)
        complete(made, 10)
        made.manage_allocation()
        assert scaled == ([-1] if occupied == {"0", "1"} else [])
    made = manager(cluster, scale=scaled.append, occupied={"0", "1"}, minExecutors="2")
    complete(made, 10)
    made.manage_allocation()
    assert scaled == [-1]


def test_the_bounds_hold_and_the_least_wins() -> None:
    cluster = Cluster(3)
    made = manager(cluster, minExecutors="3", maxExecutors="4")
    complete(made, 10)
    made.manage_allocation()
    assert cluster.removed == []
    complete(made, 9000)
    made.manage_allocation()
    assert cluster.requested == [4]
    alone = manager(cluster, receivers=8, maxExecutors="4")
    complete(alone, 1000)
    alone.manage_allocation()
    assert cluster.requested == [4, 8]


def test_an_executor_on_its_way_out_counts_no_more() -> None:
    """It takes seconds to go; the number must not fall below the least meanwhile."""
    cluster = Cluster(3)
    made = manager(cluster, minExecutors="2")
    for _ in range(3):
        complete(made, 10)
        made.manage_allocation()
    assert len(cluster.removed) == 1
    complete(made, 1000)
    made.manage_allocation()
    assert cluster.requested == [3]
    cluster.ids.remove(cluster.removed[0])
    cluster.ids.append("3")
    complete(made, 10)
    made.manage_allocation()
    assert len(cluster.removed) == 2


def test_one_that_was_busy_and_stays_is_tried_again() -> None:
    cluster = Cluster(2)
    cluster.is_busy = True
    made = manager(cluster, minExecutors="1", occupied={"0"})
    for _ in range(3):
        complete(made, 10)
        made.manage_allocation()
    assert cluster.removed == ["1", "1", "1"]


def test_failed_batches_do_not_count_and_each_interval_begins_anew() -> None:
    cluster = Cluster(3)
    made = manager(cluster)
    complete(made, 5000, failure="ValueError")
    made.manage_allocation()
    complete(made, 5000)
    made.manage_allocation()
    made.manage_allocation()
    assert cluster.requested == [8]


def test_it_decides_every_interval_and_survives_a_cluster_that_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, cluster = ManualClock(), Cluster(3)
    cluster.is_broken = True
    made = manager(cluster, clock=clock, scalingInterval="10s")
    complete(made, 10)
    made.start()
    clock.advance(10_000)
    assert cluster.asked.wait(WAIT_S)
    made.stop(WAIT_S)
    assert "left as it is: no answer" in caplog.text
    assert made._timer._thread.is_alive() is False


def test_a_local_master_neither_gives_nor_takes(sc: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "penstock.streaming")
    prefix = "spark.streaming.dynamicAllocation."
    for enabled in ("false", "true"):
        settings = Settings.from_pairs([(prefix + "enabled", enabled)])
        made = make_executor_allocation(sc, settings, BATCH_MS, 0, frozenset, ManualClock(), int)
        assert made is None
    assert caplog.text.count("has no effect") == 1
