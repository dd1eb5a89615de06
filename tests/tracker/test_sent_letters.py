"""Which dead letters were sent again is in the ledger with the blocks that have their records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.dead_letters import SENT_BEFORE
from penstock.runtime.clock import ManualClock
from penstock.settings import Settings
from penstock.tracker import ReceivedBlockTracker
from penstock.tracker._endpoint import LetterSends
from penstock.tracker.ledger._driver_log import SnapshotRule
from penstock.tracker.ledger.opening import open_ledger as opened
from penstock.wire.messages import Failure, LettersSent, Ok, ReceivedBlockInfo, Refused, SendLetters
from tests.tracker.ledger_cases import LOG_OPTIONS, RefusingFileSystem, add, attempt_name, block

A, B = attempt_name(1), attempt_name(2)


def open_ledger(
    folder: Path,
    clock: ManualClock | None = None,
    fs: RefusingFileSystem | None = None,
    *,
    records: int = 100_000,
) -> ReceivedBlockTracker:
    return ReceivedBlockTracker.recover(
        [0],
        str(folder),
        options=LOG_OPTIONS,
        clock=clock,
        fs=fs,
        snapshots=SnapshotRule(records),
    )


def first_block(ledger: ReceivedBlockTracker, attempt: str) -> int:
    return ledger.register_attempt(0, attempt, "host").first_block_number


def with_letters(attempt: str, number: int, *letters: bytes) -> ReceivedBlockInfo:
    return msgspec.structs.replace(block(0, attempt, number), letters=letters)


@pytest.mark.parametrize("records", [1, 100_000], ids=["snapshots", "events"])
def test_what_was_sent_is_known_with_its_block_also_after_a_crash(
    tmp_path: Path, records: int
) -> None:
    ledger = open_ledger(tmp_path, records=records)
    number = first_block(ledger, A)
    blocks = [with_letters(A, number, b"one", b"two"), block(0, A, number + 1)]
    # A message that is sent again changes nothing.
    for _ in range(2):
        assert isinstance(add(ledger, 0, A, blocks), Ok)
    assert isinstance(add(ledger, 0, A, [with_letters(A, number + 2, b"three")]), Ok)
    keys = {b"one", b"two", b"three"}
    assert ledger.sent_letters(0) == (A, keys)
    assert ledger.sent_letters(0, [b"two", b"four"]) == (A, {b"two"})
    assert ledger.sent_letters(1) == ("", frozenset())
    assert ledger.allocate_blocks_to_batch(500)
    (added,) = ledger.get_blocks_of_batch(500).values()
    assert [one.letters for one in added] == [()] * 3
    ledger.close()
    for _ in range(2):
        again = open_ledger(tmp_path, records=records)
        assert again.sent_letters(0)[1] == keys
        again.allocate_blocks_to_batch(1000)
        again.close()
    assert ReceivedBlockTracker.read(str(tmp_path)).sent_letters(0)[1] == keys


def test_a_receiver_is_asked_for_what_the_ledger_does_not_know_as_sent() -> None:
    names = [("log", number) for number in (1, 2)]
    letters = [(names[0], b"one"), (names[1], b"two")]
    asked: list[SendLetters] = []

    def send(stream_id: int, message: Any) -> bool:
        asked.append(message)
        left = ((message.letters[-1], "it does not fit"),)
        sends.answered(LettersSent(stream_id, A, message.request, 0, left))
        return True

    sends = LetterSends(send, lambda stream_id, keys: (A, {b"one"} & {*keys}))
    answer = sends.ask(0, letters, even_sent=False, timeout_s=1.0)
    assert answer.left == ((names[0], SENT_BEFORE), (names[1], "it does not fit"))
    answer = sends.ask(0, letters[:1], even_sent=False, timeout_s=1.0)
    assert (answer.stored, answer.left) == (0, ((names[0], SENT_BEFORE),))
    sends.ask(0, letters, even_sent=True, timeout_s=1.0)
    assert [(one.attempt, one.letters, one.even_sent) for one in asked] == [
        (A, (names[1],), False),
        (A, tuple(names), True),
    ]


def test_what_is_not_in_the_ledger_was_not_sent(tmp_path: Path) -> None:
    fs = RefusingFileSystem()
    ledger = open_ledger(tmp_path, fs=fs)
    number = first_block(ledger, A)
    fs.full = True
    assert isinstance(add(ledger, 0, A, [with_letters(A, number, b"one")]), Failure)
    assert ledger.sent_letters(0) == (A, frozenset())
    fs.full = False
    # Another attempt is the newest: what the first one had in hand never comes into the ledger.
    first_block(ledger, B)
    assert isinstance(add(ledger, 0, A, [with_letters(A, number, b"one")]), Refused)
    assert ledger.sent_letters(0) == (B, frozenset())
    ledger.close()
    again = open_ledger(tmp_path)
    assert again.sent_letters(0)[1] == frozenset()
    again.close()


@pytest.mark.parametrize("is_kept", [True, False], ids=["on disk", "in memory"])
def test_it_is_known_twice_as_long_as_letters_are_kept(tmp_path: Path, is_kept: bool) -> None:
    settings = Settings(dead_letters_max_age_s=100.0)
    folder = str(tmp_path) if is_kept else None
    ledger = opened((), folder, settings, sync="none", clock=ManualClock())
    assert ledger.letters_kept_s == 200.0
    ledger.close()


def test_what_was_sent_is_forgotten_when_its_letter_is_too_old_to_be_sent(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000)
    ledger = open_ledger(tmp_path, clock)
    ledger.letters_kept_s = 10.0
    number = first_block(ledger, A)
    for at, key in enumerate((b"one", b"two", b"one")):
        add(ledger, 0, A, [with_letters(A, number + at, key)])
        clock.advance(4_000)
    # One was sent a second time, which counts.
    add(ledger, 0, A, [with_letters(A, number + 3, b"three")])
    assert ledger.sent_letters(0)[1] == {b"one", b"two", b"three"}
    clock.advance(4_000)
    add(ledger, 0, A, [with_letters(A, number + 4, b"four")])
    assert ledger.sent_letters(0)[1] == {b"one", b"three", b"four"}
    ledger.close()
    again = open_ledger(tmp_path, clock)
    assert again.sent_letters(0)[1] == {b"one", b"three", b"four"}
    again.close()
