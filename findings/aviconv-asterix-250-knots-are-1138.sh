#!/bin/sh
# aviconv-asterix 0.4.0 (PyPI, radar tracks by EUROCONTROL's ASTERIX): an aircraft of 250 knots has 1,138, and one that it
# writes with 250 has 55 for others.
#
# The indicated airspeed of a track is in 2^-14 NM/s, which is 0.22 knots (ASTERIX category 062, I062/380, subfield 4). The
# library takes the number for knots; ground speeds of other categories, in the same unit, it has right. Nothing is raised.
# asterix_decoder 0.7.11 (PyPI) says the unit beside the number. Seen:
#
#   sent 250 knots, 1138: aviconv-asterix 1138.0; asterix_decoder 1138, Air Speed = IAS (LSB 2^-14 NM/s), 250.0 knots
#   written by aviconv-asterix, 250 knots: asterix_decoder 250, Air Speed = IAS (LSB 2^-14 NM/s), 54.9 knots
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q aviconv-asterix==0.4.0 asterix_decoder==0.7.11
cd "$work"
cat > look.py <<'END'
import asterix
from aviconv_asterix import Cat062Record, encode_records, iter_records

KNOT = 3600 / 2**14


def block(speed):
    """A track with its source, its time, the speed that the aircraft has sent, and its number."""
    fields = bytes([25, 10]) + (12 * 3600 * 128).to_bytes(3, "big") + b"\x10" + speed.to_bytes(2, "big") + b"\0\7"
    record = b"\x91\x18" + fields
    return bytes([62]) + (3 + len(record)).to_bytes(2, "big") + record


def by_other(data):
    [record] = asterix.parse(data)
    speed = record["I380"]["IAS"]
    return f"asterix_decoder {speed['AS']['val']}, {speed['IM']['meaning']}, {speed['AS']['val'] * KNOT:.1f} knots"


sent = round(250 / KNOT)
[found] = iter_records(block(sent))
print(f"sent 250 knots, {sent}: aviconv-asterix {found.indicated_airspeed_kt}; {by_other(block(sent))}")
written = encode_records([Cat062Record(sac=25, sic=10, indicated_airspeed_kt=250)])
print(f"written by aviconv-asterix, 250 knots: {by_other(written)}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
