"""Memory that is used again, and never while somebody looks into it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.runtime.reused_memory import ReusedMemory
from tests.bounds import HANG_S

SIZE = 1 << 16


def test_memory_is_used_again_as_soon_as_nobody_looks_into_it() -> None:
    memory = ReusedMemory()
    last = b""
    for number in range(1, 20):
        # As who reads block after block: the one before is let go when the next is there.
        taken = memory.take(SIZE)
        assert len(taken) == SIZE
        # New memory has zeros.
        assert taken[0] == taken[-1] == max(0, number - 2)
        taken[:] = bytes([number]) * SIZE
        assert bytes(last) in (b"", bytes([number - 1]) * SIZE)
        last = taken


def test_a_smaller_one_is_taken_of_what_there_is_and_a_larger_one_is_new() -> None:
    memory = ReusedMemory()
    memory.take(SIZE)[:] = b"a" * SIZE
    assert bytes(memory.take(100)) == b"a" * 100
    assert bytes(memory.take(2 * SIZE)) == bytes(2 * SIZE)
    assert bytes(memory.take(SIZE)) == b"a" * SIZE


@pytest.mark.parametrize(
    "look",
    [
        lambda view: view[7:9],
        lambda view: np.frombuffer(view[7:9], np.uint8),
        lambda view: pa.py_buffer(view[7:9]),
        lambda view: pa.Array.from_buffers(pa.uint8(), 2, [None, pa.py_buffer(view[7:9])])[1:],
    ],
    ids=["memoryview", "NumPy", "Arrow buffer", "Arrow column"],
)
def test_what_somebody_looks_into_is_his_however_many_are_taken_after_it(look: Any) -> None:
    memory = ReusedMemory()
    taken = memory.take(SIZE)
    taken[:] = b"a" * SIZE
    mine = look(taken)
    del taken
    for _ in range(5):
        other = memory.take(SIZE)
        other[:] = b"b" * SIZE
    shown = mine.to_pylist() if isinstance(mine, pa.Array) else list(memoryview(mine))
    assert set(shown) == {ord("a")}


FORK = """
import os, sys
from penstock.runtime.reused_memory import ReusedMemory

memory = ReusedMemory()
there, written = os.pipe()
mine = memory.take(100)
mine[:] = b"a" * 100
if {locked}:
    memory._lock.acquire()
child = os.fork()
if child:
    if {locked}:
        memory._lock.release()
    del mine
    memory.take(100)[:] = b"b" * 100
    os.write(written, b"x")
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
os.read(there, 1)
assert bytes(mine) == b"a" * 100
del mine
assert bytes(memory.take(100)) == bytes(100)
"""


@pytest.mark.parametrize("locked", [False, True])
def test_a_forked_process_shares_nothing_with_the_one_that_forked_it(locked: bool) -> None:
    command = [sys.executable, "-c", FORK.replace("{locked}", str(locked))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
