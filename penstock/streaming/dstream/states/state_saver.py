"""`StateSaver`: saves states in the checkpoint directory, and waits while that cannot be done.

Spark saves an RDD in the job that first uses it: in the program's own operation, which thus fails
when the disk is full, after it has written its results. And what could not be saved once Spark
never tries to save again. So a state is saved by a step of its own, before the operation.
"""

from __future__ import annotations

import errno
import logging
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import RDD

from penstock.errors import text_of, typed_text
from penstock.runtime.clock import Clock, SystemClock
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.streaming.dstream.states.rdd_files import save_marked
from penstock.streaming.errors import StateSavingError
from penstock.user_errors import FailedTaskError, as_user_sees_it

_RETRY_S = 1.0
"""Pause before saving is tried again."""

_FULL = "the disk of the checkpoint directory is full, so that it needs room"
_AWAY = "the nodes of its HDFS do not answer"
_CANCELLED = "the stop has cancelled that, or it failed"

_log = logging.getLogger("penstock.streaming.checkpoint")


class StateSaver:
    """Saves the states of one running context.

    While the disk is full, or HDFS out of reach, a batch waits, and those after it with it.
    `_changing` guards since when.

    Args:
        on_error: Notified once when that lasts for `patience_s`, and again after the next time that
            states could be saved.
        patience_s: See `on_error`.
        clock: Measures it.
    """

    def __init__(
        self,
        on_error: Callable[[BaseException], None] = lambda _: None,
        patience_s: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        self._on_error = on_error
        self._patience_s = patience_s
        self._clock = clock or SystemClock()
        self._given_up = threading.Event()
        self._saving = threading.Lock()
        self._changing = threading.Lock()
        self._waits_since_s: float | None = None
        self._told = False
        self._limited_log = RateLimitedLog(_log)

    def give_up(self) -> None:
        """Wait no more: a stop cannot."""
        self._given_up.set()

    def save(self, rdd: RDD[Any], time_ms: int) -> None:
        """Save an RDD that is marked for a checkpoint; waits while the file system cannot take it.

        Args:
            rdd: The RDD; nothing happens when it is saved already.
            time_ms: The batch that waits, for messages.

        Raises:
            StateSavingError: The context is being stopped, so that the operation that comes next
                must not begin.
            Exception: It cannot be saved for another reason.
        """
        while True:
            self._check_not_given_up(time_ms)
            try:
                # Two operations of a batch may have the same state.
                with self._saving:
                    if rdd.getCheckpointFile() is not None:
                        return
                    save_marked(rdd)
            except Exception as error:
                cause = why_to_wait(error)
                if self._given_up.is_set():
                    # Mostly the stop has cancelled it. No operation begins any more.
                    raise StateSavingError(
                        time_ms, cause or _CANCELLED, _first_line(error)
                    ) from error
                if not cause:
                    raise
                self._note_waiting(time_ms, cause, error)
                if self._clock.wait(self._given_up, _RETRY_S):
                    raise StateSavingError(time_ms, cause, _first_line(error)) from error
            else:
                self._note_saved(time_ms)
                self._check_not_given_up(time_ms)
                return

    def _check_not_given_up(self, time_ms: int) -> None:
        if self._given_up.is_set():
            raise StateSavingError(time_ms, _CANCELLED, "")

    def tell(self, failure: Exception) -> None:
        """Log why a state could not be saved, which may happen in each batch."""
        seen = as_user_sees_it(failure)
        what = seen.what if isinstance(seen, FailedTaskError) else typed_text(seen)
        self._limited_log.log(f"A state could not be saved: {what}")

    def _note_waiting(self, time_ms: int, cause: str, error: Exception) -> None:
        now_s = self._clock.monotonic_s()
        with self._changing:
            is_new, is_long = self._waits_since_s is None, False
            if self._waits_since_s is None:
                self._waits_since_s = now_s
            if not self._told and now_s - self._waits_since_s >= self._patience_s:
                self._told = is_long = True
        if is_new:
            _log.error(
                "The states of the batch of %d ms could not be saved, because %s; it waits with "
                "those after it, and is tried again: %s",
                time_ms,
                cause,
                _first_line(error),
            )
        if is_long:
            failure = StateSavingError(time_ms, cause, _first_line(error), self._patience_s)
            failure.__cause__ = error
            self._on_error(failure)

    def _note_saved(self, time_ms: int) -> None:
        with self._changing:
            waited, self._waits_since_s, self._told = self._waits_since_s is not None, None, False
        if waited:
            _log.info("States can be saved again; batches go on with that of %d ms", time_ms)


def why_to_wait(error: Exception) -> str:
    """Return what keeps states from being saved and may pass; empty when it is something else."""
    if is_full_disk(error):
        return _FULL
    return _AWAY if is_out_of_reach(error) else ""


def _first_line(error: Exception) -> str:
    """Return what a person wants to know of an error, which may be a Java stack of 200 lines."""
    lines = [line.strip() for line in text_of(error).splitlines() if line.strip()]
    said = [line for line in lines if not line.startswith("at ") and why_to_wait(OSError(line))]
    return (said or lines or [type(error).__name__])[0]


_NUMBERS = (errno.ENOSPC, errno.EDQUOT)

_TEXTS = re.compile(
    # The system's own, as Java and Python repeat them, also out of a task.
    r"No space left on device|Disk quota exceeded"
    # HDFS: a quota, or no DataNode that has room (those that failed would be excluded).
    r"|DSQuotaExceededException|NSQuotaExceededException|QuotaByStorageTypeExceededException"
    r"|could only be written to \d+ of [^\n]*There are [1-9]\d* datanode\(s\) running and "
    r"no node\(s\) are excluded"
)
"""Recognised by their text: nothing else of a Java error reaches Python."""

_OUT_OF_REACH = re.compile(
    # The NameNode: as Hadoop's client says that a call did not reach it, or had no answer.
    r"failed on connection exception|failed on socket timeout exception|No Route to Host from"
    r"|End of File Exception between local host|Failed on local exception"
    # It starts, or is the standby.
    r"|SafeModeException|RetriableException|StandbyException"
    # The DataNodes of a file.
    r"|could only be written to \d+ of |All datanodes [^\n]* are bad|replace a bad datanode"
)


def is_full_disk(error: BaseException) -> bool:
    """Return whether an error, or one that it comes of, says that a disk or a quota is full."""
    return any(
        (isinstance(found, OSError) and found.errno in _NUMBERS)
        or _TEXTS.search(text_of(found)) is not None
        for found in _chain(error)
    )


def is_out_of_reach(error: BaseException) -> bool:
    """Return whether it says that nodes of HDFS do not answer, which may pass."""
    return any(_OUT_OF_REACH.search(text_of(found)) is not None for found in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__
