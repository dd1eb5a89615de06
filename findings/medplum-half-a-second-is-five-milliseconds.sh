#!/bin/sh
# @medplum/core 5.2.13 (npm): the digits behind the point of an HL7 time are taken for a number of milliseconds, so
# that half a second is 5 ms, and of four digits a time is up to nine seconds late.
#
# HL7 v2 has YYYYMMDDHHMMSS.S[S[S[S]]], a fraction (chapter 2A, DTM). Only of three digits is it milliseconds.
# `parseHl7DateTime` makes FHIR's times of a message's, so a result's or a device's reading is put down
# for another moment, and in another order. hl7 0.4.5 (Python) reads fractions. Nothing is raised. Seen:
#
#   20261130120000.5: medplum 12:00:00.005, hl7 12:00:00.500000
#   20261130120000.25: medplum 12:00:00.025, hl7 12:00:00.250000
#   20261130120000.125: medplum 12:00:00.125, hl7 12:00:00.125000
#   20261130120000.1234: medplum 12:00:01.234, hl7 12:00:00.123400
#   20261130120000.9999: medplum 12:00:09.999, hl7 12:00:00.999900
#   20261130120000: medplum 12:00:00.000, hl7 12:00:00
#
# Needs python3 and Node 20 (it asks for 22, of which only WebSocket is missing, and is put in place). Ends with 0
# while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q hl7==0.4.5
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts @medplum/core@5.2.13 > log 2>&1 ||
    { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import json
import subprocess

import hl7

TIMES = [f"20261130120000{rest}" for rest in (".5", ".25", ".125", ".1234", ".9999", "")]
PROGRAM = """
globalThis.WebSocket ??= class extends EventTarget {};  // what Node 20 lacks for it
const { parseHl7DateTime } = require('@medplum/core');
console.log(JSON.stringify(JSON.parse(process.argv[1]).map((time) => parseHl7DateTime(time))));
"""
command = ["node", "-e", PROGRAM, json.dumps(TIMES)]
answers = json.loads(subprocess.run(command, check=True, stdout=-1).stdout)
for time, answer in zip(TIMES, answers, strict=True):
    found = answer.partition("T")[2].removesuffix("Z")
    print(f"{time}: medplum {found}, hl7 {hl7.parse_datetime(time).time()}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
