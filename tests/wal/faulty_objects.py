"""An object store in memory that is as hard as the documented ones.

It answers or not, whether it did what it was asked for or not; what it did not do in time it may do
at any time later; and it may say "exists" of what is gone by the time one looks.
"""

from __future__ import annotations

import contextlib
import errno
import random
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pytest
from obstore.store import MemoryStore

from penstock.wal import ObjectFileSystem, StorageAwayError
from penstock.wal._objects.client import ObjectsClient
from tests.wal.faulty_filesystem import SimulatedCrashError

T = TypeVar("T")


@contextlib.contextmanager
def another_host() -> Iterator[None]:
    """Stand for a host of which nobody here knows whether its processes live."""
    name = uuid.uuid4().hex
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.runtime.processes.host_id", lambda: name)
        yield


class FaultyObjects(ObjectsClient):
    """See the module. Faults are set between calls.

    Attributes:
        answers_lost: Part of the requests that are done, and whose answers are lost.
        not_done: Part of the requests that fail and are not done, or later.
        late: What is still under way: it is done when `land` is called.
        calls: The requests, by their kind.
    """

    def __init__(self, seed: int = 0, store: Any = None, name: str = "s3://bucket") -> None:
        super().__init__(MemoryStore() if store is None else store, name)
        self.chance = random.Random(seed)
        self.answers_lost = 0.0
        self.not_done = 0.0
        self.late: list[tuple[str, bytes | memoryview]] = []
        self.calls: Counter[str] = Counter()
        self.failures: list[int] = []
        self.crash_after: int | None = None
        self.dead = False

    def land(self, count: int = 100) -> None:
        """Let late requests be done, in any order."""
        self.chance.shuffle(self.late)
        late, self.late = self.late[:count], self.late[count:]
        for key, data in late:
            try:
                super().create(key, data)
            except FileExistsError:
                continue

    def restart(self) -> None:
        """Begin a new process; what the old one asked for may still come."""
        self.dead = False
        self.heal()

    def heal(self) -> None:
        self.crash_after = None
        self.answers_lost = self.not_done = 0.0
        self.failures = []

    def _begin(self, what: str) -> None:
        if self.dead:
            raise SimulatedCrashError
        self.calls[what] += 1
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after < 0:
                self.dead = True

    def _end(self) -> None:
        if self.dead:
            raise SimulatedCrashError
        if self.chance.random() < self.answers_lost:
            raise StorageAwayError("the answer was lost", "s3://bucket")

    def _is_not_done(self) -> bool:
        return (self.dead and self.chance.random() < 0.5) or self.chance.random() < self.not_done

    def create(self, key: str, data: bytes | memoryview) -> None:
        self._begin("create")
        if self.failures:
            number = self.failures.pop()
            if self.chance.random() < 0.5:
                self.late.append((key, data))
            raise OSError(number, "made to fail", key)
        if self._is_not_done():
            if self.chance.random() < 0.5:
                self.late.append((key, data))
            if self.dead:
                raise SimulatedCrashError
            if self.chance.random() < 0.3:
                raise FileExistsError(errno.EEXIST, "412: of one that is gone since", key)
            raise StorageAwayError("it was not done", key)
        super().create(key, data)
        self._end()

    def replace(self, key: str, data: bytes) -> None:
        self._begin("replace")
        if self._is_not_done():
            self._end()
            raise StorageAwayError("it was not done", key)
        super().replace(key, data)
        self._end()

    def get(self, key: str) -> bytes:
        self._begin("get")
        self._end()
        return super().get(key)

    def get_range(self, key: str, begin: int, end: int) -> memoryview:
        self._begin("get")
        self._end()
        return super().get_range(key, begin, end)

    def keys(self, folder: str, after: str | None = None) -> Iterator[tuple[str, int]]:
        self._begin("list")
        self._end()
        yield from super().keys(folder, after)

    def level(self, folder: str) -> tuple[list[str], list[str]]:
        self._begin("list")
        self._end()
        return super().level(folder)

    def delete(self, keys: Sequence[str]) -> None:
        self._begin("delete")
        if self._is_not_done():
            # A part of it.
            super().delete([key for key in keys if self.chance.random() < 0.5])
            self._end()
            raise StorageAwayError("it was not done", keys[0])
        super().delete(keys)
        self._end()


class FaultyObjectFileSystem(ObjectFileSystem):
    """Its files, with the faults that a test of `FaultyFileSystem` asks for.

    Attributes:
        healthy: The same files, without faults.
    """

    reads_at_once = 1

    def __init__(self, seed: int = 0, store: Any = None, name: str = "s3://bucket") -> None:
        store = MemoryStore() if store is None else store
        self.objects = FaultyObjects(seed, store, name)
        self.healthy = ObjectFileSystem(ObjectsClient(store, name), name)
        self.healthy.reads_at_once = 1
        super().__init__(self.objects, name)
        self.chance = self.objects.chance
        self.capacity: int | None = None

    def call(self, function: Callable[[], T]) -> T:
        """Try three times, and not by the clock: the same test does the same."""
        for _ in range(2):
            with contextlib.suppress(StorageAwayError):
                return function()
        return function()

    def fail_next(self, call: str, number: int = errno.EIO) -> None:
        if call in ("write", "create", "sync"):
            self.objects.failures.append(number)
        elif call == "rename":
            self.objects.answers_lost = 0.3
        elif call == "preallocate":
            self.objects.not_done = 0.3
        elif call == "sync_folder":
            self.objects.land(1)

    def heal(self) -> None:
        self.objects.heal()
        self.objects.land()

    def crash_after(self, calls: int) -> None:
        self.objects.crash_after = calls

    @property
    def dead(self) -> bool:
        return self.objects.dead

    @property
    def crash_pending(self) -> bool:
        return self.objects.crash_after is not None and not self.dead

    def die(self) -> None:
        self.objects.dead = True

    def restart(self, *, power_loss: bool) -> None:
        self.objects.restart()

    def used(self) -> int:
        return 0
