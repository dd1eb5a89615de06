"""`run` and ``with``: a program ends well, whatever comes. Signals are real, the context is not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.streaming._running import _Signals
from tests.bounds import HANG_S
from tests.system.leftovers import await_that, state_of

PROGRAM = """
import os, signal, sys, threading
from penstock.streaming import _running
from penstock.streaming._running import RunOperations
from penstock.runtime.threads import wait_for
from penstock.streaming.stop_report import GivenUpBatch, StopReport

mode = sys.argv[1]
_running.SAME_SIGNAL_S = float(sys.argv[2])
stopped = threading.Event()
changed = threading.Condition()
# A call to the JVM, as far as a signal can tell.
jvm = {"__name__": "py4j.clientserver"}
exec("def read(ask):\\n    return ask()", jvm)

def say(text):
    print(text, flush=True)

is_asked_to_end = []
signal.signal(signal.SIGUSR1, lambda *_: (say("asked to end"), is_asked_to_end.append(1)))

class Context(RunOperations):
    is_over = False

    def start(self):
        say("starting")
        if mode == "nobody reads":
            while True:
                os.write(2, b"x" * 4096)
        if mode == "slow start":
            # Not a wait that a signal may end.
            sys.stdin.readline()
        say("started")

    def awaitTerminationOrTimeout(self, timeout):
        if mode == "fails" or (mode == "fails at last" and self.is_over):
            raise ValueError("a batch failed")
        stopped.wait(0 if mode in ("ends", "gives up", "fails at last") or self.is_over else 60)
        return True

    def stop(self, stopSparkContext=True, stopGraceFully=False):
        say(f"stop graceful={stopGraceFully}")
        self.is_over = True
        if stopGraceFully and mode == "slow stop":
            with changed:
                wait_for(changed, lambda: is_asked_to_end, 60)
        if stopGraceFully and mode == "asks the JVM":
            say("answer " + jvm["read"](lambda: say("asking") or sys.stdin.readline()))
            stopped.wait(60)
        return StopReport(True, (GivenUpBatch(1000),) if mode == "gives up" else ())

context = Context()
if mode == "with":
    with context:
        context.start()
        with changed:  # In steps: a signal that comes just before a wait does not end it.
            wait_for(changed, stopped.is_set, 60)
elif mode == "with ends":
    with context:
        context.start()
else:
    context.run()
say("after")
"""


class Program:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def until(self, line: str) -> None:
        assert self.process.stdout is not None
        while (found := self.process.stdout.readline().strip()) != line:
            assert found, f"it ended before {line!r}"

    def until_said(self, text: str) -> None:
        assert self.process.stderr is not None
        while text not in (found := self.process.stderr.readline()):
            assert found, f"it ended before {text!r}"

    def is_waiting(self) -> bool:
        return state_of(self.process.pid) == "S"

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        out, errors = self.process.communicate(timeout=HANG_S)
        return self.process.returncode, out, errors


@contextmanager
def program(mode: str, *, same_signal_s: float = 0) -> Iterator[Program]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, mode, str(same_signal_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Program(process)
    finally:
        process.kill()
        process.wait()


def test_a_program_that_gave_up_nothing_goes_on_after_run() -> None:
    with program("ends") as running:
        code, out, _ = running.end()
    assert (code, out.splitlines()[-2:]) == (0, ["stop graceful=True", "after"])


def test_what_was_given_up_is_seen_in_the_exit_code() -> None:
    with program("gives up") as running:
        assert running.end()[0] == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_gracefully_with_one_line(number: int) -> None:
    with program("waits") as running:
        running.until("started")
        running.send(number)
        code, out, errors = running.end()
    assert (code, out.splitlines()) == (0, ["stop graceful=True", "after"])
    assert len(errors.strip().splitlines()) == 1
    assert "stopping gracefully" in errors


def test_a_second_signal_stops_at_once() -> None:
    with program("slow stop") as running:
        running.until("started")
        running.send(signal.SIGTERM)
        running.until("stop graceful=True")
        running.send(signal.SIGINT)
        code, out, errors = running.end()
    assert (code, out.splitlines()) == (0, ["stop graceful=False", "after"])
    assert "Ctrl-C: stopping at once" in errors
    assert "Traceback" not in errors


@pytest.mark.long
@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_signals_that_come_together_are_one(second: int) -> None:
    with program("slow stop", same_signal_s=HANG_S) as running:
        running.until("started")
        running.send(signal.SIGTERM)
        running.until("stop graceful=True")
        for _ in range(3):
            running.send(second)
        running.process.send_signal(signal.SIGUSR1)
        code, out, errors = running.end()
    assert (code, out.splitlines()) == (0, ["asked to end", "after"])
    assert len(errors.strip().splitlines()) == 1
    assert "stopping gracefully" in errors


def test_one_that_comes_again_at_once_does_not_count() -> None:
    """A terminal sends it to the whole group, and some launchers send it on."""
    with _Signals() as signals:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert signals.count == 1


@contextmanager
def second_signal_in_a_call_to_the_jvm() -> Iterator[Program]:
    with program("asks the JVM") as running:
        running.until("started")
        running.send(signal.SIGTERM)
        running.until("asking")
        # A signal that comes just before it reads would be seen when it has read.
        await_that("it reads", running.is_waiting)
        running.send(signal.SIGTERM)
        yield running


def test_a_second_signal_leaves_no_call_to_the_jvm_with_half_an_answer() -> None:
    with second_signal_in_a_call_to_the_jvm() as running:
        running.until_said("stopping at once")
        out, errors = running.process.communicate("whole\n", timeout=HANG_S)
    assert out.splitlines() == ["answer whole", "", "stop graceful=False", "after"]
    assert "Traceback" not in errors
    assert running.process.returncode == 0


@pytest.mark.long
@pytest.mark.slow
def test_a_second_signal_stops_at_once_though_the_jvm_hangs() -> None:
    with second_signal_in_a_call_to_the_jvm() as running:
        running.until("stop graceful=False")
        code, _, errors = running.end()
    assert code == 0
    assert "Traceback" not in errors


def test_a_signal_while_it_starts_does_not_break_the_start() -> None:
    with program("slow start") as running:
        running.until("starting")
        running.send(signal.SIGINT)
        running.until_said("stopping gracefully")
        out, errors = running.process.communicate("go on\n", timeout=HANG_S)
    assert out.splitlines() == ["started", "stop graceful=True", "after"]
    assert "Traceback" not in errors
    assert running.process.returncode == 0


def test_an_error_of_the_streams_stops_at_once_and_is_raised() -> None:
    with program("fails") as running:
        code, out, errors = running.end()
    assert (code, out.splitlines()[-1]) == (1, "stop graceful=False")
    assert "ValueError: a batch failed" in errors


def test_an_error_of_a_batch_that_a_graceful_stop_waits_for_is_raised() -> None:
    with program("fails at last") as running:
        code, out, errors = running.end()
    assert (code, out.splitlines()[-1]) == (1, "stop graceful=True")
    assert "ValueError: a batch failed" in errors


def test_the_end_of_a_with_block_stops_gracefully() -> None:
    with program("with ends") as running:
        code, out, _ = running.end()
    assert (code, out.splitlines()[-2:]) == (0, ["stop graceful=True", "after"])


def test_ctrl_c_in_a_with_block_stops_gracefully() -> None:
    with program("with") as running:
        running.until("started")
        running.send(signal.SIGINT)
        code, out, errors = running.end()
    assert (code, out.splitlines()) == (-signal.SIGINT, ["stop graceful=True"])
    assert "stopping gracefully" in errors


def test_a_third_signal_ends_it_also_where_nobody_reads_what_it_says() -> None:
    with program("nobody reads") as running:
        running.until("starting")
        end_s = time.monotonic() + HANG_S
        while running.process.poll() is None and time.monotonic() < end_s:
            # As often as it takes: the first may come before its standard error is full.
            running.send(signal.SIGTERM)
            time.sleep(0.05)
        assert running.process.poll() == 128 + signal.SIGTERM
