#!/bin/sh
# PyArrow 26.0.1, pa.array of Python values that are not of one kind: whether something is lost in
# silence, or refused, goes by the order of the values, and a named tuple goes into a struct by place.
# Seen:
#
#   [date, datetime] -> [datetime.date(2020, 1, 1), datetime.date(2020, 1, 1)]     (05:00 is gone)
#   [datetime, date] -> ArrowTypeError
#   [naive, aware]   -> one instant twice, without a zone
#   ["a", b"a"]      -> binary, one value twice
#   P(a=1, b=2) as struct<b, a> -> [{'b': 1, 'a': 2}]         (a dict goes by name)
#
# Needs python3. Ends with 0 while it is so, with 1 when it changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyarrow==26.0.1
cat > "$work/finding.py" <<'END'
import sys
from collections import namedtuple
from datetime import date, datetime, timezone

import pyarrow as pa

day, morning = date(2020, 1, 1), datetime(2020, 1, 1, 5)
first = pa.array([day, morning]).to_pylist()
print("[date, datetime] ->", first)
try:
    second = str(pa.array([morning, day]).to_pylist())
except pa.ArrowException as error:
    second = type(error).__name__
print("[datetime, date] ->", second)
third = pa.array([morning, morning.replace(tzinfo=timezone.utc)])
print("[naive, aware] ->", third.type, third.to_pylist())
fourth = pa.array(["a", b"a"])
print('["a", b"a"] ->', fourth.type, fourth.to_pylist())
P = namedtuple("P", "a b")
kind = pa.struct([("b", pa.int64()), ("a", pa.int64())])
fifth = pa.array([P(a=1, b=2)], kind).to_pylist()
print("P(a=1, b=2) as struct<b, a> ->", fifth)
same = (
    first == [day, day]
    and second == "ArrowTypeError"
    and third.to_pylist() == [morning, morning]
    and fourth.to_pylist() == [b"a", b"a"]
    and fifth == [{"b": 1, "a": 2}]
)
sys.exit(not same)
END
"$work/venv/bin/python" "$work/finding.py"
