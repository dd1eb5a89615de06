"""Runs a command on a machine slowed to a quarter: ``python -m tests.slow_machine COMMAND...``.

Three processes for each core do nothing but count, so that whoever else wants a core gets about a
quarter of it. How much slower a fixed piece of work became is measured and printed; the exit code
is the command's. The busy processes end with this one, however it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["main", "slowed"]

HOGS_PER_CORE = 3
_HOG = """
import os
parent = os.getppid()
while os.getppid() == parent:
    sum(range(1_000_000))
"""
_WORK = """
import time
begin_s = time.perf_counter()
sum(range(60_000_000))
print(time.perf_counter() - begin_s)
"""


@contextmanager
def slowed() -> Iterator[None]:
    """Keep every core busy while the block runs."""
    cores = len(os.sched_getaffinity(0))
    # Each in a session of its own: where the kernel divides cores among sessions, each counts.
    hogs = [
        subprocess.Popen([sys.executable, "-c", _HOG], start_new_session=True)
        for _ in range(HOGS_PER_CORE * cores)
    ]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
        for hog in hogs:
            hog.wait()


def main(command: list[str]) -> int:
    """Run the command, and return its exit code."""
    quiet_s = _measured_s()
    begin_s = time.monotonic()
    with slowed():
        slow_s = _measured_s()
        print(f"This machine is {slow_s / quiet_s:.1f} times slower now", flush=True)
        code = subprocess.run(command, check=False).returncode
    print(f"{time.monotonic() - begin_s:.0f} s on the slowed machine, exit code {code}", flush=True)
    return code


def _measured_s() -> float:
    """How long a fixed piece of work takes where each core has one."""
    cores = len(os.sched_getaffinity(0))
    command = [sys.executable, "-c", _WORK]
    works = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(cores)]
    return max(float(work.communicate()[0]) for work in works)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
