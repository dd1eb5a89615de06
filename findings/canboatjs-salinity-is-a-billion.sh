#!/bin/sh
# @canboat/canboatjs 3.20.0 (npm): numbers that NMEA 2000 has as IEEE floats are read as integers, so that a
# salinity of 35 is 1108082688; a battery's Peukert exponent of 1.25 is 0.252; and a zone of minus three and
# a half hours is "-4:-30:00".
#
# The field's type FLOAT is known to the definitions that it carries and to none of its readers. An exponent is 1 and
# as many times 0.002 as the message says; here 1 is added before the product is taken. Hours and minutes of
# a negative duration are each rounded down. nmea2000 2026.10.3 (Python), which takes the same definitions, is given
# the same frames; its salinity is a thousandth, and the unit beside it is ppt all the same. Seen (PGN 130321, 127513
# and 129033, in fast packets of two to four frames or one frame):
#
#   salinity 35 ppt: canboatjs 1108082688, nmea2000 0.035
#   salinity 0 ppt: canboatjs 0, nmea2000 0.0
#   exponent 1.25: canboatjs 0.252, nmea2000 1.25
#   exponent 1: canboatjs 0.002, nmea2000 1.0
#   local offset -210 min: canboatjs -4:-30:00, nmea2000 -12600
#   local offset -300 min: canboatjs -5:00:00, nmea2000 -18000
#   local offset 345 min: canboatjs 05:45:00, nmea2000 20700
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q nmea2000==2026.10.3
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts @canboat/canboatjs@3.20.0 @canboat/ts-pgns@1.11.18 \
    > log 2>&1 || { tail -n 20 log; exit 1; }
cat > ask.js <<'END'
const { FromPgn } = require('@canboat/canboatjs');
const questions = JSON.parse(require('node:fs').readFileSync('questions.json', 'utf8'));
const answers = questions.map(({ lines, field }) => {
  const parser = new FromPgn();
  parser.on('error', (_, error) => { throw error; });
  return lines.map((line) => parser.parseString(line)).find(Boolean).fields[field];
});
console.log(JSON.stringify(answers));
END
cat > look.py <<'END'
import json
import pathlib
import struct
import subprocess

from nmea2000 import NMEA2000Decoder


def lines_of(number, data, fast):
    frames = [data]
    if fast:
        first = bytes([0, len(data)]) + data[:6]
        rest = [data[at : at + 7] for at in range(6, len(data), 7)]
        frames = [first] + [bytes([n]) + part.ljust(7, b"\xff") for n, part in enumerate(rest, 1)]
    head = f"2026-11-30-12:00:00.000,6,{number},1,255,8,"
    return [head + frame.hex(",") for frame in frames]


def salinity(value):
    station = struct.pack("<BHIii", 0xF0, 20787, 0, 500_000_000, 100_000_000)
    return station + struct.pack("<fH", value, 28315) + b"\x02\x01" * 2


def battery(count):
    return bytes([0, 0xFF, 0xFF]) + struct.pack("<HbBb", 100, 0, count, 90)


def zone(minutes):
    return struct.pack("<HIh", 20787, 0, minutes)


CASES = (
    ("salinity 35 ppt", 130321, salinity(35), "salinity"),
    ("salinity 0 ppt", 130321, salinity(0), "salinity"),
    ("exponent 1.25", 127513, battery(125), "peukertExponent"),
    ("exponent 1", 127513, battery(0), "peukertExponent"),
    ("local offset -210 min", 129033, zone(-210), "localOffset"),
    ("local offset -300 min", 129033, zone(-300), "localOffset"),
    ("local offset 345 min", 129033, zone(345), "localOffset"),
)
questions = [
    {"lines": lines_of(number, data, number != 129033), "field": field}
    for _, number, data, field in CASES
]
pathlib.Path("questions.json").write_text(json.dumps(questions))
answers = json.loads(subprocess.run(["node", "ask.js"], check=True, stdout=-1).stdout)
for (name, *_), question, answer in zip(CASES, questions, answers, strict=True):
    decoder = NMEA2000Decoder()
    message = [decoder.decode(line) for line in question["lines"]][-1]
    value = next(field.value for field in message.fields if field.id == question["field"])
    print(f"{name}: canboatjs {answer}, nmea2000 {value}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
