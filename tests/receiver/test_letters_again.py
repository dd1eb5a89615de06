"""Dead letters are stored again piece by piece, each once, and only as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.dead_letters import (
    DeadLetterPlace,
    DeadLetterWriter,
    LetterName,
    SentState,
    sent_states,
)
from penstock.receiver.framing import CutRecordError
from penstock.receiver.letters_again import send_again


def write(folder: Path, *records: Any, **changes: Any) -> tuple[DeadLetterPlace, list[LetterName]]:
    """Write letters; return where they are, and their names."""
    return write_for(ValueError(), folder, *records, **changes)


def write_for(
    reason: Exception, folder: Path, *records: Any, **changes: Any
) -> tuple[DeadLetterPlace, list[LetterName]]:
    """Write letters that were discarded for a reason."""
    place = DeadLetterPlace(str(folder), 2, "a" * 32, "Gauge", "here", **changes)
    writer = DeadLetterWriter(place, tell=lambda message, error: None)
    for record in records:
        writer.add(record, reason, "")
    writer.write()
    writer.close()
    return place, [(place.name, number + 1) for number in range(len(records))]


def test_each_piece_of_many_is_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.receiver.letters_again._PIECE_BYTES", 8)
    records = [f"bad {number}" for number in range(7)]
    place, names = write(tmp_path, *records)
    pieces: list[list[Any]] = []
    assert send_again(place, names, pieces.append, even_sent=False) == (7, [])
    assert pieces == [records[:2], records[2:4], records[4:6], records[6:]]
    count, left = send_again(place, names, pieces.append, even_sent=False)
    assert (count, [name for name, _ in left], len(pieces)) == (0, names, 4)


def test_of_a_piece_that_could_not_be_stored_nobody_knows_and_the_rest_was_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.receiver.letters_again._PIECE_BYTES", 1)
    place, names = write(tmp_path, "bad 0", "bad 1", "bad 2")
    stored: list[Any] = []

    def store(piece: list[Any]) -> None:
        if piece == ["bad 1"]:
            raise OSError("the disk is full")
        stored.extend(piece)

    with pytest.raises(OSError, match="the disk is full"):
        send_again(place, names, store, even_sent=False)
    states = sent_states(str(tmp_path), None)
    assert states == {names[0]: SentState.SENT, names[1]: SentState.UNKNOWN}
    count, left = send_again(place, names, stored.extend, even_sent=False)
    assert (count, [name for name, _ in left]) == (1, names[:2])
    assert stored == ["bad 0", "bad 2"]


def test_a_record_of_which_only_the_beginning_is_kept_is_not_stored(tmp_path: Path) -> None:
    place, names = write(tmp_path, b"x" * 100, b"whole", max_record_bytes=10)
    stored: list[Any] = []
    count, left = send_again(place, names, stored.extend, even_sent=True)
    assert (count, stored) == (1, [b"whole"])
    assert left == [
        (
            names[0],
            "only 10 of its 100 bytes are kept (spark.penstock.deadLetters.maxRecordSize)",
        )
    ]
    assert sent_states(str(tmp_path), None) == {names[1]: SentState.SENT}


def test_a_record_in_the_middle_of_which_its_source_ended_is_not_stored(tmp_path: Path) -> None:
    place, names = write_for(CutRecordError(4), tmp_path, b"torn")
    stored: list[Any] = []
    count, left = send_again(place, names, stored.extend, even_sent=True)
    assert (count, stored) == (0, [])
    told = "its source ended in the middle of it, after 4 bytes: there is only its beginning"
    assert left == [(names[0], told)]
