#!/bin/sh
# notepack.io 3.0.1 (npm, MessagePack): a number of 2**64 or more is written as an integer of 64 bits, which
# has its lowest bits: 2**64 and 1e300 are 0, and 1e20 is 7766279631452241920.
#
# Numbers of JavaScript are doubles, and MessagePack has those. But what has no fraction is written as an integer
# whatever its size is, and from 2**117 on all of its lowest bits are zeros. Below -2**63 it is so as well, with the
# sign gone for some. The library reads back what it wrote, and nothing is raised: an upper bound or a sum of squares
# is 0 for the receiver. @msgpack/msgpack 3.1.3 writes doubles for such. Seen (the number; bytes, and what
# msgpack 1.2.4 for Python reads from them):
#
#   2**64 - 2048: notepack.io cffffffffffffff800 18446744073709549568; @msgpack/msgpack 1.844674407370955e+19
#   2**64: notepack.io cf0000000000000000 0; @msgpack/msgpack 1.8446744073709552e+19
#   1e20: notepack.io cf6bc75e2d63100000 7766279631452241920; @msgpack/msgpack 1e+20
#   1e300: notepack.io cf0000000000000000 0; @msgpack/msgpack 1e+300
#   -(2**63) - 2048: notepack.io d37ffffffffffff800 9223372036854773760; @msgpack/msgpack -9.223372036854778e+18
#   -1e300: notepack.io d30000000000000000 0; @msgpack/msgpack -1e+300
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q msgpack==1.2.4
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts notepack.io@3.0.1 @msgpack/msgpack@3.1.3 > log 2>&1 ||
    { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import json
import subprocess

import msgpack

PROGRAM = """
const notepack = require('notepack.io');
const { encode } = require('@msgpack/msgpack');
const NUMBERS = { '2**64 - 2048': 2 ** 64 - 2048, '2**64': 2 ** 64, '1e20': 1e20, '1e300': 1e300,
  '-(2**63) - 2048': -(2 ** 63) - 2048, '-1e300': -1e300 };
const hex = (bytes) => Buffer.from(bytes).toString('hex');
const answers = Object.entries(NUMBERS).map(([name, number]) =>
  [name, hex(notepack.encode(number)), hex(encode(number))]);
console.log(JSON.stringify(answers));
"""
answers = json.loads(subprocess.run(["node", "-e", PROGRAM], check=True, stdout=-1).stdout)
for name, *texts in answers:
    one, two = (msgpack.unpackb(bytes.fromhex(text)) for text in texts)
    print(f"{name}: notepack.io {texts[0]} {one}; @msgpack/msgpack {two}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
