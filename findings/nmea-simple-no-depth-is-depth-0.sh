#!/bin/sh
# nmea-simple 3.3.0 (npm): a depth that the sounder has lost is 0 m, a heading that is not known is north, and a
# receiver without a fix has the best precision there can be, at 0 N 0 E; the position that has a fix loses the
# fraction of its second in one sentence and keeps it in another.
#
# A field without characters says that there is no value (NMEA 0183, "Null fields"). The library takes each number
# that is not there for 0, in depth, wind, heading, speed, precision and signal alike, so that an alarm for shallow
# water rings where the water is deepest, and nothing tells it from a value that was sent; a depth has no status
# either. Its RMC and GGA of one receiver at one time have two times, 0.9 s apart. pynmeagps 1.1.8 for Python has
# '' where there is nothing, and one time for both. Seen (nmea-simple, and pynmeagps behind the bar):
#
#   DBT,,f,,M,,F: depthMeters 0 | depthm ''
#   HDT,,T: heading 0 | headingT ''
#   VTG,,T,,M,0.0,N,0.0,K: trackTrue 0 | cogt ''
#   MWV,,R,,N,V: windAngle 0, speed 0 | angle '', speed ''
#   GSA,A,1,,,,,,,,,,,,,,,: PDOP 0, HDOP 0 | PDOP '', HDOP ''
#   GLL,,,,,123519,V: latitude 0, longitude 0 | lat '', lon ''
#   GGA,,,,,,0,00,99.9,,M,,M,,: time 1970-01-01T00:00:00.000Z, altitudeMeters 0 | time '', alt ''
#   RMC,235959.900,A,0030.0,S,00030.0,W,2,84,311299,3,W: 23:59:59.000 | 23:59:59.900000
#   GGA,235959.900,0030.0,S,00030.0,W,1,08,0.9,5,M,4,M,,: 23:59:59.900 | 23:59:59.900000
#
# Needs python3, node and npm. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pynmeagps==1.1.8
cd "$work"
npm install --no-audit --no-fund --silent nmea-simple@3.3.0
cat > sentences.json <<'END'
[
  ["DBT,,f,,M,,F", ["depthMeters"], ["depthm"]],
  ["HDT,,T", ["heading"], ["headingT"]],
  ["VTG,,T,,M,0.0,N,0.0,K", ["trackTrue"], ["cogt"]],
  ["MWV,,R,,N,V", ["windAngle", "speed"], ["angle", "speed"]],
  ["GSA,A,1,,,,,,,,,,,,,,,", ["PDOP", "HDOP"], ["PDOP", "HDOP"]],
  ["GLL,,,,,123519,V", ["latitude", "longitude"], ["lat", "lon"]],
  ["GGA,,,,,,0,00,99.9,,M,,M,,", ["time", "altitudeMeters"], ["time", "alt"]],
  ["RMC,235959.900,A,0030.0,S,00030.0,W,2,84,311299,3,W", ["datetime"], ["time"]],
  ["GGA,235959.900,0030.0,S,00030.0,W,1,08,0.9,5,M,4,M,,", ["time"], ["time"]]
]
END
cat > look.js <<'END'
const { parseNmeaSentence } = require("nmea-simple");

for (const [text, names] of require("./sentences.json")) {
  const body = `GP${text}`;
  const sum = [...body].reduce((sum, letter) => sum ^ letter.charCodeAt(0), 0);
  const read = parseNmeaSentence(`$${body}*${sum.toString(16).toUpperCase().padStart(2, "0")}`);
  const value = (name) => (read[name] instanceof Date ? read[name].toISOString() : read[name]);
  if (text.includes("235959")) console.log(`${text}: ${value(names[0]).slice(11, 23)}`);
  else console.log(`${text}: ${names.map((name) => `${name} ${value(name)}`).join(", ")}`);
}
END
cat > look.py <<'END'
import json
from functools import reduce
from pathlib import Path

from pynmeagps import NMEAReader

for text, _, names in json.loads(Path("sentences.json").read_text()):
    body = f"GP{text}"
    check = reduce(lambda check, letter: check ^ ord(letter), body, 0)
    read = NMEAReader.parse(f"${body}*{check:02X}\r\n")
    if "235959" in text:
        print(read.time)
    else:
        print(", ".join(f"{name} {getattr(read, name)!r}" for name in names))
END
node look.js > ours
"$work/venv/bin/python" look.py > theirs
paste -d '|' ours theirs | sed 's/|/ | /' | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
