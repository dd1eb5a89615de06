"""What a letter costs does not grow with the number of logs, and their size is bounded."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.dead_letters import (
    DeadLetterPlace,
    DeadLetterWriter,
    LetterTail,
    StoredLetter,
    letters,
)
from penstock.errors import PenstockError
from penstock.runtime.clock import ManualClock
from penstock.wal import LogReader, SyncPolicy

MIB = 1 << 20


def place(folder: Path, number: int, **changes: Any) -> DeadLetterPlace:
    """Return the place of the log of one worker among many."""
    attempt = uuid.uuid5(uuid.NAMESPACE_OID, str(number)).hex
    known: dict[str, Any] = {"sync": SyncPolicy.NONE, "is_one_of_many": True, **changes}
    return DeadLetterPlace(str(folder), 2, attempt, "map", "here", **known)


def write(at: DeadLetterPlace, record: Any = b"bad", clock: ManualClock | None = None) -> list[Any]:
    """Write a letter to a log of its own, as a worker does for its first one; return what went."""
    told: list[Any] = []
    writer = DeadLetterWriter(at, lambda message, error: told.append(error), clock)
    writer.add(record, ValueError(), "")
    writer.write()
    writer.close()
    return told


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the logs that are opened to be read within it."""
    opened: list[str] = []
    open_log = LogReader.open

    def count(folder: str, **how: Any) -> LogReader:
        opened.append(os.path.basename(folder))
        return open_log(folder, **how)

    with monkeypatch.context() as patched:
        patched.setattr(LogReader, "open", count)
        yield opened


def test_a_new_worker_opens_few_of_many_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(400):
        write(place(tmp_path, number))
    with counted(monkeypatch) as opened:
        for number in range(400, 500):
            write(place(tmp_path, number))
    # Of 100 workers that open each log there are 45,000.
    assert len(opened) < 100 * 30


def test_many_short_logs_get_hardly_larger_than_they_may_and_the_oldest_go(tmp_path: Path) -> None:
    clock = ManualClock()
    removed: list[Any] = []
    for number in range(400):
        clock.advance(1)
        removed += write(place(tmp_path, number, max_bytes=MIB), bytes(10_000), clock)
    assert removed
    assert all(type(error) is PenstockError for error in removed)
    left = [stored.letter.attempt for stored in letters(str(tmp_path))]
    assert 0.5 * MIB < len(left) * 10_000 < 1.5 * MIB
    assert left == [place(tmp_path, number).attempt for number in range(400)][-len(left) :]


def test_a_log_of_many_segments_looks_at_each_of_them_and_at_logs_that_are_over_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        write(place(tmp_path, number))
    own = place(tmp_path, 30, is_one_of_many=False)
    with counted(monkeypatch) as opened:
        writer = DeadLetterWriter(own, lambda message, error: pytest.fail(message))
        for _ in range(60):
            writer.add(bytes(40_000), ValueError(), "")
            writer.write()
        writer.close()
    assert opened.count(own.name) < 70
    # Until it is known that it is over.
    assert max(opened.count(place(tmp_path, number).name) for number in range(30)) <= 2


def test_the_tail_does_not_look_again_at_logs_that_are_over_and_reads_on_in_those_that_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        write(place(tmp_path, number))
    live = DeadLetterWriter(place(tmp_path, 50), lambda message, error: pytest.fail(message))
    tail = LetterTail(str(tmp_path), None, but=-1, tell=pytest.fail)
    after: dict[str, int] = {}

    def read() -> list[StoredLetter]:
        nonlocal after
        found, after = tail.read(after, most=1000, most_bytes=1 << 30)
        return found

    def say(text: str) -> None:
        live.add(text, ValueError(), "")
        live.write()

    say("first")
    assert len(read()) == 51
    assert read() == []
    looked: list[str] = []
    stat = os.scandir

    def scan(path: Any = ".") -> Any:
        looked.append(os.path.basename(path))
        return stat(path)

    with counted(monkeypatch) as opened, monkeypatch.context() as patched:
        patched.setattr(os, "scandir", scan)
        say("second")
        assert [stored.letter.data for stored in read()] == [b"second"]
        # Of one that has ended nothing is left out either.
        say("last")
        live.close()
        assert [stored.letter.data for stored in read()] == [b"last"]
        assert [stored.letter.data for stored in read()] == []
    assert {*opened, *looked} <= {place(tmp_path, 50).name}
    write(place(tmp_path, 51))
    assert len(read()) == 1


def test_letters_of_a_time_with_many_logs_go_by_their_age_when_only_a_few_come(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    for number in range(300):
        write(place(tmp_path, number, max_age_s=3600.0), clock=clock)
    clock.advance(5 * 3_600_000)
    for number in range(300, 320):
        write(place(tmp_path, number, max_age_s=3600.0), clock=clock)
    left = [stored.letter.attempt for stored in letters(str(tmp_path))]
    assert sorted(left) == sorted(place(tmp_path, number).attempt for number in range(300, 320))
