#!/bin/sh
# asammdf 8.8.28 (PyPI, measurements in ASAM MDF 4): a raw 5 whose range, 0 to 9, stands for 1.5 is the value of what is in
# no range, and a raw 30 beyond all ranges is the value of the last one; of each range only the upper end is right.
#
# A conversion from ranges to values (type 5) has for raw integers from the lower to the upper end, both included, the value
# of that range, and a default for the others (ASAM MDF 4.1, "Conversion Block CCBLOCK"). The library looks for
# the last upper end that is not above an integer, where it needs the first that is not below it; for raw floats it looks
# another way, and is right. Nothing is raised. mdfreader 4.3 has the right ranges of the same file, and cuts the values to
# whole numbers, as the raw ones are. Seen (ranges 0 to 9 for 1.5, 10 to 19 for 2.5, default 7.25):
#
#   raw 0 5 9 10 15 19 30: 1.5 1.5 1.5 2.5 2.5 2.5 7.25
#   asammdf, integers: 7.25 7.25 1.5 7.25 7.25 2.5 2.5
#   asammdf, floats: 1.5 1.5 7.25 2.5 2.5 7.25 7.25
#   mdfreader, integers: 1 1 1 2 2 2 7
#
# Needs python3 (3.11 or later). Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q asammdf==8.8.28 mdfreader==4.3 numpy==2.2.6 > "$work/log" 2>&1 || { tail -n 20 "$work/log"; exit 1; }
cd "$work"
cat > look.py <<'END'
import mdfreader
import numpy
from asammdf import MDF, Signal

RAW = (0, 5, 9, 10, 15, 19, 30)
RANGES = {"lower_0": 0, "upper_0": 9, "phys_0": 1.5, "lower_1": 10, "upper_1": 19, "phys_1": 2.5, "default": 7.25}


def text(values):
    return " ".join(f"{value:g}" for value in values)


def write(kind):
    with MDF(version="4.10") as file:
        raw = numpy.array(RAW, kind)
        file.append([Signal(raw, numpy.arange(len(raw)) * 1.0, name="speed", conversion=RANGES)])
        file.save("one.mf4", overwrite=True)


def by_asammdf():
    with MDF("one.mf4") as file:
        return text(file.get("speed").samples)


defined = [1.5 if raw <= 9 else 2.5 if raw <= 19 else 7.25 for raw in RAW]
print(f"raw {text(RAW)}: {text(defined)}")
write("u1")
print(f"asammdf, integers: {by_asammdf()}")
other = text(mdfreader.Mdf("one.mf4").get_channel_data("speed"))
write("f8")
print(f"asammdf, floats: {by_asammdf()}")
print(f"mdfreader, integers: {other}")
END
"$work/venv/bin/python" -W ignore look.py 2> log | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
