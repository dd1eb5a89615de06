"""Attempts are processes of their own, of one parent; what becomes of them is said."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.streaming import FunctionSink
from penstock.testing import ReceiverTestError, crash_test, sink_crash_test
from penstock.testing.attempts import Attempts
from tests.bounds import HANG_S
from tests.system.leftovers import await_that, is_running

SAY = "import os; open({path!r}, 'a').write(f'{{os.getpid()}} {{os.getppid()}}\\n')"
REST = "; import time; time.sleep(1000)"


# A test that was killed, and the process that forks its attempts, and what these started.
TEST = """
import multiprocessing, os, signal, sys, time
from penstock.testing.attempts import Attempts
with Attempts("tests.testing.attempt_program") as attempts:
    with attempts.attempt("") as attempt:
        attempt.has_ended(1000)
    # It has all that the test has open.
    other = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
    other.start()
    print(other.pid, flush=True)
    with attempts.attempt(sys.argv[1]) as attempt:
        attempt.has_ended(1000)
    print("an attempt has ended", flush=True)
    time.sleep(1000)
"""


@pytest.fixture(scope="module")
def attempts() -> Iterator[Attempts]:
    with Attempts("tests.testing.attempt_program") as attempts:
        yield attempts


def ended(attempts: Attempts, plan: str) -> int | None:
    with attempts.attempt(plan) as attempt:
        assert attempt.has_ended(HANG_S)
        return attempt.code


def said(path: Path) -> list[list[int]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [list(map(int, line.split())) for line in lines]


def test_each_is_a_new_process_of_one_parent_which_ends_with_them(tmp_path: Path) -> None:
    path = tmp_path / "said"
    with Attempts("tests.testing.attempt_program") as attempts:
        for _ in range(3):
            with attempts.attempt(SAY.format(path=str(path))) as attempt:
                assert attempt.has_ended(HANG_S)
                assert (attempt.code, attempt.was_killed(True)) == (0, False)
    pids, parents = zip(*said(path), strict=True)
    assert len(set(pids)) == 3
    assert len(set(parents)) == 1
    assert parents[0] != os.getpid()
    assert not is_running(parents[0])


def test_one_that_is_left_running_is_killed(tmp_path: Path, attempts: Attempts) -> None:
    path = tmp_path / "said"
    with attempts.attempt(SAY.format(path=str(path)) + REST) as attempt:
        await_that("it has begun", lambda: bool(said(path)))
        assert not attempt.has_ended(0.01)
    [[pid, _]] = said(path)
    assert not is_running(pid)
    assert attempt.was_killed(True)
    with attempts.attempt("") as next_one:
        assert next_one.has_ended(HANG_S)
        assert not next_one.was_killed(True)


def test_what_one_says_that_fails_is_shown(attempts: Attempts) -> None:
    with attempts.attempt("raise ValueError('no such line')") as attempt:
        assert attempt.has_ended(HANG_S)
        with pytest.raises(ReceiverTestError, match=r"ended with 1: (?s:.*)no such line"):
            attempt.was_killed(True)


def test_what_it_prints_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    with Attempts("tests.testing.attempt_program") as attempts:
        assert ended(attempts, "print('a receiver may print')") == 0
    assert capfd.readouterr().out == "a receiver may print\n"


def test_that_their_parent_was_killed_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "said"
    killed: list[int] = []

    def lose_the_parent(attempts: Attempts) -> None:
        with attempts.attempt(SAY.format(path=str(path)) + REST) as attempt:
            await_that("it has begun", lambda: bool(said(path)))
            os.kill(said(path)[0][1], signal.SIGKILL)
            with pytest.raises(ReceiverTestError):
                attempt.has_ended(HANG_S)
            # Its number may be that of another one now.
            monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))

    with Attempts("tests.testing.attempt_program") as attempts:
        with pytest.raises(ReceiverTestError, match="forks attempts was ended"):
            lose_the_parent(attempts)
        await_that("it has ended, too", lambda: not is_running(said(path)[0][0]))
        with (
            pytest.raises(ReceiverTestError, match=r"cannot begin: \S"),
            attempts.attempt(""),
        ):
            pass
    assert said(path)[0][0] not in killed


@pytest.mark.parametrize("is_within", [True, False], ids=["within an attempt", "between attempts"])
def test_nothing_is_left_of_a_test_that_is_killed(tmp_path: Path, is_within: bool) -> None:
    path = tmp_path / "said"
    start = "; import subprocess; other = subprocess.Popen(['sleep', '1000'])"
    plan = (
        SAY.format(path=str(path)) + (start + f"; print(other.pid, flush=True){REST}") * is_within
    )
    command = [sys.executable, "-c", TEST, plan]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        held = int(test.stdout.readline())
        try:
            line = test.stdout.readline()
            test.kill()
            pids = [*said(path)[0], *([int(line)] if is_within else [])]
            await_that("all have ended", lambda: not any(map(is_running, pids)), HANG_S)
        finally:
            os.kill(held, signal.SIGKILL)


def test_it_finds_what_the_test_has_changed(
    tmp_path: Path, attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ended(attempts, "") == 0
    (tmp_path / "new_module.py").write_text("")
    monkeypatch.setenv("NEW_VALUE", "a")
    monkeypatch.delenv("PATH")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    look = (
        "import os, sys, new_module, subprocess;"
        f"assert os.environ['NEW_VALUE'] == 'a' and 'PATH' not in os.environ;"
        f"assert os.getcwd() == {str(tmp_path)!r};"
        "subprocess.run([sys.executable, '-c', 'import new_module'], check=True)"
    )
    assert ended(attempts, look) == 0


def test_each_has_random_numbers_of_its_own(tmp_path: Path, attempts: Attempts) -> None:
    path = tmp_path / "said"
    draw = (
        f"import random, numpy; file = open({str(path)!r}, 'a');"
        "print(random.random(), numpy.random.rand(), file=file)"
    )
    for _ in range(2):
        assert ended(attempts, draw) == 0
    assert len(set(path.read_text().split())) == 4


def test_what_it_started_ends_with_it(tmp_path: Path, attempts: Attempts) -> None:
    path = tmp_path / "said"
    start = (
        f"import subprocess; other = subprocess.Popen(['sleep', '1000']);"
        f"print(other.pid, 0, file=open({str(path)!r}, 'a'), flush=True)"
    )
    assert ended(attempts, start) == 0
    assert ended(attempts, start + "; import os; os.kill(os.getpid(), 9)") == -signal.SIGKILL
    pids = [pid for pid, _ in said(path)]
    assert len(pids) == 2
    await_that("they have ended", lambda: not any(map(is_running, pids)), HANG_S)


def test_it_has_nothing_open_but_what_every_process_has(attempts: Attempts) -> None:
    look = "import os; assert sorted(os.listdir('/proc/self/fd')) == ['0', '1', '2', '3']"
    assert ended(attempts, look) == 0  # The last one is the folder that is listed.
    sees = "import signal; assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])"
    assert ended(attempts, sees) == 0


def test_a_kill_by_another_is_not_taken_for_its_own(attempts: Attempts) -> None:
    with attempts.attempt("import os; os.kill(os.getpid(), 9)") as attempt:
        assert attempt.has_ended(HANG_S)
        assert attempt.was_killed(True)
        with pytest.raises(ReceiverTestError, match="not by the test"):
            attempt.was_killed(False)


def test_one_looks_without_a_wait(attempts: Attempts) -> None:
    with attempts.attempt("import time; time.sleep(1000)") as attempt:
        assert not attempt.has_ended(0)


def test_a_test_may_ignore_the_ends_of_its_children(attempts: Attempts) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with Attempts("tests.testing.attempt_program") as of_its_own:
            assert ended(of_its_own, "import os; os._exit(3)") == 3
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_the_end_of_what_one_says_is_shown(attempts: Attempts) -> None:
    with attempts.attempt("raise SystemExit('first' + 5000 * '.' + 'last')") as attempt:
        assert attempt.has_ended(HANG_S)
        with pytest.raises(ReceiverTestError) as caught:
            attempt.was_killed(False)
    assert "first" not in str(caught.value)
    assert "last" in str(caught.value)


def test_ctrl_c_is_for_the_test_and_for_the_attempt(tmp_path: Path, attempts: Attempts) -> None:
    path = tmp_path / "said"
    with attempts.attempt(SAY.format(path=str(path)) + REST) as attempt:
        await_that("it has begun", lambda: bool(said(path)))
        [[pid, parent]] = said(path)
        for each in (parent, pid):
            os.kill(each, signal.SIGINT)
        assert attempt.has_ended(HANG_S)
        assert attempt.code != -signal.SIGKILL
    with attempts.attempt("") as attempt:
        assert attempt.has_ended(HANG_S)
        assert attempt.code == 0


def test_one_that_leaves_by_exit_has_failed_and_its_children_have_not(attempts: Attempts) -> None:
    for given, code in (0, 1), (7, 7):
        with attempts.attempt(f"import os; os._exit({given})") as attempt:
            assert attempt.has_ended(HANG_S)
            assert attempt.code == code
            with pytest.raises(ReceiverTestError, match=rf"called os\._exit\({given}\)"):
                attempt.was_killed(False)
    fork = "import os; pid = os.fork(); pid or os._exit(0); assert os.waitpid(pid, 0)[1] == 0"
    assert ended(attempts, fork) == 0


class NoRecords:
    def expected(self) -> list[str]:
        return ["one that was lost"]


def test_a_kill_by_another_is_no_broken_claim() -> None:
    def receiver() -> Iterator[str]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield "never"

    def write(_epoch: object, _table: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def source() -> contextlib.AbstractContextManager[NoRecords]:
        return contextlib.nullcontext(NoRecords())

    with pytest.raises(ReceiverTestError, match="not by the test"):
        crash_test(lambda _: receiver, source, claim="at least once", kills=1)
    with pytest.raises(ReceiverTestError, match="not by the test"):
        sink_crash_test(FunctionSink(write), list, kills=1)
