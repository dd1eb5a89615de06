"""Jobs that save the states that are due, also when the program's own operation fails.

Spark checkpoints an RDD when a job has run on it. An operation that fails before its job, or looks
at no record, would so leave a state unsaved: with each batch there would be more RDDs behind it,
and more received blocks to be kept, for as long as what it writes to is down.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark import RDD

from penstock.streaming.dstream.rdd_files import checkpoint_file

__all__ = ["SavingJob"]

_log = logging.getLogger("penstock.streaming")


@dataclass(frozen=True)
class SavingJob:
    """The body of a job, and the states that are saved after it if they are not by then.

    Attributes:
        run: The program's operation.
        due: The states.
        is_stopping: Whether a failed operation may have been ended by a stop: nothing is begun.
    """

    run: Callable[[], None]
    due: tuple[RDD[Any], ...]
    is_stopping: Callable[[], bool]

    def __call__(self) -> None:
        try:
            self.run()
        except Exception:
            if not self.is_stopping():
                self._try_to_save()
            raise
        for rdd in self.due:
            _save(rdd)

    def _try_to_save(self) -> None:
        try:
            for rdd in self.due:
                _save(rdd)
        except Exception as error:  # noqa: BLE001  # the operation's own error is told
            _log.warning("A state could not be saved after a failed operation: %s", error)


def _save(rdd: RDD[Any]) -> None:
    if checkpoint_file(rdd) is None:
        # The JVM's own: the records need not go through Python once more.
        rdd._jrdd.count()
