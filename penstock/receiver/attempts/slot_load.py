"""What receivers take of the process that they share, and which of them is to leave it.

What must hold
--------------

* A receiver that burns CPU or lets the process grow is found, and moves to a process of its own in
  the ways that `slot` has. One that is alone stays.
* What was used counts, and no time: a machine that stood still is no receiver's doing.
* It costs one look a second, of the thread that looks already.

CPU is counted by thread, and on the event loop by turn. A receiver may take half a core; where the
process could take no more, as Python runs one thread at a time, a fifth; and all of that in parts
of what the system lets the process have. It leaves when it took `_BURN_S` seconds more. Threads
that Python does not know are no one's.

Memory counts beyond ``spark.penstock.receivers.slotMemory``, or half of what Spark's limit lets a
process have. If the process still grows by a twentieth, the receiver leaves whose code met most
pages for the first time meanwhile. That is a suspicion, as it may have let go of others. If the
process goes on growing, the next one leaves, so that in the end the one that grows is alone.
"""

from __future__ import annotations

import logging
import resource
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

from penstock.receiver.threads.source_loop import SourceLoop
from penstock.receiver.user_calls import stream_of
from penstock.runtime.processes import stat_of

_log = logging.getLogger("penstock.receiver")

_BURN_S = 10.0
_MAY_TAKE = 0.5
"""Of a core. Small streams, such as share a process, take some hundredths."""
_MAY_TAKE_OF_ALL = 0.2
_ALL = 0.9

_GROWS = 1.05
_NEXT_GROWTH = 1.25


class SlotLoad:
    """What is taken of this process. Used by the thread that looks.

    Args:
        sources: The event loop.
        most_bytes: How much memory of its own it may have.
    """

    def __init__(self, sources: SourceLoop, most_bytes: int) -> None:
        self._sources = sources
        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        self._most_bytes: float = most_bytes if limit < 0 else min(most_bytes, limit // 2)
        # By threads, and by streams on the loop, which stand there as -1 - stream.
        self._cpu_s: dict[int, float] = {}
        self._at_s = time.monotonic()
        self._burned_s: dict[int, float] = {}
        self._growing: tuple[int, dict[int, float]] | None = None

    def look(self, streams: Collection[int]) -> tuple[int, str] | None:
        """Return which stream is to leave and what it did; None: none. Called about once a second.

        Args:
            streams: Whose process it is. Those that have left it may have threads in it.
        """
        threads = {
            thread.native_id: stream_id
            for thread in threading.enumerate()
            if (stream_id := stream_of(thread)) is not None and thread.native_id is not None
        }
        # The source that came first has begun it.
        threads.pop(self._sources.native_id, None)
        for stream_id, why in filter(None, (self._burns(threads), self._grows(threads, streams))):
            if any(other != stream_id for other in streams):
                return stream_id, why
        return None

    def _burns(self, threads: Mapping[int, int]) -> tuple[int, str] | None:
        before, self._cpu_s = self._cpu_s, _totals(threads, _cpu_s, self._sources.cpu_s)
        taken_s, busiest = _taken(self._cpu_s, before, threads)
        before_s, self._at_s = self._at_s, time.monotonic()
        core_s = (self._at_s - before_s) * _part_got(
            busiest if busiest > 0 else self._sources.native_id
        )
        is_all = sum(taken_s.values()) >= _ALL * core_s
        may_s = core_s * (_MAY_TAKE_OF_ALL if is_all else _MAY_TAKE)
        # No more than that: it would outlast what has left.
        self._burned_s = {
            stream_id: min(burned_s, _BURN_S)
            for stream_id in {*taken_s, *self._burned_s}
            if (burned_s := self._burned_s.get(stream_id, 0.0) + taken_s[stream_id] - may_s) > 0
        }
        stream_id = max(self._burned_s, key=self._burned_s.__getitem__, default=-1)
        if self._burned_s.get(stream_id, 0.0) < _BURN_S:
            return None
        # The others have their chance when it has left.
        self._burned_s = {stream_id: self._burned_s[stream_id]}
        return stream_id, f"took {taken_s[stream_id] / core_s:.2f} of a core that others need"

    def _grows(
        self, threads: Mapping[int, int], streams: Collection[int]
    ) -> tuple[int, str] | None:
        own_bytes = _own_bytes()
        self._sources.counts_pages = own_bytes >= self._most_bytes
        if own_bytes < self._most_bytes:
            self._growing = None
        elif self._growing is None:
            self._growing = own_bytes, _totals(threads, _new_pages, self._sources.new_pages)
        elif own_bytes > self._growing[0] * _GROWS:
            began_bytes, before = self._growing
            pages = _totals(threads, _new_pages, self._sources.new_pages)
            taken, _ = _taken(pages, before, threads)
            self._most_bytes, self._growing = own_bytes * _NEXT_GROWTH, None
            stream_id = max({*taken, *streams}, key=lambda one: (taken[one], one), default=-1)
            grew = f"{began_bytes >> 20} to {own_bytes >> 20} MiB"
            why = f"met most new pages while its process grew from {grew}"
            if not any(other != stream_id for other in streams):
                _log.warning("receiver %d, which is alone there, %s", stream_id, why)
            return stream_id, why
        return None


def _totals(
    threads: Mapping[int, int], of: Callable[[int], float], on_loop: Mapping[int, float]
) -> dict[int, float]:
    totals = {-1 - stream_id: total for stream_id, total in dict(on_loop).items()}
    for thread in threads:
        with suppress(OSError):  # It has ended.
            totals[thread] = of(thread)
    return totals


def _taken(
    totals: Mapping[int, float], before: Mapping[int, float], threads: Mapping[int, int]
) -> tuple[dict[int, float], int]:
    """Return what each stream took since `before`, and which took most of it."""
    taken: dict[int, float] = defaultdict(float)
    most = dict.fromkeys(totals, 0.0)
    for key, total in totals.items():
        most[key] = max(0.0, total - before.get(key, 0.0))
        taken[threads.get(key, -1 - key)] += most[key]
    return taken, max(most, key=most.__getitem__, default=0)


def _cpu_s(thread: int) -> float:
    # As glibc's pthread_getcpuclockid, which does not ask whether the thread still exists.
    return time.clock_gettime(~thread << 3 | 6)


def _new_pages(thread: int) -> float:
    return float(stat_of(f"/proc/self/task/{thread}")[7])


def _part_got(thread: int) -> float:
    """Return which part of the time that it could have run a thread did."""
    try:
        ran, waited, _ = map(int, Path(f"/proc/self/task/{thread}/schedstat").read_text().split())
    except (OSError, ValueError):
        return 1.0
    return ran / (ran + waited) if ran else 1.0


def _own_bytes() -> int:
    _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_text().split())
    return (resident - shared) * resource.getpagesize()
