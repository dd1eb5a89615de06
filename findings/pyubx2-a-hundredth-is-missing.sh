#!/bin/sh
# pyubx2 1.4.0 (PyPI, u-blox GNSS receivers): what is written is often one too small, a dilution of 0.29 comes back as
# 0.28; so are half of all headings; an orbit's rate of change that is read is 0 or rounded.
#
# A value with a scale is a whole number times it (u-blox interface descriptions). The library divides by the scale and
# cuts, and 0.29 / 0.01 is 28.999...; what it multiplies it rounds to twelve places, and a scale can be 2 to the -43 or
# smaller. Nothing is raised. Seen (written, read):
#
#   dilution 0.28: 0.28
#   dilution 0.29: 0.28
#   dilution 1.15: 1.14
#   dilution 4.35: 4.34
#   largest dilution 0.2: 0.2
#   largest dilution 0.3: 0.2
#   largest dilution 25.5: 25.5
#   fixed altitude -12.29: -12.29
#   fixed altitude 8.2: 8.19
#   headings of 10000 that are others: 5087
#   Deltan 4.20641e-12: 4e-12
#   af2 1.02696e-15: 0
#
# Needs python3. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyubx2==1.4.0
cd "$work"
cat > look.py <<'END'
from pyubx2 import GET, SET, UBXMessage, UBXReader


def back(kind, name, mode, **values):
    return UBXReader.parse(UBXMessage(kind, name, mode, **values).serialize(), msgmode=mode)


for number in (0.28, 0.29, 1.15, 4.35):
    print(f"dilution {number}: {back('NAV', 'NAV-DOP', GET, gDOP=number).gDOP}")
for number in (0.2, 0.3, 25.5):
    print(f"largest dilution {number}: {back('CFG', 'CFG-NAV5', SET, pDop=number).pDop}")
for number in (-12.29, 8.2):
    print(f"fixed altitude {number}: {back('CFG', 'CFG-NAV5', SET, fixedAlt=number).fixedAlt}")
headings = [number / 10**5 for number in range(1, 36000000, 3600)]
others = sum(back("NAV", "NAV-ATT", GET, heading=number).heading != number for number in headings)
print(f"headings of {len(headings)} that are others: {others}")
for name, power in (("Deltan", -43), ("af2", -55)):
    kind = "MGA-BDS-EPH" if name == "Deltan" else "MGA-GPS-EPH"
    number = 37 * 2.0**power
    print(f"{name} {number:.6g}: {getattr(back('MGA', kind, SET, type=1, **{name: number}), name):.6g}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
