#!/bin/sh
# pyarrow 26.0.1 takes a floating-point number for a time, and cuts it to a whole number of whatever
# unit the column has: time.time() in a column of microseconds, the type that Spark's TIMESTAMP is in
# Arrow, is 26 minutes after 1970, without a word.
#
# Python's own and Spark's readers take seconds or refuse. A safe cast of such an array is refused by
# pyarrow itself ("would lose data"); making the array is not. Seen:
#
#   in timestamp[us]: 1970-01-01 00:26:17.836800
#   in timestamp[s]: 2020-01-01 00:00:00
#   in date32: 2020-01-01
#   in time64[us]: 00:00:00.000001
#   in duration[us]: 0:00:00.000001
#   in duration[us], a decimal: 0:00:00.000001
#   float64 cast to int64: ArrowInvalid
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyarrow==26.0.1
cd "$work"
cat > look.py <<'END'
import datetime
import decimal

import pyarrow as pa

SENT = 1577836800.75  # 2020-01-01 00:00:00.75 in seconds, as time.time() gives it


def told(value, kind):
    try:
        return pa.array([value], kind)[0].as_py()
    except pa.ArrowInvalid as error:
        return type(error).__name__


print("in timestamp[us]:", told(SENT, pa.timestamp("us")))
print("in timestamp[s]:", told(SENT, pa.timestamp("s")))
print("in date32:", told(18262.75, pa.date32()))
print("in time64[us]:", told(1.5, pa.time64("us")))
print("in duration[us]:", told(1.5, pa.duration("us")))
print("in duration[us], a decimal:", told(decimal.Decimal("1.5"), pa.duration("us")))
try:
    cast = pa.array([SENT]).cast(pa.int64())
except pa.ArrowInvalid as error:
    cast = type(error).__name__
print("float64 cast to int64:", cast)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
