#!/bin/sh
# nmea2000 2026.10.3: a time of day loses its fraction of a second, so that ten positions a second have one
# time.
#
# A time of NMEA 2000 counts in steps of 0.0001 s (canboat's PGN database: TIME, resolution 0.0001), and receivers
# send several positions a second. The value that the library gives is cut to whole seconds, up to 0.9999 s too
# early; the number of seconds with its fraction is in `raw_value` only. canboatjs 3.20.0 has the fraction.
# No error is raised, and a speed that is computed from such times is 0 or infinite. Seen (PGN 126992, what was
# sent, and what each reads):
#
#   12:00:00.0000: nmea2000 12:00:00, canboatjs 12:00:00
#   12:00:00.1000: nmea2000 12:00:00, canboatjs 12:00:00.10000
#   12:00:00.7500: nmea2000 12:00:00, canboatjs 12:00:00.75000
#   12:00:00.9999: nmea2000 12:00:00, canboatjs 12:00:00.99990
#
# Needs python3 and npm. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q nmea2000==2026.10.3
cd "$work"
npm init -y > log
npm install --silent @canboat/canboatjs@3.20.0 >> log
cat > look.js <<'END'
const { FromPgn } = require("@canboat/canboatjs");
for (const line of process.argv.slice(2)) {
  console.log(new FromPgn().parseString(line).fields.time);
}
END
cat > look.py <<'END'
import struct
import subprocess

from nmea2000.decoder import NMEA2000Decoder

STEPS = (0, 1000, 7500, 9999)
lines = []
for step in STEPS:
    data = struct.pack("<BBHI", 1, 0xF0, 19723, 12 * 3600 * 10_000 + step)
    lines.append("2024-01-01-00:00:00.000,3,126992,1,255,8," + ",".join(f"{byte:02x}" for byte in data))
others = subprocess.run(["node", "look.js", *lines], stdout=subprocess.PIPE, text=True, check=True)
decoder = NMEA2000Decoder()
for step, line, other in zip(STEPS, lines, others.stdout.split()):
    (value,) = (field.value for field in decoder.decode(line).fields if field.id == "time")
    print(f"12:00:00.{step:04}: nmea2000 {value}, canboatjs {other}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
