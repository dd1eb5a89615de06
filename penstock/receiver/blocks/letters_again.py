"""Storing dead letters again, as records of the stream that they were discarded from."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from penstock.dead_letters import (
    DeadLetter,
    DeadLetterPlace,
    Form,
    LetterName,
    SentKey,
    SentLetters,
    SentState,
    letters_of_log,
    sent_key,
)
from penstock.errors import PenstockError, typed_text
from penstock.receiver.blocks.assembler import RecordPickleError
from penstock.receiver.blocks.framing import CutRecordError
from penstock.receiver.door import acknowledge_nothing
from penstock.wal import LogFolderInUseError

_PIECE_BYTES = 4 << 20


class StoringAgain:
    """Stores records that were discarded before. For one thread.

    Args:
        store: Of the start of the receiver that is under way.
        refused: Within it, what is discarded is no new dead letter; yields the reasons.
    """

    def __init__(
        self,
        store: Callable[..., None],
        refused: Callable[[], AbstractContextManager[list[BaseException]]],
    ) -> None:
        self._store = store
        self._refused = refused

    def add(self, record: Any) -> BaseException | None:
        """Take a record; return why it is discarded, if it is.

        Raises:
            Exception: It was not taken.
        """
        with self._refused() as reasons:
            # In a list, as a record may be one itself.
            self._store([record], ack=acknowledge_nothing)
        return reasons[0] if reasons else None

    def finish(self) -> None:
        """Return when all that was taken is durable: nothing is stored, behind all that was.

        Raises:
            Exception: That is not known.
        """
        self._store([])


def send_again(
    place: DeadLetterPlace,
    names: Sequence[LetterName],
    to: StoringAgain,
    *,
    even_sent: bool,
) -> tuple[int, list[tuple[LetterName, str]]]:
    """Store the records of letters, piece by piece, and note that.

    Args:
        place: Of the stream's dead letters.
        names: Which.
        to: StoringAgain their records.
        even_sent: Also those that were sent before, or may have been.

    Returns:
        How many were stored; those that were not, and why. One that is discarded again stays the
        letter that it is.

    Raises:
        PenstockError: Another one does it at the moment; nothing was done.
        WalError, OSError: The letters, or the notes of what was sent, cannot be read or written.
    """
    try:
        notes = SentLetters(place)
    except LogFolderInUseError as error:
        raise PenstockError(
            "letters of it are being sent already, by another command or one that waited no longer "
            "(the receiver may wait for its rate, or for the batches); ask again when that is done"
        ) from error
    with notes as sent:
        sending = _Sending(sent, to, even_sent)
        for name, letter in _found(place, names):
            if sending.failure is None:
                sending.take(name, letter, place)
            else:
                sending.left[name] = f"it was not tried, since {typed_text(sending.failure)}"
        sending.finish_piece()
    return sending.count, list(sending.left.items())


class _Sending:
    """What became of letters, in one call of `send_again`.

    Attributes:
        count: How many were stored.
        left: Those that were not, and why.
        failure: What `to` raised: no more is tried.
    """

    def __init__(self, sent: SentLetters, to: StoringAgain, even_sent: bool) -> None:
        self.count = 0
        self.left: dict[LetterName, str] = {}
        self.failure: Exception | None = None
        self._sent = sent
        self._to = to
        self._even_sent = even_sent
        self._seen: set[SentKey] = set()
        self._piece: dict[LetterName, tuple[SentKey, Any]] = {}
        self._size = 0

    def take(self, name: LetterName, letter: DeadLetter | None, place: DeadLetterPlace) -> None:
        """Send a letter, with others that were taken before or will be."""
        if letter is None:
            self.left[name] = f"it is not in {place.folder} on {place.host}"
            return
        key = sent_key(name, letter, self._sent.program)
        state = self._sent.state(name, key)
        if state is not None and not self._even_sent:
            self.left[name] = _BEFORE[state]
            return
        if key in self._seen:
            self.left[name] = "it is another one of these, as its batch was computed again"
            return
        try:
            record = _record(letter)
        except PenstockError as error:
            self.left[name] = str(error)
            return
        self._seen.add(key)
        self._piece[name] = (key, record)
        self._size += len(letter.data)
        if self._size >= _PIECE_BYTES:
            self.finish_piece()

    def finish_piece(self) -> None:
        """Store what was taken; returns when it is noted what became of it."""
        piece, self._piece, self._size = self._piece, {}, 0
        if not piece:
            return
        keys = {name: key for name, (key, _) in piece.items()}
        before = {name: self._sent.state(name, key) for name, key in keys.items()}
        # First, so that a crash in between stores nothing twice.
        self._sent.note(keys, SentState.UNKNOWN, keys)
        added = self._add(piece)
        try:
            if added:
                self._to.finish()
        except Exception as error:  # noqa: BLE001 - of the receiver; it is in the answer
            self.failure = error
            for name in added:
                self.left[name] = f"it may be in the stream: {typed_text(error)}"
        else:
            self.count += len(added)
            self._note({name: keys[name] for name in added}, SentState.SENT)
        for state in SentState:
            not_added = {
                name: key
                for name, key in keys.items()
                if name not in added and (before[name] or SentState.NOT_SENT) is state
            }
            self._note(not_added, state)

    def _add(self, piece: dict[LetterName, tuple[SentKey, Any]]) -> set[LetterName]:
        added = set()
        for name, (_, record) in piece.items():
            if self.failure is not None:
                self.left[name] = f"it was not tried, since {typed_text(self.failure)}"
                continue
            try:
                reason: BaseException | None = self._to.add(record)
            except RecordPickleError as error:
                reason = error
            except Exception as error:  # noqa: BLE001 - of the receiver; it is in the answer
                self.failure = error
                self.left[name] = f"the receiver did not take it: {typed_text(error)}"
                continue
            if reason is None:
                added.add(name)
            else:
                self.left[name] = f"it still does not fit: {typed_text(reason)}"
        return added

    def _note(self, keys: dict[LetterName, SentKey], state: SentState) -> None:
        if keys:
            self._sent.note(keys, state, keys)


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
    """Yield each letter that was asked for, once; None: it is gone."""
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
