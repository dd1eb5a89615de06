"""Functions whose failures go to the dead letters, record by record, while their batch goes on.

Where nothing fails, `map` runs over chunks of the records in C, as it does without dead letters:
``list.extend`` keeps what came before an exception, and a `map` goes on behind it. So neither a
``try`` nor a line of Python is run for each record; a chunk costs a few hundred nanoseconds.

A Python worker has one log for each operation, opened at the first failure. What a task has for it
is durable before the task ends: before the batch's output counts as done. A task that cannot write
it fails. A letter names operation, batch, partition and place in it, so that where a batch was
computed several times, each of which wrote what it ran into, `penstock.dead_letters` gives one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from penstock.errors import typed_text
from penstock.streaming.kernels.fusion import NarrowOperation

if TYPE_CHECKING:
    from penstock.dead_letters import DeadLetterPlace, FunctionLetters

_CHUNK = 64
"""Records that are processed at a time."""

_log = logging.getLogger("penstock.streaming")


@dataclass(frozen=True)
class LettersOfRun:
    """Where the dead letters of a run's functions go.

    Attributes:
        run_id: The run.
        place: Where to, but for the stream and what else each log has of its own.
    """

    run_id: str
    place: DeadLetterPlace


@dataclass(frozen=True)
class LetterOperation(NarrowOperation):
    """What is made of each record by `func`; one for which that raises goes to the dead letters.

    Attributes:
        name: Names the operation; no other has it.
        made_by: The operation, and where it was called.
        stream: The stream whose records it gets.
        batch_ms: The batch.
        letters: Where to; None: they are only logged.
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
            # Also when no one reads further, as `take` does.
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
        self._kept: FunctionLetters | None = None

    def add(self, record: Any, error: Exception, place: int) -> None:
        """Keep a record until `write`.

        Raises:
            WalError: There are many, and they cannot be written.
        """
        operation = self._operation
        if self._kept is None:
            self._kept = _letters_of(operation)
        where = f"{operation.batch_ms}:{self._split}:{place}"
        self._kept.add(record, error, where, operation.batch_ms)

    def write(self) -> None:
        """Write what is kept.

        Raises:
            WalError: It cannot be written.
        """
        if self._kept is not None:
            self._kept.write()


_open: dict[str, FunctionLetters] = {}
"""What this worker keeps, by operation. A worker has one task at a time."""
_run_id = ""
"""The run that it is of."""


def _letters_of(operation: LetterOperation) -> FunctionLetters:
    from penstock.dead_letters import FunctionLetters

    global _run_id
    letters = operation.letters
    place = None
    if letters is not None:
        if letters.run_id != _run_id:
            # Another context of the same Spark application began.
            _close_all()
            _run_id = letters.run_id
        if operation.name in _open:
            return _open[operation.name]
        place = replace(
            letters.place,
            stream=operation.stream,
            receiver=operation.made_by,
            stream_name=operation.stream_name,
        )
    found = FunctionLetters(
        place,
        name=operation.name,
        stream=operation.stream,
        function=f"the function of {operation.made_by}",
    )
    if place is not None:
        _open[operation.name] = found
    return found


def _close_all() -> None:
    while _open:
        _, letters = _open.popitem()
        try:
            letters.close()
        except Exception as error:  # noqa: BLE001 - of a run that is over; all was written
            _log.warning("A log of dead letters could not be closed: %s", typed_text(error))
