#!/bin/sh
# adbc-driver-postgresql 1.13.0, with PostgreSQL 16.2 (of pgserver 0.1.4): infinity is a time long ago, an
# instant before minus infinity, and a matrix is a list.
#
# A row that is valid until 'infinity', as tables with a history have them, has ended then for whoever
# compares in Arrow; the driver adds the years from 1970 to 2000 to the largest number that there is.
# The same is so of dates, and of times beyond the year 294247, which PostgreSQL has. Object ids beyond
# 2,147,483,647 are negative. No error is raised for any of them. Seen (numbers: of Arrow's unit):
#
#   'infinity'::timestamptz: timestamp[us, tz=UTC] -9222425352054775809, before 1970: True
#   '-infinity'::timestamptz: timestamp[us, tz=UTC] -9222425352054775808, before 1970: True
#   'infinity'::date: date32[day] -2147472692, before 1970: True
#   '294276-12-31'::timestamp: timestamp[us] -9222426144109551616, before 1970: True
#   '2026-11-29'::timestamp: timestamp[us] 1795910400000000, before 1970: False
#   4294967295::oid: int32 -1
#   '{{1,2},{3,4}}'::int[]: list<item: int32> [1, 2, 3, 4]
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
"$work/venv/bin/pip" install -q pgserver==0.1.4 adbc-driver-postgresql==1.13.0 pyarrow==26.0.1
bin=$("$work/venv/bin/python" -c \
    "import pathlib, pgserver; print(pathlib.Path(pgserver.__file__).parent / 'pginstall' / 'bin')")
if [ -n "$as" ]; then
    chmod -R go+rX "$work"
    chown nobody "$work"
fi
cd "$work"
$as "$bin/initdb" -D "$work/data" -U postgres -A trust -E UTF8 --locale=C -N > log
$as "$bin/pg_ctl" -D "$work/data" -w -l "$work/data/server.log" \
    -o "-c listen_addresses= -k $work" start >> log
cat > look.py <<'END'
import sys

import pyarrow as pa
from adbc_driver_postgresql import dbapi

VALUES = (
    "'infinity'::timestamptz",
    "'-infinity'::timestamptz",
    "'infinity'::date",
    "'294276-12-31'::timestamp",
    "'2026-11-29'::timestamp",
    "4294967295::oid",
    "'{{1,2},{3,4}}'::int[]",
)

with dbapi.connect(f"postgresql://postgres@/postgres?host={sys.argv[1]}") as connection:
    with connection.cursor() as cursor:
        for value in VALUES:
            cursor.execute(f"SELECT {value} AS found")
            column = cursor.fetch_arrow_table()["found"].combine_chunks()
            if pa.types.is_temporal(column.type):
                width = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
                (number,) = column.view(width).to_pylist()
                early = f", before 1970: {number < 0}"
                print(f"{value}: {column.type} {number}{early}")
            else:
                print(f"{value}: {column.type} {column[0].as_py()}")
END
"$work/venv/bin/python" look.py "$work" | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
