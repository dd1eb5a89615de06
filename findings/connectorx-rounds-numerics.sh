#!/bin/sh
# connectorx 0.4.6 to Arrow, with PostgreSQL 16.2 (of pgserver 0.1.4): every numeric is rounded to ten
# places, also where the column's type says that it has more; a price of 1e-12 is 0. And 24:00, which
# ends a day, is the time at which it begins.
#
# The digits of a numeric(38,18), as amounts of a coin have it, would stand in decimal128(38, 18); the
# table has decimal128(38, 10), whatever was declared, and nothing is said. Rows that were told apart
# by their amounts are equal, and less than one is one. psycopg 3.3.9 has what is stored, and refuses
# the time that Python has not. Seen:
#
#   0.123456789012345678::numeric(38,18): decimal128(38, 10) 0.1234567890; by psycopg 0.123456789012345678
#   0.99999999999::numeric(38,18): decimal128(38, 10) 1.0000000000; by psycopg 0.999999999990000000
#   1e-12::numeric: decimal128(38, 10) 0E-10; by psycopg 1E-12
#   '24:00'::time: time64[us] 00:00:00; by psycopg DataError
#   '12:00'::time: time64[us] 12:00:00; by psycopg 12:00:00
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
"$work/venv/bin/pip" install -q pgserver==0.1.4 connectorx==0.4.6 'psycopg[binary]==3.3.9' pyarrow==26.0.1
bin=$("$work/venv/bin/python" -c \
    "import pathlib, pgserver; print(pathlib.Path(pgserver.__file__).parent / 'pginstall' / 'bin')")
port=$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
if [ -n "$as" ]; then
    chmod -R go+rX "$work"
    chown nobody "$work"
fi
cd "$work"
$as "$bin/initdb" -D "$work/data" -U postgres -A trust -E UTF8 --locale=C -N > log
$as "$bin/pg_ctl" -D "$work/data" -w -l "$work/data/server.log" \
    -o "-c listen_addresses=127.0.0.1 -p $port -k $work" start >> log
cat > look.py <<'END'
import sys

import connectorx
import psycopg

address = f"postgresql://postgres@127.0.0.1:{sys.argv[1]}/postgres"
VALUES = (
    "0.123456789012345678::numeric(38,18)",
    "0.99999999999::numeric(38,18)",
    "1e-12::numeric",
    "'24:00'::time",
    "'12:00'::time",
)


def by_psycopg(query):
    with psycopg.connect(address) as connection:
        try:
            return connection.execute(query).fetchone()[0]
        except psycopg.DataError as error:
            return type(error).__name__


for value in VALUES:
    query = f"SELECT {value} AS found"
    column = connectorx.read_sql(address, query, return_type="arrow")["found"]
    print(f"{value}: {column.type} {column[0].as_py()}; by psycopg {by_psycopg(query)}")
END
"$work/venv/bin/python" look.py "$port" | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
