#!/bin/sh
# extended-nmea 2.1.3 (npm): the hundredths of a second of an NMEA 0183 time are read as milliseconds: a receiver's
# ten places a second are 10 ms apart, and the next second's first is 910 ms behind the last.
#
# Times are hhmmss.ss in what most receivers send. The digits behind the point are taken for a whole number of
# milliseconds whether there are two or three; one digit, which the standard has as well, is refused by an error.
# A track's speed that is computed from its times is ten times too high. pynmea2 1.19.0 reads them as fractions. Seen:
#
#   120000.00: extended-nmea 12:00:00.000, pynmea2 12:00:00
#   120000.10: extended-nmea 12:00:00.010, pynmea2 12:00:00.100000
#   120000.90: extended-nmea 12:00:00.090, pynmea2 12:00:00.900000
#   120001.00: extended-nmea 12:00:01.000, pynmea2 12:00:01
#   120000.900: extended-nmea 12:00:00.900, pynmea2 12:00:00.900000
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pynmea2==1.19.0
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts extended-nmea@2.1.3 > log 2>&1 ||
    { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import json
import subprocess

import pynmea2

PROGRAM = """
const { Decoder } = require('extended-nmea');
const two = (number) => String(number).padStart(2, '0');
const shown = JSON.parse(process.argv[1]).map((line) => {
  const { hours, minutes, seconds, milliseconds } = Decoder.decode(line).time;
  return `${two(hours)}:${two(minutes)}:${two(seconds)}.${String(milliseconds).padStart(3, '0')}`;
});
console.log(JSON.stringify(shown));
"""
TIMES = ("120000.00", "120000.10", "120000.90", "120001.00", "120000.900")


def sentence(time):
    check = 0
    for character in (body := f"GPGLL,0330.0000,N,00512.0000,E,{time},A,A"):
        check ^= ord(character)
    return f"${body}*{check:02X}\r\n"


lines = [sentence(time) for time in TIMES]
command = ["node", "-e", PROGRAM, json.dumps(lines)]
answers = json.loads(subprocess.run(command, check=True, stdout=-1).stdout)
for time, line, answer in zip(TIMES, lines, answers, strict=True):
    found = pynmea2.parse(line.strip()).timestamp.replace(tzinfo=None)
    print(f"{time}: extended-nmea {answer}, pynmea2 {found}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
