"""What a storage answers, and by when: the same for each that is reached over a network.

Three answers are no data, and anyone who asks must not take one for another (`answer_of`):

* *Gone*: it answered that there is none of that name.
* *Refused*: it answered, and will answer the same until a person does something about it.
* *Away*: it did not answer in time, or asked to be asked later. What it has is not known.

Its client may wait for ever, whatever is set. So the bound is ours: each call is made in a thread
(`BoundedCalls`), and its waiter gives up. How long it may be away before calls fail counts from the
first call that failed, not from each (`Outage`): an operation of many calls does not wait for each
of them again.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import enum
import errno
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from penstock.runtime.event_loop import EventLoop

_logger = logging.getLogger("penstock.wal")

_JOIN_S = 5.0
_LEFT_S = 30.0
_LONGEST_S = 60.0
_SHORTEST_S = 1.0
_SHARE = 4
"""A call may take this part of the time for which the storage has been away."""


class Answer(enum.Enum):
    """What an error of a storage says."""

    GONE = "gone"
    """There is none of that name."""
    REFUSED = "refused"
    """Not for this user, or not with these credentials; it may exist, and be whole."""
    AWAY = "away"
    """It did not answer, or asked to be asked later; it may exist, and be whole."""
    OTHER = "other"
    """Anything else: a full disk, a sector that cannot be read, a defect."""


class StorageAwayError(OSError):
    """A storage did not answer in time, or asked to be asked later: what it has is not known."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(errno.EAGAIN, message, path)


class TooLongError(StorageAwayError, TimeoutError):
    """A call took longer than it may; whether it was done is not known."""


_GONE = frozenset({errno.ENOENT, errno.ENOTDIR})
_REFUSED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOKEY})
_AWAY = frozenset(
    {
        errno.EAGAIN,
        errno.EBUSY,
        errno.ETIMEDOUT,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.ECONNABORTED,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENOTCONN,
        # What this process is short of for the moment.
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
    }
)


def answer_of(error: BaseException) -> Answer:
    """Return what an error of a file system says about what was asked for.

    Args:
        error: What one of its calls raised.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number in _GONE:
        return Answer.GONE
    if number in _REFUSED:
        return Answer.REFUSED
    if number in _AWAY or isinstance(error, (StorageAwayError, TimeoutError)):
        return Answer.AWAY
    return Answer.OTHER


_left_behind: set[concurrent.futures.Future[Any]] = set()
"""The calls under way for which no one waits."""


def calls_left_behind() -> int:
    """Return how many calls are under way for which no one waits.

    A process that ends by itself meanwhile would abort: the client's native code asks for the
    interpreter, which is gone. A command ends with `os._exit`; at the end of a program these calls
    are waited for (`_LEFT_S`).
    """
    return len(_left_behind)


@atexit.register
def _await_left_behind() -> None:
    if left := tuple(_left_behind):
        _logger.warning("%d calls of a storage that is away are waited for", len(left))
        concurrent.futures.wait(left, _LEFT_S)


class BoundedCalls:
    """A thread that makes calls, one after the other, so that their waiter can give up.

    A call that does not return leaves its thread behind, a daemon, until it does.
    """

    _numbers = itertools.count(1)

    def __init__(self, name: str) -> None:
        """Start the thread ``penstock-<name>-<n>``.

        Args:
            name: The storage.
        """
        self._name = name
        self._called: concurrent.futures.Future[Any] | None = None
        self._loop = EventLoop(f"{name.lower()}-{next(self._numbers)}", self._failed)
        self._loop.start()

    def call(self, function: Callable[[], Any], timeout_s: float, path: str) -> Any:
        """Call it and return what it returns, or raise what it raises.

        Args:
            function: The call.
            timeout_s: How long it may take.
            path: What it is about, for the error.

        Raises:
            TooLongError: It has not returned in time; this object is of no more use.
        """
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._called = future

        def call() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001  # it goes to the waiter
                future.set_exception(error)

        self._loop.post(call)
        # Not `result`: the call itself may raise a `TimeoutError`.
        done, _ = concurrent.futures.wait([future], timeout_s)
        if not done:
            raise TooLongError(f"{self._name} has not answered for {timeout_s:.3g} s", path)
        return future.result()

    def end(self) -> None:
        """End the thread, behind the calls that were made."""
        self._loop.stop(_JOIN_S)

    def abandon(self) -> None:
        """Let the thread end when it can."""
        self._loop.stop(0.0)
        if self._called is not None and not self._called.done():
            _left_behind.add(self._called)
            self._called.add_done_callback(_left_behind.discard)

    def _failed(self, error: BaseException) -> None:
        _logger.error("a call of a storage's client was lost", exc_info=error)


class Outage:
    """Since when a storage has been away, as the calls of one process find it.

    `_lock` guards the times. `_asking` is held by the one call that asks whether it is back, once
    the patience is over: each that hangs costs a thread, and one is enough to know.

    Args:
        name: The storage.
        patience_s: How long it may be away before calls fail, in seconds.
        clock: Returns the time, in seconds.
    """

    def __init__(
        self, name: str, patience_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._patience_s = patience_s
        self._clock = clock
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self._since_s = 0.0
        self._last_s = -math.inf

    def failed(self) -> float:
        """Take note that it is away; return how much longer that is tolerated, 0 when it is not."""
        with self._lock:
            now_s = self._clock()
            self._since_s = now_s - self._age_s(now_s)
            self._last_s = now_s
            return max(0.0, self._since_s + self._patience_s - now_s)

    def answered(self) -> None:
        """Take note that it answered."""
        with self._lock:
            self._last_s = -math.inf

    @property
    def age_s(self) -> float:
        """How long it has been away, in seconds; 0 when it is not."""
        with self._lock:
            return self._age_s(self._clock())

    def _age_s(self, now_s: float) -> float:
        # What was away long ago, and was not asked since, may have been back meanwhile.
        is_recent = now_s - self._last_s <= max(self._patience_s, _LONGEST_S)
        return now_s - self._since_s if is_recent else 0.0

    def limit_s(self, least_s: float) -> float:
        """Return how long the next call may take: longer the longer it has been away.

        Args:
            least_s: How long at least, as far as the patience goes.
        """
        age_s = self.age_s
        left_s = self._patience_s - age_s if age_s < self._patience_s else self._patience_s
        limit_s = max(least_s, min(age_s / _SHARE, _LONGEST_S))
        return min(limit_s, max(left_s, _SHORTEST_S), self._patience_s)

    @contextlib.contextmanager
    def asking(self, path: str) -> Iterator[None]:
        """Hold the right to make a call, which all have while there is patience left.

        Raises:
            StorageAwayError: It has been away for too long, and another call asks.
        """
        age_s = self.age_s
        if age_s < self._patience_s:
            yield
            return
        if not self._asking.acquire(blocking=False):
            raise StorageAwayError(f"{self._name} has been away for {age_s:.0f} s", path)
        try:
            yield
        finally:
            self._asking.release()
