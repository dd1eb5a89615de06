#!/bin/sh
# klvdata 0.0.3 (PyPI, the metadata of aerial video by MISB ST 0601): -5 degrees are 251; and a packet in which one
# angle is out of range, for which the standard has a value, cannot be read at all.
#
# The air's temperature is an integer of one byte with a sign, tag 39 (MISB ST 0601, "Outside Air Temperature"); the
# library reads it without one. Where an angle cannot be given its bytes are 0x8000, "out of range" (tags 6, 7, 26 and
# others); there the library raises ValueError without a word, and with it every other field of the packet is lost.
# Seen:
#
#   temperature 5: 5.0
#   temperature -5: 251.0
#   temperature -40: 216.0
#   pitch 0x4000 and temperature 5: 10.00030518509476 5.0
#   pitch out of range and temperature 5: ValueError()
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q klvdata==0.0.3
cd "$work"
cat > look.py <<'END'
import struct

from klvdata.misb0601 import UASLocalMetadataSet

TIME, PITCH, TEMPERATURE = 2, 6, 39


def read(*fields):
    fields = (TIME, struct.pack(">Q", 1_796_040_000_000_000)), *fields
    packet = UASLocalMetadataSet(b"".join(bytes([tag, len(data)]) + data for tag, data in fields))
    return " ".join(str(packet[bytes([tag])].value.value) for tag, _ in fields[1:])


for degrees in (5, -5, -40):
    print(f"temperature {degrees}: {read((TEMPERATURE, struct.pack('b', degrees)))}")
for name, angle in (("0x4000", b"\x40\0"), ("out of range", b"\x80\0")):
    try:
        found = read((PITCH, angle), (TEMPERATURE, b"\x05"))
    except ValueError as error:
        found = repr(error)
    print(f"pitch {name} and temperature 5: {found}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
