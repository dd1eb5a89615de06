"""Functions whose failures go to the dead letters, record by record, while their batch goes on.

Where nothing fails, `map` runs over chunks of the records in C, as it does without dead letters:
``list.extend`` keeps what came before an exception, and a `map` goes on behind it. So neither a
``try`` nor a line of Python is run for each record; a chunk costs a few hundred nanoseconds.

A Python worker has one log for each operation, opened at the first failure. What a task has for it
is durable before the task ends: before the batch's output counts as done. A task that cannot write
it fails. A letter names operation, batch, partition and place in it, so that of several
computings of a batch, each of which writes what it ran into, `penstock.dead_letters` gives one.
"""

from __future__ import annotations

import logging
import socket
import threading
import uuid
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from penstock.errors import typed_text
from penstock.rate_limited_log import RateLimitedLog
from penstock.streaming.kernels.fusion import NarrowOperation
from penstock.wal import WalError

if TYPE_CHECKING:
    from penstock.dead_letters import DeadLetterPlace, DeadLetterWriter

_CHUNK = 64
"""Records that are processed at a time."""
_WRITE_BYTES = 1 << 20
"""Bytes of letters at which a task writes them before its end."""

_log = logging.getLogger("penstock.streaming")
_told = RateLimitedLog(_log)


@dataclass(frozen=True)
class LettersOfRun:
    """Where the dead letters of a run's functions go.

    Attributes:
        run_id: The run.
        place: Where to, but for the stream and what else each log has of its own.
        is_on_hdfs: It is on HDFS, where no one reads a log that is open.
    """

    run_id: str
    place: DeadLetterPlace
    is_on_hdfs: bool


@dataclass(frozen=True)
class LetterOperation(NarrowOperation):
    """What is made of each record by `func`; one for which that raises goes to the dead letters.

    Attributes:
        name: Names the operation; no other has it.
        made_by: The operation, and where it was called.
        stream: The stream whose records it gets.
        batch_ms: The batch.
        letters: Where to; None: they are told only.
        stream_name: What the program calls that stream.
    """

    name: str = ""
    made_by: str = ""
    stream: int = 0
    batch_ms: int = 0
    letters: LettersOfRun | None = None
    stream_name: str = ""

    guarded = False
    """A `StopIteration` of `func` is a failure like others."""

    def in_batch(
        self, batch_ms: int, stream: int, letters: LettersOfRun | None, stream_name: str = ""
    ) -> LetterOperation:
        """Return this operation as it is in one batch."""
        return replace(
            self, batch_ms=batch_ms, stream=stream, stream_name=stream_name, letters=letters
        )

    def apply(self, split: int, records: Iterator[Any]) -> Iterable[Any]:
        return chain.from_iterable(self._chunks(split, records))

    def _chunks(self, split: int, records: Iterator[Any]) -> Iterator[Iterable[Any]]:
        begin = 0
        failures = _Failures(self, split)
        try:
            # What reading raises is no failure of `func`: it ends the task.
            while chunk := list(islice(records, _CHUNK)):
                yield self._released(self._results(chunk, begin, failures))
                begin += len(chunk)
        finally:
            # Also when nobody reads further, as `take` does.
            failures.write()

    def _results(self, chunk: list[Any], begin: int, failures: _Failures) -> list[Any]:
        found: list[Any] = []
        results = self._of_each(chunk)
        failed = 0
        while True:
            error: Exception | None = None
            try:
                found.extend(results)
            except MemoryError:
                # It says nothing of the record: the task fails, and is tried again.
                raise
            except Exception as raised:  # noqa: BLE001 - the program's function
                error = raised
            place = len(found) + failed
            if place == len(chunk):
                return found
            # Without an error: a `StopIteration` was taken for the end.
            error = error or StopIteration("it left the function")
            failures.add(chunk[place], error, begin + place)
            failed += 1

    def _of_each(self, chunk: list[Any]) -> Iterator[Any]:
        return map(self.func, chunk)

    def _released(self, results: list[Any]) -> Iterable[Any]:
        return results


class MapOrLetterOperation(LetterOperation):
    """`func` of each record."""


class FlatMapOrLetterOperation(LetterOperation):
    """All that `func` of each record yields, or none of it when it fails on the way."""

    def _of_each(self, chunk: list[Any]) -> Iterator[Any]:
        return map(list, map(self.func, chunk))

    def _released(self, results: list[Any]) -> Iterable[Any]:
        return chain.from_iterable(results)


class _Failures:
    """The failures of one operation in one task."""

    def __init__(self, operation: LetterOperation, split: int) -> None:
        self._operation = operation
        self._split = split
        self._writer: DeadLetterWriter | None = None

    def add(self, record: Any, error: Exception, place: int) -> None:
        """Keep a record until `write`.

        Raises:
            WalError: There are many, and they cannot be written.
        """
        from penstock.receiver.discards import start_shown
        from penstock.streaming.user_errors import place_of

        operation = self._operation
        at, shown = place_of(error), start_shown(lambda: record)
        kept = "was discarded" if operation.letters is None else "is a dead letter now"
        _told.log(
            f"A record of stream {operation.stream} {kept}, for which the function of "
            f"{operation.made_by} raised {typed_text(error)}{at}; it begins with {shown}",
            like=operation.name,
        )
        if operation.letters is None:
            return
        if self._writer is None:
            self._writer = _writers.of(operation, operation.letters)
        self._writer.add(
            record,
            error,
            shown,
            batch_ms=operation.batch_ms,
            origin=f"{operation.name}:{operation.batch_ms}:{self._split}:{place}",
            at=at,
        )
        if self._writer.waiting_bytes >= _WRITE_BYTES:
            self._writer.write()

    def write(self) -> None:
        """Write what is kept.

        Raises:
            WalError: It cannot be written.
        """
        writer, letters = self._writer, self._operation.letters
        if writer is None or letters is None:
            return
        try:
            writer.write()
        except BaseException:
            # What it holds comes again with the next try of the task.
            with suppress(WalError):
                _writers.drop(self._operation)
            raise
        if letters.is_on_hdfs:
            _writers.drop(self._operation)


class _Writers:
    """The logs that this worker has open, by run and operation. `_lock` guards them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._run_id = ""
        self._open: dict[str, DeadLetterWriter] = {}

    def of(self, operation: LetterOperation, letters: LettersOfRun) -> DeadLetterWriter:
        """Return the log of an operation."""
        from penstock.dead_letters import DeadLetterWriter

        with self._lock:
            if letters.run_id != self._run_id:
                # Another context of the same Spark application began.
                self._close_all()
                self._run_id = letters.run_id
            writer = self._open.get(operation.name)
            if writer is None:
                place = replace(
                    letters.place,
                    stream=operation.stream,
                    attempt=uuid.uuid4().hex,
                    receiver=operation.made_by,
                    host=socket.gethostname(),
                    stream_name=operation.stream_name,
                    is_one_of_many=True,
                )
                writer = self._open[operation.name] = DeadLetterWriter(place, _tell)
            return writer

    def drop(self, operation: LetterOperation) -> None:
        """Close the log of an operation; its next failure opens another.

        Raises:
            WalError: Its last letters may not be on the disk.
        """
        with self._lock:
            writer = self._open.pop(operation.name, None)
        if writer is not None:
            writer.close()

    def _close_all(self) -> None:
        opened, self._open = self._open, {}
        for writer in opened.values():
            try:
                writer.close()
            except Exception as error:  # noqa: BLE001 - of a run that is over; all was written
                _tell("A log of dead letters could not be closed", error)


_writers = _Writers()


def _tell(message: str, error: BaseException) -> None:
    _told.log(message, error=error)
