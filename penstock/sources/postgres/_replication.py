"""`PostgresReceiver`: what is written to tables; what must hold is in the door."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import refused
from penstock.errors import PenstockError
from penstock.receiver import ReceiverStoppedError, RecordTooLargeError, WithLetters
from penstock.receiver.door import acknowledge_nothing
from penstock.receiver.forms.short_forms import Schema, arrow_schema
from penstock.receiver.splits import PositionError
from penstock.runtime.threads import Repeated
from penstock.sources._common import Reconnecting, ServerError
from penstock.sources.postgres._connection import STEP_S, Link, PostgresBase, identifier
from penstock.sources.postgres._pgoutput import (
    EPOCH_US,
    HEADER,
    Changes,
    Relation,
    Transaction,
    base_type,
    check_row,
    envelope,
)

if TYPE_CHECKING:
    import psycopg

_STATUS_S = 1.0
_AGE_S = 0.02
"""How long changes wait for others, to be read together."""
_ROWS = 2048
_BYTES = 1 << 20
"""How many are stored in one call, which a low rate makes wait for all of them."""
_DECODES_IN_RECOVERY = 160_000
"""PostgreSQL 16, the first that gives changes from a standby."""
_END_S = 2.0
_BEGIN, _COMMIT, _RELATION, _TRUNCATE, _TYPE = b"BCRTY"
_ROW_CHANGES = frozenset(b"IUD")
_WAL, _KEEPALIVE = b"wk"


def lsn_text(lsn: int) -> str:
    """Return a place in the log as PostgreSQL writes it, such as ``0/16B3748``."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFF_FFFF:X}"


def _lsn(text: str) -> int:
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


class _Confirmed:
    """The place in the log after all stored changes, which the slot may be notified of."""

    def __init__(self, lsn: int) -> None:
        self._lock = threading.Lock()
        self._waiting = 0
        self._passed = self.lsn = lsn

    def stored(self) -> None:
        """Take note that changes are stored that are not durable yet."""
        with self._lock:
            self._waiting += 1

    def durable(self, lsn: int) -> None:
        """Take note that one call's changes are durable, and all before a place."""
        with self._lock:
            self._waiting -= 1
            self.lsn = max(self.lsn, lsn if self._waiting else max(lsn, self._passed))

    def passed(self, lsn: int) -> None:
        """Take note that what is stored by now is before a place, and nothing else does."""
        with self._lock:
            self._passed = max(self._passed, lsn)
            if not self._waiting:
                self.lsn = max(self.lsn, self._passed)


class _Position(TypedDict):
    slot: str
    system: str
    timeline: str
    lsn: int
    place: int


class PostgresReceiver(PostgresBase):
    """Stores what is inserted, updated, deleted and truncated in the tables of a publication.

    Each change is a record with the columns ``schema``, ``table``, ``op`` (``insert``, ``update``,
    ``delete``, ``truncate``), ``lsn`` (of the transaction's commit), ``place`` (its number among
    the transaction's changes, from 1), ``committed``, ``xid``, ``unchanged``, ``before`` and
    ``after``. ``before`` and ``after`` are JSON text, or structs of the declared ``rows``. What
    ``before`` has depends on the table's replica identity. A large value that an update did not
    touch is not sent: its column is named in ``unchanged``, and it is not in ``after``.

    The slot is notified of changes when they are durable, so they are stored at least once; with
    the position, exactly once. While the stream is away the server keeps its log for the slot.

    Args:
        conninfo: How to connect, as libpq takes it, with TLS if wished. The user needs the
            attribute REPLICATION; rights on the tables are not looked at by the server.
        slot: The replication slot, of the plug-in `pgoutput`. One stream reads it.
        publication: Says which tables' changes are given.
        create: Whether publication and slot are made where they are not. The publication is then
            for `tables`.
        tables: Tables such as ``"public.orders"``; all of the database when None. A publication
            that exists must have them.
        rows: Columns of the rows, as a schema or DDL; a change that does not fit is a dead letter.
            Columns that a table has beside them are left out, those that it lacks are null.
        timeout_s: A server that says nothing for that long, though asked, is left and connected
            again.
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: psycopg is not installed.
        ValueError: An argument is not accepted.
    """

    _position_type = _Position

    def __init__(
        self,
        conninfo: str,
        slot: str,
        publication: str,
        *,
        create: bool = False,
        tables: Sequence[str] | None = None,
        rows: Schema | None = None,
        timeout_s: float = 60.0,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(conninfo, storageLevel, timeout_s)
        if not slot or set(slot) - set("abcdefghijklmnopqrstuvwxyz0123456789_") or len(slot) > 63:
            raise ValueError(refused("slot", slot, "up to 63 of a to z, 0 to 9 and _"))
        if not publication or "\0" in publication:
            raise ValueError(refused("publication", publication, "the name of a publication"))
        if tables is not None and (isinstance(tables, str) or not tables or not create):
            accepted = 'a list of tables such as ["public.orders"], with create=True'
            raise ValueError(refused("tables", tables, accepted))
        self._slot = slot
        self._publication = publication
        self._creates = create
        self._tables = tables
        found = arrow_schema(rows)
        if found is not None:
            check_row(found)
        # An update gives the old key only, so that other columns of it are null.
        self._row = (
            pa.string()
            if found is None
            else pa.struct([column.with_nullable(True) for column in found])
        )
        self.schema = envelope(self._row)

    def onStart(self) -> None:
        """Begin after the stream's last position."""
        last = self.lastPosition
        self._is_begun = last is not None
        self._place, self._history = (0, 0), ("", "")
        if last is not None:
            if last["slot"] != self._slot:
                raise PositionError.of_another_source(last, f"the replication slot {self._slot}")
            self._place = last["lsn"], last["place"]
            self._history = last["system"], last["timeline"]
        self._confirmed: _Confirmed | None = None
        super().onStart()

    def _parameters(self) -> dict[str, Any]:
        return {"replication": "database"}

    def _serve(self, link: Link, outage: Reconnecting) -> None:
        confirmed = self._confirmed = self._prepare(link)
        if not self._is_begun:
            # From here on a missing slot has vanished, and is not made.
            self.store([], self._position(self._place), acknowledge_nothing)
            self._is_begun = True
        self._ask(
            link,
            f"START_REPLICATION SLOT {self._slot} LOGICAL 0/0 (proto_version '1', "
            f"publication_names {_literal(identifier(self._publication))})",
        )
        outage.connected()
        status = Repeated(
            partial(_report_status, link, confirmed), _STATUS_S, f"postgres-status-{self.streamId}"
        )
        status.start()
        try:
            self._read(link, confirmed)
        except ReceiverStoppedError:
            pass
        finally:
            status.stop(_END_S)
        _end_copy(link, confirmed)

    # -- before the changes ----------------------------------------------------------------------

    def _ask(self, link: Link, sql: str) -> list[list[str]]:
        from psycopg import Error

        try:
            return link.ask(sql, self._timeout_s, self)
        except Error as error:
            raise _explained(error) from error

    def _prepare(self, link: Link) -> _Confirmed:
        """Look at the server, the publication and the slot; return from where the slot goes on."""
        self._ask(link, "; ".join(f"SET {name} = '{value}'" for name, value in _SESSION.items()))
        if self._ask(link, "SHOW server_encoding") == [["SQL_ASCII"]]:
            # It would end the replication at the first text that is no UTF-8.
            self._ask(link, "SET client_encoding = 'SQL_ASCII'")
        # It is on another timeline when its recovery has ended, which may be at any moment.
        is_old = link.pg.server_version < _DECODES_IN_RECOVERY
        if is_old and self._ask(link, "SELECT pg_is_in_recovery()") == [["t"]]:
            raise ServerError(
                "the server is in recovery, in which its version gives no changes: it is starting, "
                "or is a standby"
            )
        ((system, timeline, written, *_),) = self._ask(link, "IDENTIFY_SYSTEM")
        self._check_history(link, system, timeline, _lsn(written))
        name = _literal(self._publication)
        if not self._ask(link, f"SELECT 1 FROM pg_publication WHERE pubname = {name}"):
            self._make_publication(link)
        elif lacks := self._ask(link, _lacking(name, self._table_names())):
            raise ServerError(
                f"the publication {self._publication!r} is there, and lacks "
                f"{', '.join(each for (each,) in lacks)}: ALTER PUBLICATION … ADD TABLE adds one",
                is_refused=True,
            )
        columns = "slot_type, plugin, database, wal_status, confirmed_flush_lsn"
        look = f"SELECT {columns} FROM pg_replication_slots WHERE slot_name = '{self._slot}'"
        found = self._ask(link, look)
        if not found:
            self._make_slot(link)
            found = self._ask(link, look)
        ((kind, plugin, database, state, flushed),) = found
        if (kind, plugin, database) != ("logical", "pgoutput", link.pg.db.decode()):
            raise ServerError(
                f"the replication slot {self._slot} is {kind}, of the plug-in {plugin or 'none'} "
                f"and the database {database or 'none'}: give the name of one of pgoutput and of "
                "this database",
                is_refused=True,
            )
        if state == "lost":
            raise ServerError(
                f"the replication slot {self._slot} fell behind max_slot_wal_keep_size, and the "
                "server has removed its log: changes are lost. Drop the slot, make it again, and "
                "take a new copy of the tables",
                is_refused=True,
            )
        if not flushed:
            raise ServerError(
                f"the replication slot {self._slot} is still being made, which waits until all "
                "transactions have ended that were open by then"
            )
        known = self._confirmed
        if known is None:
            return _Confirmed(_lsn(flushed))
        if _lsn(flushed) > known.lsn:
            self.reportError(
                f"The replication slot {self._slot} stands at {flushed}, and this stream had "
                f"confirmed {lsn_text(known.lsn)}: the slot was made again or read by another, and "
                "changes in between are lost to this stream"
            )
            known.passed(_lsn(flushed))
        return known

    def _check_history(self, link: Link, system: str, timeline: str, written: int) -> None:
        """Compare the place with the server's history; start over where that has been left."""
        known_system, known_timeline = self._history
        end = written
        if known_system and known_system != system:
            raise ServerError(
                f"the stream stands at {lsn_text(self._place[0])} of the server with the system "
                f"identifier {known_system}, and this one has {system}: it is another server, and "
                "its changes belong to a stream of another name",
                is_refused=True,
            )
        if known_timeline and known_timeline != timeline:
            ((_, history),) = self._ask(link, f"TIMELINE_HISTORY {timeline}")
            left = [
                line.split()[1]
                for line in history.splitlines()
                if line.split()[:1] == [known_timeline]
            ]
            end = _lsn(left[0]) if left else 0
        if self._place[0] >= max(end, 1):
            self.reportError(
                f"The stream has changes up to {lsn_text(self._place[0])} of the timeline "
                f"{known_timeline} that this server lacks, which left it at {lsn_text(end)}: it is "
                "an older copy, or a promoted standby. What its slot gives is stored from here on"
            )
            self._place = (0, 0)
            self._confirmed = None
        self._history = (system, timeline)

    def _make_publication(self, link: Link) -> None:
        if not self._creates:
            raise ServerError(
                f"there is no publication {self._publication!r} in this database: CREATE "
                "PUBLICATION makes one, before the slot is made, or create=True does",
                is_refused=True,
            )
        tables = self._table_names()
        which = f"TABLE {', '.join(tables)}" if tables else "ALL TABLES"
        self._ask(link, f"CREATE PUBLICATION {identifier(self._publication)} FOR {which}")

    def _table_names(self) -> list[str]:
        return [".".join(map(identifier, each.split(".", 1))) for each in self._tables or ()]

    def _make_slot(self, link: Link) -> None:
        if self._is_begun:
            raise ServerError(
                f"the replication slot {self._slot} is gone, and with it what the stream had not "
                "got by then: make the slot again, and take a new copy of the tables",
                is_refused=True,
            )
        if not self._creates:
            raise ServerError(
                f"there is no replication slot {self._slot}: SELECT "
                f"pg_create_logical_replication_slot('{self._slot}', 'pgoutput') makes one, or "
                "create=True does",
                is_refused=True,
            )
        # It waits for the transactions that are open.
        self._ask(link, f"CREATE_REPLICATION_SLOT {self._slot} LOGICAL pgoutput NOEXPORT_SNAPSHOT")

    # -- changes ---------------------------------------------------------------------------------

    def _read(self, link: Link, confirmed: _Confirmed) -> None:
        """Store what comes until the receiver stops."""
        coming = _Coming(Changes(self._row), self._place)
        changes = coming.changes
        held: Any = None
        heard_s = time.monotonic()
        oldest_s: float | None = None
        while not self.isStopped():
            with link.lock:
                held = self._take(link, coming, held)
            now_s = time.monotonic()
            if not changes:
                confirmed.passed(coming.end)
                oldest_s = None
            elif oldest_s is None:
                oldest_s = now_s
            is_full = len(changes) >= _ROWS or changes.bytes >= _BYTES
            if changes and (is_full or held is not None or now_s >= (oldest_s or 0) + _AGE_S):
                self._store_changes(changes, confirmed, coming.end)
                heard_s = time.monotonic()
                continue
            if held is not None:
                continue
            if link.readable(_AGE_S if changes else STEP_S):
                heard_s = time.monotonic()
            elif now_s > heard_s + self._timeout_s:
                raise ServerError(
                    f"nothing came for {self._timeout_s:g} s, though the server was asked to answer"
                )

    def _take(self, link: Link, coming: _Coming, held: Any) -> Any:
        """Take in what came; return a message before which what was taken must be stored."""
        from psycopg import errors, pq

        changes = coming.changes
        get = link.pg.get_copy_data
        while len(changes) < _ROWS and changes.bytes < _BYTES:
            if held is None:
                size, held = get(1)
                if size == 0:
                    return None
                if size < 0:
                    result = link.pg.get_result()
                    if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
                        raise _explained(errors.error_from_result(result))
                    raise ServerError("the server has ended the replication")
            if held[0] == _WAL:
                if not coming.put(held):
                    return held
            elif held[0] == _KEEPALIVE:
                coming.passed(int.from_bytes(held[1:9], "big"))
            held = None
        return None

    def _store_changes(self, changes: Changes, confirmed: _Confirmed, end: int) -> None:
        """Store all changes that have come; before `end` there are no others."""
        place = changes.place
        self._store_table(*changes.take(), place, confirmed, end)
        self._place = place

    def _store_table(
        self,
        table: pa.Table,
        letters: Sequence[tuple[bytes, str]],
        place: tuple[int, int],
        confirmed: _Confirmed,
        end: int,
    ) -> None:
        """Store changes with the place after them; halve what does not fit into a block."""
        data = WithLetters(table, letters) if letters else table
        confirmed.stored()
        try:
            self.store(data, self._position(place), partial(confirmed.durable, end))
        except RecordTooLargeError:
            confirmed.durable(0)
            if table.num_rows == 1:
                raise
            half = table.num_rows // 2
            before = table["lsn"][half - 1].as_py(), table["place"][half - 1].as_py()
            self._store_table(table.slice(0, half), (), before, confirmed, 0)
            self._store_table(table.slice(half), letters, place, confirmed, end)

    def _position(self, place: tuple[int, int]) -> _Position:
        system, timeline = self._history
        lsn, number = place
        return {
            "slot": self._slot,
            "system": system,
            "timeline": timeline,
            "lsn": lsn,
            "place": number,
        }


class _Coming:
    """Puts messages to the changes, but for those up to a place."""

    def __init__(self, changes: Changes, after: tuple[int, int]) -> None:
        self.changes = changes
        self._after = after
        self._transaction: Transaction | None = None
        self._place = 0
        self._base_types: dict[int, int] = {}
        self._left_out: float = 0
        self.end = 0
        """Before it is nothing that is still to come."""

    def passed(self, lsn: int) -> None:
        """Take note of how far the server has read its log."""
        if self._transaction is None:
            self.end = max(self.end, lsn)

    def put(self, message: Any) -> bool:
        """Take a message; False where changes of a table's earlier shape must be stored first."""
        kind = message[HEADER]
        if kind in _ROW_CHANGES:
            self._add(message)
        elif kind == _BEGIN:
            self._begin(Transaction.read(message[HEADER:]))
        elif kind == _COMMIT:
            self._transaction = None
            self.end = int.from_bytes(message[HEADER + 10 : HEADER + 18], "big")
        elif kind == _TYPE:
            self._base_types |= base_type(message[HEADER:])
        elif kind == _RELATION:
            relation = Relation.read(message[HEADER:], self._base_types)
            if self.changes.relation(relation.oid) != relation:
                if self.changes:
                    return False
                self.changes.describe(relation)
        elif kind == _TRUNCATE:
            count = int.from_bytes(message[HEADER + 1 : HEADER + 5], "big")
            for at in range(HEADER + 6, HEADER + 6 + 4 * count, 4):
                # One change for each table.
                self._add(bytes(HEADER) + b"T" + bytes(message[at : at + 4]) + b"\0")
        return True

    def _begin(self, transaction: Transaction) -> None:
        lsn, place = self._after
        self._left_out = 0 if transaction.lsn > lsn else place if transaction.lsn == lsn else _ALL
        self._transaction = transaction
        self._place = 0

    def _add(self, message: Any) -> None:
        self._place += 1
        if self._place <= self._left_out:
            return
        if self._transaction is None:
            raise ServerError("a change came outside of a transaction")
        self.changes.add(message, self._transaction, self._place)


_ALL = float("inf")
_SESSION = {
    "datestyle": "ISO, YMD",
    "timezone": "UTC",
    "bytea_output": "hex",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",
    "standard_conforming_strings": "on",
}
"""How values and names are written as text."""


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _lacking(publication: str, tables: Sequence[str]) -> str:
    """Return SQL that gives the tables that a publication lacks; a partitioned one may be."""
    return (
        f"SELECT t FROM unnest(ARRAY[{', '.join(map(_literal, tables))}]::text[]) t "
        "WHERE to_regclass(t) IS NULL OR to_regclass(t) NOT IN ("
        "SELECT to_regclass(format('%I.%I', schemaname, tablename)) FROM pg_publication_tables "
        f"WHERE pubname = {publication} UNION SELECT prrelid FROM pg_publication_rel "
        f"JOIN pg_publication p ON p.oid = prpubid WHERE pubname = {publication})"
    )


def _explained(error: psycopg.Error) -> PenstockError:
    """Return an error that says whether waiting can help."""
    state = error.sqlstate or ""
    detail = error.diag.message_detail
    text = str(error).strip() if not detail else f"{error.diag.message_primary}: {detail}"
    if state == "42704" and "publication" in text:
        text += (
            ". If the publication was made after the slot, the slot has changes from before it "
            "that can never be read: make the slot again"
        )
    is_setup = state[:2] in ("0A", "22", "28", "42") or state == "55000"
    return ServerError(text, is_refused=is_setup)


def _report_status(link: Link, confirmed: _Confirmed) -> None:
    """Report to the server what is durable, and ask it to answer."""
    from psycopg import OperationalError

    now_us = time.time_ns() // 1000 - EPOCH_US
    lsn = confirmed.lsn
    with link.lock:
        try:
            link.pg.put_copy_data(struct.pack(">cQQQqB", b"r", lsn, lsn, lsn, now_us, 1))
            link.pg.flush()
        except OperationalError:
            # The thread that reads meets the same.
            return


def _end_copy(link: Link, confirmed: _Confirmed) -> None:
    """Report what is durable for the last time, and wait until the server has taken it."""
    _report_status(link, confirmed)
    end_s = time.monotonic() + _END_S
    with link.lock:
        link.pg.put_copy_end()
        link.pg.flush()
    while time.monotonic() < end_s:
        with link.lock:
            link.pg.flush()
            while (size := link.pg.get_copy_data(1)[0]) > 0:
                pass
        if size < 0:
            return
        link.readable(STEP_S)
