#!/bin/sh
# candied 2.2.0 (npm, CAN messages by DBC files): a number with the high byte first (Motorola) is read from other bits;
# a value beyond the file's range is the end of the range; a float is its bits; the words of a table are those of other
# numbers; and of values of which a message has one or the other, both come.
#
# Where a number has its high byte first its start bit is the highest, and bits go down within a byte (DBC file format,
# "Signal definitions"). Minimum and maximum are for displays; SIG_VALTYPE_ says what is a float, VAL_ has words for
# raw values, M and m0 say which value is there. Nothing is raised. cantools 45.1.0 reads the same file and bytes. Seen:
#
#   0x1234, high byte first: candied 0, cantools 4660
#   0..100 km, byte 150: candied 100, cantools 150
#   float 1.5: candied 1069547520, cantools 1.5
#   1 is "one", 3 is "three", factor 2, offset 1, byte 1: candied three, cantools one
#   temperature behind a 0, pressure behind a 1; 1 and 7: candied temperature 7, pressure 7; cantools pressure 7
#
# Needs python3 and Node 20. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q cantools==45.1.0
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts candied@2.2.0 > log 2>&1 || { tail -n 20 log; exit 1; }
cat > file.dbc <<'END'
VERSION ""

NS_ :

BS_:

BU_: ECU

BO_ 100 First: 8 ECU
 SG_ distance : 0|8@1+ (1,0) [0|100] "km" ECU
 SG_ number : 31|16@0+ (1,0) [0|0] "" ECU

BO_ 200 Second: 8 ECU
 SG_ which M : 0|8@1+ (1,0) [0|255] "" ECU
 SG_ temperature m0 : 8|16@1- (1,0) [0|0] "" ECU
 SG_ pressure m1 : 8|16@1+ (1,0) [0|0] "" ECU

BO_ 300 Third: 8 ECU
 SG_ ratio : 0|32@1- (1,0) [0|0] "" ECU

BO_ 400 Fourth: 8 ECU
 SG_ state : 0|8@1+ (2,1) [0|0] "" ECU

SIG_VALTYPE_ 300 ratio : 1;
VAL_ 400 state 1 "one" 3 "three" ;
END
cat > look.py <<'END'
import json
import struct
import subprocess

import cantools

PROGRAM = """
const { Can, Dbc } = require('candied');
const can = new Can();
can.database = new Dbc().load(require('fs').readFileSync('file.dbc', 'utf8'));
const answers = JSON.parse(process.argv[1]).map(([id, payload]) => {
  const { boundSignals } = can.decode(can.createFrame(id, payload));
  return Object.fromEntries([...boundSignals].map(([name, { value, physValue }]) =>
    [name, name === 'state' ? physValue : value]));
});
console.log(JSON.stringify(answers));
"""
FRAMES = [(100, bytes([150, 0, 0, 0x12, 0x34, 0, 0, 0])), (200, bytes([1, 7, 0, 0, 0, 0, 0, 0]))]
FRAMES += [(300, struct.pack("<fi", 1.5, 0)), (400, bytes([1, 0, 0, 0, 0, 0, 0, 0]))]
command = ["node", "-e", PROGRAM, json.dumps([(number, list(payload)) for number, payload in FRAMES])]
answers = json.loads(subprocess.run(command, check=True, stdout=-1).stdout)
database = cantools.database.load_file("file.dbc")
known = [database.decode_message(number, payload) for number, payload in FRAMES]


def line(text, place, name):
    print(f"{text}: candied {answers[place][name]}, cantools {known[place][name]}")


line("0x1234, high byte first", 0, "number")
line("0..100 km, byte 150", 0, "distance")
line("float 1.5", 2, "ratio")
line('1 is "one", 3 is "three", factor 2, offset 1, byte 1', 3, "state")
found, other = (", ".join(f"{k} {v}" for k, v in values[1].items() if k != "which") for values in (answers, known))
print(f"temperature behind a 0, pressure behind a 1; 1 and 7: candied {found}; cantools {other}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
