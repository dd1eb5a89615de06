"""Attempts are processes of their own, of one parent; what becomes of them is said."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing import ReceiverTestError
from penstock.testing.attempts import Attempts
from tests.bounds import HANG_S
from tests.system.leftovers import await_that, is_running

SAY = "import os; open({path!r}, 'a').write(f'{{os.getpid()}} {{os.getppid()}}\\n')"
REST = "; import time; time.sleep(1000)"


@pytest.fixture
def attempts() -> Iterator[Attempts]:
    with Attempts("tests.testing.attempt_program") as attempts:
        yield attempts


def said(path: Path) -> list[list[int]]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [list(map(int, line.split())) for line in lines]


def test_each_is_a_new_process_of_one_parent_which_ends_with_them(tmp_path: Path) -> None:
    path = tmp_path / "said"
    with Attempts("tests.testing.attempt_program") as attempts:
        for _ in range(3):
            with attempts.attempt(SAY.format(path=str(path))) as attempt:
                assert attempt.has_ended(HANG_S)
                assert (attempt.code, attempt.was_killed) == (0, False)
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
    assert attempt.was_killed
    with attempts.attempt("") as next_one:
        assert next_one.has_ended(HANG_S)
        assert not next_one.was_killed


def test_what_one_says_that_fails_is_shown(attempts: Attempts) -> None:
    with attempts.attempt("raise ValueError('no such line')") as attempt:
        assert attempt.has_ended(HANG_S)
        with pytest.raises(ReceiverTestError, match=r"ended with 1: (?s:.*)no such line"):
            _ = attempt.was_killed
    with attempts.attempt("import os; os._exit(7)") as attempt:
        assert attempt.has_ended(HANG_S)
        assert attempt.code == 7


def test_what_it_prints_is_printed(attempts: Attempts, capfd: pytest.CaptureFixture[str]) -> None:
    with attempts.attempt("print('a receiver may print')") as attempt:
        assert attempt.has_ended(HANG_S)
    assert capfd.readouterr().out == "a receiver may print\n"


def test_that_their_parent_was_killed_is_said(tmp_path: Path, attempts: Attempts) -> None:
    path = tmp_path / "said"

    def lose_the_parent() -> None:
        with attempts.attempt(SAY.format(path=str(path)) + REST) as attempt:
            await_that("it has begun", lambda: bool(said(path)))
            os.kill(said(path)[0][1], signal.SIGKILL)
            attempt.has_ended(HANG_S)

    with pytest.raises(ReceiverTestError, match="forks attempts was ended"):
        lose_the_parent()
    pid = said(path)[0][0]
    await_that("it has ended, too", lambda: not is_running(pid))


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
