"""CPU time and memory of a run's process tree, sampled from ``/proc``."""

from __future__ import annotations

import bisect
import os
import threading
import time

from benchmarks.child import marked_processes

__all__ = ["Accounting"]

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_CPU_INTERVAL_S = 0.2
_SLOW_EVERY = 5


class Accounting:
    """Samples all processes that carry a mark, until `stop`.

    CPU time is user and system time of every process that was ever seen. Memory is the sum of the
    proportional set sizes (PSS): a page that several processes share counts once in all.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._cpu_by_process: dict[int, float] = {}
        self._times: list[float] = []
        self._cpu: list[float] = []
        self._memory: list[tuple[float, int, int]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="benchmark-accounting", daemon=True)
        self._thread.start()

    def cpu_s(self, begin: float, end: float) -> float:
        """Return the CPU seconds between two moments (`time.monotonic`)."""
        return self._cpu_at(end) - self._cpu_at(begin)

    def peak_memory_bytes(self, begin: float, end: float) -> int:
        """Return the largest memory of the tree between two moments."""
        return max((total for at, total, _ in self._memory if begin <= at <= end), default=0)

    def peak_worker_bytes(self, begin: float, end: float) -> int:
        """Return the largest memory of one Python worker between two moments."""
        return max((worker for at, _, worker in self._memory if begin <= at <= end), default=0)

    def stop(self) -> None:
        """Take no more samples."""
        self._stopping.set()
        self._thread.join(10)

    def _cpu_at(self, moment: float) -> float:
        times, cpu = self._times, self._cpu
        if not times:
            return 0.0
        right = min(bisect.bisect_left(times, moment), len(times) - 1)
        if right == 0 or times[right] <= moment:
            return cpu[right]
        share = (moment - times[right - 1]) / (times[right] - times[right - 1])
        return cpu[right - 1] + share * (cpu[right] - cpu[right - 1])

    def _run(self) -> None:
        count = 0
        processes: list[int] = []
        while not self._stopping.wait(_CPU_INTERVAL_S):
            slow = count % _SLOW_EVERY == 0
            count += 1
            if slow:
                processes = marked_processes(self._mark)
            for pid in processes:
                seconds = _cpu_of(pid)
                if seconds is not None:
                    self._cpu_by_process[pid] = seconds
            self._times.append(time.monotonic())
            self._cpu.append(sum(self._cpu_by_process.values()))
            if slow:
                sizes = [(_pss_of(pid), _is_worker(pid)) for pid in processes]
                total = sum(size for size, _ in sizes)
                worker = max((size for size, worker in sizes if worker), default=0)
                self._memory.append((time.monotonic(), total, worker))


def _cpu_of(pid: int) -> float | None:
    try:
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _pss_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) << 10
    except OSError:
        return 0
    return 0


def _is_worker(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return b"pyspark.daemon" in file.read()
    except OSError:
        return False
