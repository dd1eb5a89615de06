"""`FunctionLetters`: the dead letters of a continuous stream's function."""

from __future__ import annotations

import contextlib
import logging
import socket
import traceback
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.dead_letters import DeadLetterPlace, DeadLetterWriter
from penstock.errors import typed_text
from penstock.rate_limited_log import RateLimitedLog
from penstock.receiver.discards import start_shown
from penstock.wal import WalError, is_shared

if TYPE_CHECKING:
    import pyarrow as pa

MADE_BY = "continuous"
"""In place of a receiver's class in letters."""

_WRITE_BYTES = 1 << 20
"""Bytes of letters at which they are written before the epoch's end."""

_told = RateLimitedLog(logging.getLogger("penstock.streaming"))


@dataclass(frozen=True)
class LettersOfStream:
    """Where a stream's letters go, and how they name it; travels to its tasks.

    Attributes:
        stream_id: The stream.
        stream_name: What the program calls it.
        place: Where to, but for what each log has of its own; None: they are told only.
    """

    stream_id: int
    stream_name: str
    place: DeadLetterPlace | None


class FunctionLetters:
    """Keeps the records for which the function of one attempt raises. Used by one thread.

    What was added before `write` is on the disk, by the sync policy of the blocks, when that
    returns: so a task writes before it says that an epoch is prepared. An attempt that computes
    the epoch again writes the letters again, under the same `DeadLetter.origin`, and readers give
    one.

    Args:
        letters: Where they go.
        source: Names the stream's epochs.

    Attributes:
        count: How many were added; who wants those of an epoch sets it back.
    """

    def __init__(self, letters: LettersOfStream, source: str) -> None:
        self._letters = letters
        self._source = source
        self._writer: DeadLetterWriter | None = None
        self.count = 0

    def add(
        self, batch: pa.RecordBatch, is_row: bool, error: Exception, place: int, row: int
    ) -> None:
        """Keep the record of a batch that has one.

        Args:
            batch: The batch.
            is_row: Whether the record is all of its columns, and not what is in the only one.
            error: What the function raised.
            place: The place of the record's block.
            row: The record's number in the block.

        Raises:
            WalError: There are many, and they cannot be written.
        """
        self.count += 1
        letters = self._letters
        record = _record_of(batch, is_row)
        shown = start_shown(lambda: record)
        frame = traceback.extract_tb(error.__traceback__)[-1]
        at = f" ({frame.filename}:{frame.lineno} in {frame.name})"
        kept = "was discarded" if letters.place is None else "is a dead letter now"
        _told.log(
            f"A record of stream {letters.stream_name} {kept}, for which its continuous function "
            f"raised {typed_text(error)}{at}; it begins with {shown}",
            like=letters.stream_id,
        )
        if letters.place is None:
            return
        if self._writer is None:
            self._writer = DeadLetterWriter(
                replace(
                    letters.place,
                    stream=letters.stream_id,
                    attempt=uuid.uuid4().hex,
                    receiver=MADE_BY,
                    host=socket.gethostname(),
                    stream_name=letters.stream_name,
                    is_one_of_many=True,
                ),
                lambda message, error: _told.log(message, error=error),
            )
        origin = f"{MADE_BY}:{self._source}:{place}:{row}"
        self._writer.add(record, error, shown, origin=origin, at=at)
        if self._writer.waiting_bytes >= _WRITE_BYTES:
            self._writer.write()

    def write(self) -> None:
        """Write what was added.

        Raises:
            WalError: It cannot be written.
        """
        if self._writer is not None and self._writer.has_waiting:
            self._writer.write()
            assert self._letters.place is not None
            if is_shared(self._letters.place.folder):
                # No one reads a log there that is open.
                self.close()

    def close(self) -> None:
        """Close the log; all that counts was written."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(WalError):
                writer.close()


def _record_of(batch: pa.RecordBatch, is_row: bool) -> Any:
    try:
        return batch.to_pylist()[0] if is_row else batch.column(0)[0].as_py()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - Python has no value for it; it is kept as Arrow has it
        return batch
