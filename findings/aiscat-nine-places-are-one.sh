#!/bin/sh
# aiscat 0.68.16 (AIS-catcher for Python): a ship's place is computed in floats of 32 bits, so that eight or nine of
# the places which AIS tells apart are one, up to 1.6 m off: a ship that creeps along a quay stands and jumps.
#
# Longitude and latitude come in ten-thousandths of a minute, 1/600000 of a degree, 19 cm (ITU-R M.1371-5, annex 8,
# 3.1). A float of 32 bits has steps of 1/131072 of a degree from 64 to 128 and of 1/65536 beyond. What is given is a
# Python float, of 64 bits, and looks as if all its digits were known. Speeds and courses are rounded too, by less than
# they are measured. pyais 3.3.1 keeps all apart. Seen (600 neighbouring places of the equator each; how many are left):
#
#   from 5 E: aiscat 600, pyais 600; farthest off 0.03 m
#   from 60 E: aiscat 151, pyais 600; farthest off 0.58 m
#   from 122 W: aiscat 76, pyais 600; farthest off 1.20 m
#   from 151 E: aiscat 67, pyais 600; farthest off 1.58 m
#   course 219.3: aiscat 219.3000030517578, pyais 219.3
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q aiscat==0.68.16 pyais==3.3.1
cd "$work"
cat > look.py <<'END'
import aiscat
import pyais

METRES = 111_320  # of a degree at the equator


def sentence(longitude, course=0):
    fields = ((1, 6), (0, 2), (2_320_000, 30), (0, 4), (0, 8), (0, 10), (1, 1))
    fields += ((longitude, 28), (0, 27), (course, 12), (511, 9), (0, 6), (0, 25))
    bits = "".join(f"{value % 2**width:0{width}b}" for value, width in fields)
    codes = (int(bits[at : at + 6], 2) for at in range(0, len(bits), 6))
    payload = "".join(chr(code + 48 if code < 40 else code + 56) for code in codes)
    check = 0
    for character in (body := f"AIVDM,1,1,,A,{payload},0"):
        check ^= ord(character)
    return f"!{body}*{check:02X}"


for name, degrees in (("5 E", 5), ("60 E", 60), ("122 W", -122), ("151 E", 151)):
    places = range(degrees * 600_000, degrees * 600_000 + 600)
    lines = [sentence(place) for place in places]
    ours = [aiscat.decode(line)["lon"] for line in lines]
    theirs = [pyais.decode(line).asdict()["lon"] for line in lines]
    off = max(abs(found - place / 600_000) for found, place in zip(ours, places, strict=True))
    left = f"aiscat {len(set(ours))}, pyais {len(set(theirs))}"
    print(f"from {name}: {left}; farthest off {off * METRES:.2f} m")
line = sentence(0, 2193)
courses = aiscat.decode(line)["course"], pyais.decode(line).asdict()["course"]
print(f"course 219.3: aiscat {courses[0]}, pyais {courses[1]}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
