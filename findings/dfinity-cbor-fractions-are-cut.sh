#!/bin/sh
# @dfinity/cbor 0.2.3 (npm, 115,000 downloads a month): 21.9 degrees are written as 21, half a volt below zero as -1,
# and 0.001 as 0; a Date as a map of nothing.
#
# The library writes whole numbers and no floats, which its documents do not say, and gives each number to functions
# that write whole bytes and cut what they are given; below zero -1 - n is cut (RFC 8949, 3.1), so that -0.5 moves away
# from zero. NaN and infinite numbers are refused as too large. Its own decoder reads no float, and says so. cbor
# 10.0.12 (npm) reads what it writes. Seen:
#
#   21.9: 21
#   -0.5: -1
#   -1.5: -1
#   0.001: 0
#   300.7: 300
#   a Date: {}
#   NaN: SerializationError: Value too large to encode: NaN
#   21.9 of cbor: DecodingError: Unrecognized simple type: 11011
#
# Needs Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts @dfinity/cbor@0.2.3 cbor@10.0.12 > log 2>&1 \
    || { tail -n 20 log; exit 1; }
cat > look.mjs <<'END'
import { decode, encode } from '@dfinity/cbor';
import other from 'cbor';

function attempt(action) {
  try {
    return action();
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
}

for (const value of [21.9, -0.5, -1.5, 0.001, 300.7, new Date(1e12), NaN]) {
  const name = value instanceof Date ? 'a Date' : value;
  console.log(`${name}: ${attempt(() => JSON.stringify(other.decodeFirstSync(Buffer.from(encode(value)))))}`);
}
console.log(`21.9 of cbor: ${attempt(() => decode(new Uint8Array(other.encodeOne(21.9))))}`);
END
node look.mjs | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
