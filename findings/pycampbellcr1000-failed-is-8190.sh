#!/bin/sh
# PyCampbellCR1000 0.4: a measurement that failed is -8190, and one beyond the range 8191.
#
# Campbell's data loggers store most values in two bytes, FP2: a sign, where the point is, and 13 bits. Numbers end
# at 7999 either way (manual of the CR6, "Data storage"), and what is above stands for none: 0x9FFE for NAN, which
# is what a measurement that failed gives, 0x1FFF and 0x9FFF for infinity. The library takes them for numbers. The
# same table with the type IEEE4 has NaN and infinity. A sensor that is cut off draws a mean of air temperature by
# thousands of degrees, and what is stored cannot be told from a value any more but by its size. Seen:
#
#   FP2 12.34: 12.34, -7999: -7999.0, NAN: -8190.0, +INF: 8191.0, -INF: -8191.0
#   IEEE4 NAN: nan, +INF: inf
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q PyCampbellCR1000==0.4
cd "$work"
cat > look.py <<'END'
import struct
from types import SimpleNamespace

from pycampbellcr1000.pakbus import PakBus

reader = PakBus(SimpleNamespace(write=lambda data: None, close=lambda: None))


def read(kind, raw):
    return reader.decode_bin([kind], raw)[0][0]


words = (
    ("12.34", 0x44D2),
    ("-7999", 0x9F3F),
    ("NAN", 0x9FFE),
    ("+INF", 0x1FFF),
    ("-INF", 0x9FFF),
)
print(
    "FP2 " + ", ".join(f"{name}: {read('FP2', struct.pack('>H', word))}" for name, word in words)
)
print(
    "IEEE4 "
    + ", ".join(
        f"{name}: {read('IEEE4B', struct.pack('>f', value))}"
        for name, value in (("NAN", float("nan")), ("+INF", float("inf")))
    )
)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
