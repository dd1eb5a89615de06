#!/bin/sh
# iec60870-parser 0.1.1: in a session of IEC 60870-5-104 every frame of data but the first is "CORRUPTED" unless
# the other side has sent one in between; and a switch that is on, but not valid, has the value 129.
#
# A frame has the number of the frame itself, and how many of the other side's frames have been received.
# `T104Session` demands that the second number goes up by one with each frame: a station that reports,
# and is asked nothing, does not count up. The first number is not looked at, so that a lost frame is not missed.
# Of a single point (type 1) the lowest bit is the value and the upper four say what it is worth; the
# octet is given as the value. lib60870's bindings (c104) tell them apart. Seen (reports of a switch that is on):
#
#   report 0, 0 received: VALID, value 1
#   report 1, 0 received: CORRUPTED, receive sequence mismatch
#   report 2, 0 received: CORRUPTED, receive sequence mismatch
#   report 7, 1 received: VALID, value 1
#   report 8, 2 received, not valid: VALID, value 129
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q iec60870-parser==0.1.1
cd "$work"
cat > look.py <<'END'
from iec60870.parser import T104Session

ON, NOT_VALID = 1, 0x80


def report(number, received, octet):
    data = bytes([1, 1, 3, 0, 1, 0, 16, 0, 0, octet])  # one single point, spontaneous, of address 16
    numbers = (number << 1).to_bytes(2, "little") + (received << 1).to_bytes(2, "little")
    return bytes([0x68, len(numbers + data)]) + numbers + data


session = T104Session()
for number, received, octet in (
    (0, 0, ON),
    (1, 0, ON),
    (2, 0, ON),
    (7, 1, ON),
    (8, 2, ON | NOT_VALID),
):
    found = session.parse(report(number, received, octet))
    what = "" if octet == ON else ", not valid"
    if found.error:
        rest = found.error
    else:
        rest = f"value {found.fields['asdu']['information_objects'][0]['value']}"
    print(f"report {number}, {received} received{what}: {found.status.value}, {rest}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
