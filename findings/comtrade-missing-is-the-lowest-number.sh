#!/bin/sh
# comtrade 0.2.0: in a FLOAT32 file a sample that the recorder marks as missing is -3.4e38, where it is NaN in the
# other formats, and where the package's own manual says NaN.
#
# IEEE C37.111-2013 (IEC 60255-24) marks it with the float that is most negative, 0xFF7FFFFF. The package looks
# for Python's sys.float_info.min instead, which is the smallest double above 0 and which no 32 bits hold, so
# that nothing is ever missing. A mean or a fault's peak over one such sample is the mark and nothing else. Seen
# (three samples of a current, of which the second is missing):
#
#   ASCII: 2.0, nan, 2.0
#   BINARY: 2.0, nan, 2.0
#   BINARY32: 2.0, nan, 2.0
#   FLOAT32: 2.0, -3.4028234663852886e+38, 2.0
#   FLOAT32, with a factor of 0.5: 1.0, -1.7014117331926443e+38, 1.0
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q comtrade==0.2.0
cd "$work"
cat > look.py <<'END'
import struct

import comtrade

CONFIGURATION = """station,recorder,2013
1,1A,0D
1,IA,A,,A,{factor},0.0,0,-99999,99999,1,1,P
50
1
1000,3
01/01/2024,00:00:00.000000
01/01/2024,00:00:00.000000
{kind}
1
0,0
0,0
"""
MISSING = {
    "BINARY": struct.pack("<H", 0x8000),
    "BINARY32": struct.pack("<I", 0x80000000),
    "FLOAT32": struct.pack("<I", 0xFF7FFFFF),
}
CODES = {"BINARY": "<h", "BINARY32": "<i", "FLOAT32": "<f"}


def read(kind, factor=1.0):
    if kind == "ASCII":
        data = "1,0,2\n2,1000,99999\n3,2000,2\n"
    else:
        two = struct.pack(CODES[kind], 2)
        samples = (two, MISSING[kind], two)
        data = b"".join(struct.pack("<II", 1 + i, 1000 * i) + each for i, each in enumerate(samples))
    record = comtrade.Comtrade()
    record.read(CONFIGURATION.format(kind=kind, factor=factor), data)
    return ", ".join(str(value) for value in record.analog[0])


for kind in ("ASCII", *CODES):
    print(f"{kind}: {read(kind)}")
print("FLOAT32, with a factor of 0.5:", read("FLOAT32", 0.5))
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
