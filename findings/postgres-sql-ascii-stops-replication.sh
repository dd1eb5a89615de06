#!/bin/sh
# PostgreSQL 16.2 (of pgserver 0.1.4; 15.20 of Debian does the same): of a database with the encoding
# SQL_ASCII, one text that is no UTF-8 ends logical replication to a client whose client_encoding is
# UTF8, again at each try, though the manual says of SQL_ASCII that no conversion is done and bytes are
# passed on as they are.
#
# The server verifies the text for the client, and the error ends START_REPLICATION before the slot
# has moved: the change is given again first and fails again, and nothing behind it is ever given. A
# driver that asks for UTF8 by itself cannot read such a slot. With client_encoding SQL_ASCII, and
# nothing else changed, all changes come. Seen:
#
#   client_encoding UTF8, first try: error, rows after it: 0
#   client_encoding UTF8, second try: error, rows after it: 0
#   client_encoding SQL_ASCII: no error, rows after it: 1
#
# Run as root it uses the user nobody, as PostgreSQL does not run as root. Ends with 0 while it is so,
# with another number when it changes.
set -eu
work=$(mktemp -d)
bin=
as=
if [ "$(id -u)" = 0 ]; then
    as="runuser -u nobody --"
fi
end() {
    $as "$bin/pg_ctl" -D "$work/data" -m immediate -w stop > /dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pgserver==0.1.4
bin=$("$work/venv/bin/python" -c \
    "import pathlib, pgserver; print(pathlib.Path(pgserver.__file__).parent / 'pginstall' / 'bin')")
if [ -n "$as" ]; then
    chmod -R go+rX "$work"
    chown nobody "$work"
fi
cd "$work"

$as "$bin/initdb" -D "$work/data" -U postgres -A trust -E SQL_ASCII --locale=C -N > "$work/log"
$as "$bin/pg_ctl" -D "$work/data" -w -l "$work/data/server.log" \
    -o "-c wal_level=logical -c listen_addresses= -k $work" start >> "$work/log"
sql() {
    "$bin/psql" -h "$work" -U postgres -d postgres -qAt -c "$1"
}
sql "CREATE TABLE t (id int, name text)"
sql "CREATE PUBLICATION p FOR TABLE t"
sql "SELECT pg_create_logical_replication_slot('s', 'pgoutput')" > /dev/null
sql "INSERT INTO t VALUES (1, E'\\xff')"
sql "INSERT INTO t VALUES (2, 'marker')"
last=$(sql "SELECT pg_current_wal_lsn()")

# Read the slot to the end of the log; print how it ended and how often the second row came.
read_as() {
    if PGCLIENTENCODING=$1 timeout 60 "$bin/pg_recvlogical" -h "$work" -U postgres -d postgres \
        -S s --start --no-loop -E "$last" -f "$work/out" -o proto_version=1 \
        -o publication_names=p 2> "$work/said"
    then how="no error"
    elif grep -q 'invalid byte sequence for encoding "UTF8"' "$work/said"
    then how=error
    else cat "$work/said" >&2; exit 3
    fi
    echo "$how, rows after it: $(grep -c -a marker "$work/out" || true)"
    rm -f "$work/out"
}
touch "$work/out"
first=$(read_as UTF8)
second=$(read_as UTF8)
third=$(read_as SQL_ASCII)
"$bin/postgres" --version
echo "client_encoding UTF8, first try: $first"
echo "client_encoding UTF8, second try: $second"
echo "client_encoding SQL_ASCII: $third"
[ "$first" = "error, rows after it: 0" ] && [ "$second" = "$first" ] \
    && [ "$third" = "no error, rows after it: 1" ]
