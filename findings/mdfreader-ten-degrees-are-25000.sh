#!/bin/sh
# mdfreader 4.3 (PyPI, measurements in ASAM MDF 4): a temperature of 10 degrees whose channel has a scale for its numbers
# and texts for its errors is 25,000; a voltage that stands for a range is cut to whole volts; of 2.0 between two ranges it
# is the lower one.
#
# A conversion from ranges to texts (type 8) may have another conversion in place of a text, whose own parameters then hold;
# the value of a range (type 5) is a float, whatever the raw number is; a range of raw floats ends before its upper end
# (ASAM MDF 4.1, "Conversion Block CCBLOCK"). The library takes the first two ends of the ranges for offset and
# factor, and puts values into the array of the raw numbers. Nothing is raised. asammdf 8.8.28, which wrote the file, has
# the scale and the ranges of floats; what it has of ranges of integers is another script here. Seen:
#
#   raw 0 100 200 254, scale 0.5 and -40 to 250, then error: mdfreader 0.0 25000.0 50000.0 error, asammdf -40 10 60 none
#   the same by values, error at 254: mdfreader -40.0 10.0 60.0 error, asammdf -40 10 60 none
#   raw 5 15, ranges for 1.5 and 2.75: mdfreader 1 2
#   raw 1.9 2.0, ranges low to 2, high to 9: mdfreader low low, asammdf low high
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q asammdf==8.8.28 mdfreader==4.3 numpy==2.2.6 > "$work/log" 2>&1 \
    || { tail -n 20 "$work/log"; exit 1; }
cd "$work"
cat > look.py <<'END'
import mdfreader
import numpy
from asammdf import MDF, Signal

SCALE = {"a": 0.5, "b": -40}
BY_RANGE = {"lower_0": 0, "upper_0": 250, "text_0": SCALE, "lower_1": 254, "upper_1": 254, "text_1": b"error"}
BY_VALUE = {"val_0": 254, "text_0": b"error", "val_1": 255, "text_1": b"off", "default_addr": SCALE}
VALUES = {"lower_0": 0, "upper_0": 9, "phys_0": 1.5, "lower_1": 10, "upper_1": 19, "phys_1": 2.75, "default": 0}
FLOATS = {"lower_0": 0, "upper_0": 2, "text_0": b"low", "lower_1": 2, "upper_1": 9, "text_1": b"high"}


def word(value):
    if isinstance(value, bytes):
        return value.decode()
    return value if isinstance(value, str) else "none" if value != value else f"{value:g}"


def read(raw, kind, conversion):
    with MDF(version="4.10") as file:
        samples = numpy.array(raw, kind)
        file.append([Signal(samples, numpy.arange(len(samples)) * 1.0, name="value", conversion=conversion)])
        file.save("one.mf4", overwrite=True)
    with MDF("one.mf4") as file:
        other = file.get("value").samples.tolist()
    found = mdfreader.Mdf("one.mf4").get_channel_data("value").tolist()
    return " ".join(map(word, found)), " ".join(map(word, other))


RAW = (0, 100, 200, 254)
found, other = read(RAW, "u1", BY_RANGE | {"default_addr": b"?"})
print(f"raw 0 100 200 254, scale 0.5 and -40 to 250, then error: mdfreader {found}, asammdf {other}")
found, other = read(RAW, "u1", BY_VALUE)
print(f"the same by values, error at 254: mdfreader {found}, asammdf {other}")
found, _ = read((5, 15), "u1", VALUES)
print(f"raw 5 15, ranges for 1.5 and 2.75: mdfreader {found}")
found, other = read((1.9, 2.0), "f4", FLOATS | {"default_addr": b"?"})
print(f"raw 1.9 2.0, ranges low to 2, high to 9: mdfreader {found}, asammdf {other}")
END
"$work/venv/bin/python" -W ignore look.py 2> log | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
