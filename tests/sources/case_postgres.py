"""PostgreSQL: rows of a table with one column, by logical replication; and notifications."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.sources.postgres import PostgresNotifyReceiver, PostgresReceiver
from tests.bounds import HANG_S
from tests.services.postgres import PostgresServer, postgres_server
from tests.services.shared import until_the_end
from tests.sources.cases import SECRET, Source, SourceCase

_numbers = itertools.count()


class PayloadReceiver(PostgresReceiver):
    """Stores the one column of the rows."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.schema = None

    def store(self, data: Any, position: Any = None, ack: Any = None, framing: Any = None) -> None:
        rows = data["after"].to_pylist() if len(data) else []  # A place alone has none.
        payloads = [bytes.fromhex(json.loads(row)["payload"][2:]) for row in rows]
        super().store(payloads, position, ack)


@functools.cache
def shared_server() -> PostgresServer:
    """Start the server of this process; its data last until the tests end."""
    return until_the_end.enter_context(postgres_server(wal_sender_timeout="3s"))


class PostgresSource(Source):
    """A database of its own."""

    def __init__(self) -> None:
        self.server = shared_server()
        self.port = self.server.port
        self.database = f"case_{os.getpid()}_{next(_numbers)}"
        self.start()
        with self.server.connect() as admin:
            admin.execute(f"CREATE DATABASE {self.database}")
            if not admin.execute("SELECT 1 FROM pg_roles WHERE rolname = 'receiver'").fetchall():
                admin.execute(f"CREATE ROLE receiver LOGIN REPLICATION PASSWORD '{SECRET}'")
        with self.server.connect(self.database) as connection:
            connection.execute("CREATE TABLE messages (payload bytea)")
            connection.execute("CREATE PUBLICATION messages FOR TABLE messages")
            connection.execute(
                "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [self.database]
            )

    def conninfo(self, port: int, secret: str) -> str:
        return self.server.conninfo(self.database, secret, port=port, user="receiver")

    def receiver(self, port: int, secret: str = SECRET) -> object:
        conninfo = self.conninfo(port, secret)
        return PayloadReceiver(conninfo, self.database, "messages", timeout_s=2)

    def send(self, payloads: Sequence[bytes]) -> None:
        with self.server.connect(self.database) as connection:
            connection.cursor().executemany(
                "INSERT INTO messages VALUES (%s)", [[payload] for payload in payloads]
            )

    def kill(self) -> None:
        self.server.kill()

    def start(self) -> None:
        if not self.server.is_running:
            self.server.start()

    def drop(self) -> None:
        self.start()
        end_s = time.monotonic() + HANG_S
        with self.server.connect() as admin:
            look = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
            while admin.execute(look, [self.database]).fetchall() == [(True,)]:
                assert time.monotonic() < end_s, "the slot is still read"
                time.sleep(0.02)
            admin.execute("SELECT pg_drop_replication_slot(%s)", [self.database])
            admin.execute(f"DROP DATABASE {self.database} WITH (FORCE)")


class NotifySource(PostgresSource):
    """A channel of the database."""

    def receiver(self, port: int, secret: str = SECRET) -> object:
        return PostgresNotifyReceiver(self.conninfo(port, secret), "messages", timeout_s=2)

    def send(self, payloads: Sequence[bytes]) -> None:
        with self.server.connect(self.database) as connection:
            for payload in payloads:
                connection.execute("SELECT pg_notify('messages', %s)", [payload.decode()])

    def wait_until_heard(self) -> None:
        look = (
            "SELECT 1 FROM pg_stat_activity WHERE usename = 'receiver' AND datname = %s "
            "AND state = 'idle' AND (query LIKE 'LISTEN%%' OR query = 'SELECT 1')"
        )
        end_s = time.monotonic() + HANG_S
        with self.server.connect() as admin:
            while not admin.execute(look, [self.database]).fetchall():
                assert time.monotonic() < end_s, "nobody listens"
                time.sleep(0.02)


@contextlib.contextmanager
def _rows(folder: Path) -> Iterator[Source]:
    source = PostgresSource()
    yield source
    source.drop()


@contextlib.contextmanager
def _notifications(folder: Path) -> Iterator[Source]:
    source = NotifySource()
    yield source
    source.drop()


CASES = [
    SourceCase(
        "postgres",
        _rows,
        "exactly once",
        refusal="password authentication failed",
        notices_stalls=True,
    ),
    SourceCase(
        "postgres-notify",
        _notifications,
        None,
        refusal="password authentication failed",
        largest_bytes=7999,
    ),
]
