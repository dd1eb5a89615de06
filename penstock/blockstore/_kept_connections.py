"""Connections to block servers that are used again, so that a block costs no handshake.

One is for one thread at a time: it is taken, and given back when all that was asked for on it has
come. A process that is forked begins with none: what its parent has is the parent's.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.blockstore._fetch import BlockConnection

_MOST = 8
_IDLE_S = 15.0
"""How long one is kept: the block server ends it after twice as long."""


class KeptConnections:
    """Any thread may come: a lock guards them."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._in_child)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[tuple[Hashable, float, BlockConnection]] = []

    def _in_child(self) -> None:
        kept = self._kept
        self._begin()
        for _, _, connection in kept:
            connection.leave()

    def take(self, key: Hashable) -> BlockConnection | None:
        """Return one to whom the key stands for, if there is one that its server has not ended."""
        with self._lock:
            found = self._pop_old()
            for at in reversed(range(len(self._kept))):
                if self._kept[at][0] == key:
                    connection = self._kept.pop(at)[2]
                    if connection.is_quiet():
                        break
                    found.append(connection)
            else:
                connection = None
        for over in found:
            over.close()
        return connection

    def give(self, key: Hashable, connection: BlockConnection) -> None:
        """Keep one on which nothing is to come."""
        with self._lock:
            self._kept.append((key, time.monotonic(), connection))
            found = self._pop_old()
        for over in found:
            over.close()

    def _pop_old(self) -> list[BlockConnection]:
        """Take out those that are too many or too old; needs `_lock`."""
        oldest_s = time.monotonic() - _IDLE_S
        young = [one for one in self._kept if one[1] >= oldest_s][-_MOST:]
        old = [one[2] for one in self._kept if one not in young]
        self._kept = young
        return old
