"""Receivers whose author made a mistake: the driver's user sees it, and the rest goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import SettingError
from penstock.receiver import Receiver
from penstock.streaming import PermanentReceiverError
from penstock.tracker import ReceiverPickleError
from tests.system.running import run_on

pytestmark = pytest.mark.slow


def calls_before(folder: str, what: str) -> int:
    """Count a call, in whichever process it is made; return how many there were before."""
    calls = Path(folder)
    number = len(list(calls.glob(f"{what}-*")))
    (calls / f"{what}-{number}").touch()
    return number


class FailsToStart(Receiver):
    """`onStart` raises the first two times."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def onStart(self) -> None:
        number = calls_before(self.folder, "onStart")
        if number < 2:
            raise ConnectionError(f"the broker said no, {number}")
        self.store([1, 2, 3])

    def onStop(self) -> None:
        pass


class FailsInItsThread(Receiver):
    """The thread dies the first time, after three records."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def onStart(self) -> None:
        threading.Thread(target=self.read_the_device, name="device", daemon=True).start()

    def onStop(self) -> None:
        pass

    def read_the_device(self) -> None:
        if calls_before(self.folder, "thread") == 0:
            self.store([1, 2, 3])
            raise ValueError("the device sent nonsense")
        self.store([4, 5, 6])


class FailsToStop(Receiver):
    def onStart(self) -> None:
        self.store([1, 2, 3])

    def onStop(self) -> None:
        self.store([4, 5, 6])
        raise OSError("already closed")


class CannotBeMade:
    """A class with run(), whose constructor is called in the executor."""

    def __init__(self) -> None:
        raise RuntimeError("no such device on this host")

    def run(self) -> None:
        pass


class RefusesItsSetting(Receiver):
    def onStart(self) -> None:
        raise SettingError("spark.my.device", "tape", "disk or drum")

    def onStop(self) -> None:
        pass


def healthy() -> Iterator[int]:
    """Yields a number every few milliseconds, for ever."""
    pause = threading.Event()
    number = 0
    while True:
        yield number
        number += 1
        pause.wait(0.002)


QUICK = {
    "spark.streaming.receiverRestartDelay": "10",
    "spark.penstock.receiver.maxRestartDelay": "100ms",
}


def test_an_error_in_on_start_is_shown_with_its_traceback_and_tried_again(
    sc: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with run_on(sc, QUICK) as run:
        run.process(FailsToStart(str(tmp_path)))
        run.start()
        for number in range(2):
            text = f"the broker said no, {number}"
            error = run.events.wait_for(
                "stopped", lambda info, text=text: text in str(info.lastError())
            )
            assert "in onStart" in error.lastError()
            assert "ConnectionError" in error.lastError()
        run.await_processed(3)
        assert run.processed == [1, 2, 3]
        run.stop()
    assert "the broker said no" in caplog.text
    # How the pauses grow depends on how long each attempt ran: `test_restart_backoff` has it.
    assert "Receiver 0 is started again at once" in caplog.messages


@pytest.mark.long
def test_an_error_in_a_receivers_thread_is_shown_and_the_receiver_restarted(
    sc: Any, tmp_path: Path
) -> None:
    with run_on(sc, QUICK) as run:
        run.process(FailsInItsThread(str(tmp_path)))
        run.start()
        error = run.events.wait_for("error", lambda info: "nonsense" in info.lastErrorMessage())
        assert "in read_the_device" in error.lastError()
        assert "device" in error.lastErrorMessage()
        run.await_processed(6)
        assert run.processed == [1, 2, 3, 4, 5, 6]
        run.stop()


def test_an_error_in_on_stop_is_shown_and_costs_no_record(sc: Any) -> None:
    with run_on(sc, QUICK) as run:
        run.process(FailsToStop())
        run.start()
        run.await_processed(3)
        run.stop()
        assert run.processed == [1, 2, 3, 4, 5, 6]
        (error,) = run.events.of("error")
        assert "in onStop" in error.lastError()
        assert "already closed" in error.lastError()


@pytest.mark.long
def test_the_other_receivers_go_on_while_one_fails_again_and_again(sc: Any) -> None:
    class AlwaysFails(Receiver):
        def onStart(self) -> None:
            raise ConnectionError("never")

        def onStop(self) -> None:
            pass

    with run_on(sc, QUICK) as run:
        run.process(AlwaysFails())
        run.process(healthy)
        run.start()
        run.events.wait_for("stopped", lambda info: "never" in str(info.lastError()), count=4)
        count = len(run.processed)
        run.await_processed(count + 100)
        run.stop()
        assert run.processed == list(range(len(run.processed)))


@pytest.mark.parametrize(
    ("receiver", "text"),
    [
        (CannotBeMade, "no such device on this host"),
        (RefusesItsSetting(), "spark.my.device"),
    ],
    ids=["constructor", "setting"],
)
def test_an_error_that_no_restart_mends_ends_the_wait_and_is_not_tried_again(
    sc: Any, caplog: pytest.LogCaptureFixture, receiver: Any, text: str
) -> None:
    with run_on(sc) as run:
        run.process(receiver)
        run.start()
        with pytest.raises(PermanentReceiverError, match="eceiver 0") as caught:
            run.ssc.awaitTermination(60)
        assert text in str(caught.value)
        assert "Traceback" in caught.value.error
    assert not [line for line in caplog.messages if "is started again" in line]


def test_a_receiver_that_cannot_be_sent_to_an_executor_is_refused_at_once(sc: Any) -> None:
    class HoldsALock(FailsToStart):
        def __init__(self) -> None:
            super().__init__("")
            self.lock = threading.Lock()

    with run_on(sc) as run, pytest.raises(ReceiverPickleError, match="HoldsALock"):
        run.process(HoldsALock())
