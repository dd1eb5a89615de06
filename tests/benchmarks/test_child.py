"""Nothing of a run is left behind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.accounting import Accounting
from benchmarks.child import Child, ChildFailedError, marked_processes
from benchmarks.feeder import WORDS_PER_LINE, lines_of_words, numbered_lines

PROGRAM = """
import json, subprocess, sys, time
# A process that leaves the session, as a block server does.
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"],
                         start_new_session=True)
print(json.dumps({"other": other.pid}), flush=True)
while sum(range(1000)):
    pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "a_program.py").write_text(PROGRAM)
    monkeypatch.setattr("benchmarks.child._ROOT", str(tmp_path))
    return "a_program"


def test_ending_a_child_ends_its_whole_tree(module: str) -> None:
    heard: list[dict[str, Any]] = []
    child = Child(module, {}, heard.append)
    try:
        child.wait("word", lambda: bool(heard), 20)
        assert heard[0]["other"] in marked_processes(child.mark)
    finally:
        child.end(timeout_s=0.1)
    assert marked_processes(child.mark) == []


@pytest.mark.slow
def test_cpu_and_memory_of_the_tree_are_seen(module: str) -> None:
    child = Child(module, {}, lambda _: None)
    accounting = Accounting(child.mark)
    begin = time.monotonic()
    try:
        deadline = begin + 20
        while accounting.cpu_s(begin, time.monotonic()) < 0.3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert accounting.cpu_s(begin, time.monotonic()) >= 0.3
        assert accounting.peak_memory_bytes(begin, time.monotonic()) > 1 << 20
    finally:
        accounting.stop()
        child.end(timeout_s=0.1)


def test_a_program_that_ends_early_is_an_error_with_its_last_words() -> None:
    child = Child("benchmarks.no_such_program", {}, lambda _: None)
    try:
        with pytest.raises(ChildFailedError, match="no_such_program"):
            child.wait("start", lambda: False, 20)
    finally:
        child.end()


def test_the_feeder_sends_lines_of_one_length() -> None:
    for build in (numbered_lines, lines_of_words):
        lines = build(100, 50_000).split(b"\n")
        assert lines.pop() == b""
        assert {len(line) for line in lines} == {99}
        assert len(lines) == 500
    words = lines_of_words(100, 50_000).splitlines()
    assert {len(line.split(b" ")) for line in words} == {WORDS_PER_LINE}
