#!/bin/sh
# pyais 3.3.1: longitude and latitude of a station that corrects satellite positions (AIS message 17), and those of
# the corners of an area (22 and 23), come in minutes, where all others are in degrees: a latitude of 3030. West
# and south of 0 those of 17 are 25,900 and 13,100.
#
# All three have tenths of a minute with a sign (ITU-R M.1371-5, annex 8, 3.15, 3.20 and 3.21), as message 27 has.
# The library divides that one by 600, these by 10, and reads 17 without a sign. Nothing is raised for what is
# on no map, and near 0 it looks like a place. What it encodes in 22 and 23 it decodes as it was. Of a message 23
# libais 0.17 has a latitude of 51.07, where pyais has 3064.2. Seen (50.5 N 5.2 W and 0.5 N 1 E, as they are read):
#
#   27: lon -5.2, lat 50.5
#   17: lon 25902.4, lat 3030.0
#   17: lon 60.0, lat 30.0
#   22: ne_lon -312.0, ne_lat 3030.0, sw_lon 60.0, sw_lat 30.0
#   23: ne_lon -312.0, ne_lat 3030.0, sw_lon 60.0, sw_lat 30.0
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyais==3.3.1
cd "$work"
cat > look.py <<'END'
from pyais import decode

FAR = (round(-5.2 * 600), 18), (round(50.5 * 600), 17)  # tenths of minutes, and the bits that they have
NEAR = (round(1 * 600), 18), (round(0.5 * 600), 17)


def sentence(number, *fields):
    values = ((number, 6), (0, 2), (2_320_000, 30), *fields)
    bits = "".join(f"{value % 2**width:0{width}b}" for value, width in values)
    fill = -len(bits) % 6
    bits += "0" * fill
    codes = (int(bits[i : i + 6], 2) for i in range(0, len(bits), 6))
    payload = "".join(chr(code + 48 if code < 40 else code + 56) for code in codes)
    body = f"AIVDM,1,1,,A,{payload},{fill}"
    check = 0
    for character in body:
        check ^= ord(character)
    return f"!{body}*{check:02X}"


for names, number, *fields in (
    (("lon", "lat"), 27, (0, 6), *FAR, (0, 17)),
    (("lon", "lat"), 17, (0, 2), *FAR, (0, 45)),
    (("lon", "lat"), 17, (0, 2), *NEAR, (0, 45)),
    (("ne_lon", "ne_lat", "sw_lon", "sw_lat"), 22, (0, 31), *FAR, *NEAR, (0, 29)),
    (("ne_lon", "ne_lat", "sw_lon", "sw_lat"), 23, (0, 2), *FAR, *NEAR, (0, 50)),
):
    read = decode(sentence(number, *fields)).asdict()
    print(f"{number}:", ", ".join(f"{name} {read[name]}" for name in names))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
