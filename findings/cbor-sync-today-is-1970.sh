#!/bin/sh
# cbor-sync 1.0.4 (npm, 1.4 million downloads a month): a time that another library wrote, 30 June 2026, is 21 January 1970;
# a large negative number is the same bytes as a positive one.
#
# Tag 1 is seconds since 1970, whole or with a fraction; a negative large number has tag 3, a positive one tag 2, both on
# bytes (RFC 8949, 3.4.2 and 3.4.3). The library has tag 1 among those that it makes Dates of, and takes the seconds for
# milliseconds; it writes a Date as text, with tag 0, which it reads right. It drops tags that it does not know. Nothing is
# raised. cbor 10.0.12 (npm) wrote the values and reads them. Seen (as written, then of cbor-sync, then of cbor):
#
#   c11a6a43afc0: 1970-01-21T15:13:40.800Z, 2026-06-30T12:00:00.000Z
#   c1fb41da90ebf0200000: 1970-01-21T15:13:40.800Z, 2026-06-30T12:00:00.500Z
#   c07818323032362d30362d33305431323a30303a30302e3030305a: 2026-06-30T12:00:00.000Z, 2026-06-30T12:00:00.000Z
#   c249010000000000000000: 010000000000000000, 18446744073709551616
#   c349010000000000000000: 010000000000000000, -18446744073709551617
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts cbor-sync@1.0.4 cbor@10.0.12 > log 2>&1 \
    || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const sync = require('cbor-sync');
const other = require('cbor');

function text(value) {
  if (value instanceof Date) return value.toISOString();
  return Buffer.isBuffer(value) ? value.toString('hex') : String(value);
}

const time = Date.UTC(2026, 5, 30, 12);
const values = [new Date(time), new Date(time + 500)].map((value) => other.encodeOne(value));
values.push(sync.encode(new Date(time)), other.encodeOne(2n ** 64n), other.encodeOne(-(2n ** 64n) - 1n));
for (const data of values) {
  console.log(`${data.toString('hex')}: ${text(sync.decode(data))}, ${text(other.decodeFirstSync(data))}`);
}
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
