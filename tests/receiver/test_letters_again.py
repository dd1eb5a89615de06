"""Dead letters are stored again piece by piece, each once, and only as they were."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.dead_letters import (
    DeadLetterPlace,
    DeadLetterWriter,
    LetterName,
    SentState,
    letters,
    program_name,
    sent_key,
    sent_states,
)
from penstock.receiver.blocks.framing import CutRecordError
from penstock.receiver.blocks.letters_again import send_again


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


class Stream:
    """A stream that discards what it is told to, and may break when asked for something."""

    def __init__(self, *, refuses: Any = (), breaks_at: Any = None) -> None:
        self.refuses = refuses
        self.breaks_at = breaks_at
        self.pieces: list[list[Any]] = []
        self.added: list[Any] = []

    @property
    def stored(self) -> list[Any]:
        return [record for piece in self.pieces for record in piece]

    def add(self, record: Any) -> BaseException | None:
        if record == self.breaks_at:
            raise OSError("the disk is full")
        if record in self.refuses:
            return ValueError("no number")
        self.added.append(record)
        return None

    def finish(self) -> None:
        if self.breaks_at == "the end":
            raise OSError("the disk is full")
        self.pieces.append(self.added)
        self.added = []


def test_each_piece_of_many_is_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.receiver.blocks.letters_again._PIECE_BYTES", 8)
    records = [f"bad {number}" for number in range(7)]
    place, names = write(tmp_path, *records)
    stream = Stream()
    assert send_again(place, names, stream, even_sent=False) == (7, [])
    assert stream.pieces == [records[:2], records[2:4], records[4:6], records[6:]]
    count, left = send_again(place, names, stream, even_sent=False)
    assert (count, [name for name, _ in left], len(stream.pieces)) == (0, names, 4)


def test_what_a_stream_does_not_take_was_not_sent_and_what_came_before_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.receiver.blocks.letters_again._PIECE_BYTES", 10)
    place, names = write(tmp_path, "bad 0", "bad 1", "bad 2", "bad 3")
    stream = Stream(breaks_at="bad 1")
    count, left = send_again(place, names, stream, even_sent=False)
    assert (count, [name for name, _ in left]) == (1, names[1:])
    told = [why for _, why in left]
    assert told[0] == "the receiver did not take it: OSError: the disk is full"
    assert told[1:] == ["it was not tried, since OSError: the disk is full"] * 2
    assert sent_states(str(tmp_path), None) == {names[0]: SentState.SENT}
    stream.breaks_at = None
    count, left = send_again(place, names, stream, even_sent=False)
    assert (count, [name for name, _ in left]) == (3, names[:1])
    assert stream.stored == ["bad 0", "bad 1", "bad 2", "bad 3"]


def test_of_what_a_stream_took_and_did_not_say_that_it_is_stored_nobody_knows(
    tmp_path: Path,
) -> None:
    place, names = write(tmp_path, "bad 0", "bad 1")
    stream = Stream(refuses=["bad 1"], breaks_at="the end")
    count, left = send_again(place, names, stream, even_sent=False)
    assert (count, dict(left)) == (
        0,
        {
            names[0]: "it may be in the stream: OSError: the disk is full",
            names[1]: "it still does not fit: ValueError: no number",
        },
    )
    assert sent_states(str(tmp_path), None) == {names[0]: SentState.UNKNOWN}
    stream.breaks_at = None
    count, left = send_again(place, names, stream, even_sent=False)
    assert (count, [name for name, _ in left]) == (0, names)


def test_what_still_does_not_fit_is_as_it_was_before(tmp_path: Path) -> None:
    place, names = write(tmp_path, "bad 0", "bad 1")
    assert send_again(place, names[:1], Stream(), even_sent=False) == (1, [])
    stream = Stream(refuses=["bad 0", "bad 1"])
    count, left = send_again(place, names, stream, even_sent=True)
    assert (count, len(left)) == (0, 2)
    assert sent_states(str(tmp_path), None) == {names[0]: SentState.SENT}


def copies(folder: Path, count: int) -> tuple[DeadLetterPlace, list[LetterName]]:
    """Write the letter of one record to several logs, as a batch that is computed again does."""
    for digit in "abcdef"[:count]:
        place = DeadLetterPlace(str(folder), 2, digit * 32, "map", "here")
        writer = DeadLetterWriter(place, tell=lambda message, error: None)
        writer.add("bad", ValueError(), "", batch_ms=1000, origin="map:1000:0:0")
        writer.write()
        writer.close()
    return place, [(f"2-{digit * 32}", 1) for digit in "abcdef"[:count]]


def test_a_letter_that_lies_in_several_logs_is_sent_once_whichever_of_them_are_left(
    tmp_path: Path,
) -> None:
    place, names = copies(tmp_path, 3)
    stream = Stream()
    count, left = send_again(place, names[:2], stream, even_sent=False)
    assert (count, [name for name, _ in left]) == (1, names[1:2])
    (shown,) = letters(str(tmp_path))
    # As retention does.
    shutil.rmtree(tmp_path / names[0][0])
    (still,) = letters(str(tmp_path))
    assert (still.id, still.log) == (shown.id, names[1][0])
    for _ in range(3):
        key = sent_key((still.log, still.number), still.letter)
        assert sent_states(str(tmp_path), None) == {key: SentState.SENT}
        count, left = send_again(place, [(still.log, still.number)], stream, even_sent=False)
        assert (count, left[0][1]) == (0, "it was sent already; --again sends it once more")
    assert stream.stored == ["bad"]
    for name, _ in names[1:]:
        shutil.rmtree(tmp_path / name)
    send_again(place, [], stream, even_sent=False)
    # Its batch may be computed once more.
    assert sent_states(str(tmp_path), None) == {key: SentState.SENT}


def test_letters_of_two_programs_below_one_folder_are_two_though_their_origins_are_alike(
    tmp_path: Path,
) -> None:
    first, second = (tmp_path / program_name("same", digit * 32) for digit in "12")
    place, names = copies(first, 1)
    copies(second, 1)
    assert send_again(place, names, Stream(), even_sent=False) == (1, [])
    states = sent_states(str(tmp_path), None)
    keys = [
        sent_key((stored.log, stored.number), stored.letter, stored.program)
        for stored in letters(str(tmp_path))
    ]
    assert [states.get(key) for key in keys] == [SentState.SENT, None]


def test_a_record_of_which_only_the_beginning_is_kept_is_not_stored(tmp_path: Path) -> None:
    place, names = write(tmp_path, b"x" * 100, b"whole", max_record_bytes=10)
    stream = Stream()
    count, left = send_again(place, names, stream, even_sent=True)
    assert (count, stream.stored) == (1, [b"whole"])
    assert left == [
        (
            names[0],
            "only 10 of its 100 bytes are kept (spark.penstock.deadLetters.maxRecordSize)",
        )
    ]
    assert sent_states(str(tmp_path), None) == {names[1]: SentState.SENT}


def test_a_record_in_the_middle_of_which_its_source_ended_is_not_stored(tmp_path: Path) -> None:
    place, names = write_for(CutRecordError(4), tmp_path, b"torn")
    stream = Stream()
    count, left = send_again(place, names, stream, even_sent=True)
    assert (count, stream.stored) == (0, [])
    told = "its source ended in the middle of it, after 4 bytes: there is only its beginning"
    assert left == [(names[0], told)]
