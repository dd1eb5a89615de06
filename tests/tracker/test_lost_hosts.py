"""What the tracker says of hosts that are out of reach, and whom it tells where blocks are."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from penstock.settings import Settings
from penstock.tracker import ReceiverTracker
from penstock.tracker._control import what_is_there
from penstock.tracker.cluster import SparkCluster
from penstock.wire.messages import (
    BlockServerAt,
    FindBlockServer,
    RegisterBlockServer,
    SegmentPlace,
)
from tests.tracker.ledger_cases import block
from tests.tracker.tracker_cases import WAIT_S, Attempt, running_tracker

HOST = "127.0.0.1"
FIND = FindBlockServer(HOST)


def block_server(attempt: Attempt, port: int) -> Attempt:
    """Connect as a block server of the attempt's host."""
    server = Attempt(attempt.launch, ())
    server.ask(RegisterBlockServer(HOST, (HOST, port), 1))
    return server


def wait_for_text(caplog: pytest.LogCaptureFixture, text: str) -> str:
    pause = threading.Event()
    for _ in range(int(WAIT_S / 0.02)):
        for record in caplog.records:
            if text in record.getMessage():
                return record.getMessage()
        pause.wait(0.02)
    raise AssertionError(f"not said: {text!r}; but {caplog.messages}")


def wait_until_lost(tracker: ReceiverTracker) -> None:
    pause = threading.Event()
    while tracker._block_servers.is_served(HOST):
        pause.wait(0.02)


def test_a_batch_task_is_told_where_blocks_are_by_now_and_whether_to_wait(tmp_path: Path) -> None:
    with running_tracker(tmp_path) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        # Nobody is there, and nobody who would start one.
        assert attempt.ask(FIND) == BlockServerAt(None, False)
        attempt.register()
        assert attempt.ask(FIND) == BlockServerAt(None, True)
        first = block_server(attempt, 4711)
        assert attempt.ask(FIND) == BlockServerAt((HOST, 4711), True)
        first.close()
        wait_until_lost(tracker)
        assert attempt.ask(FIND) == BlockServerAt(None, True)
        block_server(attempt, 4712).close()
        assert tracker.block_access.link.tracker == attempt.launch.link.tracker_address


def test_a_receiver_that_is_out_of_reach_is_told_and_so_is_its_return(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with running_tracker(tmp_path) as (_, cluster, events):
        attempt = cluster.next_attempt()
        attempt.register()
        attempt.close()
        said = wait_for_text(caplog, "receiver 0 on 127.0.0.1 is out of reach")
        assert "not acknowledged until it connects again" in said
        attempt.client = None
        attempt.register()
        wait_for_text(caplog, "receiver 0 is connected again")
        # It was the same attempt all the time: nothing was started or stopped.
        assert events.rest() == ["started"]
        assert not cluster.has_more()


def test_a_host_that_is_lost_is_told_with_its_blocks_and_their_batches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock.tracker")
    with running_tracker(tmp_path) as (tracker, cluster, _):
        attempt = cluster.next_attempt()
        attempt.register()
        first = attempt.first

        def add(number: int, host: str = HOST) -> None:
            info = block(0, attempt.launch.attempt, first + number)
            attempt.add(msgspec.structs.replace(info, host=host))

        for number in range(3):
            add(number)
        add(3, "elsewhere")
        tracker.allocate_blocks_to_batch(1000)
        add(4)
        server = block_server(attempt, 4711)
        attempt.close()
        server.close()
        said = wait_for_text(caplog, "the block server of 127.0.0.1 is gone")
        assert "no receiver there can start one" in said
        assert f"3 of the batch of 1000 ms (input-0-{first} to input-0-{first + 2})" in said
        assert f"1 waiting for a batch (input-0-{first + 4})" in said
        assert "elsewhere" not in said


@pytest.mark.parametrize("per_slot", [1, 2])
def test_executors_that_are_left_without_room_for_batches_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, per_slot: int
) -> None:
    settings = Settings(restart_max_delay_s=0.01, receivers_per_slot=per_slot)
    with running_tracker(tmp_path, settings=settings) as (_, cluster, _):
        attempt = cluster.next_attempt()
        assert "tasks at a time" not in caplog.text
        cluster.task_slots = 1
        attempt.fail()
        cluster.next_attempt()
        wait_for_text(caplog, "run 1 tasks at a time, and receivers hold 1 of them for good")


@pytest.mark.parametrize(
    ("master", "tries"),
    [("local", 1), ("local[2]", 1), ("local[*, 3]", 3), ("spark://host:7077", 6)],
)
def test_the_tries_of_a_task_are_those_of_the_master(master: str, tries: int) -> None:
    conf = {"spark.task.maxFailures": "6"}
    context: Any = SimpleNamespace(master=master, getConf=lambda: conf)
    assert SparkCluster(context).most_tries() == tries


def test_of_many_batches_the_last_are_named() -> None:
    blocks = {1000 * n: (block(0, "a" * 32, n),) for n in range(1, 21)}
    said = what_is_there(blocks)
    assert "20000 ms" in said
    assert "12000 ms" not in said
    assert said.endswith("and 12 batches more")
    few = what_is_there({time: blocks[time] for time in range(1000, 9000, 1000)})
    assert "1000 ms" in few
    assert "more" not in few


def test_blocks_that_are_on_hdfs_are_not_missed() -> None:
    local = block(0, "a" * 32, 1)
    shared = msgspec.structs.replace(local, segment=SegmentPlace("hdfs://n:8020/log", 1, 0, 1064))
    assert what_is_there({1000: (shared,), None: (shared,)}) == ""
    assert "1 of the batch of 1000 ms (input-0-1)" in what_is_there({1000: (shared, local)})
