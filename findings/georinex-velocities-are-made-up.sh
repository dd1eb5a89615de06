#!/bin/sh
# georinex 1.16.2, orbits in SP3: a file without velocities gives some, which are whatever stood in memory; and a
# clock that is not known is 999999.999999 microseconds.
#
# Most orbits that are published have positions and clocks only (the mode flag P in the first line). The library
# makes room for velocities and rates of clocks, which it does not fill, and hands both out as variables of the
# data set beside what was read; it leaves them out only if all are NaN, which fresh memory is not. In the format a
# bad or absent clock has six nines before the point, a position or a velocity that is absent three zeros (SP3-c,
# "Line 24" and "Line 25"): the mean of a satellite's clock is 499918 here, and its orbit goes through the centre of
# the Earth. Seen:
#
#   the file has: 4 lines P, 0 lines V, mode P
#   velocity: 12 numbers, not all NaN: True; dclock: 4 numbers, not all NaN: True
#   clock: [[-162.28152, 999999.999999], [999999.999999, -21.123456]]
#   position of G02: [0.0, 0.0, 0.0]
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q georinex==1.16.2
cd "$work"
cat > look.py <<'END'
import georinex
import numpy

ROWS = """\
*  2020  1  1  0  0  0.00000000
PG01  -5047.313851  14654.711434  21576.464163   -162.281520
PG02      0.000000      0.000000      0.000000 999999.999999
*  2020  1  1  0 15  0.00000000
PG01  -5047.313851  14654.711434  21576.464163 999999.999999
PG02 -16077.441235  -4513.456789  21061.987654    -21.123456
EOF
"""
HEAD = [
    "#cP2020  1  1  0  0  0.00000000       2 ORBIT IGS14 HLM  IGS",
    "## 2086 259200.00000000   900.00000000 58849 0.0000000000000",
    "+    2   G01G02" + "  0" * 15,
    *["+        " + "  0" * 17] * 4,
    "++         2  2" + "  0" * 15,
    *["++       " + "  0" * 17] * 4,
    "%c G  cc GPS ccc cccc cccc cccc cccc ccccc ccccc ccccc ccccc",
    "%c cc cc ccc ccc cccc cccc cccc cccc ccccc ccccc ccccc ccccc",
    "%f  1.2500000  1.025000000  0.00000000000  0.000000000000000",
    "%f  0.0000000  0.000000000  0.00000000000  0.000000000000000",
    *["%i    0    0    0    0      0      0      0      0         0"] * 2,
    *["/* A FILE OF TWO SATELLITES"] * 4,
]
text = "\n".join(HEAD) + "\n" + ROWS
with open("orbits.sp3", "w") as file:
    file.write(text)
lines = text.splitlines()
print(
    f"the file has: {sum(line[0] == 'P' for line in lines)} lines P, "
    f"{sum(line[0] == 'V' for line in lines)} lines V, mode {lines[0][2]}"
)
read = georinex.load("orbits.sp3")
print(
    "; ".join(
        f"{name}: {read[name].size} numbers, not all NaN: {not numpy.isnan(read[name]).all()}"
        for name in ("velocity", "dclock")
    )
)
print(f"clock: {read['clock'].values.tolist()}")
print(f"position of G02: {read['position'].sel(sv='G02').values[0].tolist()}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
