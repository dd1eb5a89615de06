#!/bin/sh
# asammdf 8.8.28: a sample that the file marks as invalid comes out of to_dataframe and export with a value
# that is made up from its neighbours.
#
# In MDF 4 a sample has an invalidation bit; where it is set, the value must not be used (ASAM MDF 4.1,
# "Invalidation bits"). `get` leaves such samples out, and then the tables are filled for the time that is
# missing: a float by a straight line, an integer by the value before, at the end by the last one. All
# signals have the same times here, so there is no other raster to be met. A sensor that said for an hour
# that it knows nothing looks as if it had measured. Seen (i is invalid at 1 and 4, f at 2; there the file
# has 99):
#
#   get: f 0 10.0, 1 20.0, 3 40.0, 4 50.0; i 0 0, 2 20, 3 30
#   to_dataframe: f 10.0 20.0 30.0 40.0 50.0; i 0 0 20 30 30
#   to_dataframe, use_interpolation=False: f 10.0 20.0 nan 40.0 50.0; i 0.0 nan 20.0 30.0 nan
#   export parquet: f 10.0 20.0 30.0 40.0 50.0; i 0 0 20 30 30
#   export csv: f 10.0 20.0 30.0 40.0 50.0; i 0 0 20 30 30
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q asammdf==8.8.28 pyarrow==26.0.1
cd "$work"
cat > look.py <<'END'
import csv
import glob

import numpy as np
import pyarrow.parquet as pq
from asammdf import MDF, Signal

times = np.arange(5.0)


def signal(name, values, invalid):
    bits = np.isin(np.arange(5), invalid)
    return Signal(np.array(values), times, name=name, invalidation_bits=bits)


made = MDF(version="4.11")
made.append([signal("f", [10.0, 20, 99, 40, 50], [2]), signal("i", [0, 99, 20, 30, 99], [1, 4])])
made.save("some.mf4")


def show(what, columns):
    f, i = ([str(value) for value in columns[name]] for name in "fi")
    print(f"{what}: f {' '.join(f)}; i {' '.join(i)}")


with MDF("some.mf4") as file:
    got = (file.get(name) for name in "fi")
    pairs = (
        ", ".join(f"{at:.0f} {value}" for at, value in zip(each.timestamps, each.samples)) for each in got
    )
    print("get: f {}; i {}".format(*pairs))
    show("to_dataframe", file.to_dataframe())
    show("to_dataframe, use_interpolation=False", file.to_dataframe(use_interpolation=False))
    file.export("parquet", filename="some.parquet")
    show("export parquet", pq.read_table("some.parquet").to_pydict())
    file.export("csv", filename="some.csv")
with open(glob.glob("*.csv")[0]) as table:
    rows = list(csv.DictReader(table))
show("export csv", {name: [row[name] for row in rows] for name in "fi"})
END
"$work/venv/bin/python" -W ignore look.py 2>errors | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
