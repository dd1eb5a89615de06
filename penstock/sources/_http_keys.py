"""`Keys`: which requests are stored already, by the name that their sender gives them.

What must hold: a request whose records are durable is never stored again while its key is known,
and a key is known only if its records are durable, or about to be. So the last keys are part of
the stream's position, which becomes durable together with the records or not at all.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any

_KEY, _BODY = 10, 6
"""Bytes of the digests of a key and of a body: what is kept of them."""

_IN_MEMORY = 100_000
"""Keys that are known as long as the process lives; the last of them also after its end."""


class Keys:
    """The keys of requests. `find` and `add` are of the event loop, the rest of one other thread.

    Args:
        durable: How many of the last ones are part of the position.
        position: The last durable position of the stream, or None.
    """

    def __init__(self, durable: int, position: Any) -> None:
        self._durable = durable
        # Of a key: what is known of its body, and the future of one that is not durable yet.
        self._known: OrderedDict[bytes, tuple[bytes, asyncio.Future[None] | None]] = OrderedDict()
        kept = position.get("keys", b"") if isinstance(position, dict) else b""
        size = _KEY + _BODY
        entries = [kept[at : at + size] for at in range(0, len(kept), size)]
        self._last: deque[bytes] = deque(entries, maxlen=durable)
        for entry in entries:
            self._known[entry[:_KEY]] = entry[_KEY:], None
        self._pending = 0

    @property
    def is_full(self) -> bool:
        """Whether as many are to become durable as a position names.

        More would not all be known after a kill that left them without an answer.
        """
        return self._pending >= self._durable

    def find(self, entry: bytes) -> tuple[bool, asyncio.Future[None] | None] | None:
        """Return whether a request that is known had the same body, and the future of it.

        None: it is not known. Without a future it is durable.
        """
        known = self._known.get(entry[:_KEY])
        return None if known is None else (known[0] == entry[_KEY:], known[1])

    def add(self, entry: bytes, durable: asyncio.Future[None]) -> None:
        """Take note of a request that is to become durable."""
        self._pending += 1
        self._known[entry[:_KEY]] = entry[_KEY:], durable

        def is_settled(future: asyncio.Future[None]) -> None:
            self._pending -= 1
            if future.cancelled() or future.exception() is not None:
                del self._known[entry[:_KEY]]
                return
            self._known[entry[:_KEY]] = entry[_KEY:], None
            while len(self._known) - self._pending > _IN_MEMORY:
                self._forget_oldest()

        durable.add_done_callback(is_settled)

    def _forget_oldest(self) -> None:
        oldest = next(key for key, (_, pending) in self._known.items() if pending is None)
        del self._known[oldest]

    def position_with(self, entries: Iterable[bytes]) -> dict[str, bytes]:
        """Return the position once these requests are stored, too. See `stored`."""
        return {"keys": b"".join(deque((*self._last, *entries), maxlen=self._durable))}

    def stored(self, entries: Iterable[bytes]) -> None:
        """Take note that these are in a block with the position that names them."""
        self._last.extend(entries)


def entry_of(path: str, key: str, body: bytes) -> bytes:
    """Return what is kept of a request."""
    named = f"{path}\0{key}".encode("utf-8", "surrogateescape")
    digests = (
        hashlib.blake2b(named, digest_size=_KEY).digest(),
        hashlib.blake2b(body, digest_size=_BODY).digest(),
    )
    return b"".join(digests)
