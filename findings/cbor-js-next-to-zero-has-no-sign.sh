#!/bin/sh
# cbor-js 0.1.0 (npm, 1.2 million downloads a month): a half that lies next to zero loses its sign, so that -0.00003 is
# 0.00003; a Date, a Map and a BigInt are written as a map of nothing, and readings of 16 bits as a map by their places.
#
# A half of two bytes with an exponent of zero is its fraction times 2 to the -24, with its sign (RFC 8949, appendix D).
# The library leaves the sign out there. What it knows no form for it writes by the object's keys. Nothing is raised.
# cbor 10.0.12 (npm) reads all. Seen (bytes, cbor, cbor-js; then what is written and what cbor reads of it):
#
#   f90200: 0.000030517578125, 0.000030517578125
#   f98200: -0.000030517578125, 0.000030517578125
#   f98001: -5.960464477539063e-8, 5.960464477539063e-8
#   f98400: -0.00006103515625, -0.00006103515625
#   a Date: a0, {}
#   a Map of 1 to 2: a0, {}
#   the BigInt 5: a0, {}
#   the readings 7 and 8 of 16 bits: a2613007613108, {"0":7,"1":8}
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts cbor-js@0.1.0 cbor@10.0.12 > log 2>&1 \
    || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const library = require('cbor-js');
const other = require('cbor');

for (const written of ['f90200', 'f98200', 'f98001', 'f98400']) {
  const data = new Uint8Array(Buffer.from(written, 'hex'));
  console.log(`${written}: ${other.decodeFirstSync(data)}, ${library.decode(data.buffer)}`);
}
const values = {
  'a Date': new Date(1e12),
  'a Map of 1 to 2': new Map([[1, 2]]),
  'the BigInt 5': 5n,
  'the readings 7 and 8 of 16 bits': new Int16Array([7, 8]),
};
for (const [name, value] of Object.entries(values)) {
  const data = Buffer.from(library.encode(value));
  console.log(`${name}: ${data.toString('hex')}, ${JSON.stringify(other.decodeFirstSync(data))}`);
}
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
