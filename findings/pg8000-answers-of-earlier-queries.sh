#!/bin/sh
# pg8000 1.31.6, with PostgreSQL 16.2 (of pgserver 0.1.4): after a value that Python cannot hold each query
# gets the answer of an earlier one.
#
# `time` has 24:00 in PostgreSQL, which datetime.time has not (23:59:59.9999999 is rounded to it). That
# query is a ValueError, as it may be; but the rest of its answer stays in the connection, which goes
# on without a word: the next query fails as well, and from then on each has the answer of the one
# before it, of whatever type. psycopg 3.3.9 raises an error for the value, and answers what is asked
# after that. Seen:
#
#   pg8000, 1: 1
#   pg8000, '24:00'::time: ValueError
#   pg8000, 2: TypeError
#   pg8000, 'three': 2
#   pg8000, 4: 'three'
#   pg8000, 5: 4
#   psycopg, 1: 1
#   psycopg, '24:00'::time: DataError
#   psycopg, 2: 2
#   psycopg, 'three': 'three'
#   psycopg, 4: 4
#   psycopg, 5: 5
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
"$work/venv/bin/pip" install -q pgserver==0.1.4 pg8000==1.31.6 "psycopg[binary]==3.3.9"
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

import pg8000.native
import psycopg

SOCKETS = sys.argv[1]
by_pg8000 = pg8000.native.Connection("postgres", unix_sock=f"{SOCKETS}/.s.PGSQL.5432")
by_psycopg = psycopg.connect(f"host={SOCKETS} user=postgres", autocommit=True)
for name, ask in (
    ("pg8000", lambda sql: by_pg8000.run(sql)[0][0]),
    ("psycopg", lambda sql: by_psycopg.execute(sql).fetchone()[0]),
):
    for value in ("1", "'24:00'::time", "2", "'three'", "4", "5"):
        try:
            answer = repr(ask(f"SELECT {value}"))
        except (ValueError, TypeError, psycopg.DataError) as error:
            answer = type(error).__name__
        print(f"{name}, {value}: {answer}")
END
"$work/venv/bin/python" look.py "$work" | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
