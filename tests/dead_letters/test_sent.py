"""Which dead letters were sent through again, as their stream's receiver finds it noted."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.dead_letters import (
    DeadLetterPlace,
    DeadLetterWriter,
    SentLetters,
    SentState,
    letters_of_log,
    sent_key,
    sent_states,
)
from penstock.wal import CorruptRecordError


def place(folder: Path, digit: str = "0") -> DeadLetterPlace:
    return DeadLetterPlace(str(folder), 2, digit * 32, "Gauge", "here")


def write(folder: Path, digit: str, origin: str | None = None) -> str:
    """Write a log of one letter; return its name."""
    writer = DeadLetterWriter(place(folder, digit), tell=lambda message, error: None)
    writer.add(b"bad", ValueError(), "bad", origin=origin)
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


def test_a_letter_that_was_sent_is_known_when_its_batch_is_computed_after_all_its_logs_went(
    tmp_path: Path,
) -> None:
    def send(log: str, max_age_s: float) -> SentState | None:
        """Send the letter of a log; return how far it had come before."""
        of_sender = replace(place(tmp_path), max_age_s=max_age_s)
        ((number, letter),) = letters_of_log(of_sender, log)
        with SentLetters(of_sender) as sent:
            key = sent_key((log, number), letter, sent.program)
            before = sent.state((log, number), key)
            sent.note([(log, number)], SentState.SENT, {(log, number): key})
        return before

    origin = "map:1000:0:7"
    first = write(tmp_path, "a", origin)
    assert send(first, 60.0) is None
    shutil.rmtree(tmp_path / first)
    # Meanwhile other letters are sent, which is when notes go.
    other = write(tmp_path, "b")
    note(tmp_path, (other, 1))
    assert send(write(tmp_path, "c", origin), 60.0) is SentState.SENT
    shutil.rmtree(tmp_path / "2-cccccccccccccccccccccccccccccccc")
    # Once letters are older than they are kept, so is what is known of them.
    for _ in range(2):
        with SentLetters(replace(place(tmp_path), max_age_s=-1.0)):
            pass
    assert send(write(tmp_path, "d", origin), -1.0) is None


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
