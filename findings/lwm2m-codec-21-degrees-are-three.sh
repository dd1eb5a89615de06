#!/bin/sh
# lwm2m-codec 0.1.1 (npm, devices by Lightweight M2M): a temperature of 21.5 that a device sends in double precision is
# 2.8359375, and a negative integer of 64 bits is 8,589,934,592 too small.
#
# In TLV a float has four bytes or eight, an integer one, two, four or eight in two's complement (OMA LwM2M 1.0.2, 6.4.3
# and appendix C). The library reads the first four of eight as if they were a float; of a negative number it subtracts
# 2^32 twice, and what it writes for one is another number. It cannot write 128 to 255, as it counts bytes without a
# sign (that raises an error). Nothing else is raised. Seen:
#
#   float 21.5: 21.5
#   double 21.5: 2.8359375
#   8 bytes, 5000000000: 5000000000
#   8 bytes, -1: -8589934593
#   8 bytes, -5000000000: -13589934592
#   written and read, -5000000000: -9294967296
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts lwm2m-codec@0.1.1 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const codec = require('lwm2m-codec');

const TEMPERATURE = '/3303/0/5700';
const TIME = '/3/0/13';
const tlv = (path, head, value) => codec.decode('tlv', path, Buffer.concat([Buffer.from(head), value]));
const single = Buffer.alloc(4);
single.writeFloatBE(21.5);
const double = Buffer.alloc(8);
double.writeDoubleBE(21.5);
console.log(`float 21.5: ${tlv(TEMPERATURE, [0xe4, 0x16, 0x44], single)}`);
console.log(`double 21.5: ${tlv(TEMPERATURE, [0xe8, 0x16, 0x44, 8], double)}`);
for (const number of [5000000000n, -1n, -5000000000n]) {
  const value = Buffer.alloc(8);
  value.writeBigInt64BE(number);
  console.log(`8 bytes, ${number}: ${tlv(TIME, [0xc8, 13, 8], value)}`);
}
const again = codec.decode('tlv', TIME, codec.encode('tlv', TIME, -5000000000));
console.log(`written and read, -5000000000: ${again}`);
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
