#!/bin/sh
# hl7parser 1.0.1 (npm): noon in New York, a time of hours and a zone, is 50 s after noon, and in Kathmandu 54 s; a zone
# with minutes or seconds before it is passed over; a year, or a time of hours, is no time.
#
# HL7 v2 has YYYY[MM[DD[HH[MM[SS[.S]]]]]][+/-ZZZZ], where what is not known is left out (chapter 2A, DTM). The library's
# toDate goes by the length of the text: what is 14 characters or longer has seconds in the 13th and 14th for it, and
# these are digits of the zone here. Nothing is raised. hl7 0.4.5 (Python) reads times. Seen:
#
#   20261130123000: hl7parser 2026-11-30T12:30:00.000Z, hl7 2026-11-30 12:30:00
#   20261130123000+0100: hl7parser 2026-11-30T12:30:00.000Z, hl7 2026-11-30 12:30:00+01:00
#   202611301200-0500: hl7parser 2026-11-30T12:00:00.000Z, hl7 2026-11-30 12:00:00-05:00
#   2026113012-0500: hl7parser 2026-11-30T12:00:50.000Z, hl7 2026-11-30 12:00:00-05:00
#   2026113012+0545: hl7parser 2026-11-30T12:00:54.000Z, hl7 2026-11-30 12:00:00+05:45
#   2026113012: hl7parser None, hl7 2026-11-30 12:00:00
#   2026: hl7parser None, hl7 2026-01-01 00:00:00
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q hl7==0.4.5
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts hl7parser@1.0.1 > log 2>&1 \
    || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import json
import os
import subprocess

import hl7

TIMES = [f"2026113012{rest}" for rest in ("3000", "3000+0100", "00-0500", "-0500", "+0545", "")] + ["2026"]
PROGRAM = """
const { create } = require('hl7parser');
const read = (time) => create('MSH|^~\\\\&|A|B|C|D|' + time + '||ORU^R01').get('MSH.7').toDate();
console.log(JSON.stringify(JSON.parse(process.argv[1]).map(read)));
"""
command = ["node", "-e", PROGRAM, json.dumps(TIMES)]
universal = {**os.environ, "TZ": "UTC"}
answers = json.loads(subprocess.run(command, check=True, stdout=-1, env=universal).stdout)
for time, answer in zip(TIMES, answers, strict=True):
    print(f"{time}: hl7parser {answer}, hl7 {hl7.parse_datetime(time)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
