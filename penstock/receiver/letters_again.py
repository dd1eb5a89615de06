"""Storing dead letters again, as records of the stream that they were discarded from."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from penstock.dead_letters import (
    DeadLetter,
    DeadLetterPlace,
    Form,
    LetterName,
    SentLetters,
    SentState,
    letters_of_log,
)
from penstock.errors import PenstockError, typed_text
from penstock.receiver.framing import CutRecordError
from penstock.wal import LogFolderInUseError

__all__ = ["CannotSendError", "SendingAlreadyError", "send_again"]

_PIECE_BYTES = 4 << 20


class CannotSendError(PenstockError):
    """A letter is no record that could be stored; its text says why."""


class SendingAlreadyError(PenstockError):
    """Letters of the stream are being sent at the moment."""

    def __init__(self) -> None:
        super().__init__(
            "letters of it are being sent already, by another command or one that waited no longer "
            "(the receiver may wait for its rate, or for the batches); ask again when that is done"
        )


def send_again(
    place: DeadLetterPlace,
    names: Sequence[LetterName],
    store: Callable[[list[Any]], None],
    *,
    even_sent: bool,
) -> tuple[int, list[tuple[LetterName, str]]]:
    """Store the records of letters, piece by piece, and note that.

    Args:
        place: Of the stream's dead letters.
        names: Which.
        store: Stores records; returns when they are durable.
        even_sent: Also those that were sent before, or may have been.

    Returns:
        How many were stored; those that were not, and why.

    Raises:
        SendingAlreadyError: Another one does it at the moment; nothing was done.
        WalError, OSError: The letters, or the notes of what was sent, cannot be read or written.
        Exception: What `store` raises: whether those of the piece were stored is not known then.
    """
    left: dict[LetterName, str] = {}
    count = 0
    try:
        notes = SentLetters(place)
    except LogFolderInUseError as error:
        raise SendingAlreadyError from error
    with notes as sent:

        def finish(piece: dict[LetterName, Any]) -> None:
            # First, so that a crash in between stores nothing twice.
            sent.note(piece, SentState.UNKNOWN)
            store(list(piece.values()))
            sent.note(piece, SentState.SENT)

        piece: dict[LetterName, Any] = {}
        size = 0
        for name, letter in _found(place, names):
            state = sent.states.get(name)
            if state is not None and not even_sent:
                left[name] = _BEFORE[state]
                continue
            if letter is None:
                left[name] = f"it is not in {place.folder} on {place.host}"
                continue
            try:
                piece[name] = _record(letter)
            except CannotSendError as error:
                left[name] = str(error)
                continue
            count += 1
            size += len(letter.data)
            if size >= _PIECE_BYTES:
                finish(piece)
                piece, size = {}, 0
        if piece:
            finish(piece)
    return count, list(left.items())


_BEFORE = {
    SentState.SENT: "it was sent already; --again sends it once more",
    SentState.UNKNOWN: (
        "the receiver that sent it was killed meanwhile: it may be in the stream; look there, and "
        "send it with --again if it is not"
    ),
}


def _found(
    place: DeadLetterPlace, names: Sequence[LetterName]
) -> Iterator[tuple[LetterName, DeadLetter | None]]:
    """Yield each letter that was asked for, once; None: it is not there."""
    by_log: dict[str, set[int]] = {}
    for log, number in names:
        by_log.setdefault(log, set()).add(number)
    for log, numbers in by_log.items():
        for number, letter in letters_of_log(place, log):
            if number in numbers:
                numbers.discard(number)
                yield (log, number), letter
        for number in sorted(numbers):
            yield (log, number), None


def _record(letter: DeadLetter) -> Any:
    if letter.is_cut:
        raise CannotSendError(
            f"only {len(letter.data)} of its {letter.size} bytes are kept "
            "(spark.penstock.deadLetters.maxRecordSize)"
        )
    if letter.error == CutRecordError.__name__:
        raise CannotSendError(f"{letter.reason}: there is only its beginning")
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
            raise CannotSendError(f"it cannot be unpickled: {typed_text(error)}") from error
    raise CannotSendError("only its repr is kept")
