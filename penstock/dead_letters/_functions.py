"""`FunctionLetters`: the dead letters of a function of the program."""

from __future__ import annotations

import logging
import socket
import uuid
from contextlib import suppress
from dataclasses import replace
from typing import Any

from penstock.dead_letters._letter import start_shown
from penstock.dead_letters._writer import DeadLetterPlace, DeadLetterWriter
from penstock.errors import typed_text
from penstock.files.addresses import is_on_hdfs
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.wal import WalError

_WRITE_BYTES = 1 << 20
"""Bytes of letters at which they are written before their task, or epoch, ends."""

_told = RateLimitedLog(logging.getLogger("penstock.streaming"))


class FunctionLetters:
    """Keeps the records for which one function raises. Used by one thread.

    What was added before `write` is on the disk, by the sync policy of the blocks, when that
    returns. Computing the records again writes the letters again, under the same
    `DeadLetter.origin`, and readers give one. The log is opened at the first letter.

    Args:
        place: Where to, but for what each log has of its own; None: they are only logged.
        name: Names the function in origins; no other of the program has it.
        stream: The stream, in messages.
        function: The function, in messages.

    Attributes:
        count: How many were added; set back to count those of an epoch.
    """

    def __init__(
        self, place: DeadLetterPlace | None, *, name: str, stream: str | int, function: str
    ) -> None:
        self._place = place
        self._name = name
        self._stream = stream
        self._function = function
        self._writer: DeadLetterWriter | None = None
        self.count = 0

    def add(
        self, record: Any, error: BaseException, where: str, batch_ms: int | None = None
    ) -> None:
        """Log a record, and keep it until `write`.

        Args:
            record: The record.
            error: What the function raised.
            where: Names the record among all of the function.
            batch_ms: The batch, if there is one.

        Raises:
            WalError: There are many, and they cannot be written.
        """
        self.count += 1
        # It imports PySpark, which those who only read letters do without.
        from penstock.user_errors import place_of

        at, shown = place_of(error), start_shown(lambda: record)
        kept = "was discarded" if self._place is None else "is a dead letter now"
        _told.log(
            f"A record of stream {self._stream} {kept}, for which {self._function} raised "
            f"{typed_text(error)}{at}; it begins with {shown}",
            like=self._name,
        )
        if self._place is None:
            return
        if self._writer is None:
            attempt, host = uuid.uuid4().hex, socket.gethostname()
            place = replace(self._place, attempt=attempt, host=host, is_one_of_many=True)
            self._writer = DeadLetterWriter(place, _tell)
        origin = f"{self._name}:{where}"
        self._writer.add(record, error, shown, batch_ms=batch_ms, origin=origin, at=at)
        if self._writer.waiting_bytes >= _WRITE_BYTES:
            self._writer.write()

    def write(self) -> None:
        """Write what was added.

        Raises:
            WalError: It cannot be written, and is forgotten: computing it again adds it again.
        """
        if self._writer is None or self._place is None or not self._writer.has_waiting:
            return
        try:
            self._writer.write()
        except BaseException:
            with suppress(WalError):
                self.close()
            raise
        if is_on_hdfs(self._place.folder):
            # No one can read an open log on it.
            self.close()

    def close(self) -> None:
        """Close the log, if there is one; the next letter opens another.

        Raises:
            WalError: Its last letters may not be on the disk.
        """
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()


def _tell(message: str, error: BaseException) -> None:
    _told.log(message, error=error)
