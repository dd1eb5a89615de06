#!/bin/sh
# PostgreSQL 16.2 (of pgserver 0.1.4; so does 15.18 of Debian, by test_decoding): a setting of a role or of a
# database rounds the numbers of the change feed that a client reads from a logical replication slot.
#
# pgoutput sends each value in text format (manual, "Logical Replication Message Formats", TupleData)
# unless it is asked for binary ones, and a walsender that a client connects takes ALTER ROLE ... SET and
# ALTER DATABASE ... SET as any session does. So a role that has extra_float_digits = 0 for its
# reports gets other numbers as a reader of changes: the digits are gone, and with DateStyle a date is
# read for another one. PostgreSQL's own subscriber, on the same publication and with the same role,
# has the numbers that were written, as it sets these itself; pg_recvlogical does not. Seen, of
# 0.1 + 0.2, of 1/3 as real, and of the second of January:
#
#   written: 0.30000000000000004, 0.33333334, 2026-01-02
#   PostgreSQL's subscriber: 0.30000000000000004, 0.33333334, 2026-01-02
#   psycopg2 2.9.13: 0.3, 0.333333, 02/01/2026
#   pg_recvlogical: 0.3, 0.333333, 02/01/2026
#   psycopg2 2.9.13, with options: 0.30000000000000004, 0.33333334, 2026-01-02
#
# Run as root it uses the user nobody, as PostgreSQL does not run as root. Ends with 0 while it is so,
# with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
bin=
as=
if [ "$(id -u)" = 0 ]; then
    as="runuser -u nobody --"
fi
end() {
    [ -z "$bin" ] || $as "$bin/pg_ctl" -D "$work/data" -m immediate -w stop > "$work/log" 2>&1 || true
    rm -rf "$work"
}
trap end EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pgserver==0.1.4 psycopg2-binary==2.9.13
bin=$("$work/venv/bin/python" -c \
    "import pathlib, pgserver; print(pathlib.Path(pgserver.__file__).parent / 'pginstall' / 'bin')")
if [ -n "$as" ]; then
    chmod -R go+rX "$work"
    chown nobody "$work"
fi
cd "$work"
$as "$bin/initdb" -D "$work/data" -U postgres -A trust -E UTF8 --locale=C -N > log
$as "$bin/pg_ctl" -D "$work/data" -w -l "$work/data/server.log" \
    -o "-c listen_addresses= -k $work -c wal_level=logical -c fsync=off" start >> log
cat > look.py <<'END'
import pathlib
import subprocess
import sys
import time

import psycopg2
import psycopg2.extras

host, tools = sys.argv[1:]
of = f"host={host} user=postgres dbname="
values = "SELECT f::text, r::text, d::text FROM m"
options = "-c extra_float_digits=3 -c datestyle=ISO"


def session(database):
    connection = psycopg2.connect(of + database, options=options)
    connection.autocommit = True
    return connection.cursor()


def fields(message):
    """Return the values of an insert: its tag, a relation, "N", their count, and each."""
    found, place = [], 8
    for _ in range(int.from_bytes(message[6:8], "big")):
        assert message[place : place + 1] == b"t"
        size = int.from_bytes(message[place + 1 : place + 5], "big")
        found.append(message[place + 5 : place + 5 + size].decode())
        place += 5 + size
    return found


def told(name, found):
    print(f"{name}: {', '.join(found)}", flush=True)


def read(name, slot, **settings):
    connection = psycopg2.connect(
        of + "one", connection_factory=psycopg2.extras.LogicalReplicationConnection, **settings
    )
    cursor = connection.cursor()
    cursor.start_replication(slot, options={"proto_version": "1", "publication_names": "p"})
    end = time.monotonic() + 60
    while time.monotonic() < end:
        message = cursor.read_message()
        if message is None:
            time.sleep(0.05)
        elif message.payload[:1] == b"I":
            told(name, fields(message.payload))
            break
    connection.close()


session("postgres").execute("CREATE DATABASE one")
session("postgres").execute("CREATE DATABASE two")
one, two = session("one"), session("two")
for cursor in one, two:
    cursor.execute("CREATE TABLE m (f float8, r real, d date)")
one.execute("CREATE PUBLICATION p FOR TABLE m")
for slot in "native", "psycopg2", "tool", "exact":
    one.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [slot])
one.execute("ALTER ROLE postgres SET extra_float_digits = 0")
one.execute("ALTER ROLE postgres SET datestyle = 'SQL, DMY'")
one.execute("INSERT INTO m VALUES (0.1::float8 + 0.2::float8, 1.0 / 3, '2026-01-02')")
one.execute(values)
told("written", one.fetchone())
two.execute(
    f"CREATE SUBSCRIPTION s CONNECTION '{of}one' PUBLICATION p "
    "WITH (create_slot = false, slot_name = native, copy_data = false)"
)
end = time.monotonic() + 60
row = None
while row is None and time.monotonic() < end:
    time.sleep(0.1)
    two.execute(values)
    row = two.fetchone()
told("PostgreSQL's subscriber", row)
read(f"psycopg2 {psycopg2.__version__.split()[0]}", "psycopg2")
one.execute("SELECT pg_current_wal_lsn()")
(until,) = one.fetchone()
subprocess.run(
    [f"{tools}/pg_recvlogical", "-h", host, "-U", "postgres", "-d", "one", "-S", "tool", "--start"]
    + ["-E", until, "-o", "proto_version=1", "-o", "publication_names=p", "-f", "changes"],
    check=True,
    timeout=60,
)
changes = pathlib.Path("changes").read_bytes()
told("pg_recvlogical", fields(changes[changes.index(b"\nI") + 1 :]))
read(f"psycopg2 {psycopg2.__version__.split()[0]}, with options", "exact", options=options)
END
timeout 300 "$work/venv/bin/python" look.py "$work" "$bin" | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
