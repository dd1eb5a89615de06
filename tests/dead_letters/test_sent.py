"""Which dead letters were sent through again, as their stream's receiver finds it noted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from penstock.dead_letters import (
    DeadLetterPlace,
    DeadLetterWriter,
    SentLetters,
    SentState,
    sent_states,
)
from penstock.wal import CorruptRecordError


def place(folder: Path, digit: str = "0") -> DeadLetterPlace:
    return DeadLetterPlace(str(folder), 2, digit * 32, "Gauge", "here")


def write(folder: Path, digit: str) -> str:
    """Write a log of one letter; return its name."""
    writer = DeadLetterWriter(place(folder, digit), tell=lambda message, error: None)
    writer.add(b"bad", ValueError(), "bad")
    writer.write()
    writer.close()
    return place(folder, digit).name


def note(folder: Path, *names: tuple[str, int], state: SentState = SentState.SENT) -> None:
    with SentLetters(place(folder)) as sent:
        sent.note(names, state)


def known(folder: Path) -> dict[tuple[str, int], SentState]:
    with SentLetters(place(folder)) as sent:
        return dict(sent.states)


def test_what_was_sent_is_known_as_long_as_a_log_of_its_segment_is_there(tmp_path: Path) -> None:
    first, second = (write(tmp_path, digit) for digit in "ab")
    note(tmp_path, (first, 1), (second, 1))
    shutil.rmtree(tmp_path / first)
    for _ in range(3):
        assert known(tmp_path)[second, 1] is SentState.SENT
    shutil.rmtree(tmp_path / second)
    known(tmp_path)
    assert known(tmp_path) == {}
    assert sent_states(str(tmp_path), None) == {}


def test_what_was_noted_last_holds_in_whichever_segment(tmp_path: Path) -> None:
    name = (write(tmp_path, "a"), 1)
    for states in ([SentState.UNKNOWN, SentState.SENT], [SentState.SENT, SentState.UNKNOWN]):
        with SentLetters(place(tmp_path)) as sent:
            for state in states:
                sent.note([name], state)
        assert known(tmp_path) == sent_states(str(tmp_path), None) == {name: states[-1]}
        note(tmp_path, name, state=states[0])
        assert known(tmp_path) == sent_states(str(tmp_path), None) == {name: states[0]}


def test_a_receiver_that_cannot_read_what_was_sent_sends_nothing(tmp_path: Path) -> None:
    name = write(tmp_path, "a")
    note(tmp_path, (name, 1))
    (log,) = (tmp_path / "sent-2").glob("segment-*.log")
    log.write_bytes(log.read_bytes().replace(name.encode(), b"?" * len(name)))
    # It gives the log back, too.
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            SentLetters(place(tmp_path))
