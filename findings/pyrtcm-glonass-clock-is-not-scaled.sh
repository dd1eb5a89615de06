#!/bin/sh
# pyrtcm 1.2.1: in the ephemeris of a GLONASS satellite (RTCM 3, message 1020) the orbit has its units and
# the clock has not: an offset of -24 microseconds is -25770.
#
# The library scales what a message holds (1019, the same for GPS, wholly). The steps of the clock's terms are
# 2**-40 for gamma and 2**-30 s for tau and delta tau (GLONASS ICD, table 4.5; RTCM 10403, DF121, DF124 and
# DF125), and the time of the ephemeris counts in quarters of an hour (DF110). The library's table has
# these four without a step. A clock that is used as it stands is wrong by hours. Seen (what was
# sent, and what is read):
#
#   x of 12345.5 km: 12345.5
#   velocity along x of -1.25 km/s: -1.25
#   gamma of 5 * 2**-40, which is 4.547e-12: 5
#   tau of -25770 * 2**-30 s, which is -2.4e-05: -25770
#   delta tau of -3 * 2**-30 s, which is -2.794e-09: -3
#   time of 45 minutes: 3
#   GPS (1019), af0 of -51540 * 2**-31 s, which is -2.4e-05: -2.4e-05
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyrtcm==1.2.1
cd "$work"
cat > look.py <<'END'
from pyrtcm import RTCMMessage

# The widths of the fields in their order, of RTCM 10403; a sign of its own (s) in those of GLONASS.
GLONASS = (
    "DF002 12, DF038 6, DF040 5, DF104 1, DF105 1, DF106 2, DF107 12, DF108 1, DF109 1, DF110 7, "
    "DF111 24 s, DF112 27 s, DF113 5 s, DF114 24 s, DF115 27 s, DF116 5 s, DF117 24 s, DF118 27 s, "
    "DF119 5 s, DF120 1, DF121 11 s, DF122 2, DF123 1, DF124 22 s, DF125 5 s, DF126 5, DF127 1, DF128 4, "
    "DF129 11, DF130 2, DF131 1, DF132 11, DF133 32 s, DF134 5, DF135 22 s, DF136 1, spare 7"
)
GPS = (
    "DF002 12, DF009 6, DF076 10, DF077 4, DF078 2, DF079 14, DF071 8, DF081 16, DF082 8, DF083 16, "
    "DF084 22, DF085 10, DF086 16, DF087 16, DF088 32, DF089 16, DF090 32, DF091 16, DF092 32, DF093 16, "
    "DF094 16, DF095 32, DF096 16, DF097 32, DF098 16, DF099 32, DF100 24, DF101 8, DF102 6, DF103 1, "
    "DF137 1"
)


def message(layout, **values):
    bits = ""
    for field in layout.split(", "):
        name, width, *signed = field.split()
        value, width = values.get(name, 0), int(width)
        if signed:
            bits += f"{int(value < 0)}{abs(value):0{width - 1}b}"
        else:
            bits += f"{value % 2**width:0{width}b}"
    bits += "0" * (-len(bits) % 8)
    return RTCMMessage(payload=int(bits, 2).to_bytes(len(bits) // 8, "big"))


read = message(
    GLONASS,
    DF002=1020,
    DF112=int(12345.5 * 2**11),
    DF111=int(-1.25 * 2**20),
    DF121=5,
    DF124=-25770,
    DF125=-3,
    DF110=3,
)
print("x of 12345.5 km:", read.DF112)
print("velocity along x of -1.25 km/s:", read.DF111)
print(f"gamma of 5 * 2**-40, which is {5 / 2**40:.4g}:", read.DF121)
print(f"tau of -25770 * 2**-30 s, which is {-25770 / 2**30:.4g}:", read.DF124)
print(f"delta tau of -3 * 2**-30 s, which is {-3 / 2**30:.4g}:", read.DF125)
print("time of 45 minutes:", read.DF110)
read = message(GPS, DF002=1019, DF084=-51540)
print(f"GPS (1019), af0 of -51540 * 2**-31 s, which is {-51540 / 2**31:.4g}: {read.DF084:.4g}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
