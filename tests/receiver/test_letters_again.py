"""Dead letters are stored again piece by piece, each once, and only as they were."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.dead_letters import (
    SENT_BEFORE,
    DeadLetterPlace,
    DeadLetterWriter,
    LetterName,
    SentLetter,
    letter_key,
    letters,
    origin_digest,
)
from penstock.receiver.blocks.assembler import RecordTooLargeError
from penstock.receiver.blocks.framing import CutRecordError
from penstock.receiver.blocks.letters_again import LettersInHand, send_again
from penstock.runtime.clock import ManualClock
from penstock.wal import EncryptionKey


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
    """A stream that discards what it is told to, and may break when asked for something.

    What it took is in the ledger when nothing is stored behind it.
    """

    def __init__(
        self, *, refuses: Any = (), breaks_at: Any = None, reports_at_once: bool = False
    ) -> None:
        self.refuses = refuses
        self.reports_at_once = reports_at_once
        self.breaks_at = breaks_at
        self.too_large: Any = None
        self.stored: list[Any] = []
        self.keys: list[bytes] = []
        self.open: list[SentLetter] = []
        self.in_hand = LettersInHand()
        self.reasons: list[BaseException] = []

    @contextmanager
    def refused(self) -> Iterator[list[BaseException]]:
        self.reasons = []
        yield self.reasons

    def store(self, records: list[Any], ack: SentLetter | None = None) -> None:
        for record in records:
            if record == self.breaks_at:
                raise OSError("the disk is full")
            if record == self.too_large:
                raise RecordTooLargeError(len(record), 1)
            if record in self.refuses:
                self.reasons.append(ValueError("no number"))
            else:
                self.stored.append(record)
        if ack is not None:
            ack.is_in_block = True
            self.open.append(ack)
            if self.reports_at_once:
                self.report()
            if self.breaks_at == "behind it":
                raise OSError("the disk is full")
        elif self.breaks_at == "the end":
            raise OSError("the disk is full")
        else:
            self.report()

    def report(self) -> None:
        """Have the ledger take what was stored."""
        self.keys += [letter.key for letter in self.open if not letter.is_refused]
        for letter in self.open:
            letter()
        self.open = []

    def send(
        self, place: DeadLetterPlace, names: list[LetterName], *, even_sent: bool = False
    ) -> tuple[int, dict[LetterName, str]]:
        count, left = send_again(
            place, names, self.store, self.refused, self.in_hand, even_sent=even_sent
        )
        return count, dict(left)


def test_each_of_many_is_sent_once_by_one_attempt(tmp_path: Path) -> None:
    records = [f"bad {number}" for number in range(7)]
    place, names = write(tmp_path, *records)
    stream = Stream()
    assert stream.send(place, [*names, names[0]]) == (7, {})
    assert (stream.stored, stream.keys) == (records, [letter_key(name, None) for name in names])
    assert stream.send(place, names) == (0, dict.fromkeys(names, SENT_BEFORE))
    assert stream.send(place, names[:1], even_sent=True) == (1, {})
    assert stream.stored == [*records, "bad 0"]


def test_what_a_stream_does_not_take_is_left_and_what_came_before_it_is_sent(
    tmp_path: Path,
) -> None:
    place, names = write(tmp_path, "bad 0", "bad 1", "bad 2", "bad 3")
    stream = Stream(breaks_at="bad 1")
    full = "OSError: the disk is full"
    assert stream.send(place, names) == (
        1,
        {
            names[1]: f"the receiver did not take it: {full}",
            names[2]: f"it was not tried, since {full}",
            names[3]: f"it was not tried, since {full}",
        },
    )
    stream.breaks_at = None
    assert stream.send(place, names) == (3, {names[0]: SENT_BEFORE})
    assert stream.stored == ["bad 0", "bad 1", "bad 2", "bad 3"]


def test_what_is_not_in_the_ledger_yet_is_not_sent_a_second_time_by_its_attempt(
    tmp_path: Path,
) -> None:
    place, names = write(tmp_path, "bad 0", "bad 1")
    stream = Stream(refuses=["bad 1"], breaks_at="the end")
    count, left = stream.send(place, names)
    assert (count, left[names[1]]) == (0, "it still does not fit: ValueError: no number")
    assert left[names[0]].startswith("it is not in the stream yet (OSError: the disk is full)")
    stream.breaks_at = None
    for even_sent in (False, True):
        assert stream.send(place, names[:1], even_sent=even_sent) == (
            0,
            {names[0]: "it is being sent already"},
        )
    stream.report()
    assert stream.send(place, names[:1]) == (0, {names[0]: SENT_BEFORE})
    # What was discarded again may fit by now.
    stream.refuses = []
    assert stream.send(place, names[1:]) == (1, {})
    assert stream.stored == ["bad 0", "bad 1"]


def test_what_a_stream_took_before_it_broke_is_not_sent_a_second_time(tmp_path: Path) -> None:
    place, names = write(tmp_path, "bad")
    stream = Stream(breaks_at="behind it")
    assert stream.send(place, names)[0] == 0
    stream.breaks_at = None
    assert stream.send(place, names) == (0, {names[0]: "it is being sent already"})
    stream.report()
    assert stream.stored == ["bad"]


def test_a_record_that_is_too_large_still_keeps_no_other_from_being_sent(tmp_path: Path) -> None:
    place, names = write(tmp_path, "bad 0", "bad 1")
    stream = Stream()
    stream.too_large = "bad 0"
    count, left = stream.send(place, names)
    assert (count, list(left)) == (1, names[:1])
    assert left[names[0]].startswith("it still does not fit: RecordTooLargeError: ")
    stream.too_large = None
    assert stream.send(place, names) == (1, {names[1]: SENT_BEFORE})


def test_what_was_discarded_again_and_fits_by_now_is_not_sent_a_second_time(tmp_path: Path) -> None:
    place, names = write(tmp_path, "bad")
    stream = Stream(refuses=["bad"])
    assert stream.send(place, names)[0] == 0
    stream.refuses, stream.breaks_at = [], "the end"
    assert stream.send(place, names)[0] == 0
    stream.breaks_at = None
    assert stream.send(place, names) == (0, {names[0]: "it is being sent already"})
    assert stream.stored == ["bad"]


def test_of_what_age_a_letter_is_sent_its_time_says(tmp_path: Path) -> None:
    now_ms = int(time.time() * 1000)
    stream = Stream()
    for number, (age_s, is_sent) in enumerate(((60, True), (150, False))):
        place = DeadLetterPlace(
            str(tmp_path), 2, f"{number}" * 32, "Gauge", "here", max_age_s=100.0
        )
        clock = ManualClock(now_ms - age_s * 1000)
        with closing(DeadLetterWriter(place, lambda message, error: None, clock)) as writer:
            writer.add("bad", ValueError(), "")
            writer.write()
        assert stream.send(place, [(place.name, 1)])[0] == is_sent


def test_a_letter_that_is_older_than_letters_are_kept_is_sent_when_that_is_asked_for(
    tmp_path: Path,
) -> None:
    place, names = write(tmp_path, "bad", max_age_s=-1.0)
    stream = Stream()
    count, left = stream.send(place, names)
    assert (count, list(left)) == (0, names)
    assert stream.send(place, names, even_sent=True) == (1, {})


def copies(folder: Path, count: int) -> tuple[DeadLetterPlace, list[LetterName]]:
    """Write the letter of one record to several logs, as a batch that is computed again does."""
    for digit in "abcdef"[:count]:
        place = DeadLetterPlace(str(folder), 2, digit * 32, "map", "here")
        writer = DeadLetterWriter(place, tell=lambda message, error: None)
        writer.add("bad", ValueError(), "", batch_ms=1000, origin="map:1000:0:0")
        writer.write()
        writer.close()
    return place, [(f"2-{digit * 32}", 1) for digit in "abcdef"[:count]]


def test_a_letter_that_is_in_several_logs_is_sent_once_whichever_of_them_are_left(
    tmp_path: Path,
) -> None:
    place, names = copies(tmp_path, 3)
    stream = Stream(reports_at_once=True)
    count, left = stream.send(place, names[:2], even_sent=True)
    assert (count, list(left)) == (1, names[1:2])
    (shown,) = letters(str(tmp_path))
    # As retention does.
    shutil.rmtree(tmp_path / names[0][0])
    (still,) = letters(str(tmp_path))
    assert (still.id, still.log) == (shown.id, names[1][0])
    name = (still.log, still.number)
    assert stream.send(place, [name]) == (0, {name: SENT_BEFORE})
    assert stream.stored == ["bad"]
    assert stream.keys == [origin_digest(still.letter)]


def test_a_record_of_which_only_the_beginning_is_kept_is_not_stored(tmp_path: Path) -> None:
    place, names = write(tmp_path, b"x" * 100, b"whole", max_record_bytes=10)
    stream = Stream()
    told = "only 10 of its 100 bytes are kept (spark.penstock.deadLetters.maxRecordSize)"
    assert stream.send(place, names, even_sent=True) == (1, {names[0]: told})
    assert stream.stored == [b"whole"]


def test_a_record_in_the_middle_of_which_its_source_ended_is_not_stored(tmp_path: Path) -> None:
    place, names = write_for(CutRecordError(4), tmp_path, b"torn")
    stream = Stream()
    told = "its source ended in the middle of it, after 4 bytes: there is only its beginning"
    assert stream.send(place, names, even_sent=True) == (0, {names[0]: told})
    assert stream.stored == []


def test_a_log_that_cannot_be_read_keeps_no_letter_of_others_from_being_sent(
    tmp_path: Path,
) -> None:
    place, names = write(tmp_path, "bad 0", "bad 1")
    unread, encrypted = "2-" + "b" * 32, "2-" + "c" * 32
    (tmp_path / unread / "segment-000000000001.log").mkdir(parents=True)
    elsewhere = replace(place, attempt="c" * 32, encryption=EncryptionKey.generate())
    with closing(DeadLetterWriter(elsewhere, tell=lambda message, error: None)) as writer:
        writer.add("bad", ValueError(), "")
        writer.write()
    stream = Stream()
    asked = [names[0], (unread, 1), (unread, 2), (encrypted, 1), names[1]]
    count, left = stream.send(place, asked)
    assert (count, list(left)) == (2, asked[1:4])
    assert all(why.startswith("its log cannot be read: ") for why in left.values())
    assert (stream.stored, len(stream.keys)) == (["bad 0", "bad 1"], 2)
