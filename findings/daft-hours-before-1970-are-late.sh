#!/bin/sh
# daft 0.7.26: what was before 1970 is in the hour's partition that comes after it, a date of that time is
# 18446744073709551615 days after 1970, and a week begins on Thursday.
#
# Partitions of Iceberg are counted from 1970 and rounded down: that is what its Python library does
# (pyiceberg 0.12.0), and Daft does it for days. Its hours are rounded towards zero, so that the hour 0 holds
# two hours, and who looks for a time in the hour -1 where it belongs does not find it. `unix_date` makes an
# unsigned number of a negative one. date_trunc counts weeks from 1970-01-01, which was a Thursday. Seen:
#
#   times: 12-31 23:59:59, 12-31 22:30:00, 12-30 12:00:00, 01-01 00:30:00
#   hours by daft: [0, -1, -36, 0]
#   hours by pyiceberg: [-1, -2, -36, 0]
#   days by daft: [-1, -1, -2, 0]
#   days by pyiceberg: [-1, -1, -2, 0]
#   unix_date by daft: [18446744073709551615, 18446744073709551615, 18446744073709551614, 0]
#   week of 2024-01-03 Wednesday: 2023-12-28 Thursday
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q daft==0.7.26 pyiceberg==0.12.0 pyarrow==25.0.1
cd "$work"
cat > look.py <<'END'
import datetime

import daft
import pyarrow
from daft import col
from pyiceberg.transforms import DayTransform, HourTransform
from pyiceberg.types import TimestampType

TIMES = [
    datetime.datetime(1969, 12, 31, 23, 59, 59),
    datetime.datetime(1969, 12, 31, 22, 30),
    datetime.datetime(1969, 12, 30, 12),
    datetime.datetime(1970, 1, 1, 0, 30),
]
frame = daft.from_arrow(pyarrow.table({"at": pyarrow.array(TIMES, pyarrow.timestamp("us"))}))
EPOCH = datetime.datetime(1970, 1, 1)
micros = [(at - EPOCH) // datetime.timedelta(microseconds=1) for at in TIMES]


def by_daft(expression):
    return frame.select(expression.alias("it")).to_pydict()["it"]


def by_iceberg(transform):
    return [transform.transform(TimestampType())(value) for value in micros]


print("times:", ", ".join(f"{at:%m-%d %H:%M:%S}" for at in TIMES))
print("hours by daft:", by_daft(col("at").partition_hours()))
print("hours by pyiceberg:", by_iceberg(HourTransform()))
days = [(day - EPOCH.date()).days for day in by_daft(col("at").partition_days())]
print("days by daft:", days)
print("days by pyiceberg:", by_iceberg(DayTransform()))
print("unix_date by daft:", by_daft(col("at").unix_date()))
day = datetime.datetime(2024, 1, 3)
weeks = daft.from_pydict({"at": [day]}).select(col("at").date_trunc("1 week").alias("it"))
week = weeks.to_pydict()["it"][0]
print(f"week of {day:%Y-%m-%d %A}: {week:%Y-%m-%d %A}")
END
"$work/venv/bin/python" look.py 2> errors | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
