#!/bin/sh
# teltonika-parser 0.0.15 (npm, trackers of vehicles by Teltonika's codecs): the key of a driver is 3.5e-303, a truck's
# 48 V are -17536 mV, its odometer turns negative at 2,147,483,648 m; a packet of codec 16 has other elements. Beside it
# complete-teltonika-parser 0.3.4 has those right, and puts a car that is 86 m below the sea 65,450 m above it.
#
# The values of elements are integers of one, two, four and eight bytes; iButton (78), external voltage (66) and total
# odometer (16) have no sign, altitude has one; in codec 16 the identities have two bytes, and a byte of its own says what
# made the record (Teltonika, "Codec" and "AVL ID" of its data sending protocols). The library reads eight bytes as a
# double, the others with a sign, and codec 16 with the class of codec 8, as index.js names that file for both. Nothing
# is raised. Seen:
#
#   sent: altitude -86, 66 48000, 16 3000000000, 78 81985529216486895, 11 5
#   codec 8: altitude -86, 66 -17536, 16 -1294967296, 78 3.512700564088504e-303, 11 2.5e-323
#   codec 8 by the other: altitude 65450, 66 48000, 16 3000000000, 78 81985529216486895, 11 5
#   codec 16, first elements: 5 1, 0 1, 1 1, 0 66
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts teltonika-parser@0.0.15 complete-teltonika-parser@0.3.4 \
    > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const Parser = require('teltonika-parser');
const { ProtocolParser } = require('complete-teltonika-parser');

const ELEMENTS = [[1, [[1, 1]]], [2, [[66, 48000]]], [4, [[16, 3000000000]]], [8, [[78, 0x0123456789abcdefn], [11, 5]]]];
const SHOWN = [66, 16, 78, 11];

function number(value, size) {
  const data = Buffer.alloc(8);
  data.writeBigInt64BE(BigInt(value));
  return data.subarray(8 - size);
}

function sum(data) {
  let found = 0;
  for (const byte of data) {
    found ^= byte;
    for (let bit = 0; bit < 8; bit += 1) found = found & 1 ? (found >> 1) ^ 0xa001 : found >> 1;
  }
  return found;
}

function packet(codec) {
  const size = codec === 16 ? 2 : 1;
  const place = [number(-1224000000, 4), number(375000000, 4), number(-86, 2), number(270, 2), number(9, 1)];
  const parts = [number(Date.UTC(2026, 5, 30, 12), 8), number(0, 1), ...place, number(80, 2), number(0, size)];
  if (codec === 16) parts.push(number(5, 1));
  parts.push(number(5, 1));
  for (const [width, elements] of ELEMENTS) {
    parts.push(number(elements.length, 1));
    for (const [identity, value] of elements) parts.push(number(identity, size), number(value, width));
  }
  const data = Buffer.concat([number(codec, 1), number(1, 1), ...parts, number(1, 1)]);
  return Buffer.concat([number(0, 4), number(data.length, 4), data, number(sum(data), 4)]);
}

const values = new Map(ELEMENTS.flatMap(([, elements]) => elements));
const line = (altitude, of) => `altitude ${altitude}, ${SHOWN.map((identity) => `${identity} ${of(identity)}`).join(', ')}`;
console.log(`sent: ${line(-86, (identity) => values.get(identity))}`);
const [record] = new Parser(packet(8)).getAvl().records;
const found = new Map(record.ioElements.map(({ id, value }) => [id, value]));
console.log(`codec 8: ${line(record.gps.altitude, (identity) => found.get(identity))}`);
const [other] = new ProtocolParser(packet(8).toString('hex')).Content.AVL_Datas;
console.log(`codec 8 by the other: ${line(other.GPSelement.Altitude, (identity) => other.IOelement.Elements[identity])}`);
const [sixteen] = new Parser(packet(16)).getAvl().records;
const first = sixteen.ioElements.slice(0, 4).map(({ id, value }) => `${id} ${value}`);
console.log(`codec 16, first elements: ${first.join(', ')}`);
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
