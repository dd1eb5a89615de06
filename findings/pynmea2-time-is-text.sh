#!/bin/sh
# pynmea2 1.19.0: what the attribute `timestamp` of a GPS sentence is depends on what the receiver says:
# a time, None, or text; and `datetime` of a receiver that has no fix yet is a TypeError, though the
# sentence is whole and says itself that it has none.
#
# In a leap second a receiver says 23:59:60: that comes as the text "235960.00" and not as an error
# (the sentence parses, its checksum is right), so that a program fails where it computes with it,
# once in some years. RMC of a receiver that was switched on has empty fields and status V. Seen:
#
#   235959.00: time 23:59:59+00:00
#   235960.00: str 235960.00
#   without a fix: timestamp NoneType, datetime TypeError
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pynmea2==1.19.0
cd "$work"
cat > look.py <<'END'
import functools
import operator

import pynmea2


def parse(sentence):
    checksum = functools.reduce(operator.xor, sentence.encode())
    return pynmea2.parse(f"${sentence}*{checksum:02X}", check=True)


for time in ("235959.00", "235960.00"):
    found = parse(f"GPRMC,{time},A,4807.038,N,01131.000,E,022.4,084.4,311216,003.1,W").timestamp
    print(f"{time}: {type(found).__name__} {found}")
none = parse("GPRMC,,V,,,,,,,,,,N")
try:
    told = none.datetime
except TypeError as error:
    told = type(error).__name__
print(f"without a fix: timestamp {type(none.timestamp).__name__}, datetime {told}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
