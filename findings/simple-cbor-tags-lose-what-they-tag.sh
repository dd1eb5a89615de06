#!/bin/sh
# simple-cbor 0.4.1 (npm, 200,000 downloads a month): what has a tag above 23 is left out, so that a reader takes the
# value behind a link for the link; a text with a sign of degrees is cut short; 21.5 is next to nothing; -256 as a
# BigInt is -65281.
#
# A tag stands before what it tags, a text has its length in bytes, floats have their first byte first, and a large
# number n below zero has the bytes of -1 - n (RFC 8949, 3, 3.1 and 3.4.3). The library writes the tag only, the length
# in characters of JavaScript, floats as the machine has them, and the digits of n. Nothing is raised. cbor 10.0.12
# (npm) reads what it writes. Seen:
#
#   1 s, then 5: c118011805, read as 1970-01-01T00:00:01.000Z, then 5
#   a link, then 5: d8201805, read as tag 32 of 5
#   20 m, then 5: 643230206d1805, read as 20 m, then 5
#   20 °, then 5: 64323020c2b01805, read as The encoded data was not valid for encoding utf-8
#   21.5: fb0000000000803540, read as 4.151258e-317
#   -255: c34200ff, read as -256
#   -256: c342ff00, read as -65281
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts simple-cbor@0.4.1 cbor@10.0.12 > log 2>&1 \
    || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const { value } = require('simple-cbor');
const { BigIntEncoder } = require('simple-cbor/encoders/bigint');
const other = require('cbor');

function text(item) {
  if (item instanceof Date) return item.toISOString();
  return item instanceof other.Tagged ? `tag ${item.tag} of ${item.value}` : String(item);
}

const large = new BigIntEncoder();
for (const [name, ...parts] of [
  ['1 s, then 5', value.tagged(1, value.u8(1)), value.u8(5)],
  ['a link, then 5', value.tagged(32, value.string('coap://meter')), value.u8(5)],
  ['20 m, then 5', value.string('20 m'), value.u8(5)],
  ['20 °, then 5', value.string('20 °'), value.u8(5)],
  ['21.5', value.doubleFloat(21.5)],
  ['-255', large.encode(-255n)],
  ['-256', large.encode(-256n)],
]) {
  const data = Buffer.concat(parts.map((part) => Buffer.from(part)));
  let read;
  try {
    read = other.decodeAllSync(data).map(text).join(', then ');
  } catch (error) {
    read = error.message;
  }
  console.log(`${name}: ${data.toString('hex')}, read as ${read}`);
}
END
node look.js | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
