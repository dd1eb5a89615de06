#!/bin/sh
# pg-logical-replication 2.5.0 (npm), with PostgreSQL: rows that the program has not acknowledged are confirmed to the
# server by a timer, though the manual says that the timer does not do this, and do not come again; and a
# heartbeat's time is seven days before it was sent.
#
# With `acknowledge: { auto: false }` the program says how far it has come, by `acknowledge(lsn)`. The manual of 2.5.0
# has of `timeoutSeconds`, 10 unless it is given: the status that is sent then "does not advance the WAL flush
# position". What is sent is the place of the last message that was received as written, flushed and applied. A
# program that ends between is not sent those rows again. With `timeoutSeconds: 0` they come. The time of heartbeats is
# counted from 2000-01-01 less seven days (946080000000 ms for 946684800000); so is the reply's, and its lower
# half is in the wrong unit besides. Seen (with timeoutSeconds 1, 4 s after the rows):
#
#   timeoutSeconds 1: first a, b, c; confirmed yes; a second session is sent nothing
#   timeoutSeconds 0: first d, e; confirmed no; a second session is sent d, e
#   heartbeat: 7 days early
#   reply_time: 7 days late
#
# Run as root it uses the user nobody, as PostgreSQL does not run as root. Needs python3 and Node 20. Ends with 0 while
# it is so, with another number when it changes.
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
"$work/venv/bin/pip" install -q pgserver==0.1.4
bin=$("$work/venv/bin/python" -c \
    "import pathlib, pgserver; print(pathlib.Path(pgserver.__file__).parent / 'pginstall' / 'bin')")
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts pg-logical-replication@2.5.0 pg@8.23.1 > log 2>&1 ||
    { tail -n 20 log; exit 1; }
if [ -n "$as" ]; then
    chmod -R go+rX "$work"
    chown nobody "$work"
fi
$as "$bin/initdb" -D "$work/data" -U postgres -A trust -E UTF8 --locale=C -N > log
$as "$bin/pg_ctl" -D "$work/data" -w -l "$work/data/server.log" \
    -o "-c listen_addresses= -k $work -c wal_level=logical -c fsync=off" start >> log
cat > look.js <<'END'
const { Client } = require('pg');
const { LogicalReplicationService, PgoutputPlugin } = require('pg-logical-replication');

const server = { host: process.argv[2], user: 'postgres', database: 'postgres' };
const SLOT = 'feed';
const DAY = 86400000;
const clocks = { heartbeat: null, reply: null };
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));
const client = new Client(server);

const one = async (query) => Object.values((await client.query(query)).rows[0])[0];

async function read(timeoutSeconds, seconds) {
  const rows = [];
  const service = new LogicalReplicationService(server, { acknowledge: { auto: false, timeoutSeconds } });
  service.on('error', () => {});
  service.on('data', (_, message) => { if (message.tag === 'insert') rows.push(message.new.x); });
  service.on('heartbeat', (_, at) => { clocks.heartbeat = Math.round((at - Date.now()) / DAY); });
  const plugin = new PgoutputPlugin({ protoVersion: 1, publicationNames: ['p'] });
  service.subscribe(plugin, SLOT).catch(() => {});
  await pause(seconds);
  const reply = await one('SELECT max(reply_time) FROM pg_stat_replication');
  if (reply !== null) clocks.reply = Math.round((reply - Date.now()) / DAY);
  await service.stop();
  for (let tries = 0; tries < 100; tries += 1) {
    if (!(await one('SELECT bool_or(active) FROM pg_replication_slots'))) break;
    await pause(0.1);
  }
  return rows;
}

async function look(timeoutSeconds, values) {
  for (const value of values) await client.query('INSERT INTO t VALUES ($1)', [value]);
  const end = await one('SELECT pg_current_wal_lsn()');
  const first = await read(timeoutSeconds, 5);
  const confirmed = await one(`SELECT confirmed_flush_lsn >= '${end}' FROM pg_replication_slots`);
  const second = await read(0, 4);
  console.log(`timeoutSeconds ${timeoutSeconds}: first ${first.join(', ')};`
    + ` confirmed ${confirmed ? 'yes' : 'no'}; a second session is sent ${second.join(', ') || 'nothing'}`);
}

async function main() {
  await client.connect();
  await client.query('CREATE TABLE t (x text PRIMARY KEY)');
  await client.query('CREATE PUBLICATION p FOR TABLE t');
  await client.query(`SELECT pg_create_logical_replication_slot('${SLOT}', 'pgoutput')`);
  await look(1, ['a', 'b', 'c']);
  await look(0, ['d', 'e']);
  for (const [name, days] of [['heartbeat', clocks.heartbeat], ['reply_time', clocks.reply]]) {
    console.log(`${name}: ${Math.abs(days)} days ${days < 0 ? 'early' : 'late'}`);
  }
  process.exit(0);
}

main();
END
timeout 120 node look.js "$work" | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
