"""Who writes a log on an object store: the newest epoch, an object ``LOCK@<epoch>``."""

from __future__ import annotations

import errno
import logging
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from penstock.wal._owner import Mark, Owner

if TYPE_CHECKING:
    from penstock.wal._objects import ObjectFileSystem

_logger = logging.getLogger("penstock.wal")

_TRIES = 100
_NOBODY = Owner("", "", "", 0, "")


class ObjectFolderLock:
    """The ownership of a folder; made by `ObjectFileSystem.lock`. See `penstock.wal._objects`.

    Raises:
        BlockingIOError: A living process of this host has it.
        OSError: The store cannot be reached.
    """

    def __init__(self, fs: ObjectFileSystem, path: str, owner: str) -> None:
        self._fs = fs
        self._path = path
        self._owner = Owner.this_process(owner)
        self._mark = Mark(self._owner.token)
        try:
            self._key = self._take()
        except BaseException:
            self._mark.release()
            raise

    def _take(self) -> str:
        for _ in range(_TRIES):
            epochs, before = self._newest()
            if before.is_alive_here:
                raise BlockingIOError(errno.EWOULDBLOCK, before.name, self._path)
            epoch = int(epochs[-1].rpartition("@")[2]) + 1 if epochs else 1
            key = self._fs.part_key(self._path, epoch)
            try:
                self._fs.make(key, msgspec.json.encode(self._owner))
            except FileExistsError:
                continue  # Another one was quicker.
            if before.name:
                _logger.warning("taking the log %s over from %s", self._address, before.name)
            # The oldest first: so one that is there proves that all after it are.
            for old in epochs:
                self._fs.call(partial(self._fs.client.delete, [old]))
            return key
        raise OSError(errno.EBUSY, "others take it again and again", self._address)

    @property
    def _address(self) -> str:
        return self._fs.address(self._path)

    def _newest(self) -> tuple[list[str], Owner]:
        """Return the keys of all epochs in order, and whom the newest names."""
        for _ in range(_TRIES):
            epochs = self._fs.keys_of(self._path)
            if not epochs:
                return [], _NOBODY
            try:
                return epochs, Owner.read(self._fs.call(partial(self._fs.client.get, epochs[-1])))
            except FileNotFoundError:
                continue  # It was taken over and removed since.
        raise OSError(errno.EBUSY, "others take it again and again", self._address)

    def check(self) -> None:
        """Make sure that nobody has taken the folder over.

        Raises:
            OSError: Somebody has; or the store cannot be reached.
        """
        epochs, now = self._newest()
        if not epochs or now.token != self._owner.token:
            taker = "somebody who removed it" if not epochs else now.name or "somebody since gone"
            raise OSError(errno.ESTALE, f"the log was taken over by {taker}", self._address)

    def release(self) -> None:
        """Let others take it; one that was taken over, or cannot be reached, is left."""
        try:
            # A stop does not wait for the store; who comes next replaces a dead owner.
            if self._fs.answers(self._path):
                self.check()
                # It stays there: epochs never go back.
                data = msgspec.json.encode(_NOBODY)
                self._fs.call(lambda: self._fs.client.replace(self._key, data))
        except OSError as error:
            _logger.debug("%s is left: %s", self._address, error)
        finally:
            self._mark.release()
