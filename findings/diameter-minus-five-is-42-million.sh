#!/bin/sh
# diameter 0.7.0 (npm, RFC 6733): an amount of -5.00 is sent as 42,949,667.96, and a counter of more than 2**63 bytes is
# read as a negative one.
#
# Value-Digits, the digits of an amount, is an Integer64 (RFC 8506, 8.10), eight bytes in two's complement (RFC 6733, 4.2).
# Of a number the library writes the lower four, and zeros into the upper four; a Long of the package that it depends on
# is right, and so is what it reads of others. An Unsigned64, as CC-Total-Octets is (RFC 8506, 8.23), it reads as a signed
# Long. Nothing is raised. Seen (what was given; its bytes in the message; what they are; what the library reads there):
#
#   500: 00000000000001f4, 500, 500
#   -500: 00000000fffffe0c, 4294966796, 4294966796
#   Long of -500: fffffffffffffe0c, -500, -500
#   2**64 - 256 octets, by others: ffffffffffffff00, 18446744073709551360, -256
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts diameter@0.7.0 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const codec = require('diameter/lib/diameter-codec');
const Long = require(require.resolve('long', { paths: [require.resolve('diameter')] }));

const message = (...avp) => {
  const request = codec.constructRequest('Diameter Credit Control Application', 'Credit-Control', 'a;1;2');
  request.header.hopByHopId = 1;
  request.body.push(avp);
  return codec.encodeMessage(request);
};
const show = (name, bytes, signed) => {
  const ours = bytes.subarray(-8);
  const value = signed ? ours.readBigInt64BE() : ours.readBigUInt64BE();
  const read = codec.decodeMessage(bytes).body.at(-1)[1];
  console.log(`${name}: ${ours.toString('hex')}, ${value}, ${read}`);
};

for (const digits of [500, -500]) show(digits, message('Value-Digits', digits), true);
show('Long of -500', message('Value-Digits', Long.fromNumber(-500)), true);
const octets = message('CC-Total-Octets', 0);
octets.writeBigUInt64BE(2n ** 64n - 256n, octets.length - 8);
show('2**64 - 256 octets, by others', octets, false);
END
node --no-deprecation look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
