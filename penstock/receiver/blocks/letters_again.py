"""Storing dead letters again, as records of the stream that they were discarded from."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from penstock.dead_letters import (
    SENT_BEFORE,
    DeadLetter,
    DeadLetterPlace,
    Form,
    LetterName,
    SentLetter,
    letter_key,
    letters_of_log,
    origin_digest,
)
from penstock.errors import PenstockError, typed_text
from penstock.receiver.blocks.assembler import RecordPickleError, RecordTooLargeError
from penstock.receiver.blocks.framing import CutRecordError


class LettersInHand:
    """The letters that one attempt has sent or is sending. Safe to use from any thread.

    An entry stays as long as the attempt runs: a block of which it is not known whether the ledger
    has it may still come into it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._letters: dict[bytes, SentLetter] = {}

    def take(self, letter: SentLetter, *, even_sent: bool) -> str:
        """Take a letter in hand; return why not, if it is not to be sent."""
        with self._lock:
            earlier = self._letters.get(letter.key)
            if earlier is not None and not earlier.is_refused:
                if not earlier.is_sent:
                    return "it is being sent already"
                if not even_sent:
                    return SENT_BEFORE
            self._letters[letter.key] = letter
            return ""

    def drop(self, letter: SentLetter) -> None:
        """Let go of a letter whose record was not taken."""
        with self._lock:
            del self._letters[letter.key]


def send_again(
    place: DeadLetterPlace,
    names: Sequence[LetterName],
    store: Callable[..., None],
    refused: Callable[[], AbstractContextManager[list[BaseException]]],
    in_hand: LettersInHand,
    *,
    even_sent: bool,
) -> tuple[int, list[tuple[LetterName, str]]]:
    """Store the records of letters; each is sent once the ledger has its block.

    Args:
        place: Of the stream's dead letters.
        names: Which.
        store: Of the start of the receiver that is under way.
        refused: Within it, what is discarded is no new dead letter; yields the reasons.
        in_hand: Those of this attempt.
        even_sent: Also those that were sent before.

    Returns:
        How many were sent; those that were not, and why. One that is discarded again stays the
        letter that it is.
    """
    left: dict[LetterName, str] = {}
    sending: dict[LetterName, SentLetter] = {}
    seen: set[bytes] = set()
    failure: Exception | None = None
    oldest_ms = (time.time() - place.max_age_s) * 1000

    def send(name: LetterName, letter: DeadLetter) -> str:
        """Return why it is left; raises what the receiver does."""
        key = letter_key(name, origin_digest(letter))
        if key in seen:
            return "it is another one of these, as its batch was computed again"
        if letter.time_ms < oldest_ms and not even_sent:
            return (
                "it is older than spark.penstock.deadLetters.maxAge, so that it is not known any "
                "more whether it was sent; --again sends it"
            )
        try:
            record = _record(letter)
        except PenstockError as error:
            return str(error)
        with refused() as reasons:
            sent = SentLetter(key, reasons)
            if why := in_hand.take(sent, even_sent=even_sent):
                return why
            try:
                # In a list, as a record may be one itself.
                store([record], ack=sent)
            except (RecordPickleError, RecordTooLargeError) as error:
                reasons.append(error)
            except Exception:
                if not sent.is_in_block:
                    in_hand.drop(sent)
                raise
        if reasons:
            return f"it still does not fit: {typed_text(reasons[0])}"
        seen.add(key)
        sending[name] = sent
        return ""

    for name, letter in _found(place, names):
        if letter is None:
            why = f"it is not in {place.folder} on {place.host}"
        elif isinstance(letter, Exception):
            why = f"its log cannot be read: {typed_text(letter)}"
        elif failure is not None:
            why = f"it was not tried, since {typed_text(failure)}"
        else:
            try:
                why = send(name, letter)
            except Exception as error:  # noqa: BLE001 - of the receiver; it is in the answer
                failure = error
                why = f"the receiver did not take it: {typed_text(error)}"
        if why:
            left[name] = why
    try:
        if sending:
            # Behind all that was stored, and so it returns when that is in the ledger.
            store([])
    except Exception as error:  # noqa: BLE001 - as above
        failure = error
    for name, sent in sending.items():
        if not sent.is_sent:
            why = "" if failure is None else f" ({typed_text(failure)})"
            left[name] = f"it is not in the stream yet{why}; `penstock dead-letters list` shows it"
    return len(sending) - len(sending.keys() & left.keys()), list(left.items())


def _found(
    place: DeadLetterPlace, names: Sequence[LetterName]
) -> Iterator[tuple[LetterName, DeadLetter | Exception | None]]:
    """Yield each letter that was asked for, once; None: it is gone; an error: it is not known."""
    by_log: dict[str, set[int]] = {}
    for log, number in names:
        by_log.setdefault(log, set()).add(number)
    for log, numbers in by_log.items():
        unread: Exception | None = None
        try:
            for number, letter in letters_of_log(place, log):
                if number in numbers:
                    numbers.discard(number)
                    yield (log, number), letter
        except (PenstockError, OSError) as error:
            # Letters of other logs may be in the stream by now.
            unread = error
        for number in sorted(numbers):
            yield (log, number), unread


def _record(letter: DeadLetter) -> Any:
    if letter.is_cut:
        raise PenstockError(
            f"only {len(letter.data)} of its {letter.size} bytes are kept "
            "(spark.penstock.deadLetters.maxRecordSize)"
        )
    if letter.error == CutRecordError.__name__:
        raise PenstockError(f"{letter.reason}: there is only its beginning")
    if letter.form == Form.BYTES.value:
        return letter.data
    if letter.form == Form.TEXT.value:
        return letter.data.decode()
    if letter.form == Form.JSON.value:
        return json.loads(letter.data)
    if letter.form == Form.PICKLE.value:
        try:
            return pickle.loads(letter.data)
        except Exception as error:  # what a class of the program raises
            raise PenstockError(f"it cannot be unpickled: {typed_text(error)}") from error
    raise PenstockError("only its repr is kept")
