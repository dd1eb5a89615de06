"""A connection to PostgreSQL on which each wait has an end, and a receiver that keeps one."""

from __future__ import annotations

import select
import threading
import time
from abc import ABC, abstractmethod
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark import StorageLevel

from penstock._arguments import refused
from penstock.receiver import Receiver, ReceiverContext, ReceiverStoppedError
from penstock.sources._common import Reconnecting, ServerError, SourceReceiver

if TYPE_CHECKING:
    import psycopg

STEP_S = 0.2
_CONNECT_S = 10


def identifier(name: str) -> str:
    """Return a name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


class Link:
    """A connection on which each wait has an end. `lock` is held while libpq is used."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.pg = connection.pgconn
        self.pg.nonblocking = 1
        self.lock = threading.Lock()

    def close(self) -> None:
        """End the connection."""
        with self.lock:
            self._connection.close()

    def readable(self, timeout_s: float) -> bool:
        """Wait until something has come, and take it in.

        Raises:
            psycopg.OperationalError: The connection is broken.
        """
        poll = select.poll()
        poll.register(self.pg.socket, select.POLLIN)
        is_ready = bool(poll.poll(1000 * timeout_s))
        # Of a TLS record a part may wait within the client, which no socket shows.
        if is_ready or self.pg.ssl_in_use:
            with self.lock:
                self.pg.consume_input()
        return is_ready

    def ask(self, sql: str, timeout_s: float, receiver: Receiver) -> list[list[str]]:
        """Return the rows that a statement gives; null is the empty text.

        Raises:
            psycopg.Error: The server refuses it, or the connection is broken.
            ServerError: There is no answer in time.
            ReceiverStoppedError: The receiver has stopped meanwhile.
        """
        from psycopg import errors, pq

        end_s = time.monotonic() + timeout_s
        self.pg.send_query(sql.encode())
        rows: list[list[str]] = []
        while True:
            while self.pg.flush() or self.pg.is_busy():
                if receiver.isStopped():
                    raise ReceiverStoppedError(receiver.streamId)
                if time.monotonic() > end_s:
                    raise ServerError(f"no answer within {timeout_s:g} s to: {sql}")
                self.readable(STEP_S)
            result = self.pg.get_result()
            if result is None:
                return rows
            if result.status == pq.ExecStatus.FATAL_ERROR:
                raise errors.error_from_result(result)
            for row in range(result.ntuples):
                values = (result.get_value(row, column) for column in range(result.nfields))
                rows.append([(value or b"").decode(errors="replace") for value in values])
            if result.status == pq.ExecStatus.COPY_BOTH:
                return rows


class PostgresBase(SourceReceiver, ABC):
    """A receiver with one thread that connects, reads, and connects again."""

    requires = ("psycopg",)
    extra = "postgres"

    def __init__(
        self, conninfo: str, storageLevel: StorageLevel | str | None, timeout_s: float
    ) -> None:
        super().__init__(storageLevel)
        from psycopg import ProgrammingError
        from psycopg.conninfo import conninfo_to_dict

        try:
            parts = conninfo_to_dict(conninfo)
            host = str(parts.get("host") or parts.get("hostaddr") or "localhost")
            port = str(parts.get("port") or 5432)
            # Then a password has ended too early, as one may whose @ or / stands as it is in a URL.
            if "@" in host[1:] or not port.replace(",", "").isdigit():
                raise ValueError
        except (ProgrammingError, TypeError, ValueError):
            # What it says may have a part of a password in it.
            raise ValueError(
                "conninfo is not accepted: text such as 'host=db dbname=shop user=penstock', or "
                "'postgresql://penstock@db/shop', with libpq's names; what a password in a URL has "
                "of : / ? # @ is written as %3A and so on"
            ) from None
        if not timeout_s > 0:
            raise ValueError(refused("timeout_s", timeout_s, "seconds, more than 0"))
        self._conninfo = conninfo
        self._timeout_s = timeout_s
        self._server = f"{host}:{port}"
        self._database = str(parts.get("dbname") or parts.get("user") or "postgres")

    def _receive(self, context: ReceiverContext) -> bool:
        import psycopg

        outage = Reconnecting(
            self.reportError, f"PostgreSQL server at {self._server}, database {self._database},"
        )

        def serve() -> None:
            with closing(self._connect()) as link:
                self._serve(link, outage)

        outage.run(serve, context.stopped, (psycopg.Error, ServerError))
        return False

    def _connect(self) -> Link:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict, make_conninfo

        defaults = {
            "connect_timeout": _CONNECT_S,
            "fallback_application_name": f"penstock stream {self.streamId}",
            **conninfo_to_dict(self._conninfo),
            "client_encoding": "utf8",
            **self._parameters(),
        }
        return Link(psycopg.connect(make_conninfo(**defaults), autocommit=True))

    def _parameters(self) -> dict[str, Any]:
        """Return what the connection has beside what the user gave."""
        return {}

    @abstractmethod
    def _serve(self, link: Link, outage: Reconnecting) -> None:
        """Receive until the connection breaks, which raises, or the receiver stops."""
