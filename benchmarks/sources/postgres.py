"""PostgreSQL: rows a second by `PostgresReceiver`, beside `pg_recvlogical` into a file.

``python -m benchmarks.sources.postgres [rows]``. Both read the same rows from slots of their own,
one after the other, and are timed from their start until the last row is there: forced to the disk
and reported, or in the file.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pyarrow as pa

from benchmarks.sources.comparing import received_s
from penstock.sources.postgres import PostgresReceiver
from tests.services.postgres import PASSWORD, PostgresServer, postgres_server

_ROWS = 300_000
_A_TRANSACTION = 1000
_BOUND_S = 1800.0
_TYPED = pa.schema([("id", pa.int64()), ("payload", pa.string())])


def main() -> None:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _ROWS
    with postgres_server(shared_buffers="256MB", max_wal_size="8GB") as server:
        for size in (100, 1000):
            end = _fill(server, size, count)
            # The first one reads the log into the page cache.
            bare_s = min(_bare(server, end), _bare(server, end))
            json_s = _received(server, "json_rows", None, count)
            typed_s = _received(server, "typed_rows", _TYPED, count)
            print(
                f"{size} B: pg_recvlogical {count / bare_s:,.0f} rows/s, "
                f"JSON {count / json_s:,.0f} ({bare_s / json_s:.2f}), "
                f"typed {count / typed_s:,.0f} ({bare_s / typed_s:.2f})"
            )


def _fill(server: PostgresServer, size: int, count: int) -> str:
    """Make a table, slots, and rows; return where the log ends then."""
    with server.connect() as connection:
        connection.execute("DROP TABLE IF EXISTS rows")
        connection.execute("CREATE TABLE rows (id bigint, payload text)")
        connection.execute("DROP PUBLICATION IF EXISTS rows")
        connection.execute("CREATE PUBLICATION rows FOR TABLE rows")
        for slot in ("bare", "json_rows", "typed_rows"):
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                "WHERE slot_name = %s",
                [slot],
            )
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
        for first in range(0, count, _A_TRANSACTION):
            connection.execute(
                "INSERT INTO rows SELECT i, repeat('x', %s) FROM generate_series(%s::int, %s) i",
                [size, first, first + _A_TRANSACTION - 1],
            )
        row: Any = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
        return str(row[0])


def _bare(server: PostgresServer, end: str) -> float:
    file = server.folder / "rows.out"
    file.unlink(missing_ok=True)
    # A copy, so that the slot can be read twice.
    with server.connect() as connection:
        connection.execute("SELECT pg_copy_logical_replication_slot('bare', 'bare_copy')")
    command = [server.binaries / "pg_recvlogical", "-d", server.conninfo(), "-S", "bare_copy"]
    command += ["--start", "-n", "-f", file, "-E", end, "-o", "proto_version=1"]
    command += ["-o", "publication_names=rows"]
    began_s = time.perf_counter()
    subprocess.run(command, check=True, env={"PGPASSWORD": PASSWORD}, timeout=_BOUND_S)
    took_s = time.perf_counter() - began_s
    with server.connect() as connection:
        connection.execute("SELECT pg_drop_replication_slot('bare_copy')")
    return took_s


def _received(server: PostgresServer, slot: str, rows: pa.Schema | None, count: int) -> float:
    receiver = PostgresReceiver(server.conninfo(), slot, "rows", rows=rows)
    return received_s(receiver, count)


if __name__ == "__main__":
    main()
