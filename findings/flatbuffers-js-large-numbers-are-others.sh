#!/bin/sh
# flatbuffers 25.9.23 (npm), FlexBuffers: of a number of 2^63 and above, as 6.02214076e23, only its lowest 64 bits are
# written: 1e300 is 0 and 1e19 is negative; so is the BigInt 18446744073709551615. All who read find that, itself as
# well.
#
# FlexBuffers have integers of up to 64 bits with and without a sign, and doubles ("FlexBuffers", "Encoding"). The
# library writes each number that is whole as an integer, of which 64 bits are kept, though no double of that size has a
# fraction; a BigInt is always one with a sign. 6.02214076e23 + 0.0 is the same number in JavaScript, so that a caller
# cannot ask for the double but by the builder's own methods. Nothing is raised. flatbuffers 25.9.23 for Python reads
# what was written. Seen (by encode; then by the builder's addFloat):
#
#   1e15: JavaScript 1000000000000000, Python 1000000000000000
#   9223372036854775808: JavaScript -9223372036854775808, Python -9223372036854775808
#   1e19: JavaScript -8446744073709551616, Python -8446744073709551616
#   6.02214076e+23: JavaScript 1668969677964967936, Python 1668969677964967936
#   1e300: JavaScript 0, Python 0
#   18446744073709551615n: JavaScript -1, Python -1
#   6.02214076e+23 by addFloat: JavaScript 6.02214076e+23, Python 6.02214076e+23
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q flatbuffers==25.9.23
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts flatbuffers@25.9.23 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const flexbuffers = require('flatbuffers/js/flexbuffers.js');

function look(name, data) {
  const found = flexbuffers.toObject(data.buffer.slice(data.byteOffset, data.byteOffset + data.length));
  console.log(`${name}|${found}|${Buffer.from(data).toString('hex')}`);
}

for (const [name, value] of Object.entries({ '1e15': 1e15, '9223372036854775808 ': 2 ** 63, '1e19': 1e19,
  '6.02214076e+23': 6.02214076e23, '1e300': 1e300, '18446744073709551615n': 18446744073709551615n })) {
  look(name.trim(), flexbuffers.encode(value));
}
const builder = flexbuffers.builder();
builder.addFloat(6.02214076e23);
look('6.02214076e+23 by addFloat', builder.finish());
END
cat > look.py <<'END'
import sys

from flatbuffers import flexbuffers

for line in sys.stdin:
    name, found, data = line.strip().split("|")
    print(f"{name}: JavaScript {found}, Python {flexbuffers.Loads(bytes.fromhex(data))}")
END
node look.js > written
"$work/venv/bin/python" look.py < written | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
