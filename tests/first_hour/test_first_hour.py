"""The first hour in short: mistakes in this environment. `make first-hour` plays all of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.first_hour.__main__ import differences
from tests.first_hour.readme import is_batch, programs
from tests.first_hour.sessions import MISTAKES, ROOT, Session, played
from tests.first_hour.terminal import as_read


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    session = Session(Path(sys.executable), tmp_path / "folder", path=str(ROOT))
    yield session
    session.close()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(
    "name",
    # `make first-hour` makes all of them.
    [pytest.param(name, marks=[pytest.mark.exhaustive] * (name == "running")) for name in MISTAKES],
)
def test_the_terminal_shows_of_mistakes_what_a_person_has_read(name: str, session: Session) -> None:
    assert differences(name, played(name, session)) == ""
    assert session.left() == []


def test_the_readme_has_programs() -> None:
    assert programs()
    for program in programs():
        compile(program, "README.md", "exec")


@pytest.mark.parametrize(("line", "is_one"), [("7 records\n", True), ("0 records\n", False)])
def test_a_batch_with_records_is_told_from_an_empty_one(line: str, is_one: bool) -> None:
    assert is_batch(line) == is_one


def test_a_packages_frames_are_one_line_and_the_programs_own_stand_there() -> None:
    shown = """\
Traceback (most recent call last):
  File "program.py", line 2, in <module>
    ssc.start()
    ~~~~~~~~~^^
  File "/x/lib/python3.13/site-packages/penstock/streaming/context.py", line 7, in start
    engine.start()
  File "/x/lib/python3.13/contextlib.py", line 81, in inner
    return func(*args, **kwds)
  File "/x/lib/python3.13/site-packages/penstock/streaming/_engine.py", line 9, in start
    raise ValueError(
        "two lines"
    )
ValueError: no more
26/11/22 14:00:00 WARN Utils: of Spark
"""
    assert as_read(shown, {}) == (
        "Traceback (most recent call last):\n"
        '  File "program.py", line 2, in <module>\n'
        "    ssc.start()\n"
        "  [penstock]\n"
        "ValueError: no more\n"
    )


def test_a_progress_bar_is_left_out() -> None:
    shown = "$ python app.py\n\r[Stage 0:>   (0 + 1) / 1]\r       \r\n\nValueError: no more\n"
    assert as_read(shown, {}) == "$ python app.py\nValueError: no more\n"


def test_what_a_cluster_in_the_process_says_at_its_end_is_left_out() -> None:
    shown = (
        "26/11/27 01:00:00 ERROR Worker: Failed to send ExecutorStateChanged\n"
        "org.apache.spark.SparkException: Could not find AppClient.\n"
        "\tat org.apache.spark.rpc.netty.Dispatcher.postMessage(Dispatcher.scala:1)\n"
        "26/11/27 01:00:00 ERROR Executor: Exception in task 0.0\n"
        "org.apache.spark.SparkException: Job aborted\n"
    )
    assert as_read(shown, {}) == (
        "26/11/27 01:00:00 ERROR Executor: Exception in task 0.0\n"
        "org.apache.spark.SparkException: Job aborted\n"
    )


def test_what_differs_from_run_to_run_is_left_out() -> None:
    shown = "batch 2026-11-22 14:00:01.500 from 127.0.0.1:43211 in /tmp/a1/log"
    assert as_read(shown, {"/tmp/a1": "<folder>"}) == (
        "batch <time> from 127.0.0.1:<port> in <folder>/log"
    )
    assert as_read("it failed … 12 times in the last 75 s", {}) == (
        "it failed … several times in the last minute"
    )
