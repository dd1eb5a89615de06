#!/bin/sh
# fcs 0.0.7 (npm, cells counted by flow cytometers): a channel of 10 bits that has 5 has 64517, values of eight bits are read in
# pairs, and where channels have different widths all but the first have other values.
#
# $PnB is the width of channel n in bits, and $PnR its range: what a reader finds in the bits above the range it must leave
# out, as instruments put other things there (Data File Standard for Flow Cytometry, FCS 3.1, $PnB and $PnR). The library
# takes the width of the first channel for all, 16 or 32 bits, and masks nothing. Nothing is raised. flowio 1.4.0 reads what
# was meant. Seen (widths, ranges; the events that were written; flowio; fcs):
#
#   16 16, 65536 65536: 5 300, 7 301; 5 300, 7 301; 5 300, 7 301
#   16 16, 1024 1024, spare bits set: 5 300, 7 301; 5 300, 7 301; 64517 64812, 64519 64813
#   8 8, 256 256: 5 30, 7 31; 5 30, 7 31; 1310 1823, 12336 12336
#   16 32, 65536 262144: 5 70000, 7 70001; 5 70000, 7 70001; 5 1, 4464 7
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q flowio==1.4.0
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts fcs@0.0.7 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.js <<'END'
const FCS = require('fcs');
const { readFileSync } = require('fs');

const read = new FCS({ dataFormat: 'asNumber', eventsToRead: 0 }, readFileSync('cells.fcs'));
console.log(JSON.stringify([read.getNumericData(1), read.getNumericData(2)]));
END
cat > look.py <<'END'
import json
import subprocess
from pathlib import Path

from flowio import FlowData


def file_of(widths, ranges, events, spare):
    data = b"".join(
        (value | spare).to_bytes(width // 8, "big") for event in events for width, value in zip(widths, event)
    )
    begin = 1024
    words = {
        "$BEGINANALYSIS": 0, "$ENDANALYSIS": 0, "$BEGINSTEXT": 0, "$ENDSTEXT": 0, "$BEGINDATA": begin,
        "$ENDDATA": begin + len(data) - 1, "$BYTEORD": "4,3,2,1", "$DATATYPE": "I", "$MODE": "L",
        "$NEXTDATA": 0, "$PAR": len(widths), "$TOT": len(events),
    }  # fmt: skip
    for number, (width, top) in enumerate(zip(widths, ranges), 1):
        words |= {f"$P{number}B": width, f"$P{number}R": top, f"$P{number}E": "0,0", f"$P{number}N": f"FL{number}"}
    text = "/" + "".join(f"{name}/{value}/" for name, value in words.items())
    places = (256, 255 + len(text), begin, begin + len(data) - 1, 0, 0)
    header = "FCS3.1    " + "".join(f"{place:8}" for place in places)
    return (header.ljust(256) + text).ljust(begin).encode() + data + b"0" * 8


def shown(events):
    return ", ".join(" ".join(f"{value:g}" for value in event) for event in events)


for widths, ranges, events, spare in (
    ((16, 16), (65536, 65536), ((5, 300), (7, 301)), 0),
    ((16, 16), (1024, 1024), ((5, 300), (7, 301)), 0xFC00),
    ((8, 8), (256, 256), ((5, 30), (7, 31)), 0),
    ((16, 32), (65536, 262144), ((5, 70000), (7, 70001)), 0),
):
    Path("cells.fcs").write_bytes(file_of(widths, ranges, events, spare))
    ours = FlowData("cells.fcs").as_array(preprocess=False)
    theirs = json.loads(subprocess.run(["node", "look.js"], check=True, stdout=-1).stdout)
    names = " ".join(map(str, widths)), " ".join(map(str, ranges))
    print(f"{names[0]}, {names[1]}{', spare bits set' * bool(spare)}: ", end="")
    print("; ".join(map(shown, (events, ours, theirs))))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
