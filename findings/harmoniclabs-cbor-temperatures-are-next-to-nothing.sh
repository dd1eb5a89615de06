#!/bin/sh
# @harmoniclabs/cbor 2.0.1 (npm): a temperature of 21.5 that another library wrote as a double is 4.15e-317, and what it
# writes itself is that for others; a float of four bytes is read so, too, one of two bytes is right.
#
# All numbers of CBOR have their first byte first (RFC 8949, section 3 and appendix A). The library reads and writes floats
# of four and eight bytes the other way round, on a machine with little-endian numbers, so that it understands itself, and
# sends what others take for another number. Nothing is raised. cbor 10.0.12 (npm) reads and writes them. Seen:
#
#   21.5 in 8 bytes, fb4035800000000000: 4.151258e-317
#   21.5 in 4 bytes, fa41ac0000: 6.179305838133146e-41
#   21.5 in 2 bytes, f94d60: 21.5
#   21.5 written fb0000000000803540: cbor reads 4.151258e-317, the library 21.5
#   1e+300 written fb9c7500883ce4377e: cbor reads -1.3586411504376828e-171, the library 1e+300
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts @harmoniclabs/cbor@2.0.1 cbor@10.0.12 > log 2>&1 \
    || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const { Cbor, CborSimple } = require('@harmoniclabs/cbor');
const other = require('cbor');

for (const written of ['fb4035800000000000', 'fa41ac0000', 'f94d60']) {
  const data = Buffer.from(written, 'hex');
  const found = Cbor.parse(new Uint8Array(data)).simple;
  console.log(`${other.decodeFirstSync(data)} in ${data.length - 1} bytes, ${written}: ${found}`);
}
for (const number of [21.5, 1e300]) {
  const data = Buffer.from(Cbor.encode(new CborSimple(number, 'float')));
  const found = `cbor reads ${other.decodeFirstSync(data)}, the library ${Cbor.parse(new Uint8Array(data)).simple}`;
  console.log(`${number} written ${data.toString('hex')}: ${found}`);
}
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
