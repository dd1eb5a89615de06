"""`Timers`: what a continuous function asks to be done at a time, by key, as exact as its epochs.

A program gives ``on_timer`` beside its function. The function is then also called with `Timers`: it
registers a timer for a key and a time, and `on_timer` is called with the keys whose time has come
(Flink's ``KeyedProcessFunction.onTimer``, Spark's ``handleExpiredTimer``). There are two *time
domains*, as in these:

- *Event time* is where the `Watermark` is: the largest time in a column of the records so far, less
  a delay. Where another column says which source a record is from, that is so for each of them, and
  the smallest counts; a source that was idle for long is left out until it has a record again, and
  when all are, the largest counts (as in Flink). A record is *late* if it is earlier than the
  watermark was before its block.
- *Processing time* is when the driver log had the block that is processed, or ended the epoch.

What must hold:

- *The log says what time it is.* No task reads a clock. Both times follow from the blocks, the
  moments at which the log took them, and that at which an epoch ended, which is logged with it
  (`LoggedEpoch.clock_ms`). So an attempt that computes an epoch again finds the same timers
  expired, between the same records, and the same records late. All tasks of a stream with keys are
  sent all blocks, and so have one watermark. Neither time goes back.
- *At most one* timer has the same domain, key and time. It is gone when it has expired.
- *Once, with the epoch.* Timers are in the database of the state, and are saved and undone with it.
- *In order, and not before.* Timers of processing time expire before a block that came later; those
  of event time behind the block with which the watermark passed them; both at the end of an epoch.
  Of a domain the earlier come first. What `on_timer` registers for a time that is not later than
  the one that expires waits for the next of these moments: nothing goes round in circles.
- *Nothing ticks.* A task reports to the driver when it has to act next (`TimerDue`). If no block
  has come by then, the driver ends an epoch of timers alone, at most one in the time of an epoch.
- *Bounded.* When 100,000 have expired in an epoch, the others wait for the next one.

Tables, beside the state's: ``timer`` (domain, time, key); ``timer_undo``, the timers that the last
epoch changed, and whether they existed before; ``clock``, one row: both times and the sources after
the last epoch, and after the one before.
"""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from heapq import heappop, heappush
from itertools import chain
from operator import index
from typing import TYPE_CHECKING, Any

from penstock.continuous.operation import Watermark
from penstock.continuous.state import Key, StateError, check_key, check_key_column

if TYPE_CHECKING:
    import pyarrow as pa

NO_WATERMARK = -(1 << 63)
"""The watermark before the first record, in ms since the epoch."""

MOST_EXPIRED = 100_000
"""In an epoch."""

_MOST_SOURCES = 10_000
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MILLISECOND = timedelta(milliseconds=1)
_PER_MS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
"""A count of a unit, times the first and divided by the second, is one of milliseconds."""
_IN_1973_MS, _IN_2001_MS = 10**11, 10**12

_SAVED = "SELECT min(time) FROM timer WHERE domain = ? AND time > ?"
_KEYS = "SELECT key FROM timer WHERE domain = ? AND time = ? LIMIT ?"
_NOTE = """
    INSERT INTO timer_undo SELECT ?1, ?2, ?3,
        EXISTS (SELECT 1 FROM timer WHERE domain = ?1 AND time = ?2 AND key = ?3)
"""
_ADD = "INSERT OR IGNORE INTO timer VALUES (?, ?, ?)"
_REMOVE = "DELETE FROM timer WHERE domain = ? AND time = ? AND key = ?"

Select = Callable[..., list[tuple[Any, ...]]]


@dataclass(frozen=True)
class ExpiredTimers:
    """Timers of one time that have expired.

    Attributes:
        time_ms: For when they were registered, in ms since the epoch.
        keys: For which keys; with a `parallelism` above 1, this task's.
        is_event_time: Whether they are of event time, or of processing time.
    """

    time_ms: int
    keys: list[Key]
    is_event_time: bool


class TimeDomain:
    """What time it is in one of the two domains, and the timers in it. Used by one thread.

    Attributes:
        now_ms: The time, in ms since the epoch; in event time the watermark, which is
            `NO_WATERMARK` before the first record.
    """

    def __init__(self, number: int, now_ms: int, refused: str = "") -> None:
        """Only a task makes one; `refused` says why no timer can be registered."""
        self.now_ms = now_ms
        self._number = number
        self._refused = refused
        # What the epoch changes. Each time of an addition stands once in the heap, or has passed.
        self._added: dict[int, dict[Key, None]] = {}
        self._removed: set[tuple[int, Key]] = set()
        self._times: list[int] = []
        self._passed: list[int] = []
        self._select: Select = lambda *_: [(None,)]
        self._saved_ms: int | None = None

    def register(self, key: Key, time: int | datetime) -> None:
        """Have `on_timer` called with a key when a time has come; at once if it has already.

        Args:
            key: An `int` of 64 bits, `str` or `bytes`; it need not be a key of the state.
            time: In milliseconds since the epoch, or with a zone.

        Raises:
            TypeError, ValueError: Key or time is not accepted, or there is no such time.
        """
        if self._refused:
            raise ValueError(self._refused)
        time_ms = self._checked(key, time)
        self._removed.discard((time_ms, key))
        if time_ms not in self._added:
            self._added[time_ms] = {}
            heappush(self._times, time_ms)
        self._added[time_ms][key] = None

    def delete(self, key: Key, time: int | datetime) -> None:
        """Forget a timer, if there is one.

        Raises:
            TypeError, ValueError: Key or time is not accepted.
        """
        time_ms = self._checked(key, time)
        self._added.get(time_ms, {}).pop(key, None)
        self._removed.add((time_ms, key))

    def _checked(self, key: Key, time: int | datetime) -> int:
        check_key(key)
        if isinstance(time, datetime):
            if time.tzinfo is None:
                raise ValueError(
                    f"{time!r} has no zone: give it one, as with .replace(tzinfo=timezone.utc)"
                )
            return -((_EPOCH - time) // _MILLISECOND)  # Rounded up.
        if isinstance(time, bool) or not hasattr(time, "__index__"):
            raise TypeError(
                "the time of a timer is a whole number of milliseconds since the epoch, or a "
                f"datetime with a zone, and not {time!r:.100}"
            )
        time_ms = index(time)
        if not NO_WATERMARK < time_ms < -NO_WATERMARK:
            raise ValueError("the time of a timer has 63 bits and a sign")
        if not self._number and abs(time_ms) < _IN_1973_MS and self.now_ms > _IN_2001_MS:
            raise ValueError(
                f"the time {time_ms} would be in 1970 to 1973: is it in seconds, or a duration? "
                "Give milliseconds since the epoch, such as now_ms + 10_000"
            )
        return time_ms

    def _next(self, last_ms: int) -> int | None:
        """Return the first time later than another for which there are timers."""
        while self._times:
            time_ms = self._times[0]
            if not self._added[time_ms]:
                del self._added[heappop(self._times)]
            elif time_ms <= last_ms:
                self._passed.append(heappop(self._times))
            else:
                break
        found = [*self._times[:1], *([] if self._saved_ms is None else [self._saved_ms])]
        return min(found, default=None)

    def _take(self, time_ms: int, most: int) -> list[Key]:
        """Remove, and return, at most that many of the timers of that time, which is the next."""
        keys = dict(self._added.get(time_ms, {}))
        if time_ms == self._saved_ms:
            limit = most + len(self._removed) + 1
            for (key,) in self._select(_KEYS, self._number, time_ms, limit):
                if (time_ms, key) not in self._removed:
                    keys[key] = None
        taken = list(keys)[:most]
        for key in taken:
            self.delete(key, time_ms)
        if len(taken) == len(keys) and time_ms == self._saved_ms:
            self._find_saved(time_ms)
        return taken

    def _find_saved(self, after_ms: int = NO_WATERMARK) -> None:
        ((self._saved_ms,),) = self._select(_SAVED, self._number, after_ms)

    def _restore(self) -> None:
        """Let those wait for the next moment whose time had passed in this one."""
        for time_ms in self._passed:
            heappush(self._times, time_ms)
        self._passed = []

    def _changes(self) -> tuple[list[tuple[int, int, Key]], list[tuple[int, int, Key]]]:
        """Return the timers that an epoch added, and removed."""
        number = self._number
        there = [(number, at, key) for at, keys in self._added.items() for key in keys]
        return there, [(number, at, key) for at, key in self._removed]

    def _saved(self) -> None:
        self._added, self._removed, self._times, self._passed = {}, set(), [], []
        self._find_saved()


class Timers:
    """The timers of a continuous function, by key, and what time it is.

    Attributes:
        event_time: Where the watermark is.
        processing_time: When the driver log had the block, or the end of the epoch.
    """

    def __init__(self, event_time: TimeDomain, processing_time: TimeDomain) -> None:
        self.event_time = event_time
        self.processing_time = processing_time


class TimerService:
    """What a task does with time: it moves the watermark, and says which timers have expired.

    Args:
        watermark: What is asked for; None: there is no event time.
        expire: Whether timers expire; else no function takes them.

    Attributes:
        timers: What the function is given.
        late: The rows that were late since the last epoch.
    """

    def __init__(self, watermark: Watermark | None, *, expire: bool) -> None:
        refused = "" if watermark else "without watermark= no event time comes: give one"
        self.timers = Timers(TimeDomain(1, NO_WATERMARK, refused), TimeDomain(0, 0))
        self.late = 0
        self._event, self._processing = self.timers.event_time, self.timers.processing_time
        self._watermark = watermark
        self._delay_ms = watermark.delay_ms if watermark else 0
        self._idle_ms = watermark.idle_ms if watermark else None
        self._columns = [watermark.column, watermark.sources] if watermark else []
        self._expire = expire
        self._left = MOST_EXPIRED
        # The largest event time of each source, and the processing time of its last record.
        self._sources: dict[Any, tuple[int, int]] = {}
        self._seen: dict[Any, int] = {}

    # -- with the state ------------------------------------------------------------------------

    def load(self, select: Select) -> None:
        """Take over what there is after the last epoch, from which `select` reads."""
        ((clock,),) = select("SELECT now FROM clock")
        if clock is not None:
            self._processing.now_ms, self._event.now_ms, sources, *columns = pickle.loads(clock)
            # What other columns said is no time of theirs, and would hold them back for ever.
            self._sources = sources if columns == self._columns else {}
        for domain in (self._event, self._processing):
            domain._select = select
            domain._find_saved()

    def save(self, database: sqlite3.Connection) -> None:
        """Write what an epoch changed, within its transaction."""
        clock = (self._processing.now_ms, self._event.now_ms, self._sources, *self._columns)
        pickled = pickle.dumps(clock, pickle.HIGHEST_PROTOCOL)
        database.execute("UPDATE clock SET before = now, now = ?", (pickled,))
        for domain in (self._event, self._processing):
            there, gone = domain._changes()
            database.executemany(_NOTE, chain(there, gone))
            database.executemany(_ADD, there)
            database.executemany(_REMOVE, gone)

    def saved(self) -> None:
        """Begin the next epoch, as the transaction was committed."""
        self.late, self._left = 0, MOST_EXPIRED
        for domain in (self._event, self._processing):
            domain._saved()

    def due_ms(self) -> int | None:
        """Return when, in processing time, there is something to do without a block; or None."""
        first, event_ms = self._processing._saved_ms, self._event._saved_ms
        if event_ms is not None and event_ms <= self._event.now_ms:
            first = self._processing.now_ms
        elif event_ms is not None and self._idle_ms is not None and len(self._sources) > 1:
            ends = [seen_ms + self._idle_ms for _, seen_ms in self._sources.values()]
            now_ms = self._processing.now_ms
            is_idle = min((end_ms for end_ms in ends if end_ms > now_ms), default=now_ms)
            first = is_idle if first is None else min(first, is_idle)
        return first if self._expire else None

    # -- as time goes on -----------------------------------------------------------------------

    def advance(self, clock_ms: int) -> Iterator[ExpiredTimers]:
        """Go on to a moment of processing time: that of the next block, or the end of an epoch."""
        self._processing.now_ms = max(self._processing.now_ms, clock_ms)
        yield from self._expired(self._processing)
        yield from self.behind_block()

    def observe(self, batch: pa.RecordBatch) -> None:
        """Take note of the event times of all rows of a block, whosoever they are.

        Raises:
            StateError: There is no such column, or it has no times.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if (asked := self._watermark) is None:
            return
        check_time_columns(batch.schema, asked)
        times = batch.column(asked.column)
        if pa.types.is_null(times.type):
            return
        counts = times.view(pa.int64())
        if asked.sources is None:
            found = {None: pc.max(counts).as_py()}
        else:
            table = pa.table({"source": batch.column(asked.sources), "time": counts})
            largest = table.group_by("source").aggregate([("time", "max")])
            found = dict(
                zip(largest["source"].to_pylist(), largest["time_max"].to_pylist(), strict=True)
            )
        times_by, divided_by = _PER_MS[times.type.unit]
        for source, count in found.items():
            if count is not None:
                time_ms = count * times_by // divided_by
                self._seen[source] = max(time_ms, self._seen.get(source, time_ms))

    def on_time(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows that the function is given, and count those that are late."""
        import pyarrow as pa
        import pyarrow.compute as pc

        asked = self._watermark
        if asked is None or pa.types.is_null(batch.column(asked.column).type):
            return batch
        times = batch.column(asked.column)
        divided_by, times_by = _PER_MS[times.type.unit]
        # Rounded up, and as far as the type goes.
        first = min(-(-self._event.now_ms * times_by // divided_by), (1 << 63) - 1)
        is_late = pc.less(times.view(pa.int64()), max(first, NO_WATERMARK)).fill_null(False)
        late = is_late.true_count
        self.late += late
        return batch if not late or asked.late == "keep" else batch.filter(pc.invert(is_late))

    def behind_block(self) -> Iterator[ExpiredTimers]:
        """Move the watermark by what was observed, and by what is idle."""
        now_ms = self._processing.now_ms
        for source, time_ms in self._seen.items():
            known_ms, _ = self._sources.get(source, (time_ms, 0))
            self._sources[source] = (max(time_ms, known_ms), now_ms)
        self._seen = {}
        if len(self._sources) > _MOST_SOURCES:
            raise StateError(
                f"the column of sources has more than {_MOST_SOURCES:,} values: name what records "
                "come from, such as a partition",
                is_permanent=True,
            )
        largest = [time_ms for time_ms, _ in self._sources.values()]
        if self._idle_ms is not None:
            active = {
                source: (time_ms, seen_ms)
                for source, (time_ms, seen_ms) in self._sources.items()
                if now_ms - seen_ms < self._idle_ms
            }
            if not active:
                largest = [max(largest)] if largest else []
                self._sources = {}
            else:
                largest = [time_ms for time_ms, _ in active.values()]
                # One that is idle, and later than all that are not, counts once these are also
                # idle.
                latest = max(self._sources, key=lambda source: self._sources[source][0])
                self._sources = {**active, latest: self._sources[latest]}
        if largest:
            self._event.now_ms = max(self._event.now_ms, min(largest) - self._delay_ms)
        yield from self._expired(self._event)

    def _expired(self, domain: TimeDomain) -> Iterator[ExpiredTimers]:
        last_ms = NO_WATERMARK
        while self._expire and self._left > 0:
            time_ms = domain._next(last_ms)
            if time_ms is None or time_ms > domain.now_ms:
                break
            keys = domain._take(time_ms, self._left)
            self._left -= len(keys)
            last_ms = time_ms
            if keys:
                yield ExpiredTimers(time_ms, keys, domain is self._event)
        domain._restore()


def check_time_columns(schema: pa.Schema, watermark: Watermark) -> None:
    """Check that a watermark can be taken from records.

    Raises:
        StateError: There is no such column, or it has another type.
    """
    from pyarrow import types

    at = schema.get_field_index(watermark.column)
    what = f"the column {watermark.column!r} of the watermark"
    if at < 0:
        raise StateError(f"{what} is not among {schema.names}", is_permanent=True)
    found = schema.field(at).type
    if not (types.is_timestamp(found) or types.is_null(found)):
        raise StateError(f"{what} has the type {found}, and not timestamp", is_permanent=True)
    if watermark.sources is not None:
        check_key_column(schema, watermark.sources, "sources")
