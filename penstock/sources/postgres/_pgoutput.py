"""What PostgreSQL's output plug-in `pgoutput` sends (version 1 of its protocol), as Arrow columns.

Messages stay bytes until a batch is made of them: then all rows of one shape (table, operation,
which tuples) are cut into columns at once, and no Python object is made per value. What does not
fit goes back to be looked at row by row.
"""

from __future__ import annotations

import functools
import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.sources._common import ServerError

HEADER = 25
"""Bytes before a message: ``w``, where it is in the log, where the log ends, the time."""

EPOCH_US = 946_684_800_000_000
"""2000-01-01, from which PostgreSQL counts."""

_NULL, _UNCHANGED, _TEXT = b"nut"
_OPERATIONS = {b"I": "insert", b"U": "update", b"D": "delete", b"T": "truncate"}
_BOOL = 16
_AS_THEY_ARE = {20, 21, 23, 26, 114, 3802}
"""Integers and JSON."""
_NUMBERS = {700, 701, 1700}
"""May be NaN or infinite."""
_TIMESTAMP, _TIMESTAMPTZ = 1114, 1184
_TOO_FINE = r"[eE]-|\.[0-9]{39}"
"""Of such numbers Arrow may read another one, or crash."""
_SPARE = 8
"""Bytes behind the last row, which a short one is read with."""
_IN_JSON = r'[\x00-\x1f"\\]'


Letter = tuple[bytes, str]
"""A change that cannot be stored as it is wanted, and why."""


def envelope(row: pa.DataType) -> pa.Schema:
    """Return the columns of changes whose rows are of a type."""
    return pa.schema(
        [
            ("schema", pa.string()),
            ("table", pa.string()),
            ("op", pa.string()),
            ("lsn", pa.int64()),
            ("place", pa.int64()),
            ("committed", pa.timestamp("us", "UTC")),
            ("xid", pa.int64()),
            ("unchanged", pa.list_(pa.string())),
            ("before", row),
            ("after", row),
        ]
    )


@dataclass(frozen=True)
class Relation:
    """A table as it was when the changes that follow were made."""

    oid: int
    schema: str
    table: str
    names: tuple[str, ...]
    types: tuple[int, ...]
    is_key: tuple[bool, ...]

    @classmethod
    def read(cls, message: memoryview, base_types: Mapping[int, int]) -> Relation:
        """Read a message ``R``; a domain has the type that it is made of."""
        schema, table, data = bytes(message[5:]).split(b"\0", 2)
        # The replica identity, and the number of columns.
        data = data[3:]
        columns = []
        while data:
            is_key = bool(data[0] & 1)
            name, data = data[1:].split(b"\0", 1)
            kind = int.from_bytes(data[:4], "big")
            columns.append((_name(name), base_types.get(kind, kind), is_key))
            data = data[8:]
        names, types, keys = zip(*columns, strict=True) if columns else ((), (), ())
        oid = int.from_bytes(message[1:5], "big")
        return cls(oid, _name(schema) or "pg_catalog", _name(table), names, types, keys)


def _name(data: bytes) -> str:
    return data.decode(errors="replace")


def base_type(message: memoryview) -> dict[int, int]:
    """Read a message ``Y``: of a domain it has the name of the type that it is made of."""
    from psycopg.postgres import types

    schema, name, _ = bytes(message[5:]).split(b"\0")
    known = types.get(_name(name)) if schema in (b"", b"pg_catalog") else None
    return {} if known is None else {int.from_bytes(message[1:5], "big"): known.oid}


@dataclass(frozen=True)
class Transaction:
    """A transaction whose changes come. `lsn` is where its commit is in the log."""

    lsn: int
    committed_us: int
    xid: int

    @classmethod
    def read(cls, message: memoryview) -> Transaction:
        """Read a message ``B``."""
        lsn, time_us, xid = struct.unpack_from(">qqI", message, 1)
        return cls(lsn, time_us + EPOCH_US, xid)


class Changes:
    """Changes that have come, in their order, until a batch is made of them.

    Args:
        row: The type of their rows: a struct, or text for JSON.
    """

    def __init__(self, row: pa.DataType) -> None:
        self._row = row
        self._schema = envelope(row)
        self._relations: dict[int, Relation] = {}
        self._empty()

    def _empty(self) -> None:
        self._messages: list[Any] = []
        self._transactions: list[Transaction] = []
        self._places: list[int] = []
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def place(self) -> tuple[int, int]:
        """Where the last of them is: the commit of its transaction, and its number in that."""
        return self._transactions[-1].lsn, self._places[-1]

    def add(self, message: Any, transaction: Transaction, place: int) -> None:
        """Take a change: its message, with the header, and its number in its transaction."""
        self._messages.append(message)
        self._transactions.append(transaction)
        self._places.append(place)
        self.bytes += len(message)

    def describe(self, relation: Relation) -> None:
        """Take note of a table. No changes of its earlier shape may be left."""
        self._relations[relation.oid] = relation

    def relation(self, oid: int) -> Relation | None:
        """Return a table as it is now."""
        return self._relations.get(oid)

    def take(self) -> tuple[pa.Table, list[Letter]]:
        """Return all changes but those that cannot be stored, and these, and forget them.

        Raises:
            ServerError: They are not what `pgoutput` sends.
        """
        messages, places, transactions = self._messages, self._places, self._transactions
        self._empty()
        groups: dict[bytes, list[int]] = {}
        for at, message in enumerate(messages):
            groups.setdefault(bytes(message[HEADER : HEADER + 6]), []).append(at)
        parts: list[pa.Table] = []
        refused: dict[int, Letter] = {}
        for head, indices in groups.items():
            self._read(head, messages, indices, parts, refused)
        letters = [refused[at] for at in sorted(refused)]
        if not parts:
            return self._schema.empty_table(), letters
        # Shape by shape by now.
        table = parts[0] if len(parts) == 1 else pa.concat_tables(parts).sort_by("at")
        rows = table["at"].to_pylist()
        for name, values in (
            ("lsn", [transactions[at].lsn for at in rows]),
            ("place", [places[at] for at in rows]),
            ("committed", [transactions[at].committed_us for at in rows]),
            ("xid", [transactions[at].xid for at in rows]),
        ):
            column = pa.array(values, pa.int64()).cast(self._schema.field(name).type)
            table = table.append_column(name, column)
        return table.select(self._schema.names), letters

    def _read(
        self,
        head: bytes,
        messages: list[Any],
        indices: list[int],
        parts: list[pa.Table],
        refused: dict[int, Letter],
    ) -> None:
        """Read rows of one shape; where one does not fit, each half by itself."""
        relation = self._relations.get(int.from_bytes(head[1:5], "big"))
        if relation is None:
            raise ServerError(f"a change is of a table that was not described: {head!r}")
        operation = _OPERATIONS[head[:1]]
        rows = _Rows(relation, head, [messages[at] for at in indices])
        make = _as_structs if pa.types.is_struct(self._row) else _as_json
        count = len(indices)
        try:
            before, after = (
                pa.nulls(count, self._row) if part is None else make(relation, part, self._row)
                for part in (rows.before, rows.after)
            )
        except ValueError as error:  # Arrow's and Python's own errors about values are such.
            if count == 1:
                place = f"{relation.schema}.{relation.table}"
                refused[indices[0]] = rows.text(), f"{operation} of {place}: {error}"
                return
            for some in (indices[: count // 2], indices[count // 2 :]):
                self._read(head, messages, some, parts, refused)
            return
        part = {
            "at": pa.array(indices),
            "schema": pa.repeat(relation.schema, count),
            "table": pa.repeat(relation.table, count),
            "op": pa.repeat(operation, count),
            "unchanged": pa.array(rows.unchanged(), pa.list_(pa.string())),
            "before": before,
            "after": after,
        }
        parts.append(pa.table(part))


@dataclass
class _Tuples:
    """One row of each message: its values as text, and which were not sent."""

    is_key: bool
    count: int
    values: list[pa.Array] = field(default_factory=list)
    unchanged: list[npt.NDArray[np.bool_]] = field(default_factory=list)


class _Rows:
    """Messages of one shape, cut into columns.

    Raises:
        ServerError: They have another shape.
    """

    def __init__(self, relation: Relation, head: bytes, messages: list[Any]) -> None:
        self._relation = relation
        self.before: _Tuples | None = None
        self.after: _Tuples | None = None
        self._count = len(messages)
        if head[:1] == b"T":
            return
        lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        ends = np.cumsum(lengths)
        self._data = b"".join([*messages, bytes(_SPARE)])
        self._bytes = np.frombuffer(self._data, np.uint8)
        at = ends - lengths + HEADER + 6
        if head[5:6] in (b"K", b"O"):
            self.before, at = self._tuples(at, head[5:6] == b"K")
            if head[:1] == b"U":
                if (self._bytes[at] != ord("N")).any():
                    raise ServerError("an update has no new row")
                at = at + 1
        if head[:1] != b"D":
            self.after, at = self._tuples(at, is_key=False)
            self._fill()
        if (at != ends).any():
            raise ServerError(f"a row of {relation.schema}.{relation.table} has another length")

    def unchanged(self) -> list[list[str] | None]:
        """Return the names of columns whose values an update did not touch, and that are away."""
        found: list[list[str] | None] = [None] * self._count
        if self.after is not None:
            for name, away in zip(self._relation.names, self.after.unchanged, strict=True):
                for at in np.flatnonzero(away):
                    found[at] = [*(found[at] or ()), name]
        return found

    def text(self) -> bytes:
        """Return the one row that there is, for a dead letter."""
        shown = {
            what: {
                name: None if value is None else value.decode(errors="backslashreplace")
                for name, value in zip(
                    self._relation.names, (each[0].as_py() for each in part.values), strict=True
                )
            }
            for what, part in (("before", self.before), ("after", self.after))
            if part is not None
        }
        return json.dumps(shown, ensure_ascii=False).encode()

    def _tuples(
        self, at: npt.NDArray[np.int64], is_key: bool
    ) -> tuple[_Tuples, npt.NDArray[np.int64]]:
        data = self._bytes
        count = len(self._relation.names)
        if ((data[at].astype(np.int64) << 8 | data[at + 1]) != count).any():
            raise ServerError(f"a row has not the {count} columns of its table")
        at = at + 2
        found = _Tuples(is_key, len(at))
        taken = np.arange(0, 2 * len(at), 2)
        for _ in range(count):
            kind = data[at]
            has_value = kind == _TEXT
            if not (has_value | (kind == _NULL) | (kind == _UNCHANGED)).all():
                raise ServerError("a value is of a kind that was not asked for")
            size = np.zeros(len(at), np.int64)
            for byte in range(1, 5):
                size = size << 8 | data[at + byte]
            begin = at + np.where(has_value, 5, 1)
            at = begin + np.where(has_value, size, 0)
            if (at > len(data) - _SPARE).any():
                raise ServerError("a value is longer than its message")
            # The values and what is between them are one array without a copy.
            offsets = np.stack([begin, at], axis=1).ravel().astype(np.int32)
            parts = pa.Array.from_buffers(
                pa.binary(),
                len(offsets) - 1,
                [None, pa.py_buffer(offsets), pa.py_buffer(self._data)],
            )
            found.values.append(parts.take(pa.array(taken, mask=~has_value)))
            found.unchanged.append(kind == _UNCHANGED)
        return found, at

    def _fill(self) -> None:
        """Take what did not change from the row as it was, where the whole of that came."""
        if self.before is None or self.after is None or self.before.is_key:
            return
        for at, away in enumerate(self.after.unchanged):
            if away.any():
                old = self.before.values[at]
                self.after.values[at] = pc.if_else(pa.array(away), old, self.after.values[at])
                self.after.unchanged[at] = away & self.before.unchanged[at]


# -- rows as JSON ----------------------------------------------------------------------------------


def _as_json(relation: Relation, part: _Tuples, row: pa.DataType) -> pa.Array:
    """Return the rows as JSON objects; a column whose value is not known is left out."""
    has_gaps = any(away.any() for away in part.unchanged)
    pieces: list[Any] = []
    columns = zip(
        relation.names, relation.types, relation.is_key, part.values, part.unchanged, strict=True
    )
    for name, kind, is_key, values, away in columns:
        if part.is_key and not is_key:
            continue
        try:
            column, quote = _json_values(values.cast(pa.string()), kind)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None
        label = f"{json.dumps(name, ensure_ascii=False)}:{quote}"
        if has_gaps:
            # A comma after each: the last one is cut off.
            piece = pc.binary_join_element_wise(label, column, f"{quote},", "")
            pieces.append(pc.if_else(pa.array(away), "", piece))
        else:
            pieces += ["," if pieces else "", label, column, quote]
    if not pieces:
        return pa.repeat(pa.scalar("{}"), part.count)
    if has_gaps:
        joined = pc.binary_join_element_wise(*pieces, "").cast(pa.binary())
        pieces = [pc.binary_slice(joined, 0, -1).cast(pa.string())]
    return pc.binary_join_element_wise("{", *pieces, "}", "")


_ESCAPED_BYTES = np.zeros(256, np.bool_)
_ESCAPED_BYTES[[*range(32), *b'"\\']] = True


def _json_values(column: pa.Array, kind: int) -> tuple[pa.Array, str]:
    """Return values as JSON has them, and what is to stand on both sides of each."""
    quote = ""
    element = _element_types().get(kind)
    if kind == _BOOL:
        column = pc.if_else(pc.equal(column, "t"), "true", "false")
    elif kind in _NUMBERS:
        is_number = pc.match_substring_regex(column, "^-?[0-9]")
        column = pc.if_else(is_number, column, pc.binary_join_element_wise('"', column, '"', ""))
    elif element is not None:
        lists = map(_elements, column.to_pylist())
        texts = [None if each is None else _json_list(each, element) for each in lists]
        column = pa.array(texts, pa.string())
    elif kind not in _AS_THEY_ARE:
        if _ESCAPED_BYTES[np.frombuffer(column.buffers()[2] or b"", np.uint8)].any():
            mask = pc.fill_null(pc.match_substring_regex(column, _IN_JSON), False)
            found = column.filter(mask).to_pylist()
            escaped = [json.dumps(text, ensure_ascii=False)[1:-1] for text in found]
            column = pc.replace_with_mask(column, mask, pa.array(escaped, pa.string()))
        quote = '"'
        if column.null_count:
            column, quote = pc.binary_join_element_wise(quote, column, quote, ""), ""
    return (pc.fill_null(column, "null") if column.null_count else column), quote


def _json_list(elements: list[Any], kind: int) -> str:
    flat = pa.array([each for each in elements if not isinstance(each, list)], pa.string())
    column, quote = _json_values(flat, kind)
    made = iter(column.to_pylist())
    texts = (
        _json_list(each, kind) if isinstance(each, list) else f"{quote}{next(made)}{quote}"
        for each in elements
    )
    return f"[{','.join(map(str, texts))}]"


# -- rows as columns -------------------------------------------------------------------------------


def _as_structs(relation: Relation, part: _Tuples, row: pa.StructType) -> pa.Array:
    """Return the rows with the declared columns; what the table lacks is null."""
    known = dict(zip(relation.names, zip(part.values, relation.types, strict=True), strict=True))
    # Spark's columns have no case, and PostgreSQL's are small letters unless they are quoted:
    # those sort last, so of two columns that differ in case only the plain one is found.
    folded = {name.lower(): each for name, each in sorted(known.items())}
    columns = []
    for wanted in row:
        found = known.get(wanted.name) or folded.get(wanted.name.lower())
        if found is None:
            columns.append(pa.nulls(part.count, wanted.type))
            continue
        values, kind = found
        try:
            columns.append(_typed(values, wanted.type))
        except ValueError as error:
            hint = _zone_hint(kind, wanted.type)
            raise ValueError(f"column {wanted.name!r}: {error}{hint}") from None
    return pa.StructArray.from_arrays(columns, fields=list(row))


def _zone_hint(kind: int, wanted: pa.DataType) -> str:
    """Return what to declare where a time has a zone on one side only."""
    if not pa.types.is_timestamp(wanted) or kind != (_TIMESTAMP if wanted.tz else _TIMESTAMPTZ):
        return ""
    return (
        "; the table's times have no zone: declare TIMESTAMP_NTZ"
        if wanted.tz
        else "; the table's times have a zone: declare TIMESTAMP"
    )


_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)


def check_row(schema: pa.Schema) -> None:
    """Check that rows can be read into the columns of a schema.

    Raises:
        ValueError: Not into that one.
    """
    for column in schema:
        try:
            _typed(pa.array([], pa.binary()), column.type)
        except NotImplementedError:
            raise ValueError(
                f"rows has the column {column.name!r} of type {column.type}, which is not read "
                "from PostgreSQL: declare it as string, which has the value's text"
            ) from None


def _typed(values: pa.Array, kind: pa.DataType) -> pa.Array:
    texts = values.cast(pa.string())
    if pa.types.is_boolean(kind):
        # Arrow reads these words, and refuses all others.
        for letter, word in (("t", "true"), ("f", "false")):
            texts = pc.if_else(pc.equal(texts, letter), word, texts)
    if any(fits(kind) for fits in _BYTES):
        return pa.array(map(_unhex, texts.to_pylist()), kind)
    if pa.types.is_decimal(kind) and pc.any(pc.match_substring_regex(texts, _TOO_FINE)).as_py():
        raise ValueError("it has more digits behind its point than Arrow reads")
    if pa.types.is_time(kind):
        # Arrow reads no times of day.
        dates = pc.binary_join_element_wise("1970-01-01", texts, " ")
        return dates.cast(pa.timestamp(kind.unit)).cast(kind)
    if pa.types.is_list(kind):
        return _of_lists([_elements(text) for text in texts.to_pylist()], kind)
    return texts.cast(kind)


def _of_lists(lists: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return nested lists of texts as a column of a type."""
    if not pa.types.is_list(kind):
        if any(isinstance(each, list) for each in lists):
            raise ValueError("it has more dimensions than are declared")
        return _typed(pa.array(lists, pa.string()), kind)
    if any(isinstance(each, str) for each in lists):
        raise ValueError("it has fewer dimensions than are declared")
    inner = _of_lists(
        [each for some in lists if some is not None for each in some], kind.value_type
    )
    offsets = np.cumsum([0, *(len(some or ()) for some in lists)]).astype(np.int32)
    mask = pa.array([some is None for some in lists], pa.bool_())
    return pa.ListArray.from_arrays(pa.array(offsets), inner, kind, mask=mask)


def _unhex(text: str | None) -> bytes | None:
    if text is None:
        return None
    if not text.startswith("\\x"):
        raise ValueError(f"{text!r:.80} are no bytes")
    return bytes.fromhex(text[2:])


def _elements(text: str | None) -> list[Any] | None:
    """Read an array as PostgreSQL writes it: ``{1,NULL,"a b"}``, ``[0:1]={{1},{2}}``."""
    if text is None:
        return None
    found: list[Any] = json.loads(_TOKEN.sub(_as_json_token, text[text.index("{") :]))
    return found


_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*)"|[{}]|[^{},"]+', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_TOKENS = {"{": "[", "}": "]", "NULL": "null"}


def _as_json_token(match: re.Match[str]) -> str:
    if match[1] is not None:
        return json.dumps(_ESCAPED.sub(r"\1", match[1]))
    return _TOKENS.get(match[0]) or json.dumps(match[0])


@functools.cache
def _element_types() -> dict[int, int]:
    """Return the types of the elements of the arrays that PostgreSQL has of its own."""
    from psycopg.postgres import types

    return {info.array_oid: info.oid for info in types if info.array_oid and info.delimiter == ","}
