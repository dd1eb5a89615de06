"""`Sink`: where the output of a continuous stream goes, and the sinks that come with the project.

A sink is pickled into each task, and opened there once for each attempt. It is asked twice for each
part of an epoch: to prepare, and to commit; `Epoch.name` names the part for good.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import math
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from penstock._arguments import as_folder, refused
from penstock.errors import PenstockError
from penstock.files.parquet import parquet_writer

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Epoch:
    """A task's part of an epoch.

    Attributes:
        source: Names the stream's epochs: 32 hex digits. A program that starts over, without its
            driver log, has another.
        number: The epoch's number; each is one more than the one before, whatever the number of
            tasks.
        part: Which part of it.
        attempt: The attempt of the task, 32 hex digits: for the names of what is not committed yet.
    """

    source: str
    number: int
    part: int
    attempt: str

    @property
    def name(self) -> str:
        """The part's name: another attempt's part of that name is the same part."""
        return f"{self.source}-{self.number:012d}-{self.part:04d}"


class SinkError(PenstockError):
    """A sink finds what it cannot go on with; another attempt would find the same.

    The stream is given up at once, and what was received stays in the log. One that is held, as
    where it leads takes nothing for now, and says so, is asked again: the task says what it waits
    for, and counts no failure, for an hour.

    Attributes:
        is_held: Whether it is.
    """

    def __init__(self, message: str, *, is_held: bool = False) -> None:
        super().__init__(message)
        self.is_held = is_held


class Sink:
    """Where the output of a continuous stream goes.

    All calls of an attempt come from one thread, in this order: `open`; then for each part of an
    epoch `prepare` and, once the epoch is in the driver log, `commit`; at last `close`. What raises
    ends the attempt, and another one computes the epoch again.

    A part may be prepared by several attempts and never committed, and it may be committed more
    than once: by an attempt whose word did not reach the driver, and by the next. So `commit` must
    be **idempotent by** `Epoch.name`. An attempt that is given up may still be in `commit` while
    the next one commits the same part. Parts with the same `part` come in the order of their
    numbers.
    """

    def open(self, source: str, task: int) -> None:
        """Begin an attempt, in its process.

        Args:
            source: As `Epoch.source`.
            task: The task's number, from 0.
        """

    def prepare(self, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> None:
        """Do what can be done before the epoch is logged; no one may see it yet."""

    def commit(self, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> None:
        """Put a part where it belongs, unless it is there already; when this returns it is durable.

        Args:
            epoch: The part.
            batches: What the function returned, in order; maybe none. The same as in `prepare`.
        """
        raise NotImplementedError(f"{type(self).__name__} must define commit(epoch, batches)")

    def close(self) -> None:
        """End the attempt. A process that is killed does not come here."""


def _check_callable(value: Any, name: str, accepted: str) -> None:
    if not callable(value):
        raise TypeError(refused(name, value, accepted))


class FunctionSink(Sink):
    """Calls a function with each epoch: ``function(epoch: Epoch, table: pyarrow.Table)``.

    It is called at least once with each part that has rows, and more than once after a crash. A
    function that remembers `Epoch.name`, in one step with what it writes, has it exactly once.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[[Epoch, pa.Table], object]) -> None:
        _check_callable(function, "function", "a function that takes an Epoch and a pyarrow.Table")
        self._function = function

    def commit(self, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> None:
        """Call the function."""
        if batches:
            self._function(epoch, _table_of(batches))


_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


class FileSink(Sink):
    """Writes a file for each part that has rows, whole or not at all.

    It is written and synced under a name that begins with a dot, which readers of such folders pass
    over, and gets its own by a rename: ``part-<source>-<epoch>-<part>.parquet``. An existing one is
    left as it is: that takes a folder with hard links, and in one without the stream is given up
    before its first epoch.

    Args:
        path: The folder, made when it is missing. All hosts with tasks must see it.
        format: ``parquet``, ``arrow`` (Arrow's IPC file) or ``jsonl`` (a JSON object a line). What
            JSON has no form for is written as Spark writes it: bytes in base64, ``"NaN"`` and
            ``"Infinity"`` as text, maps as objects; times in ISO 8601, and so are durations by the
            microsecond (``PT1.5S``), which `JsonFormat` reads.

    Raises:
        TypeError, ValueError: An argument is not accepted.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        format: Literal["parquet", "arrow", "jsonl"] = "parquet",  # noqa: A002 - Spark's own word
    ) -> None:
        self._folder = as_folder(path, "path")
        if "://" in self._folder:
            raise ValueError(refused("path", path, "a folder that is mounted on all hosts"))
        self._folder = os.path.abspath(self._folder)
        if format not in _WRITERS:
            raise ValueError(refused("format", format, f"one of {', '.join(_WRITERS)}"))
        self._format = format

    def open(self, source: str, task: int) -> None:
        """Make the folder; remove what killed attempts of this task left unfinished.

        What others left goes later: they may live, or be no tasks of this program any more.
        """
        os.makedirs(self._folder, exist_ok=True)
        if self._format == "parquet":
            import pyarrow.parquet  # noqa: F401  # here, and not within the first epoch
        unfinished = [
            name
            for name in os.listdir(self._folder)
            if name.startswith(f".part-{source}-") and name.endswith(".new")
        ]
        own = {name for name in unfinished if name.endswith(f".{task}.new")}
        self._remove(own)
        self._others = set(unfinished) - own
        self._task = task
        self._check_links(source)

    def _check_links(self, source: str) -> None:
        """Find out whether a file can get its name without taking it from another one.

        Raises:
            SinkError: It cannot.
        """
        # As of an epoch that no one commits any more.
        name = os.path.join(self._folder, f".part-{source}-{0:012d}-{uuid.uuid4().hex}")
        first, second = (f"{name}.{which}.{self._task}.new" for which in "ab")
        with open(first, "wb"):
            pass
        try:
            os.link(first, second)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            raise SinkError(
                f"the file system of {self._folder} has no hard links ({error.strerror}), by which "
                "a FileSink gives a file its name just once: use a folder on another one (a local "
                "disk, NFS), or write the files with a Sink of your own"
            ) from error
        else:
            os.remove(second)
        finally:
            os.remove(first)

    def prepare(self, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> None:
        """Write and sync the file."""
        if not batches:
            return
        path = self._unfinished(epoch)
        try:
            with open(path, "wb") as file:
                _WRITERS[self._format](file, batches)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            error.filename = path  # A disk that is full does not say which.
            raise

    def commit(self, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> None:
        """Give the file its name."""
        # All parts of the epochs before this one are where they belong.
        first = f".part-{epoch.source}-{epoch.number:012d}"
        left = {name for name in self._others if name < first}
        self._others -= left
        self._remove(left)
        if not batches:
            return
        unfinished = self._unfinished(epoch)
        with contextlib.suppress(FileExistsError):
            os.link(unfinished, self._path(epoch))
        os.remove(unfinished)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _remove(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.remove(os.path.join(self._folder, name))

    def _path(self, epoch: Epoch) -> str:
        return os.path.join(self._folder, f"part-{epoch.name}.{self._format}")

    def _unfinished(self, epoch: Epoch) -> str:
        name = f".part-{epoch.name}.{epoch.attempt}.{self._task}.new"
        return os.path.join(self._folder, name)


def _table_of(batches: Sequence[pa.RecordBatch]) -> pa.Table:
    """Return batches as one table; one that has only nulls in a column has it in any type.

    Raises:
        SinkError: They have different columns.
    """
    import pyarrow as pa

    first = batches[0].schema
    if all(batch.schema.equals(first) for batch in batches):
        return pa.Table.from_batches(batches)
    schemas = [batch.schema for batch in batches]
    other = next((schema for schema in schemas if schema.names != first.names), None)
    if other is None:
        try:
            schema = pa.unify_schemas(schemas)
            return pa.concat_tables(
                pa.Table.from_batches([batch]).cast(schema) for batch in batches
            )
        except pa.ArrowException as error:
            why = str(error)
    else:
        why = f"{first.names}, and then {other.names}"
    raise SinkError(
        f"the function returned batches with different columns in one epoch ({why}): give each the "
        "same schema, as with pa.RecordBatch.from_pylist(rows, schema=...)"
    )


def _write_parquet(file: BinaryIO, batches: Sequence[pa.RecordBatch]) -> None:
    table = _table_of(batches)
    with parquet_writer(file, table.schema) as writer:
        writer.write_table(table)


def _write_arrow(file: BinaryIO, batches: Sequence[pa.RecordBatch]) -> None:
    import pyarrow as pa

    table = _table_of(batches)
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _write_jsonl(file: BinaryIO, batches: Sequence[pa.RecordBatch]) -> None:
    for batch in batches:
        file.writelines(row + b"\n" for row in json_rows(batch))


def json_rows(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield each row as a JSON object, as Spark's writer of JSON has it.

    Raises:
        SinkError: Two columns, fields or keys of a map have one name, or Python has no such value.
    """
    import json

    names = batch.schema.names
    if len(set(names)) < len(names):
        raise SinkError(f"two columns have one name, which JSON cannot have: {names}; rename one")
    columns = []
    for name, column in zip(names, batch.columns, strict=True):
        try:
            columns.append([_as_json(value, column.type) for value in column.to_pylist()])
        except (ValueError, OverflowError) as error:
            raise SinkError(f"the column {name} cannot be JSON: {error}") from error
    for row in zip(*columns, strict=True):
        line = dict(zip(names, row, strict=True))
        yield json.dumps(line, ensure_ascii=False, allow_nan=False).encode()


def _as_json(value: Any, kind: pa.DataType) -> Any:
    """Return what stands for a value in JSON, as Spark's writer of JSON has it.

    Decimals and what else JSON has no form for are text.
    """
    if value is None or isinstance(value, (str, int)):
        return value
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if isinstance(value, float):
        if pa.types.is_float32(kind):
            import numpy as np

            value = float(str(np.float32(value)))
        return value if math.isfinite(value) else _NOT_FINITE[str(value)]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if pa.types.is_map(kind):
        found = {_as_name(k, kind.key_type): _as_json(v, kind.item_type) for k, v in value}
        if len(found) < len(value):
            raise ValueError(f"a map has a key twice: {value!r:.100}")
        return found
    if isinstance(value, list):
        return [_as_json(item, kind.value_type) for item in value]
    if isinstance(value, dict):
        return {field.name: _as_json(value[field.name], field.type) for field in kind}
    if pa.types.is_duration(kind):
        import msgspec

        # Nanoseconds are pandas' own class, which msgspec does not know.
        return msgspec.to_builtins(timedelta(value.days, value.seconds, value.microseconds))
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _as_name(key: Any, kind: pa.DataType) -> str:
    return str(key).lower() if isinstance(key, bool) else str(_as_json(key, kind))


_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}

_WRITERS: dict[str, Callable[[BinaryIO, Sequence[pa.RecordBatch]], None]] = {
    "parquet": _write_parquet,
    "arrow": _write_arrow,
    "jsonl": _write_jsonl,
}


_AUTOCOMMIT = (
    "what a DatabaseSink writes would be in no transaction, and be there twice after a crash: let "
    "connect return a connection without autocommit, to tables that have transactions"
)


class DatabaseSink(Sink):
    """Writes rows to a database, in one transaction with the number of their epoch.

    For any driver of Python's DB-API (PEP 249) whose connections begin transactions by themselves,
    as they do unless ``autocommit`` is set: ``sqlite3``, ``psycopg``, and others. The numbers are
    in a table ``penstock_epochs`` beside the program's own, which is made when it is missing. The
    isolation may be ``READ COMMITTED`` or stricter.

    Args:
        connect: Returns a new connection; called in each task, and again after a failure.
        write: An ``INSERT`` with a placeholder for each column, to which each row is given
            (``executemany``); or a function ``write(cursor, table: pyarrow.Table)``, which must not
            commit.

    Raises:
        TypeError: An argument is not accepted.
    """

    _TABLE = "penstock_epochs"

    def __init__(
        self, connect: Callable[[], Any], write: str | Callable[[Any, pa.Table], object]
    ) -> None:
        _check_callable(connect, "connect", "a function that returns a connection")
        if not isinstance(write, str):
            accepted = "an INSERT with placeholders, or a function that takes a cursor and a table"
            _check_callable(write, "write", accepted)
        self._connect = connect
        self._write = write
        self._connection: Any = None

    def open(self, source: str, task: int) -> None:
        """Connect, and make the table of epochs if it is missing."""
        self._connection = self._connect()
        if getattr(self._connection, "autocommit", False) is True:
            raise SinkError(_AUTOCOMMIT)
        cursor = self._connection.cursor()
        try:
            cursor.execute(f"SELECT epoch FROM {self._TABLE} WHERE part = -1")
            cursor.fetchall()
            self._connection.rollback()
        except Exception:  # noqa: BLE001 - each driver has its own; what is wrong is raised below
            self._connection.rollback()
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {self._TABLE} (source CHAR(32) NOT NULL, part INTEGER "
                "NOT NULL, epoch BIGINT NOT NULL, PRIMARY KEY (source, part))"
            )
            self._connection.commit()

    def commit(self, epoch: Epoch, batches: Sequence[pa.RecordBatch]) -> None:
        """Write the rows and the number, unless the number is stored already."""
        if not batches:
            return
        cursor = self._connection.cursor()
        try:
            if self._is_new(cursor, epoch):
                table = _table_of(batches)
                if isinstance(self._write, str):
                    columns = [column.to_pylist() for column in table.columns]
                    cursor.executemany(self._write, list(zip(*columns, strict=True)))
                else:
                    self._write(cursor, table)
            self._connection.commit()
        except BaseException:
            self._connection.rollback()
            raise
        finally:
            cursor.close()

    def _is_new(self, cursor: Any, epoch: Epoch) -> bool:
        """Take the number, and with it the row's lock, until the transaction ends.

        An attempt that was given up and still writes waits here for the other one, and then finds
        that the number is taken. All values are numbers and hex digits.
        """
        where = f"source = '{epoch.source}' AND part = {epoch.part:d}"
        cursor.execute(
            f"UPDATE {self._TABLE} SET epoch = {epoch.number:d} WHERE {where} "
            f"AND epoch < {epoch.number:d}"
        )
        # Of sqlite3, whose connections say it no other way, and of MySQL's tables without any.
        if not getattr(self._connection, "in_transaction", True):
            raise SinkError(_AUTOCOMMIT)
        if cursor.rowcount == 1:
            return True
        if cursor.rowcount != 0:
            raise SinkError(
                f"the driver of the database does not say how many rows an UPDATE has changed "
                f"(rowcount is {cursor.rowcount}): a DatabaseSink needs that"
            )
        cursor.execute(f"SELECT epoch FROM {self._TABLE} WHERE {where}")
        if cursor.fetchall():
            return False
        # Two that are here at once have the same key: the second fails, and comes again.
        cursor.execute(
            f"INSERT INTO {self._TABLE} (source, part, epoch) VALUES ('{epoch.source}', "
            f"{epoch.part:d}, {epoch.number:d})"
        )
        return True

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}
