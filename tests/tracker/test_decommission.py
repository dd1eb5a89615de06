"""Executors that are about to go, as the tracker sees them; a test plays Spark and receivers."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.settings import Settings
from penstock.tracker import ExecutorLocation, receiver_tracker
from penstock.wire.messages import Registered, StopReceiver
from tests.tracker.tracker_cases import Attempt, Source, ThreadCluster, running_tracker

EXECUTORS = [ExecutorLocation("a", "1"), ExecutorLocation("b", "2")]


def begin(cluster: ThreadCluster) -> Attempt:
    """Take the next attempt, which registers from where it was to run."""
    attempt = cluster.next_attempt()
    place = attempt.locations[0]
    assert isinstance(place, ExecutorLocation)
    attempt.host, attempt.executor_id = place.host, place.executor_id
    assert isinstance(attempt.register(), Registered)
    return attempt


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_tracker, "_LEAVING_S", 0.01)


def test_a_receiver_moves_from_an_executor_that_is_about_to_go(tmp_path: Path) -> None:
    cluster = ThreadCluster(is_local=False, executors=EXECUTORS)
    # Other restarts wait for long.
    settings = Settings(restart_max_delay_s=3600, graceful_stop_timeout_ms=2000)
    with running_tracker(
        tmp_path,
        cluster=cluster,
        receivers={0: (Source(), "a"), 1: (Source(), "b")},
        settings=settings,
    ) as (tracker, _, events):
        both = {each.executor_id: each for each in (begin(cluster), begin(cluster))}
        cluster.leaving_ids = frozenset("1")
        going = both["1"]
        assert isinstance(going.next_message(), StopReceiver)
        going.deregister("Stopped by driver")
        going.finish()
        again = begin(cluster)
        assert again.executor_id == "2"
        # And from there, now that the first is back.
        cluster.leaving_ids = frozenset("2")
        for attempt in (again, both["2"]):
            attempt.obey()
            assert begin(cluster).executor_id == "1"
        assert "error" not in events.rest()
        assert going.messages.empty()
        assert {info.attempts for info in tracker.tracking_infos().values()} == {2, 3}


def test_where_no_executor_stays_receivers_run_to_the_end(tmp_path: Path) -> None:
    cluster = ThreadCluster(is_local=False, executors=EXECUTORS[:1])
    with running_tracker(tmp_path, cluster=cluster) as (tracker, _, _events):
        only = begin(cluster)
        cluster.leaving_ids = frozenset("1")
        tracker._move_from_leaving()
        assert only.messages.empty()
        cluster.up.append(EXECUTORS[1])
        only.obey()
        assert begin(cluster).executor_id == "2"
