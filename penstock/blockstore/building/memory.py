"""The memory arena: one shared-memory file of a receiver attempt, cut into slots.

The file has its full size from the start, but its pages are allocated only as far as slots have
reached (`posix_fallocate`, so that a full memory file system is an error here and never a
SIGBUS later). A slot is reserved at the lowest gap that is large enough, so that memory that was
touched before is used again before fresh memory is; fresh pages are what costs.

The memory file system may be full, for others also use it. From then on slots are reserved in the
memory that the file has already, and beyond it only when the pages of all of the slot can be had;
anyone who finds neither waits. Once there is room, the file grows as before.

Life of a slot: *reserved* (its range locked exclusively, one builder fills it), *trimmed* to what
is in it once it takes no more, so that the next one begins right behind it, *published* (lock
dropped, readers may lock it shared), then *freed*, by release or by eviction. Both take the
exclusive lock first and leave the slot alone while a reader holds it.

One lock, `MemoryArena._changed`, guards the list of slots.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import PenstockError

PAGE = 4096
_GROW_STEP = 4 << 20
_WAIT_STEP_S = 0.05
_FLOCK = struct.Struct("hhqqi4x")
"""``struct flock`` of 64-bit Linux; ``l_pid`` must be 0 for open file description locks."""


def _set_lock(fd: int, kind: int, offset: int, length: int) -> bool:
    try:
        wanted = _FLOCK.pack(kind, os.SEEK_SET, offset, length, 0)
    except struct.error as error:
        # As the kernel says it of a range whose end is too far.
        raise OSError(errno.EOVERFLOW, f"no file has bytes {offset} + {length}") from error
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, wanted)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _end_of_conflict(fd: int, offset: int, length: int) -> int:
    """Return the page after the lock that keeps a range from being locked exclusively."""
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, length, 0)
    kind, _, start, size, _ = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked))
    # The lock may be gone by now; then the same place is tried again.
    return offset if kind == fcntl.F_UNLCK else -(-(start + size) // PAGE) * PAGE


def lock_shared(fd: int, offset: int, length: int) -> bool:
    """Lock a byte range against reuse; False when a writer has it (the slot was given away)."""
    return _set_lock(fd, fcntl.F_RDLCK, offset, length)


def try_lock_exclusive(fd: int, offset: int, length: int) -> bool:
    """Lock a byte range for writing; False when a reader still has part of it."""
    return _set_lock(fd, fcntl.F_WRLCK, offset, length)


def unlock(fd: int, offset: int, length: int) -> None:
    """Drop this file description's lock on a byte range."""
    _set_lock(fd, fcntl.F_UNLCK, offset, length)


class ArenaError(PenstockError):
    """The memory arena cannot be made or cannot give a slot.

    Attributes:
        path: The memory file.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"memory arena {path}: {reason}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True)
class ArenaStatistics:
    """State of an arena at one moment, in bytes."""

    capacity: int
    allocated: int
    """Bytes of the file that have pages."""
    used: int
    """Bytes in slots that are reserved or published."""
    slots: int
    evicted: int
    """Slots that were given away before their block was released, since the start."""


class Slot:
    """A byte range of the arena. Made by `MemoryArena.reserve` only.

    Attributes:
        offset: Start in the memory file, a multiple of 4096.
        length: Reserved bytes; after `trim` those that are used.
        age: Counts up with each reservation of the arena.
        view: The bytes, writable.
    """

    __slots__ = ("_arena", "age", "evictable", "length", "offset", "published")

    def __init__(self, arena: MemoryArena, offset: int, length: int, age: int) -> None:
        self._arena = arena
        self.age = age
        self.offset = offset
        self.length = length
        self.published = False
        self.evictable = False

    @property
    def view(self) -> memoryview:
        """The slot's bytes; keep no reference beyond the slot's life."""
        return self._arena.view(self.offset, self.length)

    def grow_to(self, length: int) -> None:
        """Make sure that the first `length` bytes have pages.

        Raises:
            ArenaError: The memory file system is full.
        """
        self._arena.allocate_pages(self.offset + length)

    def trim(self, length: int) -> None:
        """Give back all behind the first `length` bytes, but for the rest of a page."""
        self._arena.trim(self, length)


class MemoryArena:
    """Slots of variable length in one shared-memory file.

    Args:
        path: The file, which must not exist; it is made with mode 0600.
        capacity: Its size in bytes; rounded down to pages.

    Raises:
        ArenaError: The file cannot be made.
    """

    def __init__(self, path: str, capacity: int) -> None:
        self.path = path
        self._capacity = capacity // PAGE * PAGE
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                # It is needed: see `OrphanCollector`.
                fcntl.flock(self._fd, fcntl.LOCK_SH)
                os.ftruncate(self._fd, self._capacity)
                self._map = mmap.mmap(self._fd, self._capacity)
            except OSError:
                os.close(self._fd)
                os.unlink(path)
                raise
        except OSError as error:
            raise ArenaError(
                path, f"cannot be made with {self._capacity} bytes: {error.strerror}"
            ) from error
        self._view = memoryview(self._map)
        self._changed = threading.Condition()
        self._slots: list[Slot] = []  # ordered by offset
        self._allocated = 0
        self._reserved = 0
        self._evicted = 0
        self._is_full = False  # the file system gave no pages when asked last
        self._closed = False

    def view(self, offset: int, length: int) -> memoryview:
        """Return the bytes of a range of the file."""
        return self._view[offset : offset + length]

    @property
    def is_full(self) -> bool:
        """Whether the memory file system had no room when it was asked last."""
        return self._is_full

    def allocate_pages(self, end: int) -> None:
        """Allocate the file's pages up to `end`, in steps.

        Raises:
            ArenaError: The memory file system is full, or the arena is closed.
        """
        if end <= self._allocated:
            return
        with self._changed:
            if self._closed:
                # A thread that was left behind; another file may have the descriptor's number.
                raise ArenaError(self.path, "it is closed")
            if end > self._allocated:
                self._allocate(end)

    def _allocate(self, end: int) -> None:
        # One that is nearly full is asked for what is needed only.
        step = PAGE if self._is_full else _GROW_STEP
        goal = min(self._capacity, -(-end // step) * step)
        try:
            if self._is_full:
                # What it cannot give it would look for page by page, and give back.
                found = os.fstatvfs(self._fd)
                if found.f_bavail * found.f_frsize < goal - self._allocated:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.posix_fallocate(self._fd, self._allocated, goal - self._allocated)
        except OSError as error:
            self._is_full = True
            raise ArenaError(
                self.path, f"no memory beyond {self._allocated} bytes: {error.strerror}"
            ) from error
        self._is_full = False
        self._allocated = goal

    def reserve(
        self,
        length: int,
        *,
        timeout_s: float,
        give_up: Callable[[], bool] = lambda: False,
        on_full: Callable[[ArenaError], None] = lambda error: None,
    ) -> Slot | None:
        """Reserve a slot, evicting published slots whose block the log has if need be.

        The newest evictable slots go first: batches read the oldest next.

        Args:
            length: Bytes; rounded up to pages.
            timeout_s: How long to wait for a slot.
            give_up: Asked between the steps of the wait; True ends it.
            on_full: Notified once if it waits because the memory file system is full; must not
            wait.

        Returns:
            The slot, locked exclusively, its first page allocated, or None when the wait ended
            without one.

        Raises:
            ArenaError: `length` can never fit.
        """
        length = -(-length // PAGE) * PAGE
        if length > self._capacity:
            raise ArenaError(
                self.path,
                f"a slot of {length} bytes does not fit into {self._capacity}; lower "
                "spark.penstock.block.maxSize or give the arena more memory",
            )
        deadline_s = time.monotonic() + timeout_s
        told = False
        with self._changed:
            while not self._closed:
                try:
                    slot = self._reserve_now(length)
                except ArenaError as error:
                    slot = None
                    if not told:
                        told = True
                        on_full(error)
                if slot is not None:
                    return slot
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or give_up():
                    return None
                # A reader of another process may drop its lock unseen, and another program give
                # memory back: look again after a step.
                self._changed.wait(min(left_s, _WAIT_STEP_S))
        return None

    def _reserve_now(self, length: int) -> Slot | None:
        """Reserve a slot if there is one, evicting others if need be.

        Raises:
            ArenaError: There is none, and the memory file system is full.
        """
        while True:
            was_full, full = self._is_full, None
            try:
                slot = self._take_with_pages(length)
            except ArenaError as error:
                if not was_full:
                    continue  # now in the memory that the file has already
                slot, full = None, error
            if slot is not None:
                return slot
            if not self._evict_newest():
                if full is not None:
                    raise full
                return None

    def _take_with_pages(self, length: int) -> Slot | None:
        """Take a gap with its first page; with all of its pages when the file system is full."""
        slot = self._take_gap(length, self._allocated) if self._is_full else None
        if slot is None:
            slot = self._take_gap(length, self._capacity)
        if slot is None:
            return None
        end = slot.offset + (length if self._is_full else PAGE)
        try:
            if end > self._allocated:
                self._allocate(end)
        except ArenaError:
            self._slots.remove(slot)
            unlock(self._fd, slot.offset, slot.length)
            raise
        return slot

    def _take_gap(self, length: int, limit: int) -> Slot | None:
        start = 0
        for index, slot in enumerate([*self._slots, None]):
            end = limit if slot is None else slot.offset
            while end - start >= length:
                if try_lock_exclusive(self._fd, start, length):
                    self._reserved += 1
                    taken = Slot(self, start, length, self._reserved)
                    self._slots.insert(index, taken)
                    return taken
                # A reader still has a slot that was freed: look behind it.
                start = _end_of_conflict(self._fd, start, length)
            if slot is not None:
                start = slot.offset + slot.length
        return None

    def _evict_newest(self) -> bool:
        for slot in sorted(self._slots, key=lambda slot: slot.age, reverse=True):
            if (
                slot.published
                and slot.evictable
                and try_lock_exclusive(self._fd, slot.offset, slot.length)
            ):
                unlock(self._fd, slot.offset, slot.length)
                self._slots.remove(slot)
                self._evicted += 1
                return True
        return False

    def trim(self, slot: Slot, length: int) -> None:
        """See `Slot.trim`."""
        length = -(-length // PAGE) * PAGE
        with self._changed:
            if length >= slot.length or self._closed:
                return
            unlock(self._fd, slot.offset + length, slot.length - length)
            slot.length = length
            self._changed.notify_all()

    def publish(self, slot: Slot, *, evictable: bool) -> None:
        """Let readers into a reserved slot.

        Args:
            slot: A reserved slot.
            evictable: True when the block can also be read elsewhere.
        """
        with self._changed:
            unlock(self._fd, slot.offset, slot.length)
            slot.published = True
            slot.evictable = evictable
            self._changed.notify_all()

    def make_evictable(self, slot: Slot) -> None:
        """Let a published slot be given away: its block can now be read elsewhere."""
        with self._changed:
            slot.evictable = True
            self._changed.notify_all()

    def free(self, slot: Slot) -> None:
        """Give a slot back; freeing one that was evicted does nothing.

        A reader may still hold it: the range is locked before it is reused.
        """
        with self._changed:
            if slot in self._slots:
                self._slots.remove(slot)
                if not slot.published:
                    unlock(self._fd, slot.offset, slot.length)
                self._changed.notify_all()

    def wake(self) -> None:
        """Have waiters for a slot look at its `give_up` again."""
        with self._changed:
            self._changed.notify_all()

    def statistics(self) -> ArenaStatistics:
        """Return the arena's state."""
        with self._changed:
            return ArenaStatistics(
                capacity=self._capacity,
                allocated=self._allocated,
                used=sum(slot.length for slot in self._slots),
                slots=len(self._slots),
                evicted=self._evicted,
            )

    def close(self) -> None:
        """Close the file; it stays for readers until the block server removes it."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._slots.clear()
            self._changed.notify_all()
        os.close(self._fd)
