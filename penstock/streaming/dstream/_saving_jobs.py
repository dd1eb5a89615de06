"""Jobs that save the states that are due, whatever the program's own operation does.

Spark checkpoints an RDD when a job has run on it. An operation that fails before its job, or looks
at no record, would so leave a state unsaved: with each batch there would be more RDDs behind it,
and more received blocks to be kept, for as long as what it writes to is down. And where the disk
is full, the operation would fail that has just written its results.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark import RDD

from penstock.streaming.dstream.state_saver import StateSaver
from penstock.streaming.errors import StateNotSavedError


@dataclass(frozen=True)
class SavingJob:
    """The body of a job, and the states that are saved before it.

    Attributes:
        run: The program's operation.
        due: The states, each after those that it is made of.
        saver: Saves them.
        time_ms: The batch.
    """

    run: Callable[[], None]
    due: tuple[RDD[Any], ...]
    saver: StateSaver
    time_ms: int

    def __call__(self) -> None:
        failure = self._save()
        try:
            self.run()
        except Exception:
            if failure is not None:
                # Mostly both have one cause; the operation's own error is told.
                self.saver.tell(failure)
            raise
        if failure is not None:
            raise failure

    def _save(self) -> Exception | None:
        """Save what is due; return why it cannot be saved."""
        failure = None
        for rdd in self.due:
            try:
                self.saver.save(rdd, self.time_ms)
            except StateNotSavedError:
                raise
            except Exception as error:  # noqa: BLE001  # raised after the operation
                failure = error
        return failure
