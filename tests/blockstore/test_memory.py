"""The memory arena: what it gives, to whom, and when it takes it back."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.blockstore.building.memory import (
    ArenaError,
    MemoryArena,
    lock_shared,
    try_lock_exclusive,
)
from tests.bounds import HANG_S

PAGE = 4096


@pytest.fixture
def arena(tmp_path: Path):
    arena = MemoryArena(str(tmp_path / "arena"), 16 * PAGE)
    yield arena
    arena.close()


def reserve(arena: MemoryArena, pages: int, timeout_s: float = 0.05):
    return arena.reserve(pages * PAGE, timeout_s=timeout_s)


def test_the_file_is_private_and_its_name_is_never_used_twice(arena, tmp_path):
    assert os.stat(arena.path).st_mode & 0o777 == 0o600
    with pytest.raises(ArenaError, match="cannot be made"):
        MemoryArena(arena.path, 16 * PAGE)


def test_memory_that_was_used_before_is_used_again_first(arena):
    first, second = reserve(arena, 4), reserve(arena, 4)
    arena.free(first)
    assert reserve(arena, 2).offset == 0
    assert second.offset == 4 * PAGE


def test_trimming_gives_the_unused_rest_of_a_slot_back(arena):
    slot = reserve(arena, 8)
    slot.trim(PAGE + 1)
    assert slot.length == 2 * PAGE
    assert reserve(arena, 8).offset == 2 * PAGE


def test_what_is_left_of_a_trimmed_slot_stays_locked_until_it_is_published(arena):
    slot = reserve(arena, 8)
    slot.trim(PAGE)
    slot.trim(8 * PAGE)
    fd = os.open(arena.path, os.O_RDONLY)
    try:
        assert not lock_shared(fd, 0, PAGE)
        assert lock_shared(fd, PAGE, 7 * PAGE)
        arena.publish(slot, evictable=False)
        assert lock_shared(fd, 0, PAGE)
    finally:
        os.close(fd)


def test_a_slot_is_not_trimmed_once_the_arena_is_closed(arena):
    slot = reserve(arena, 8)
    arena.close()
    slot.trim(PAGE)
    assert slot.length == 8 * PAGE


def test_trimming_wakes_who_waits_for_a_slot(arena):
    slot = reserve(arena, 16)
    threading.Timer(0.05, slot.trim, [PAGE]).start()
    assert reserve(arena, 8, timeout_s=20).offset == PAGE


def test_a_full_arena_gives_nothing_until_a_slot_is_freed_I7(arena):
    slots = [reserve(arena, 8), reserve(arena, 8)]
    assert reserve(arena, 1) is None
    threading.Timer(0.05, arena.free, [slots[0]]).start()
    assert reserve(arena, 8, timeout_s=20).offset == 0


def test_a_full_arena_evicts_the_newest_block_that_lies_elsewhere_too(arena):
    slots = [reserve(arena, 4) for _ in range(4)]
    for slot in slots:
        arena.publish(slot, evictable=slot is not slots[3])
    assert reserve(arena, 4).offset == slots[2].offset
    assert arena.statistics().evicted == 1


def test_a_reader_keeps_its_slot_from_being_evicted_or_reused(arena):
    slots = [reserve(arena, 8), reserve(arena, 8)]
    for slot in slots:
        arena.publish(slot, evictable=True)
    fd = os.open(arena.path, os.O_RDONLY)
    try:
        assert lock_shared(fd, slots[1].offset, PAGE)
        assert reserve(arena, 8).offset == slots[0].offset
        arena.free(slots[1])
        assert reserve(arena, 8) is None
    finally:
        os.close(fd)
    assert reserve(arena, 8).offset == slots[1].offset


def test_a_reader_gets_no_slot_that_is_being_filled(arena):
    slot = reserve(arena, 4)
    fd = os.open(arena.path, os.O_RDONLY)
    try:
        assert not lock_shared(fd, slot.offset, 4 * PAGE)
        arena.publish(slot, evictable=True)
        assert lock_shared(fd, slot.offset, 4 * PAGE)
    finally:
        os.close(fd)


def test_a_killed_reader_holds_nothing(arena):
    slot = reserve(arena, 16)
    arena.publish(slot, evictable=True)
    code = (
        "import os, sys\n"
        "from penstock.blockstore.building.memory import lock_shared\n"
        "fd = os.open(sys.argv[1], os.O_RDONLY)\n"
        "print(lock_shared(fd, 0, 65536), flush=True)\n"
        "sys.stdin.read()\n"
    )
    reader = subprocess.Popen(
        [sys.executable, "-c", code, arena.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout.readline() == "True\n"
    assert reserve(arena, 16) is None
    reader.kill()
    reader.wait(HANG_S)
    reader.stdin.close()
    reader.stdout.close()
    assert reserve(arena, 16, timeout_s=20).offset == 0


def test_a_slot_that_can_never_fit_is_an_error_that_names_the_way_out(arena):
    with pytest.raises(ArenaError, match=r"spark\.penstock\.block\.maxSize"):
        reserve(arena, 17)


def test_waiting_for_memory_ends_when_the_receiver_stops(arena):
    reserve(arena, 16)
    assert arena.reserve(PAGE, timeout_s=20, give_up=lambda: True) is None


@pytest.mark.long
@pytest.mark.slow
def test_a_wait_for_memory_is_not_shortened_by_being_woken(arena):
    taken = reserve(arena, 16)
    looks: list[int] = []
    found: list[object] = []

    def look() -> bool:
        looks.append(1)
        return False

    def wait() -> None:
        found.append(arena.reserve(PAGE, timeout_s=20, give_up=look))

    waiting = threading.Thread(target=wait)
    waiting.start()
    while len(looks) < 1000 and waiting.is_alive():
        arena.wake()
    arena.free(taken)
    waiting.join(HANG_S)
    assert found != [None]


def test_a_slot_that_is_locked_stays_out_of_reach_but_the_rest_is_given(arena):
    fd = os.open(arena.path, os.O_RDWR)
    try:
        assert try_lock_exclusive(fd, 0, PAGE)
        assert reserve(arena, 16) is None
    finally:
        os.close(fd)


def test_a_slot_that_outlives_its_arena_gets_no_pages_of_another_file(tmp_path):
    """A thread that was left behind at a stop may still fill it."""
    arena = MemoryArena(str(tmp_path / "arena"), 16 << 20)
    slot = arena.reserve(16 << 20, timeout_s=0)
    arena.close()
    with open(tmp_path / "another", "wb") as another:
        os.dup2(another.fileno(), arena._fd)  # the number of the one that was closed
        with pytest.raises(ArenaError, match="closed"):
            slot.grow_to(12 << 20)
        assert os.fstat(another.fileno()).st_size == 0
        if arena._fd != another.fileno():
            os.close(arena._fd)
