#!/bin/sh
# rs1090 0.7.0 (PyPI, aircraft by ADS-B): an aircraft of 1,442 knots has 360; one that says it does not know
# its speed has 1.41 knots towards 225 degrees; each rate of climb is said to be of the other source; and a height by GNSS
# that is the barometric one is not known.
#
# In messages of airborne velocity those of subtype 2 count speeds in 4 knots; 0 says that there is none, and 1 is the
# speed 0, and so it is with the difference of heights; a bit says whether the rate of climb is barometric (1) or of GNSS
# (0) (RTCA DO-260B and ICAO Doc 9871, "Airborne Velocity"). The library takes subtype 2 for 1, subtracts 1 of what is not
# there, turns the bit round, and has none for 1. Nothing is raised. pyModeS 3.6.1 reads the same messages. Seen:
#
#   subtype 2, 300 east and 200 north: rs1090 360.6 at 56.3, rate 2048 of GNSS; pyModeS 1442 at 56.3, rate 2048 of BARO
#   subtype 1, 300 east and 200 north: rs1090 360.6 at 56.3, rate 2048 of GNSS; pyModeS 360 at 56.3, rate 2048 of BARO
#   subtype 1, rate by GNSS: rs1090 360.6 at 56.3, rate 2048 of barometric; pyModeS 360 at 56.3, rate 2048 of GNSS
#   subtype 1, no speeds: rs1090 1.4 at 225.0, rate 2048 of GNSS; pyModeS none at none, rate 2048 of BARO
#   difference of heights 0: rs1090 None, pyModeS 0
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q rs1090==0.7.0 pyModeS==3.6.1
cd "$work"
cat > look.py <<'END'
import pyModeS
import rs1090

GENERATOR = 0x1FFF409


def message(subtype, speeds=(301, 201), barometric=1, difference=10):
    east, north = speeds
    fields = [(19, 5), (subtype, 3), (0, 5), (0, 1), (east, 10), (0, 1), (north, 10)]
    fields += [(barometric, 1), (0, 1), (33, 9), (0, 2), (0, 1), (difference, 7)]
    bits = "10001" + "101" + f"{0x4840D6:024b}" + "".join(f"{value:0{width}b}" for value, width in fields)
    rest = int(bits, 2) << 24
    for place in range(len(bits) + 23, 23, -1):
        if rest >> place & 1:
            rest ^= GENERATOR << (place - 24)
    return f"{int(bits, 2):022X}{rest:06X}"


def speed(value):
    return "none" if value is None else f"{value:.4g}" if value < 10000 else str(value)


for name, sent in (
    ("subtype 2, 300 east and 200 north", message(2)),
    ("subtype 1, 300 east and 200 north", message(1)),
    ("subtype 1, rate by GNSS", message(1, barometric=0)),
    ("subtype 1, no speeds", message(1, speeds=(0, 0))),
):
    found, other = rs1090.decode(sent), pyModeS.decode(sent)
    assert other["crc_valid"]
    first = f"{found['groundspeed']:.1f} at {found['track']:.1f}, rate {found['vertical_rate']} of {found['vrate_src']}"
    track = "none" if other["track"] is None else f"{other['track']:.1f}"
    second = f"{speed(other['groundspeed'])} at {track}, rate {other['vertical_rate']} of {other['vr_source']}"
    print(f"{name}: rs1090 {first}; pyModeS {second}")
level = message(1, difference=1)
found, other = rs1090.decode(level)["geo_minus_baro"], pyModeS.decode(level)["geo_minus_baro"]
print(f"difference of heights 0: rs1090 {found}, pyModeS {other}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
