#!/bin/sh
# PyVantagePro 0.3.2 (Davis weather stations): below zero Fahrenheit it is above 6500 degrees, a thermometer that is
# not there has 3276.7, and a storm that is not there began in month 15 of 2127.
#
# The outside temperature is a number with a sign in tenths of a degree Fahrenheit, and a sensor that the station does
# not have is told by a value of its own, 32767 for that and for the sun, 255 for humidity and UV (Davis, "Vantage
# Serial Communication Reference Manual" 2.6.1, IX.1 and the column "Dash Value" of IX.4). The library reads all
# without a sign, and takes those values for readings. Zero Fahrenheit, -17.8 degrees Celsius, is a winter's day in
# half of North America; down to it all is right. Seen:
#
#   outside 50.0 F: TempOut 50.0
#   outside -5.0 F: TempOut 6548.6
#   no sensors outside: TempOut 3276.7, HumOut 255, UV 255, SolarRad 32767, StormStartDate 2127-15-31
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q PyVantagePro==0.3.2
cd "$work"
cat > look.py <<'END'
import struct
from datetime import datetime

from pyvantagepro.parser import LoopDataParserRevB


def read(outside, humidity=40, sunlight=(20, 800), storm=0):
    """What the library makes of a LOOP packet: 99 bytes, of which most are 0 here."""
    packet = bytearray(99)
    packet[:3] = b"LOO"
    struct.pack_into("<h", packet, 12, outside)
    packet[33] = humidity
    struct.pack_into("<BH", packet, 43, *sunlight)
    struct.pack_into("<H", packet, 48, storm)
    return LoopDataParserRevB(bytes(packet), datetime(2026, 1, 1))


for tenths in (500, -50):
    print(f"outside {tenths / 10} F: TempOut {read(tenths)['TempOut']}")
none = read(32767, 255, (255, 32767), 0xFFFF)
names = ("TempOut", "HumOut", "UV", "SolarRad", "StormStartDate")
print(f"no sensors outside: {', '.join(f'{name} {none[name]}' for name in names)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
