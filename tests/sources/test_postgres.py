"""`PostgresReceiver` and `PostgresNotifyReceiver` with a real server."""

from __future__ import annotations

import contextlib
import copy
import datetime
import decimal
import itertools
import json
import shutil
import struct
import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from penstock.receiver import PositionError, RecordTooLargeError
from penstock.sources.formats import JsonFormat
from penstock.sources.postgres import PostgresNotifyReceiver, PostgresReceiver
from penstock.sources.postgres._pgoutput import (
    HEADER,
    Changes,
    Relation,
    ServerError,
    Transaction,
)
from penstock.sources.postgres._replication import _Coming, _Confirmed
from penstock.testing import crash_test, run_receiver
from tests.bounds import HANG_S
from tests.services.postgres import PostgresServer, postgres_folder, postgres_server
from tests.services.tls import certificate_of_host

SMALL = {"spark.streaming.blockInterval": "10ms"}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with postgres_server(wal_sender_timeout="2s") as running:
        yield running


class Database:
    """A database of a test's own, with a table, a publication and a slot."""

    def __init__(
        self, server: PostgresServer, *, slot: bool = True, encoding: str = "UTF8"
    ) -> None:
        number = next(_numbers)
        self.server = server
        self.name, self.slot = f"test_{number}", f"slot_{number}"
        with server.connect() as admin:
            admin.execute(f"CREATE DATABASE {self.name} ENCODING '{encoding}' TEMPLATE template0")
        self.run("CREATE TABLE t (id int PRIMARY KEY, name text)")
        if slot:
            self.run("CREATE PUBLICATION p FOR ALL TABLES")
            self.make_slot()

    def make_slot(self) -> None:
        self.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", self.slot)

    def run(self, *statement: Any) -> list[Any]:
        """Run one statement, or several that take no arguments."""
        with self.server.connect(self.name) as connection:
            found = connection.execute(statement[0], statement[1:] or None)
            return list(found.fetchall()) if found.description else []

    def insert(self, first: int, count: int) -> None:
        """Insert rows in one transaction."""
        self.run(
            "INSERT INTO t SELECT i, 'n' || i FROM generate_series(%s::int, %s) i",
            first,
            first + count - 1,
        )

    def receiver(self, **options: Any) -> PostgresReceiver:
        return PostgresReceiver(
            self.server.conninfo(self.name), self.slot, options.pop("publication", "p"), **options
        )

    def state(self, what: str) -> Any:
        """Return a column of the slot; None where there is no slot."""
        found = self.run(f"SELECT {what} FROM pg_replication_slots WHERE slot_name = %s", self.slot)
        return found[0][0] if found else None

    def wait_for(self, holds: Callable[[], Any], what: str) -> Any:
        end_s = time.monotonic() + HANG_S
        while not (found := holds()):
            assert time.monotonic() < end_s, what
            time.sleep(0.02)
        return found

    def wait_until_read(self) -> int:
        """Wait until somebody reads the slot, and return the process of the server."""
        return int(self.wait_for(lambda: self.state("active_pid"), "nobody reads the slot"))

    def drop(self) -> None:
        with self.server.connect() as admin:
            self.wait_for(lambda: not self.state("active"), "the slot is still read")
            if self.state("slot_name"):
                admin.execute("SELECT pg_drop_replication_slot(%s)", [self.slot])
            admin.execute(f"DROP DATABASE {self.name} WITH (FORCE)")


@pytest.fixture
def database(server: PostgresServer) -> Iterator[Database]:
    made = Database(server)
    yield made
    made.drop()


def ids(records: list[Any]) -> list[int]:
    return [json.loads(each["after"])["id"] for each in records]


def shown(records: list[Any], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(each[name] for name in names) for each in records]


# -- what is stored --------------------------------------------------------------------------------


def test_each_kind_of_change_is_a_record_with_its_transaction(database: Database) -> None:
    database.run("INSERT INTO t VALUES (1, 'a \"b\" \\ \n ü'), (2, NULL)")
    database.run("UPDATE t SET name = 'c' WHERE id = 1")
    database.run("UPDATE t SET id = 3 WHERE id = 1")
    database.run("DELETE FROM t WHERE id = 3")
    database.run("TRUNCATE t")
    with run_receiver(database.receiver(), settings=SMALL) as running:
        records = running.wait_for_records(6)
    assert shown(records, "schema", "table", "op", "place") == [
        ("public", "t", "insert", 1),
        ("public", "t", "insert", 2),
        ("public", "t", "update", 1),
        ("public", "t", "update", 1),
        ("public", "t", "delete", 1),
        ("public", "t", "truncate", 1),
    ]
    assert [each["after"] and json.loads(each["after"]) for each in records] == [
        {"id": 1, "name": 'a "b" \\ \n ü'},
        {"id": 2, "name": None},
        {"id": 1, "name": "c"},
        {"id": 3, "name": "c"},
        None,
        None,
    ]
    before = [each["before"] for each in records]
    assert before == [None, None, None, '{"id":1}', '{"id":3}', None]
    assert len({each["lsn"] for each in records}) == len({each["xid"] for each in records}) == 5
    age = datetime.datetime.now(datetime.timezone.utc) - records[0]["committed"]
    assert abs(age) < datetime.timedelta(seconds=HANG_S)


TYPES = {
    "b": ("boolean", "true", pa.bool_(), True, True),
    "i": ("bigint", "-5", pa.int64(), -5, -5),
    "f": ("double precision", "1.5e300", pa.float64(), 1.5e300, 1.5e300),
    "nan": ("real", "'NaN'", pa.string(), "NaN", "NaN"),
    "n": ("numeric(10, 2)", "1.50", pa.decimal128(10, 2), decimal.Decimal("1.50"), 1.5),
    "d": ("date", "'2026-02-03'", pa.date32(), datetime.date(2026, 2, 3), "2026-02-03"),
    "ts": (
        "timestamp",
        "'2026-02-03 04:05:06.000007'",
        pa.timestamp("us"),
        datetime.datetime(2026, 2, 3, 4, 5, 6, 7),
        "2026-02-03 04:05:06.000007",
    ),
    "tz": (
        "timestamptz",
        "'2026-02-03 04:05:06+02'",
        pa.timestamp("us", "UTC"),
        datetime.datetime(2026, 2, 3, 2, 5, 6, tzinfo=datetime.timezone.utc),
        "2026-02-03 02:05:06+00",
    ),
    "ti": ("time", "'04:05:06.5'", pa.time64("us"), datetime.time(4, 5, 6, 500000), "04:05:06.5"),
    "u": (
        "uuid",
        "'0f0e0d0c-0b0a-0908-0706-050403020100'",
        pa.string(),
        "0f0e0d0c-0b0a-0908-0706-050403020100",
        "0f0e0d0c-0b0a-0908-0706-050403020100",
    ),
    "j": ("jsonb", """'{"a": [1, null]}'""", pa.string(), '{"a": [1, null]}', {"a": [1, None]}),
    "by": ("bytea", "'\\x00ff'", pa.binary(), b"\x00\xff", "\\x00ff"),
    "bl": ("bytea", "'\\x00ff'", pa.large_binary(), b"\x00\xff", "\\x00ff"),
    "da": (
        "date[]",
        "'{2026-02-03}'",
        pa.list_(pa.date32()),
        [datetime.date(2026, 2, 3)],
        ["2026-02-03"],
    ),
    "ai": ("int[]", "'{1,NULL,3}'", pa.list_(pa.int32()), [1, None, 3], [1, None, 3]),
    "ae": ("int[]", "'{}'", pa.list_(pa.int32()), [], []),
    "at": (
        "text[]",
        "ARRAY['a,b', 'c \"d\" \\', NULL, 'NULL', '{', '']",
        pa.list_(pa.string()),
        ["a,b", 'c "d" \\', None, "NULL", "{", ""],
        ["a,b", 'c "d" \\', None, "NULL", "{", ""],
    ),
    "a2": (
        "int[]",
        "'{{1,2},{3,4}}'",
        pa.list_(pa.list_(pa.int64())),
        [[1, 2], [3, 4]],
        [[1, 2], [3, 4]],
    ),
    "e": ("mood", "'good'", pa.string(), "good", "good"),
    "p": ("positive", "7", pa.int16(), 7, 7),
    "iv": ("interval", "'1 day 2 hours'", pa.string(), "P1DT2H", "P1DT2H"),
}


@pytest.mark.parametrize("is_typed", [False, True], ids=["json", "typed"])
def test_the_usual_types_are_read(database: Database, is_typed: bool) -> None:
    database.run("CREATE TYPE mood AS ENUM ('good', 'bad')")
    database.run("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
    columns = ", ".join(f"{name} {kind[0]}" for name, kind in TYPES.items())
    database.run(f"CREATE TABLE types (key serial PRIMARY KEY, {columns})")
    values = ", ".join(kind[1] for kind in TYPES.values())
    database.run(f"INSERT INTO types VALUES (1, {values}), (2{', NULL' * len(TYPES)})")
    rows = pa.schema([("absent", pa.int32()), *((name, kind[2]) for name, kind in TYPES.items())])
    receiver = database.receiver(rows=rows if is_typed else None)
    with run_receiver(receiver, settings=SMALL) as running:
        first, second = (each["after"] for each in running.wait_for_records(2))
        assert running.discarded == []
    if is_typed:
        assert first == {"absent": None, **{name: kind[3] for name, kind in TYPES.items()}}
        assert second == dict.fromkeys(["absent", *TYPES])
    else:
        assert json.loads(first) == {"key": 1, **{name: kind[4] for name, kind in TYPES.items()}}
        assert json.loads(second) == {"key": 2, **dict.fromkeys(TYPES)}


def test_a_value_that_does_not_fit_is_a_dead_letter_and_the_rest_goes_on(
    database: Database,
) -> None:
    database.run("CREATE TABLE prices (id int PRIMARY KEY, price numeric)")
    database.run(
        "INSERT INTO prices SELECT i, CASE WHEN i IN (7, 20) THEN 'NaN' ELSE i::numeric END "
        "FROM generate_series(1, 20) i"
    )
    rows = pa.schema([("id", pa.int32()), ("price", pa.decimal128(10, 2))])
    with run_receiver(database.receiver(rows=rows), settings=SMALL) as running:
        records = running.wait_for_records(18)
        wanted = [number for number in range(1, 21) if number not in (7, 20)]
        assert [each["after"]["id"] for each in records] == wanted
        assert [each["place"] for each in records] == wanted
        database.wait_for(lambda: len(running.discarded) == 2, "the letters")
        (data, reason), _ = running.discarded
        assert json.loads(data) == {"after": {"id": "7", "price": "NaN"}}
        assert "insert of public.prices: column 'price'" in reason
        assert running.position["place"] == 20
        database.run("INSERT INTO prices VALUES (21, 'NaN')")
        database.wait_for(lambda: len(running.discarded) == 3, "the letter")
        database.wait_for(lambda: running.position["place"] == 1, "the position")


def test_columns_are_found_whatever_their_case_and_generated_ones_are_not_sent(
    database: Database,
) -> None:
    database.run(
        'CREATE TABLE cases (Id int PRIMARY KEY, "Name" text, "name" text, "Twice" int, '
        "doubled int GENERATED ALWAYS AS (id * 2) STORED)"
    )
    database.run("INSERT INTO cases VALUES (1, 'great', 'small', 7)")
    names = ("ID", "Name", "name", "twice", "doubled")
    kinds = (pa.int32(), pa.string(), pa.string(), pa.int32(), pa.int32())
    rows = pa.schema(list(zip(names, kinds, strict=True)))
    with run_receiver(database.receiver(rows=rows), settings=SMALL) as running:
        (record,) = running.wait_for_records(1)
    assert record["after"] == {
        "ID": 1,
        "Name": "great",
        "name": "small",
        "twice": 7,
        "doubled": None,
    }


@pytest.mark.parametrize(
    ("kind", "declared", "hint"),
    [("timestamp", "UTC", "declare TIMESTAMP_NTZ"), ("timestamptz", None, "declare TIMESTAMP")],
)
def test_a_letter_for_a_time_with_or_without_a_zone_says_what_to_declare(
    database: Database, kind: str, declared: str | None, hint: str
) -> None:
    database.run(f"CREATE TABLE times (id int PRIMARY KEY, at {kind})")
    database.run("INSERT INTO times VALUES (1, '2026-02-03 04:05:06')")
    rows = pa.schema([("at", pa.timestamp("us", declared))])
    with run_receiver(database.receiver(rows=rows), settings=SMALL) as running:
        database.wait_for(lambda: len(running.discarded) == 1, "the letter")
        ((_, reason),) = running.discarded
    assert reason.endswith(hint)


def test_a_time_that_has_no_end_is_a_letter_that_names_no_other_type(database: Database) -> None:
    database.run("CREATE TABLE times (id int PRIMARY KEY, at timestamptz)")
    database.run("INSERT INTO times VALUES (1, 'infinity')")
    rows = pa.schema([("at", pa.timestamp("us", "UTC"))])
    with run_receiver(database.receiver(rows=rows), settings=SMALL) as running:
        database.wait_for(lambda: len(running.discarded) == 1, "the letter")
        ((_, reason),) = running.discarded
    assert "column 'at'" in reason
    assert "declare" not in reason


def test_of_columns_that_differ_in_case_only_the_plain_one_is_found(database: Database) -> None:
    database.run('CREATE TABLE cases ("NAME" text, "Name" text, name text, "naME" text)')
    database.run("INSERT INTO cases VALUES ('A', 'B', 'c', 'D')")
    rows = pa.schema([("NaMe", pa.string())])
    with run_receiver(database.receiver(rows=rows), settings=SMALL) as running:
        (record,) = running.wait_for_records(1)
    assert record["after"] == {"NaMe": "c"}


def test_text_that_is_no_boolean_is_a_dead_letter_and_not_false(database: Database) -> None:
    database.run("CREATE TABLE flags (id int PRIMARY KEY, flag text)")
    database.run("INSERT INTO flags VALUES (1, 't'), (2, 'yes'), (3, 'false'), (4, NULL)")
    rows = pa.schema([("id", pa.int32()), ("flag", pa.bool_())])
    with run_receiver(database.receiver(rows=rows), settings=SMALL) as running:
        flags = [each["after"]["flag"] for each in running.wait_for_records(3)]
        assert flags == [True, False, None]
        database.wait_for(lambda: len(running.discarded) == 1, "the letter")


def test_a_large_value_that_did_not_change_is_named(database: Database) -> None:
    database.run("CREATE TABLE docs (id int PRIMARY KEY, body text, n int)")
    database.run("ALTER TABLE docs ALTER body SET STORAGE EXTERNAL")
    database.run("INSERT INTO docs VALUES (1, repeat('x', 100000), 1), (2, 'short', 1)")
    database.run("UPDATE docs SET n = 2")
    database.run("ALTER TABLE docs REPLICA IDENTITY FULL")
    database.run("UPDATE docs SET n = 3 WHERE id = 1")
    with run_receiver(database.receiver(), settings=SMALL) as running:
        *_, large, short, full = running.wait_for_records(5)
    assert (large["unchanged"], json.loads(large["after"])) == (["body"], {"id": 1, "n": 2})
    assert (short["unchanged"], json.loads(short["after"])["body"]) == (None, "short")
    # The whole row as it was has come, and with it the value.
    assert (full["unchanged"], json.loads(full["after"])["body"]) == (None, "x" * 100000)
    assert json.loads(full["before"]) == {"id": 1, "n": 2, "body": "x" * 100000}


def test_a_table_changes_its_columns_within_a_transaction(database: Database) -> None:
    with database.server.connect(database.name) as connection, connection.transaction():
        connection.execute("INSERT INTO t VALUES (1, 'a')")
        connection.execute("ALTER TABLE t ADD more int DEFAULT 5")
        connection.execute("INSERT INTO t VALUES (2, 'b', 6)")
        connection.execute("ALTER TABLE t DROP name")
        connection.execute("INSERT INTO t VALUES (3, 7)")
        connection.execute("ALTER TABLE t RENAME TO renamed")
        connection.execute("INSERT INTO renamed VALUES (4, 8)")
    with run_receiver(database.receiver(), settings=SMALL) as running:
        records = running.wait_for_records(4)
    assert [(each["table"], json.loads(each["after"])) for each in records] == [
        ("t", {"id": 1, "name": "a"}),
        ("t", {"id": 2, "name": "b", "more": 6}),
        ("t", {"id": 3, "more": 7}),
        ("renamed", {"id": 4, "more": 8}),
    ]
    assert [each["place"] for each in records] == [1, 2, 3, 4]


def test_changes_of_several_tables_keep_their_order(database: Database) -> None:
    database.run('CREATE TABLE "Odd ""name" (id int PRIMARY KEY)')
    database.run("CREATE TABLE empty ()")
    with database.server.connect(database.name) as connection, connection.transaction():
        for number in range(1, 60, 3):
            connection.execute(f"INSERT INTO t VALUES ({number}, 'a')")
            connection.execute(f'INSERT INTO "Odd ""name" VALUES ({number + 1})')
            connection.execute("INSERT INTO empty DEFAULT VALUES")
        connection.execute('TRUNCATE t, "Odd ""name"')
    with run_receiver(database.receiver(), settings=SMALL) as running:
        records = running.wait_for_records(62)
    assert [each["place"] for each in records] == list(range(1, 63))
    assert shown(records, "table")[:3] == [("t",), ('Odd "name',), ("empty",)]
    assert [each["after"] for each in records[:3]] == ['{"id":1,"name":"a"}', '{"id":2}', "{}"]
    assert {each["op"] for each in records[60:]} == {"truncate"}


def test_a_row_larger_than_a_block_is_a_dead_letter(database: Database) -> None:
    database.run("INSERT INTO t VALUES (1, ''), (2, repeat('x', 300000)), (3, 'c')")
    settings = {**SMALL, "spark.penstock.block.maxSize": "200k"}
    with run_receiver(database.receiver(), settings=settings) as running:
        assert ids(running.wait_for_records(2)) == [1, 3]
        assert len(running.discarded) == 1


def test_text_that_is_no_utf_8_is_a_dead_letter(server: PostgresServer) -> None:
    database = Database(server, encoding="SQL_ASCII")
    database.run("INSERT INTO t VALUES (1, 'a'), (2, E'\\xff\\xfe'), (3, 'c')")
    with run_receiver(database.receiver(), settings=SMALL) as running:
        assert ids(running.wait_for_records(2)) == [1, 3]
        ((data, reason),) = running.discarded
        assert json.loads(data)["after"]["name"] == "\\xff\\xfe"
        assert "column 'name'" in reason
    database.drop()


# -- exactly once ----------------------------------------------------------------------------------


class Transactions:
    """A transaction that is larger than a block, small ones, and one that is rolled back.

    What another slot gives of them in one go is what is expected.
    """

    def __init__(self, server: PostgresServer, count: int) -> None:
        self.database = Database(server)
        self.database.run("SELECT pg_create_logical_replication_slot('whole', 'pgoutput')")
        self.database.insert(0, count // 2)
        with server.connect(self.database.name) as connection:
            for number in range(count // 2, count):
                connection.execute("INSERT INTO t VALUES (%s, 'x')", [number])
            with contextlib.suppress(ZeroDivisionError), connection.transaction():
                connection.execute("INSERT INTO t VALUES (-1, 'x')")
                raise ZeroDivisionError
        whole = PostgresReceiver(server.conninfo(self.database.name), "whole", "p")
        with run_receiver(whole, settings=SMALL) as running:
            self._records = running.wait_for_records(count)
        assert ids(self._records) == list(range(count))
        self.database.run("SELECT pg_drop_replication_slot('whole')")

    def expected(self) -> list[Any]:
        return self._records


BLOCKS = {**SMALL, "spark.penstock.block.maxSize": "64k"}


@pytest.mark.exhaustive
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_change_of_large_transactions_is_stored_once(server: PostgresServer) -> None:
    @contextlib.contextmanager
    def transactions() -> Iterator[Transactions]:
        source = Transactions(server, 2000)
        yield source
        source.database.drop()

    crash_test(
        lambda source: source.database.receiver(),
        transactions,
        claim="exactly once",
        kills=4,
        settings=BLOCKS,
    )


def test_a_transaction_larger_than_a_block_has_a_position_in_it(database: Database) -> None:
    with run_receiver(database.receiver(), settings=BLOCKS) as running:
        database.wait_for(lambda: running.position, "place of the slot")
        running.hold()
        database.insert(1, 5000)
        last = running.wait_for_records(1)[-1]
        assert running.position["lsn"] == last["lsn"]
        assert running.position["place"] == last["place"] < 5000
        running.go_on()
        assert ids(running.wait_for_records(5000)) == list(range(1, 5001))


def test_a_position_of_another_slot_is_refused_for_good() -> None:
    receiver = PostgresReceiver("host=host", "slot", "p")
    place = {"slot": "other", "system": "1", "timeline": "1", "lsn": 1, "place": 2}
    receiver.lastPosition = place
    with pytest.raises(PositionError, match="than the replication slot slot: give"):
        receiver.onStart()


def test_a_place_is_confirmed_when_all_that_is_stored_before_it_is_durable() -> None:
    confirmed = _Confirmed(10)
    confirmed.passed(15)
    assert confirmed.lsn == 15
    for _ in range(3):
        confirmed.stored()
    confirmed.passed(100)
    assert confirmed.lsn == 15
    confirmed.durable(0)  # A part of a transaction: its changes lie before no place yet.
    assert confirmed.lsn == 15
    confirmed.durable(20)
    assert confirmed.lsn == 20
    confirmed.durable(0)
    assert confirmed.lsn == 100
    confirmed.passed(50)
    confirmed.stored()
    confirmed.durable(60)
    assert confirmed.lsn == 100


@pytest.mark.parametrize("text", ["1e-77", "0." + 60 * "0" + "1"])
def test_a_number_with_more_digits_than_arrow_has_is_a_dead_letter(text: str) -> None:
    changes = Changes(pa.struct([("a", pa.decimal128(10, 2))]))
    changes.describe(Relation(1, "public", "t", ("a",), (1700,), (False,)))
    head = bytes(HEADER) + struct.pack(">cIcHc", b"I", 1, b"N", 1, b"t")
    for place, each in enumerate((b"1.50", text.encode()), 1):
        changes.add(head + struct.pack(">I", len(each)) + each, Transaction(1, 1, 1), place)
    table, ((_, why),) = changes.take()
    assert table["after"].to_pylist() == [{"a": Decimal("1.50")}]
    assert "more digits" in why


@pytest.mark.parametrize("size", [4, 50, 1 << 30, (1 << 31) - 100, (1 << 32) - 1])
@pytest.mark.parametrize("last", [False, True])
def test_a_value_that_says_it_is_longer_than_its_message_is_refused(size: int, last: bool) -> None:
    """Whatever came between: what lies behind in memory is not read."""
    changes = Changes(pa.string())
    changes.describe(Relation(1, "public", "t", ("a",), (25,), (False,)))
    head = bytes(HEADER) + struct.pack(">cIcHc", b"I", 1, b"N", 1, b"t")
    rows = [head + struct.pack(">I", each) + b"abc" for each in ((3, size) if last else (size, 3))]
    for place, row in enumerate(rows, 1):
        changes.add(row, Transaction(1, 1, 1), place)
    with pytest.raises(ServerError, match=r"longer than its message|another length"):
        changes.take()


def test_what_is_halved_has_its_own_places_and_confirms_the_end_when_all_is_durable() -> None:
    stored: list[tuple[Any, Any, Callable[[], None]]] = []

    def store(data: Any, position: Any, ack: Callable[[], None]) -> None:
        if len(getattr(data, "records", data)) > 2:
            raise RecordTooLargeError(100, 50, 5)
        stored.append((data, position, ack))

    receiver = PostgresReceiver("host=host", "slot", "p")
    receiver._history = "1", "1"
    receiver.store = store  # type: ignore[method-assign,assignment]
    places = [(7, 1), (7, 2), (7, 3), (9, 1), (9, 2)]
    columns = {name: [place[at] for place in places] for at, name in enumerate(("lsn", "place"))}
    confirmed = _Confirmed(5)
    receiver._store_table(pa.table(columns), [(b"bad", "why")], (9, 3), confirmed, 20)
    assert [(each["lsn"], each["place"]) for _, each, _ in stored] == [(7, 2), (7, 3), (9, 3)]
    assert [getattr(data, "letters", None) for data, _, _ in stored] == [
        *(None, None),
        [(b"bad", "why")],
    ]
    for _, _, ack in stored:
        assert confirmed.lsn == 5
        ack()
    assert confirmed.lsn == 20
    confirmed.passed(30)
    assert confirmed.lsn == 30


@pytest.mark.parametrize(
    ("after", "left"),
    [
        ((0, 0), [(10, 1), (10, 2), (10, 3), (20, 1)]),
        ((10, 2), [(10, 3), (20, 1)]),
        ((10, 3), [(20, 1)]),
        ((15, 9), [(20, 1)]),
        ((20, 1), []),
    ],
)
def test_changes_up_to_the_place_are_left_out_and_no_others(
    after: tuple[int, int], left: list[tuple[int, int]]
) -> None:
    coming = _Coming(Changes(pa.string()), after)
    taken = []
    for lsn, count in ((10, 3), (20, 1)):
        coming.put(bytes(HEADER) + struct.pack(">cqqI", b"B", lsn, 0, 1))
        for _ in range(count):
            before = len(coming.changes)
            coming.put(bytes(HEADER) + b"I")
            coming.passed(99)  # Within a transaction, whose changes are still to come.
            assert coming.end < 99
            if len(coming.changes) > before:
                taken.append(coming.changes.place)
        coming.put(bytes(HEADER) + struct.pack(">cBqqq", b"C", 0, lsn, lsn + 5, 0))
        assert coming.end == lsn + 5
    assert taken == left
    coming.passed(99)
    assert coming.end == 99


def test_the_slot_is_told_of_what_is_durable_only(database: Database) -> None:
    with run_receiver(database.receiver(), settings=SMALL) as running:
        database.insert(1, 1)
        running.wait_for_records(1)
        end = database.run("SELECT pg_current_wal_lsn()")[0][0]
        told = "confirmed_flush_lsn >= %s::pg_lsn"
        look = f"SELECT {told} FROM pg_replication_slots WHERE slot_name = %s"
        database.wait_for(lambda: database.run(look, end, database.slot)[0][0], "confirmation")

        running.hold()
        before = database.state("confirmed_flush_lsn")
        pid = database.wait_until_read()
        database.insert(2, 1)
        running.wait_for_records(2)
        # Several status updates go by, of which each could tell too much.
        look_at = "SELECT reply_time::text FROM pg_stat_replication WHERE pid = %s"
        seen: set[Any] = set()

        def are_seen() -> bool:
            seen.update(database.run(look_at, pid))
            return len(seen) > 3

        database.wait_for(are_seen, "status updates")
        assert database.state("confirmed_flush_lsn") == before

        running.go_on()
        end = database.run("SELECT pg_current_wal_lsn()")[0][0]
        database.wait_for(lambda: database.run(look, end, database.slot)[0][0], "confirmation")
    assert running.position["place"] == 1


def test_a_slot_whose_tables_are_quiet_keeps_no_log(database: Database) -> None:
    with run_receiver(database.receiver(), settings=SMALL) as running:
        database.insert(1, 1)
        running.wait_for_records(1)
        with database.server.connect() as elsewhere:
            elsewhere.execute("CREATE TABLE elsewhere AS SELECT generate_series(1, 1000)")
            elsewhere.execute("DROP TABLE elsewhere")
        end = database.run("SELECT pg_current_wal_lsn()")[0][0]
        look = (
            "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots "
            "WHERE slot_name = %s"
        )
        database.wait_for(lambda: database.run(look, end, database.slot)[0][0], "confirmation")


def test_a_server_can_shut_down_while_it_is_read(server: PostgresServer) -> None:
    database = Database(server)
    with run_receiver(database.receiver(), settings=SMALL) as running:
        database.insert(1, 1)
        running.wait_for_records(1)
        server.shut_down()
        server.start()
        database.insert(2, 1)
        assert ids(running.wait_for_records(2)) == [1, 2]
    database.drop()


def test_what_is_stored_and_not_confirmed_does_not_come_twice_after_a_cut(
    database: Database,
) -> None:
    with run_receiver(database.receiver(), settings=SMALL) as running:
        database.wait_for(lambda: running.position, "place of the slot")
        running.hold()
        database.insert(1, 10)
        running.wait_for_records(10)
        cut = database.wait_until_read()
        database.run("SELECT pg_terminate_backend(%s)", cut)
        database.wait_for(lambda: database.state("active_pid") not in (None, cut), "another reader")
        database.insert(11, 1)
        running.go_on()
        assert ids(running.wait_for_records(11)) == list(range(1, 12))


def test_a_slot_that_another_moved_meanwhile_is_said(database: Database) -> None:
    reader = f"reader_{database.name}"
    database.run(f"CREATE ROLE {reader} LOGIN REPLICATION PASSWORD 'reader'")
    conninfo = database.server.conninfo(database.name, "reader", user=reader)
    with run_receiver(PostgresReceiver(conninfo, database.slot, "p"), settings=SMALL) as running:
        database.insert(1, 1)
        running.wait_for_records(1)
        pid = database.wait_until_read()
        database.run(f"ALTER ROLE {reader} NOLOGIN")
        database.run("SELECT pg_terminate_backend(%s)", pid)
        database.wait_for(lambda: not database.state("active"), "the slot is still read")
        database.insert(2, 1)
        database.run("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())", database.slot)
        database.run(f"ALTER ROLE {reader} LOGIN")
        running.wait_for_error("changes in between are lost to this stream")
        database.insert(3, 1)
        assert ids(running.wait_for_records(2)) == [1, 3]
    database.run(f"DROP ROLE {reader}")


def test_a_server_that_says_nothing_is_left(database: Database) -> None:
    with run_receiver(database.receiver(timeout_s=1), settings=SMALL) as running:
        pid = database.wait_until_read()
        database.server.stall(pid)
        try:
            running.wait_for_error("nothing came for 1 s")
            # The process of the server still has the slot.
            running.wait_for_error(f"is active for PID {pid}")
        finally:
            database.server.go_on(pid)
        database.insert(1, 2)
        assert ids(running.wait_for_records(2)) == [1, 2]


# -- what is wrong ---------------------------------------------------------------------------------


def test_publication_and_slot_are_made_where_asked_for(server: PostgresServer) -> None:
    database = Database(server, slot=False)
    database.run('CREATE TABLE "Mixed ""Case" (id int PRIMARY KEY)')
    receiver = database.receiver(
        publication='it\'s "odd"', create=True, tables=['public.Mixed "Case']
    )
    with run_receiver(receiver, settings=SMALL) as running:
        database.wait_until_read()
        database.insert(1, 1)
        database.run('INSERT INTO "Mixed ""Case" VALUES (2)')
        assert ids(running.wait_for_records(1)) == [2]
    database.drop()


def test_a_publication_that_lacks_a_table_is_said(server: PostgresServer) -> None:
    database = Database(server, slot=False)
    database.run("CREATE TABLE other (id int PRIMARY KEY)")
    database.run("CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    database.run("CREATE TABLE part PARTITION OF parts FOR VALUES FROM (0) TO (1000)")
    database.run("CREATE PUBLICATION p FOR TABLE t, parts")
    has = ["t", "public.parts", "public.part"]
    receiver = database.receiver(create=True, tables=[*has, "public.other", "public.nope"])
    with run_receiver(receiver, settings=SMALL) as running:
        running.wait_for_error('lacks "public"."other", "public"."nope": ALTER PUBLICATION')
    with run_receiver(database.receiver(create=True, tables=has), settings=SMALL) as running:
        database.wait_until_read()
        database.insert(1, 1)
        database.run("INSERT INTO parts VALUES (2)")
        assert ids(running.wait_for_records(2)) == [1, 2]
    database.drop()


def test_without_publication_or_slot_it_is_said_what_is_missing(server: PostgresServer) -> None:
    database = Database(server, slot=False)
    with run_receiver(database.receiver(), settings=SMALL) as running:
        error = running.wait_for_error("there is no publication 'p'")
        assert "is asked again every 30 s" in error
    database.run("CREATE PUBLICATION p FOR ALL TABLES")
    with run_receiver(database.receiver(), settings=SMALL) as running:
        running.wait_for_error(f"there is no replication slot {database.slot}")
    database.drop()


def test_a_publication_that_was_made_after_the_slot_is_explained(server: PostgresServer) -> None:
    database = Database(server, slot=False)
    database.make_slot()
    database.insert(1, 1)
    database.run("CREATE PUBLICATION p FOR ALL TABLES")
    with run_receiver(database.receiver(), settings=SMALL) as running:
        error = running.wait_for_error("make the slot again")
        assert 'publication "p" does not exist' in error
    database.drop()


@pytest.mark.slow
@pytest.mark.parametrize("goes_back", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_slot_that_vanished_is_said_and_not_made_again(goes_back: bool) -> None:
    with postgres_server() as server:
        database = Database(server)
        server.stop()
        server.copy_data()
        server.start()
        with run_receiver(database.receiver(create=True), settings=SMALL) as running:
            database.insert(1, 10_000)
            running.wait_for_records(10_000)
            server.stop()
            if goes_back:
                server.go_back_to_copy()
            shutil.rmtree(server.data / "pg_replslot" / database.slot)
            server.start()
            error = running.wait_for_error(f"the replication slot {database.slot} is gone")
            assert "is asked again every 30 s" in error
            assert database.state("slot_name") is None


def test_a_slot_that_vanished_before_the_first_change_is_not_made_again_either(
    server: PostgresServer,
) -> None:
    """Changes that nobody kept would be missing, and nothing would say so."""
    database = Database(server, slot=False)
    with run_receiver(database.receiver(create=True), settings=SMALL) as running:
        database.wait_until_read()
        running.stop()
        database.run(f"SELECT pg_drop_replication_slot('{database.slot}')")
        database.insert(0, 10)
        running.start()
        running.wait_for_error(f"the replication slot {database.slot} is gone")
        assert database.state("slot_name") is None
        assert running.records == []


def test_a_slot_is_made_when_open_transactions_have_ended(server: PostgresServer) -> None:
    database = Database(server, slot=False)
    with server.connect(database.name) as open_one, open_one.transaction():
        open_one.execute("INSERT INTO t VALUES (1, 'before the slot')")
        receiver = database.receiver(create=True, timeout_s=1)
        with run_receiver(receiver, settings=SMALL) as running:
            running.wait_for_error("no answer within 1 s to: CREATE_REPLICATION_SLOT")
            running.wait_for_error("is still being made")
            running.stop()
            running.start()
            open_one.execute("COMMIT")
            database.wait_until_read()
            database.insert(2, 1)
            assert ids(running.wait_for_records(1)) == [2]
        open_one.execute("BEGIN")
    database.drop()


def test_a_slot_that_another_stream_reads_is_waited_for(database: Database) -> None:
    with run_receiver(database.receiver(), settings=SMALL) as second_first:
        pid = database.wait_until_read()
        with run_receiver(database.receiver(), settings=SMALL) as running:
            running.wait_for_error(f"is active for PID {pid}")
            database.insert(1, 1)
            second_first.wait_for_records(1)
            second_first.stop()
            database.insert(2, 1)
            assert ids(running.wait_for_records(1)) == [2]


def test_a_slot_of_another_plug_in_is_said(server: PostgresServer) -> None:
    database = Database(server, slot=False)
    database.run("CREATE PUBLICATION p FOR ALL TABLES")
    database.run("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", database.slot)
    with run_receiver(database.receiver(), settings=SMALL) as running:
        running.wait_for_error("of the plug-in test_decoding")
    database.drop()


def test_a_slot_that_fell_behind_is_said() -> None:
    with postgres_server(max_slot_wal_keep_size="1MB", min_wal_size="2MB") as server:
        database = Database(server)
        for number in range(8):
            database.insert(10_000 * number, 10_000)
            database.run("SELECT pg_switch_wal()")
        database.run("CHECKPOINT")
        database.wait_for(lambda: database.state("wal_status") == "lost", "a lost slot")
        with run_receiver(database.receiver(), settings=SMALL) as running:
            error = running.wait_for_error("fell behind max_slot_wal_keep_size")
            assert "is asked again every 30 s" in error
            assert len(running.errors) == 1


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("host=a pass word=s3cret", "s", "p"), {}),
        (("host=a password='s3cret", "s", "p"), {}),
        (("postgresql://user:a@s3cret@host/shop", "s", "p"), {}),
        (("postgresql://user:s3cret/a@host/shop", "s", "p"), {}),
        (("host=a port=s3cret", "s", "p"), {}),
        (("host=a", "Slot", "p"), {}),
        (("host=a", "", "p"), {}),
        (("host=a", "s", ""), {}),
        (("host=a", "s", "p"), {"tables": ["t"]}),
        (("host=a", "s", "p"), {"tables": "t", "create": True}),
        (("host=a", "s", "p"), {"timeout_s": 0}),
        (("host=a", "s", "p"), {"rows": pa.schema([("a", pa.struct([("b", pa.int32())]))])}),
        (("host=a", "s", "p"), {"rows": pa.schema([("a", pa.list_(pa.duration("s")))])}),
    ],
)
def test_arguments_that_are_not_accepted(arguments: Any, options: Any) -> None:
    with pytest.raises(ValueError, match=r"is not accepted|is not read") as caught:
        PostgresReceiver(*arguments, **options)
    assert "s3cret" not in str(caught.value)


def test_the_certificate_of_the_server_is_looked_at(tmp_path: Path) -> None:
    with postgres_server() as server:
        server.stop()
        certificate_of_host(tmp_path)
        for name in ("certificate.pem", "key.pem"):
            where = server.folder / name
            shutil.copy(tmp_path / name, where)
            where.chmod(0o600)
            shutil.chown(where, server.user)
        files = {
            "ssl_cert_file": server.folder / "certificate.pem",
            "ssl_key_file": server.folder / "key.pem",
        }
        server.start(ssl="on", **files)
        database = Database(server)
        (tmp_path / "other").mkdir()
        other = certificate_of_host(tmp_path / "other")
        for trusted in (other, tmp_path / "certificate.pem"):
            conninfo = server.conninfo(database.name, sslmode="verify-full", sslrootcert=trusted)
            receiver = PostgresReceiver(conninfo, database.slot, "p")
            with run_receiver(receiver, settings=SMALL) as running:
                if trusted is other:
                    running.wait_for_error("certificate verify failed")
                    continue
                pid = database.wait_until_read()
                look = "SELECT ssl FROM pg_stat_ssl WHERE pid = %s"
                assert database.run(look, pid) == [(True,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lacks", "is_promoted"),
    [
        pytest.param(False, False, id="whole-same timeline", marks=pytest.mark.exhaustive),
        pytest.param(False, True, id="whole-new timeline", marks=pytest.mark.long),
        pytest.param(True, False, id="older-same timeline", marks=pytest.mark.long),
        pytest.param(True, True, id="older-new timeline", marks=pytest.mark.exhaustive),
    ],
)
def test_nothing_is_left_out_after_the_server_went_back(lacks: bool, is_promoted: bool) -> None:
    with postgres_server() as server:
        database = Database(server)
        with run_receiver(database.receiver(), settings=SMALL) as running:
            database.insert(0, 10)
            running.wait_for_records(10)
            server.stop()
            if lacks:
                server.copy_data()
                server.start()
                database.insert(10, 5000)
                running.wait_for_records(5010)
                server.stop()
                server.go_back_to_copy()
            if is_promoted:
                # It ends its recovery with what it has, and begins another timeline.
                (server.data / "recovery.signal").touch()
            server.start(restore_command="false")
            if lacks:
                running.wait_for_error("it is an older copy, or a promoted standby")
            database.insert(10_000, 3)
            stored = [*range(5010 if lacks else 10), 10_000, 10_001, 10_002]
            records = ids(running.wait_for_records(len(stored)))
            while sorted(set(records)) != stored:  # The copy may give again what it had.
                assert lacks
                records = ids(running.wait_for_records(len(records) + 1))
            assert lacks or records == stored
            assert lacks or "older copy" not in "".join(running.errors)
            assert running.position["timeline"] == str(1 + is_promoted)


@pytest.mark.long
@pytest.mark.slow
def test_a_server_in_recovery_is_waited_for_and_its_new_timeline_known() -> None:
    with postgres_server() as server:
        database = Database(server)
        with run_receiver(database.receiver(), settings=SMALL) as running:
            database.insert(0, 10)
            running.wait_for_records(10)
            server.stop()
            (server.data / "standby.signal").touch()
            starting = threading.Thread(target=server.start)  # Until it takes what is written.
            starting.start()
            running.wait_for_error("the server is in recovery")
            with server.connect() as connection:
                connection.execute("SELECT pg_promote()")
            starting.join(HANG_S)
            database.insert(10, 3)
            assert ids(running.wait_for_records(13)) == [*range(13)]
            assert running.position["timeline"] == "2"


@pytest.mark.long
@pytest.mark.slow
def test_a_standby_gives_each_change_once_also_when_it_is_promoted() -> None:
    with postgres_server() as primary, postgres_folder() as folder:
        with primary.connect() as connection:
            if connection.info.server_version < 160000:
                pytest.skip("platform: a standby gives no changes before PostgreSQL 16")
        written = Database(primary)
        standby = PostgresServer(folder, {"hot_standby_feedback": "on"})
        standby.make_standby_of(primary)
        starting = threading.Thread(target=standby.start)  # Until it takes what is written.
        starting.start()
        read = copy.copy(written)
        read.server = standby
        try:
            slot = threading.Thread(target=partial(_make_slot_of_standby, read))
            slot.start()
            while slot.is_alive():  # A slot begins where no transaction is open.
                written.run("SELECT pg_log_standby_snapshot()")
                slot.join(0.1)
            with run_receiver(read.receiver(), settings=SMALL) as running:
                written.insert(0, 10)
                assert ids(running.wait_for_records(10)) == [*range(10)]
                running.stop()
                written.insert(10, 10)
                running.start()
                running.wait_for_records(20)
                read.run("SELECT pg_promote()")
                starting.join(HANG_S)
                read.insert(20, 10)
                running.wait_for_records(30)
                running.stop()
                read.insert(30, 10)
                running.start()
                assert ids(running.wait_for_records(40)) == [*range(40)]
                assert running.position["timeline"] == "2"
        finally:
            standby.stop()
            starting.join(HANG_S)


def _make_slot_of_standby(database: Database) -> None:
    def made() -> bool:
        with contextlib.suppress(psycopg.OperationalError):  # It may be starting.
            database.run("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", database.slot)
            return True
        return False

    database.wait_for(made, "the standby has no slot")


@pytest.mark.long
@pytest.mark.slow
def test_another_server_at_the_address_is_refused() -> None:
    with postgres_server() as server, postgres_server() as other:
        database = Database(server)
        with other.connect() as admin:
            admin.execute(f"CREATE DATABASE {database.name}")
        with run_receiver(database.receiver(), settings=SMALL) as running:
            database.insert(1, 1)
            running.wait_for_records(1)
            server.stop()
            other.stop()
            other.port = server.port
            other.start()
            running.wait_for_error("it is another server")


# -- notifications ---------------------------------------------------------------------------------


def test_notifications_are_stored_as_bytes(database: Database) -> None:
    conninfo = database.server.conninfo(database.name)
    receiver = PostgresNotifyReceiver(conninfo, ["Jobs", "other"])
    with run_receiver(receiver, settings=SMALL) as running:
        wait_until_listening(database)
        database.run("NOTIFY \"Jobs\", 'one'")
        database.run("NOTIFY other")
        database.run("SELECT pg_notify('Jobs', repeat('ü', 3999))")
        assert running.wait_for_records(3) == [b"one", b"", ("ü" * 3999).encode()]


def test_more_notifications_than_are_stored_at_once_are_stored(database: Database) -> None:
    receiver = PostgresNotifyReceiver(database.server.conninfo(database.name), "jobs")
    with run_receiver(receiver, settings=SMALL) as running:
        wait_until_listening(database)
        database.run("SELECT pg_notify('jobs', i::text) FROM generate_series(1, 1000) i")
        found = running.wait_for_records(1000)
    assert found == [b"%d" % number for number in range(1, 1001)]


def test_notifications_have_columns_and_values(database: Database) -> None:
    receiver = PostgresNotifyReceiver(
        database.server.conninfo(database.name),
        "jobs",
        columns=True,
        values=JsonFormat(pa.schema([("id", pa.int64())])),
    )
    with run_receiver(receiver, settings=SMALL) as running:
        wait_until_listening(database)
        database.run("NOTIFY jobs, '{\"id\": 1}'")
        database.run("NOTIFY jobs, 'no JSON'")
        database.run("NOTIFY jobs, '{\"id\": 2}'")
        records = running.wait_for_records(2)
        assert shown(records, "channel", "value") == [("jobs", {"id": 1}), ("jobs", {"id": 2})]
        assert [data for data, _ in running.discarded] == [b"no JSON"]


def test_a_connection_for_notifications_that_is_dead_is_noticed(database: Database) -> None:
    receiver = PostgresNotifyReceiver(
        database.server.conninfo(database.name), "jobs", timeout_s=0.5
    )
    with run_receiver(receiver, settings=SMALL) as running:
        pid = wait_until_listening(database)
        database.server.stall(pid)
        running.wait_for_error("no answer within 0.5 s")
        database.server.go_on(pid)
        database.wait_for(
            lambda: database.run("SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid) == [],
            "the end of the first",
        )
        wait_until_listening(database)
        database.run("NOTIFY jobs, 'again'")
        assert running.wait_for_records(1) == [b"again"]


def wait_until_listening(database: Database) -> int:
    look = (
        "SELECT pid FROM pg_stat_activity WHERE datname = %s AND state = 'idle' "
        "AND (query LIKE 'LISTEN%%' OR query = 'SELECT 1')"
    )
    found = database.wait_for(lambda: database.run(look, database.name), "nobody listens")
    return int(found[0][0])
