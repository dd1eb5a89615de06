"""A receiver as a real Spark task, in a real Python worker."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import InheritableThread, SparkContext

from penstock.receiver import Receiver, ReceiverLaunch, run_receiver
from penstock.wire.messages import DeregisterReceiver, RegisterReceiver, ReportError, StopReceiver
from tests.receiver.conftest import SETTINGS
from tests.receiver.running import WAIT_S, Tracker, make_launch

pytestmark = pytest.mark.slow

TAG = "penstock-test-receiver"


def no_server(launch: ReceiverLaunch) -> None:
    """No block server: the test reads on this host."""


class Job:
    """The one-task job of a receiver."""

    def __init__(self, sc: SparkContext, launch: ReceiverLaunch) -> None:
        self.error: BaseException | None = None
        self._sc = sc
        self._launch = launch
        self._thread = InheritableThread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        launch = self._launch
        self._sc.addJobTag(TAG)
        try:
            self._sc.parallelize([0], 1).foreach(
                lambda _: run_receiver(launch, ensure_block_server=no_server)
            )
        except Exception as error:  # noqa: BLE001 - what the job raises is what a test asks
            self.error = error

    def join(self) -> BaseException | None:
        self._thread.join(3 * WAIT_S)
        assert not self._thread.is_alive()
        return self.error


@pytest.fixture
def start(sc: SparkContext, tracker: Tracker, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    def start(source: object) -> Job:
        settings = replace(SETTINGS, memory_dir=str(tmp_path))
        return Job(sc, make_launch(source, tracker, tmp_path, settings))

    yield start
    sc.cancelJobsWithTag(TAG)


def wait_for_end_of(pid: int) -> None:
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        threading.Event().wait(0.05)
    raise AssertionError(f"process {pid} is still there")


def test_a_receiver_runs_as_a_task_and_stops_when_the_driver_says_so(
    start: Callable[..., Job], tracker: Tracker
) -> None:
    def endless() -> Iterator[str]:
        number = 0
        while True:
            yield str(number)
            number += 1

    job = start(endless)
    tracker.wait_for_records(1000)
    (registered,) = tracker.of(RegisterReceiver)
    assert registered.pid != os.getpid()
    assert registered.executor_id == "driver"
    tracker.send(StopReceiver())
    assert job.join() is None
    records = tracker.records()
    assert records == [str(number) for number in range(len(records))]
    assert len(tracker.of(DeregisterReceiver)) == 1


def test_a_receiver_that_fails_fails_its_task(start: Callable[..., Job], tracker: Tracker) -> None:
    class Failing(Receiver):
        def onStart(self) -> None:
            raise OSError("no device")

        def onStop(self) -> None:
            pass

    error = start(Failing()).join()
    assert error is not None
    assert "ReceiverFailedError" in str(error)
    assert "no device" in str(error)


def test_a_receiver_that_cannot_be_made_does_not_fail_its_task(
    start: Callable[..., Job], tracker: Tracker
) -> None:
    assert start(b"no pickle").join() is None
    assert tracker.of(ReportError)[0].permanent


@pytest.mark.long
def test_a_cancelled_task_leaves_no_process_and_its_blocks_readable(
    start: Callable[..., Job], tracker: Tracker, sc: SparkContext
) -> None:
    def one() -> Iterator[str]:
        yield "kept"
        threading.Event().wait(600)

    job = start(one)
    tracker.wait_for_records(1)
    (registered,) = tracker.of(RegisterReceiver)
    sc.cancelJobsWithTag(TAG)
    assert job.join() is not None
    wait_for_end_of(registered.pid)
    assert tracker.records() == ["kept"]
