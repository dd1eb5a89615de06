#!/bin/sh
# borc 3.0.0 (npm, CBOR): a Date is written without its fraction, rounded to the nearest second, so that an event of the
# last half second of a year is of the next one.
#
# Tag 1 has seconds since 1970, as an integer or as a float (RFC 8949, 3.4.2). The library writes an integer always,
# and reads floats as they are; of two events of one second the order is lost, and half of all events are of the
# future. Nothing is raised. cbor 10.0.12 writes a float where there is a fraction. Seen (the time; bytes, and what
# cbor2 6.3.0 for Python reads from them and from cbor's):
#
#   2026-11-30T12:00:00.000Z: borc c11a6b0d6540 12:00:00; cbor 12:00:00
#   2026-11-30T12:00:00.499Z: borc c11a6b0d6540 12:00:00; cbor 12:00:00.499000
#   2026-11-30T12:00:00.500Z: borc c11a6b0d6541 12:00:01; cbor 12:00:00.500000
#   2026-12-31T23:59:59.600Z: borc c11a6b36ec80 00:00:00; cbor 23:59:59.600000
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q cbor2==6.3.0
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts borc@3.0.0 cbor@10.0.12 > log 2>&1 ||
    { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import json
import subprocess

import cbor2

PROGRAM = """
const [borc, cbor] = [require('borc'), require('cbor')];
const answers = JSON.parse(process.argv[1]).map((time) =>
  [borc, cbor].map((library) => library.encode(new Date(time)).toString('hex')));
console.log(JSON.stringify(answers));
"""
TIMES = ("2026-11-30T12:00:00.000Z", "2026-11-30T12:00:00.499Z", "2026-11-30T12:00:00.500Z")
TIMES += ("2026-12-31T23:59:59.600Z",)
command = ["node", "-e", PROGRAM, json.dumps(TIMES)]
answers = json.loads(subprocess.run(command, check=True, stdout=-1).stdout)
for time, texts in zip(TIMES, answers, strict=True):
    one, two = (cbor2.loads(bytes.fromhex(text)).time() for text in texts)
    print(f"{time}: borc {texts[0]} {one}; cbor {two}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
