"""`Keys`: which requests are stored already, by the name that their sender gives them.

What must hold: a request whose records are durable is never stored again while its key is known,
and a key is known only if its records are durable, or about to be. So keys are part of the stream's
position, which becomes durable together with the records or not at all: a `dict` of numbered
chunks, the last of which each call of `store` changes.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from penstock.receiver import PositionChanges

T = TypeVar("T")

_KEY, _BODY = 10, 6
"""Bytes of the digests of a key and of a body: what is kept of them."""

_ENTRY = _KEY + _BODY
_CHUNK = 64
"""Entries of a chunk."""


class Keys(Generic[T]):
    """The keys of requests.

    `changes_with` and `stored` are of the thread that stores, the rest of the event loop.

    Args:
        remembered: How many of the last ones are known.
        position: The last durable position of the stream, or None.
    """

    def __init__(self, remembered: int, position: Any) -> None:
        self._remembered = remembered
        self._chunks = -(-remembered // _CHUNK) + 1
        # Of a key: what is known of its body, and its request while that is not durable yet.
        self._known: OrderedDict[bytes, tuple[bytes, T | None]] = OrderedDict()
        self._pending = 0
        kept = {int(number): chunk for number, chunk in (position or {}).items()}
        for _, chunk in sorted(kept.items()):
            for at in range(0, len(chunk), _ENTRY):
                self._known[chunk[at : at + _KEY]] = chunk[at + _KEY : at + _ENTRY], None
        self._last = self._next = max(kept, default=0), kept.get(max(kept, default=0), b"")
        self._oldest = min(kept, default=0)
        self._forget()

    @property
    def is_full(self) -> bool:
        """Whether as many are to become durable as are known.

        More would not all be known after a kill that left them without an answer.
        """
        return self._pending >= self._remembered

    def find(self, entry: bytes) -> tuple[bool, T | None] | None:
        """Return whether a request that is known had the same body, and that request.

        None: it is not known. Without a request it is durable.
        """
        known = self._known.get(entry[:_KEY])
        return None if known is None else (known[0] == entry[_KEY:], known[1])

    def add(self, entry: bytes, request: T) -> None:
        """Take note of a request that is to become durable."""
        self._pending += 1
        self._known[entry[:_KEY]] = entry[_KEY:], request

    def settled(self, entry: bytes, is_durable: bool) -> None:
        """Take note of what became of a request that was added."""
        self._pending -= 1
        if is_durable:
            self._known[entry[:_KEY]] = entry[_KEY:], None
            self._forget()
        else:
            del self._known[entry[:_KEY]]

    def _forget(self) -> None:
        while len(self._known) - self._pending > self._remembered:
            del self._known[next(key for key, (_, later) in self._known.items() if later is None)]

    def changes_with(self, entries: Iterable[bytes]) -> PositionChanges:
        """Return what changes of the position when these are also stored; see `stored`."""
        number, chunk = self._last
        changes: dict[str, bytes | None] = {}
        for entry in entries:
            if len(chunk) >= _CHUNK * _ENTRY:
                number, chunk = number + 1, b""
            chunk += entry
            changes[str(number)] = chunk
        self._next = number, chunk
        for old in range(self._oldest, number - self._chunks + 1):
            changes[str(old)] = None
        return PositionChanges(changes)

    def stored(self) -> None:
        """Take note that what `changes_with` returned last is in a block."""
        self._last = self._next
        self._oldest = max(self._oldest, self._last[0] - self._chunks + 1)


def entry_of(path: str, key: str, body: bytes) -> bytes:
    """Return what is kept of a request."""
    named = f"{path}\0{key}".encode("utf-8", "surrogateescape")
    digests = (
        hashlib.blake2b(named, digest_size=_KEY).digest(),
        hashlib.blake2b(body, digest_size=_BODY).digest(),
    )
    return b"".join(digests)
