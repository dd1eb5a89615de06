"""`DeadLetter`: what is kept of a record that fits nowhere."""

from __future__ import annotations

import hashlib
import json
import pickle
import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec

from penstock.position_changes import position_as_json

KIND = 1
"""The kind of a letter's record in the log."""


class Form(Enum):
    """How the bytes of a dead letter stand for its record."""

    BYTES = "bytes"
    """They are the record."""
    TEXT = "text"
    """The record is text; they are its UTF-8."""
    JSON = "json"
    """The record is an object that JSON gives back as it was."""
    PICKLE = "pickle"
    """The record is another object, pickled: where PySpark is, `pickle.loads` reads it."""
    REPR = "repr"
    """The record cannot be pickled; they are its `repr`."""


class PickledRecord:
    """Stands for a record that cannot be unpickled, where its pickle is at hand.

    Args:
        data: The pickle.
        error: What unpickling it raises.
    """

    def __init__(self, data: bytes, error: Exception) -> None:
        self.data = data
        self._error = type(error).__name__

    def __repr__(self) -> str:
        return f"an object that cannot be unpickled ({self._error})"


@dataclass(frozen=True)
class DeadLetter:
    """A record that fits nowhere.

    Attributes:
        time_ms: When it was discarded: wall time in milliseconds.
        stream: The stream that it was for.
        attempt: The attempt of the receiver that discarded it; of a stream's function 32 hex digits
            that name its log.
        receiver: The receiver's class; of a stream's function the operation, and where it was
            called.
        host: Its host.
        error: The type of the error.
        reason: What the error says.
        form: The `Form` of `data`.
        data: The record's bytes, or the first of them.
        size: How many there were.
        shown: How the record begins, for people.
        position: The position that it was stored with, in MessagePack; None: none.
        batch_ms: The time of the batch whose function failed; None: a receiver discarded it.
        origin: Names the record among all that functions failed for: the same when a batch is
            computed again. None: a receiver discarded it.
        stream_name: What the program calls the stream; empty where an earlier Penstock wrote it.
    """

    time_ms: int
    stream: int
    attempt: str
    receiver: str
    host: str
    error: str
    reason: str
    form: str
    data: bytes
    size: int
    shown: str
    position: bytes | None = None
    batch_ms: int | None = None
    origin: str | None = None
    stream_name: str = ""

    @property
    def stream_text(self) -> str:
        """The stream as people and commands name it: by name and number, if it has a name."""
        return f"{self.stream_name}-{self.stream}" if self.stream_name else str(self.stream)

    @property
    def is_cut(self) -> bool:
        """Whether `data` is only how the record begins."""
        return len(self.data) < self.size

    @property
    def position_text(self) -> str | None:
        """The position as JSON, see `position_as_json`; None when there is none."""
        return None if self.position is None else position_as_json(self.position)

    def encoded(self) -> bytes:
        """Return it as it is in the log."""
        return msgspec.msgpack.encode(self)


def read_letter(payload: bytes | memoryview) -> DeadLetter:
    """Return the letter of a log's record.

    Raises:
        msgspec.DecodeError: It is none.
    """
    return msgspec.msgpack.decode(payload, type=DeadLetter)


def origin_digest(letter: DeadLetter) -> bytes | None:
    """Return what two letters of one record have in common, and no others: 16 bytes.

    Its bytes also count: behind a shuffle another record may have the place in its partition.

    Returns:
        None where a receiver discarded it: if it does so again, that is another letter.
    """
    if letter.origin is None:
        return None
    digest = hashlib.blake2b(f"{letter.origin} {letter.form} ".encode(), digest_size=16)
    digest.update(letter.data)
    return digest.digest()


def bytes_of(record: Any) -> tuple[Form, bytes]:
    if isinstance(record, (bytes, bytearray, memoryview)):
        return Form.BYTES, bytes(record)
    if type(record) is PickledRecord:
        return Form.PICKLE, record.data
    if type(record) is str:
        try:
            return Form.TEXT, record.encode()
        except UnicodeEncodeError:
            return Form.PICKLE, pickle.dumps(record)
    # Not at the top: reading dead letters needs none of PySpark.
    from pyspark import cloudpickle

    try:
        text = json.dumps(record, ensure_ascii=False, allow_nan=False)
        if _is_same(json.loads(text), record):
            return Form.JSON, text.encode()
    except MemoryError:
        # It says nothing of the record, and less of that would be kept.
        raise
    except Exception:  # noqa: BLE001 - an object may raise what it likes; then it is pickled
        pass
    try:
        # With what only the program defines: the reader is another process.
        dumps: Any = cloudpickle.dumps
        return Form.PICKLE, dumps(record)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - the same
        return Form.REPR, _shown_as(record).encode(errors="backslashreplace")


def _is_same(found: Any, record: Any) -> bool:
    """Return whether JSON gave back the same values of the same types."""
    if type(found) is not type(record):
        return False
    if type(found) is dict:
        return found.keys() == record.keys() and all(
            _is_same(value, record[key]) for key, value in found.items()
        )
    if type(found) is list:
        return len(found) == len(record) and all(map(_is_same, found, record))
    return bool(found == record)


def _shown_as(record: Any) -> str:
    try:
        return repr(record)
    except Exception as error:  # noqa: BLE001 - the same
        return f"<{type(record).__name__} whose repr raises {type(error).__name__}>"


_START = 64
"""About how many characters of a record are shown."""

_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = _START
_shortened.maxlevel = 3


class Unreadable:
    """Stands for a record that cannot be made again, or shown."""

    def __init__(self, error: Exception) -> None:
        self._error = type(error).__name__

    def __repr__(self) -> str:
        return f"nothing that can be shown ({self._error})"

    def __reduce__(self) -> str:
        raise TypeError("there is nothing to pickle")


def start_of(record: Any) -> str:
    """Show the start of a record, whatever its size."""
    if isinstance(record, (bytes, bytearray, memoryview)):
        is_all = len(record) <= _START
        return repr(bytes(record[:_START])) + ("" if is_all else "...")
    return _shortened.repr(record)


def start_shown(record: Callable[[], Any]) -> str:
    """Show the start of the record that is returned, or what it raises; never raises."""
    try:
        return start_of(record())
    except Exception as error:  # noqa: BLE001 - making and showing it may raise what they like
        return repr(Unreadable(error))
