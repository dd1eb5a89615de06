"""`Letters`: the dead letters that a driver sees, counted, and the newest of them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from penstock.dead_letters import DeadLetter, LetterTail, origin_digest

_EVERY_S = 2.0
_MOST = 2_000
_MOST_BYTES = 4 << 20
"""The most that is read at a time, so that nobody waits for all of a long log."""
_NEWEST = 20
_KINDS = 200
_ORIGINS = 100_000
"""Origins that are known, so that a record counts once whose batch is computed again."""


@dataclass(frozen=True)
class LetterCount:
    """How many dead letters there are of one kind.

    Attributes:
        stream_id: Their stream.
        receiver: Who discarded them.
        error: The type of the error.
        count: How many.
        last_ms: When the last one was discarded.
    """

    stream_id: int
    receiver: str
    error: str
    count: int
    last_ms: int


class Letters:
    """Reads on in a program's dead letters when somebody asks, every two seconds at most.

    `_lock` guards it; while one reads, others get what was known before.

    Args:
        open_tail: Opens what reads them; None: this driver sees none, as on hosts of a cluster.
    """

    def __init__(self, open_tail: Callable[[], LetterTail] | None) -> None:
        self._open_tail = open_tail
        self._tail: LetterTail | None = None
        self._lock = threading.Lock()
        self._read_at_s = float("-inf")
        self._after: dict[str, int] = {}
        self._counts: dict[tuple[int, str, str], LetterCount] = {}
        self._origins: dict[bytes, None] = {}
        self._newest: deque[DeadLetter] = deque(maxlen=_NEWEST)
        self._shown: tuple[list[LetterCount], list[DeadLetter]] = ([], [])

    def look(self) -> tuple[list[LetterCount], list[DeadLetter]]:
        """Return how many there are of each kind, and the newest, the last first."""
        if self._open_tail is not None and self._lock.acquire(blocking=False):
            try:
                if time.monotonic() - self._read_at_s >= _EVERY_S:
                    self._read(self._open_tail)
                    self._read_at_s = time.monotonic()
            finally:
                self._lock.release()
        return self._shown

    def _read(self, open_tail: Callable[[], LetterTail]) -> None:
        if self._tail is None:
            self._tail = open_tail()
        found, self._after = self._tail.read(self._after, most=_MOST, most_bytes=_MOST_BYTES)
        for stored in found:
            letter = stored.letter
            if self._is_known(origin_digest(letter)):
                continue
            key = (letter.stream, letter.receiver, letter.error)
            known = self._counts.get(key)
            if known is None and len(self._counts) >= _KINDS:
                key = (letter.stream, "", "others")
                known = self._counts.get(key)
            count, last_ms = (0, 0) if known is None else (known.count, known.last_ms)
            self._counts[key] = LetterCount(*key, count + 1, max(last_ms, letter.time_ms))
            self._newest.append(letter)
        self._shown = (
            sorted(self._counts.values(), key=lambda kind: -kind.last_ms),
            sorted(self._newest, key=lambda letter: -letter.time_ms),
        )

    def _is_known(self, digest: bytes | None) -> bool:
        if digest is None:
            return False
        if digest in self._origins:
            return True
        self._origins[digest] = None
        if len(self._origins) > _ORIGINS:
            del self._origins[next(iter(self._origins))]
        return False
