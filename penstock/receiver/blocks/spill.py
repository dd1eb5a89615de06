"""`Spill`: what waits on the disk of the receiver's host, until its turn comes.

What must hold
--------------

* It is gone with the process, however that ends: its files have no name.
* What is on the disk is bounded, and a file is closed when all in it has been read.
* It is encrypted where the logs are.
* It is no log: nothing here is synced, or acknowledged.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any, TypeAlias

from penstock.wal import EncryptionKey

_FILE_BYTES = 64 << 20
_PAUSE_S = 1.0
"""How long nothing is tried after it failed: it would be tried with each record."""


@dataclass
class _File:
    file: IO[bytes]
    size: int = 0
    unread: int = 0


Place: TypeAlias = "tuple[_File, int, int]"
"""Where things are: the file, the first byte, how many."""


class Spill:
    """Keeps things that can be pickled. For one thread at a time.

    Args:
        folder: Where its files are.
        limit: Bytes that they may take.
        key: What they are encrypted with; None: they are in clear.
        tell: Notified of failures, once per episode.
    """

    def __init__(
        self,
        folder: str,
        limit: int,
        key: EncryptionKey | None,
        tell: Callable[[str, BaseException], None],
    ) -> None:
        self._tell = tell
        self._again_s = 0.0
        self._is_failing = False
        self._folder = folder
        self._limit = limit
        self._cipher = None if key is None else key.cipher("spill")
        self._files: list[_File] = []
        """The last one is written."""

    def push(self, things: Sequence[Any]) -> Place | None:
        """Put things on the disk; None: there is no room, or they cannot be written."""
        if time.monotonic() < self._again_s:
            return None
        try:
            place = self._push(things)
        except Exception as error:  # noqa: BLE001 - it is reported, and they stay where they are
            if not self._is_failing:
                self._tell("Records cannot be put on the disk, so store waits", error)
            self._is_failing, place = True, None
        else:
            self._is_failing = False
        if place is None:
            self._again_s = time.monotonic() + _PAUSE_S
        return place

    def _push(self, things: Sequence[Any]) -> Place | None:
        data = pickle.dumps(things, protocol=5)
        if self._cipher is not None:
            data = self._cipher.seal(data)
        if sum(each.size for each in self._files) + len(data) > self._limit:
            return None
        os.makedirs(self._folder, mode=0o700, exist_ok=True)  # Without a log there may be none.
        if not self._files or self._files[-1].size >= _FILE_BYTES:
            opened = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115  # kept
            self._files.append(_File(opened))
        file = self._files[-1]
        written = 0
        while written < len(data):
            rest = memoryview(data)[written:]
            written += os.pwrite(file.file.fileno(), rest, file.size + written)
        place = file, file.size, len(data)
        file.size += len(data)
        file.unread += 1
        return place

    def pull(self, place: Place) -> Any:
        """Return what was put at a place, which is then free.

        Raises:
            Exception: It cannot be read.
        """
        file, offset, size = place
        try:
            data = os.pread(file.file.fileno(), size, offset)
            return pickle.loads(data if self._cipher is None else self._cipher.unseal(data))
        finally:
            file.unread -= 1
            if not file.unread:
                file.file.close()
                self._files.remove(file)

    def close(self) -> None:
        """Forget all of it."""
        for each in self._files:
            each.file.close()
        self._files.clear()
