"""`KeyedState`: what a continuous function keeps by key, as exact as its epochs.

What must hold:

- *With the epoch.* What the function changed in an epoch is on the disk before the driver hears
  that the epoch is prepared, and counts when that is logged. What was not logged is undone before
  the epoch is computed again.
- *One writer.* An attempt claims the state before the driver gives it blocks, and from then on any
  other is refused and changes nothing. One that was replaced, and claims it late, is refused by the
  driver; the newest then fails once, and another has it.
- *No memory without bound.* What an epoch changes is in memory, and so is a state of up to 256 MiB
  (a million small values), which then is only written; of a larger one 64 MiB of the database.
- *What is written follows what changes*, not the size of the state.

A part of a stream, of those into which `rows_of_part` divides keys, has one SQLite database, since
that comes with Python, is written by transactions, and needs no recovery of ours; a journal that
is rolled back, and not a write-ahead log, as the folder may be mounted from another host. Two
epochs are never undone: before one ends, the driver log has it that the one before is committed.

A state that is in memory is written as a log: pickled lists of keys and values, each row with its
epoch's number, None for a key that is gone. (In a table by key the random keys of an epoch touch
nearly all pages, each written twice: 500 bytes for an update of 20.) Before its changes each epoch
writes again some keys that it does not change, in turn, the first one of an attempt all of them.
When all had their turn, rows from before its beginning go: so the log has a few times the state. An
epoch is undone by deleting its rows; so old ones go in the epoch after the turn.

A state that is too large is in a table by key, beside it the values before the last epoch. A start
that finds it small enough has it in memory again, and a log behind the table, which goes as old
rows do.

Tables: ``log`` (number, changes); ``state`` (key, pickled value); ``undo``, pickled lists of keys
and their values in it before the last epoch, or None; ``epoch``, one row: the number and end of the
last epoch and of the one before, and whose claim it is; and the tables of
`penstock.continuous.timers`.
"""

from __future__ import annotations

import math
import os
import pickle
import sqlite3
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, cast
from zlib import crc32

from penstock.errors import PenstockError
from penstock.wal import UnwritableFolderError, locate, make_folders

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

Key = int | str | bytes
Value = bytes | int | float | str
"""A pickle, or what cannot be changed and so needs none."""
Change = tuple[Key, Value | None]

_TABLES = """
    CREATE TABLE IF NOT EXISTS state (key NOT NULL PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS log (number NOT NULL, changes BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS undo (changes BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS epoch (
        one PRIMARY KEY, number, end, number_before, end_before, attempt
    );
    CREATE TABLE IF NOT EXISTS timer (
        domain NOT NULL, time NOT NULL, key NOT NULL, PRIMARY KEY (domain, time, key)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS timer_undo (domain, time, key, was_there);
    CREATE TABLE IF NOT EXISTS clock (one PRIMARY KEY, now, before);
    INSERT OR IGNORE INTO clock VALUES (1, NULL, NULL)
"""
_CLAIM = """
    INSERT INTO epoch (one, attempt) VALUES (1, ?1)
    ON CONFLICT (one) DO UPDATE SET attempt = ?1
"""
_SET = "INSERT INTO state VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_NEXT = """
    UPDATE epoch SET number_before = number, end_before = end, number = ?, end = ?
    WHERE attempt = ? AND number = ?
"""
_SYNCHRONOUS = {"none": "OFF", "interval": "NORMAL", "always": "FULL"}
_ANEW = "a stream whose state was lost begins again under another name"
_WAIT_S = 10.0
_MOST_BYTES = 256 << 20
_ENTRY_BYTES = 200
"""Of a key and its value in memory, beside what they hold."""
_ROW_KEYS = 500
"""In a row of changes."""
_ROW_BYTES = 1 << 20
"""After that many no other key is put into a row, as SQLite takes no more than a gigabyte."""
_LEAST_KEY, _MOST_KEY = -(1 << 63), (1 << 63) - 1
_UNCHANGED: Any = object()
_PLAIN = frozenset((int, float, str))
_SHARE = 2
"""Of that many bytes that change one is written of what does not."""
_MIX = 0x9E3779B97F4A7C15
"""An odd number without a pattern in its bits (Knuth, TAOCP 3, section 6.4)."""


@dataclass(frozen=True)
class _Turn:
    """What is to be written again of a state in memory.

    Attributes:
        number: Of the epoch in which it began.
        keys: The state's keys at that time.
        left: This many of them, the first ones, have not had their turn.
    """

    number: int
    keys: list[Key]
    left: int


class StateError(PenstockError):
    """The state by key of a continuous stream cannot be had, or not be written.

    Attributes:
        is_permanent: It will not pass by itself.
    """

    def __init__(self, message: str, *, is_permanent: bool = False) -> None:
        super().__init__(message)
        self.is_permanent = is_permanent


@dataclass(frozen=True)
class StatePlace:
    """Where the state of a task is kept, and by which column of the stream.

    Attributes:
        path: Of the database, on this host, or mounted from another.
        key_by: The column.
        sync: ``none``, ``interval`` or ``always``, as of the logs of blocks.
    """

    path: str
    key_by: str
    sync: str = "always"

    def claim(self, attempt: str) -> None:
        """Make the state an attempt's; any other is refused from then on.

        Raises:
            StateError: It cannot be written.
        """
        with _told(self, "had"):
            make_folders(*locate(os.path.dirname(self.path)))
            with closing(self.connect()) as database, _transaction(database):
                for statement in _TABLES.split(";"):
                    database.execute(statement)
                if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'before'").fetchone():
                    raise StateError(
                        f"{self.path} was written by an earlier development version, and is not "
                        "read: use another name for the stream",
                        is_permanent=True,
                    )
                database.execute(_CLAIM, (attempt,))

    def connect(self) -> sqlite3.Connection:
        """Open the database."""
        database = sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)
        database.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self.sync]}")
        database.execute("PRAGMA journal_mode = TRUNCATE")
        # With the default of 2 MB updates of 300,000 keys took half as long again.
        database.execute("PRAGMA cache_size = -65536")
        return database


def _refused(place: StatePlace, what: str, error: Exception) -> StateError:
    # What may pass, as a lock or a full disk, is of a class below that of damaged files.
    is_damaged = type(error) is sqlite3.DatabaseError
    over = f"; {_ANEW}" if is_damaged else ""
    text = f"the state in {place.path} cannot be {what}: {error}{over}"
    return StateError(text, is_permanent=is_damaged)


@contextmanager
def _told(place: StatePlace, what: str) -> Iterator[None]:
    """Say which state the system's refusal is about.

    Raises:
        StateError: In place of its error.
    """
    try:
        yield
    except (OSError, sqlite3.Error, UnwritableFolderError) as error:
        raise _refused(place, what, error) from error


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Do all of it, or nothing."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


class KeptWithState(Protocol):
    """What is committed with the state: `penstock.continuous.timers.TimerService`."""

    def load(self, select: Callable[..., list[tuple[Any, ...]]]) -> None: ...
    def save(self, database: sqlite3.Connection) -> None: ...
    def saved(self) -> None: ...


class KeyedState(MutableMapping[Key, Any]):
    """A mapping from keys to what a continuous function keeps of them.

    Keys are `int` of 64 bits, `str` or `bytes`; values are what plain `pickle` takes, so that a
    class of theirs is in a module, and not in the program itself. A value that is read is a copy:
    set it again after a change. It has what it had after the last committed epoch, and what the
    function changed since; after a crash it is back as of that epoch. Order is not kept. Its length
    is counted. Used by one thread.

    Args:
        place: Where it is kept.
        attempt: Whose it is: it has claimed it.
        number: After which epoch; -1: there was none.
        end: Before which place that ends.
        timers: What is kept with it, if a program has timers or a watermark.

    Raises:
        StateError: It is missing as of that epoch, another attempt has it by now, or it cannot be
            read.
    """

    def __init__(
        self,
        place: StatePlace,
        attempt: str,
        number: int,
        end: int,
        timers: KeptWithState | None = None,
    ) -> None:
        self._timers = timers
        self._place = place
        self._attempt = attempt
        self._changed: dict[Key, Value | None] = {}
        self._known: dict[Key, Value] | None = None
        self._known_bytes = 0
        self._turn: _Turn | None = None
        with _told(place, "had"):
            self._database = place.connect()
            try:
                with _transaction(self._database):
                    self._begin_after(number, end)
                    self._load()
                if timers is not None:
                    timers.load(self._select)
            except BaseException:
                self._database.close()
                raise

    def _begin_after(self, number: int, end: int) -> None:
        execute = self._database.execute
        row = execute("SELECT attempt, number, end, number_before, end_before FROM epoch")
        attempt, *known = row.fetchone()
        last, before = tuple(known[:2]), tuple(known[2:])
        if attempt != self._attempt:
            raise self._replaced()
        if last == (None, None) and number < 0:
            execute("UPDATE epoch SET number = ?, end = ?", (number, end))
        elif (number, end) not in (last, before):
            raise StateError(
                f"the state after epoch {number} is not in {self._place.path} of this host: where "
                "a stream with key_by runs on several hosts, that folder must be mounted on all of "
                f"them; {_ANEW}",
                is_permanent=True,
            )
        elif (number, end) != last:
            for (changes,) in execute("SELECT changes FROM undo").fetchall():
                self._write(pickle.loads(changes))
            timers = execute("SELECT domain, time, key, was_there FROM timer_undo").fetchall()
            remove = "DELETE FROM timer WHERE domain = ? AND time = ? AND key = ?"
            self._database.executemany(remove, [timer for *timer, _ in timers])
            were_there = [timer for *timer, was_there in timers if was_there]
            self._database.executemany("INSERT INTO timer VALUES (?, ?, ?)", were_there)
            execute("UPDATE clock SET now = before")
            execute("DELETE FROM undo")
            execute("DELETE FROM log WHERE number > ?", (number,))
            execute("DELETE FROM timer_undo")
            execute("UPDATE epoch SET number = number_before, end = end_before")

    def _load(self) -> None:
        """Take into memory what is not too large for it."""
        execute = self._database.execute
        is_logged = execute("SELECT 1 FROM log LIMIT 1").fetchone() is not None
        if not is_logged and os.path.getsize(self._place.path) > _MOST_BYTES:
            return
        found: dict[Key, Value | None] = {}
        size = 0
        rows = execute("SELECT key, value FROM state")
        while some := rows.fetchmany(1000):
            found.update(some)
            size += _bytes_of(some)
            if size > _MOST_BYTES and not is_logged:
                return
        for (changes,) in execute("SELECT changes FROM log ORDER BY rowid"):
            try:
                found.update(pickle.loads(changes))
            except Exception as error:
                raise sqlite3.DatabaseError("a row of its log is damaged") from error
        self._known = {key: value for key, value in found.items() if value is not None}
        self._known_bytes = _bytes_of(self._known.items())

    def _replaced(self) -> StateError:
        return StateError(f"another attempt of the task has the state in {self._place.path}")

    def __getitem__(self, key: Key) -> Any:
        found = self._kept(key)
        if found is None:
            raise KeyError(key)
        return _value_of(found)

    def get(self, key: Key, default: Any = None) -> Any:
        """Return the value of a key, or what is given in its place."""
        # As `_kept`, without calls of what is asked for each record.
        if type(key) is not int or not _LEAST_KEY <= key <= _MOST_KEY:
            check_key(key)
        found = self._changed.get(key, _UNCHANGED)
        if found is _UNCHANGED:
            known = self._known
            found = self._saved(key) if known is None else known.get(key)
        if found is None:
            return default
        return found if type(found) is not bytes else pickle.loads(found)

    def _kept(self, key: Key) -> Value | None:
        check_key(key)
        if key in self._changed:
            return self._changed[key]
        return self._saved(key)

    def _saved(self, key: Key) -> Value | None:
        """Return what the key had after the last epoch."""
        if self._known is not None:
            return self._known.get(key)
        rows = self._select("SELECT value FROM state WHERE key = ?", key)
        return rows[0][0] if rows else None

    def _select(self, statement: str, *arguments: Any) -> list[tuple[Any, ...]]:
        try:
            return self._database.execute(statement, arguments).fetchall()
        except sqlite3.Error as error:
            raise _refused(self._place, "read", error) from error

    def __setitem__(self, key: Key, value: Any) -> None:
        if type(key) is not int or not _LEAST_KEY <= key <= _MOST_KEY:
            check_key(key)
        if type(value) in _PLAIN:
            self._changed[key] = value
            return
        try:
            self._changed[key] = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise TypeError(
                f"the state of key {key!r} cannot be a {type(value).__qualname__}: {error}. Give "
                "what plain pickle takes: no lock, no lambda, no object of a class that the "
                "program itself defines"
            ) from error

    def __delitem__(self, key: Key) -> None:
        if self._kept(key) is None:
            raise KeyError(key)
        self._changed[key] = None

    def __iter__(self) -> Iterator[Key]:
        changed = dict(self._changed)
        for key in self._saved_keys():
            if key not in changed:
                yield key
        for key, value in changed.items():
            if value is not None:
                yield key

    def _saved_keys(self) -> Iterator[Key]:
        if self._known is not None:
            yield from self._known
            return
        try:
            for (key,) in self._database.execute("SELECT key FROM state"):
                yield key
        except sqlite3.Error as error:
            raise _refused(self._place, "read", error) from error

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def clear(self) -> None:
        """Remove all keys."""
        # What is inherited would look for the first of those that are left again and again.
        self._changed.update(dict.fromkeys(self))

    def save(self, number: int, end: int) -> None:
        """Write what was changed since the last epoch as this one's.

        Raises:
            StateError: It cannot be written, or another attempt has it by now; nothing is changed.
        """
        changes = list(self._changed.items())
        known, database = self._known, self._database
        with suppress(TypeError):  # Keys of several types have no order.
            if known is None:
                # Neighbours are on one page.
                changes.sort(key=itemgetter(0))
        before: list[Change]
        if known is None:
            before = [(key, self._saved(key)) for key, _ in changes]
        else:
            before = [(key, known.get(key)) for key, _ in changes]
        changed_bytes = _bytes_of(changes)
        known_bytes = self._known_bytes + changed_bytes - _bytes_of(before)
        turn = None
        with _told(self._place, "written"), _transaction(database):
            moved = database.execute(_NEXT, (number, end, self._attempt, number - 1))
            if moved.rowcount != 1:
                raise self._replaced()
            # Without "WHERE true" a page is written even where there is no row.
            database.execute("DELETE FROM undo WHERE true")
            if known is not None and known_bytes <= _MOST_BYTES:
                turn = self._write_log(number, changes, changed_bytes, known)
            else:
                if known is not None:
                    database.execute("DELETE FROM state WHERE true")
                    self._write(known.items())
                    database.execute("DELETE FROM log WHERE true")
                rows = ((row,) for row in _rows_of(before))
                database.executemany("INSERT INTO undo VALUES (?)", rows)
                self._write(changes)
            database.execute("DELETE FROM timer_undo WHERE true")
            if self._timers is None:
                database.execute("UPDATE clock SET before = now")
            else:
                self._timers.save(database)
        self._changed = {}
        if self._timers is not None:
            self._timers.saved()
        if known is None or turn is None:
            self._known = None
            return
        self._known_bytes = known_bytes
        gone = [key for key, value in changes if value is None]
        known.update(cast(list[tuple[Key, Value]], changes))
        for key in gone:
            del known[key]
        self._turn = turn

    def _write_log(
        self, number: int, changes: list[Change], changed_bytes: int, known: dict[Key, Value]
    ) -> _Turn:
        """Write an epoch's changes, and some of what does not change; return where the turn is."""
        database, turn, size = self._database, self._turn, changed_bytes / _SHARE
        if turn is None:
            size = math.inf
        elif not turn.left:
            database.execute("DELETE FROM log WHERE number < ?", (turn.number,))
            database.execute("DELETE FROM state WHERE true")
        if turn is None or not turn.left:
            turn = _Turn(number, list(known), len(known))
        keys, left = turn.keys, turn.left
        some: list[Change] = []
        while left and size > 0:
            left -= 1
            if (value := known.get(keys[left])) is not None:
                some.append(change := (keys[left], value))
                size -= _bytes_of((change,))
        # Behind them: a change counts.
        rows = ((number, row) for row in _rows_of([*some, *changes]))
        database.executemany("INSERT INTO log VALUES (?, ?)", rows)
        return replace(turn, left=left)

    def _write(self, changes: Iterable[Change]) -> None:
        """Set values in the table, and delete keys whose value is None."""
        gone: list[tuple[Key]] = []

        def there() -> Iterator[tuple[Key, bytes]]:
            for key, value in changes:
                if value is None:
                    gone.append((key,))
                else:
                    yield key, value if type(value) is bytes else pickle.dumps(value)

        self._database.executemany(_SET, there())
        self._database.executemany("DELETE FROM state WHERE key = ?", gone)

    def close(self) -> None:
        """Let go of the file; what was not saved is lost. May be called again."""
        self._database.close()


def _value_of(kept: Value) -> Any:
    return pickle.loads(kept) if type(kept) is bytes else kept


def _rows_of(changes: Sequence[Change], most: int = _ROW_KEYS) -> Iterator[bytes]:
    """Return changes as pickled lists."""
    for at in range(0, len(changes), most):
        row = changes[at : at + most]
        if len(row) > 1 and _bytes_of(row) > _ROW_BYTES:
            yield from _rows_of(row, len(row) // 2)
        else:
            yield pickle.dumps(row, pickle.HIGHEST_PROTOCOL)


def _bytes_of(changes: Iterable[Change]) -> int:
    """Return about what they take in memory."""
    size = 0
    for key, value in changes:
        if value is not None:
            size += _ENTRY_BYTES
            if not isinstance(key, int):
                size += len(key)
            if not isinstance(value, (int, float)):
                size += len(value)
    return size


def check_key_column(schema: pa.Schema, key_by: str, argument: str = "key_by") -> None:
    """Check that records can be shared by the keys in a column, which an argument names.

    Raises:
        StateError: There is no such column, or it has another type.
    """
    from pyarrow import types

    at = schema.get_field_index(key_by)
    if at < 0:
        raise StateError(
            f"{argument}={key_by!r}: there is no such column in {schema.names}", is_permanent=True
        )
    found = schema.field(at).type
    if not (types.is_null(found) or types.is_integer(found) or _is_text(found)):
        raise StateError(
            f"{argument}={key_by!r}: the column has the type {found}; keys are whole numbers, text "
            "or bytes",
            is_permanent=True,
        )


def rows_of_part(batch: pa.RecordBatch, key_by: str, part: int, parts: int) -> pa.RecordBatch:
    """Return the rows whose keys are of a part; rows without a key are of part 0.

    Where a key belongs does not depend on process, host or version.

    Args:
        batch: The rows.
        key_by: The column with their keys: integers, text or bytes.
        part: Which part.
        parts: How many there are.

    Raises:
        StateError: There is no such column, or it has another type.
    """
    import numpy as np
    import pyarrow as pa
    from pyarrow import types

    check_key_column(batch.schema, key_by)
    keys = batch.column(key_by)
    if types.is_null(keys.type):  # No row has a key, and Arrow knows no type.
        return batch if part == 0 else batch.slice(0, 0)
    if parts == 1:
        return batch
    if types.is_integer(keys.type):
        of_key = _mixed(keys.fill_null(0).to_numpy(zero_copy_only=False)) % np.uint64(parts)
    else:
        coded = keys.dictionary_encode()
        sums = [
            crc32(key.encode() if isinstance(key, str) else key) % parts
            for key in coded.dictionary.to_pylist()
        ]
        codes = coded.indices.fill_null(0).to_numpy(zero_copy_only=False)
        of_key = np.array(sums or [0], np.uint64)[codes]
    if keys.null_count:
        of_key[keys.is_null().to_numpy(zero_copy_only=False)] = 0
    return batch.filter(pa.array(of_key == part))


def _is_text(kind: pa.DataType) -> bool:
    from pyarrow import types

    tests = (
        *(types.is_string, types.is_large_string),
        *(types.is_binary, types.is_large_binary, types.is_fixed_size_binary),
    )
    return any(test(kind) for test in tests)


def _mixed(keys: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    import numpy as np

    signed = keys.dtype.kind == "i"
    wide = keys.astype(np.int64).view(np.uint64) if signed else keys.astype(np.uint64)
    mixed: np.ndarray[Any, np.dtype[np.uint64]] = (wide * np.uint64(_MIX)) >> np.uint64(32)
    return mixed


def check_key(key: object) -> None:
    """Check that something can be a key of a state.

    Raises:
        TypeError, ValueError: It cannot.
    """
    if type(key) not in (int, str, bytes):
        raise TypeError(f"a key of a state is an int, str or bytes, and not {key!r:.100}")
    if isinstance(key, int) and not _LEAST_KEY <= key <= _MOST_KEY:
        raise ValueError("an integer that is a key of a state is from -2**63 to 2**63 - 1")
    if isinstance(key, str):
        key.encode()  # Half a surrogate pair, as JSON may have it, could not be written.
