#!/bin/sh
# avro 1.12.2 (Avro's own library for Python) writes a decimal that has fewer digits behind the point than
# its schema as another number: of a scale of 2, 3 is 0.03, 1.5 is 0.15 and 10 may be 0.01.
#
# The digits are written as they stand in Python's Decimal, whatever its exponent is, where Avro has the
# number times 10 to the scale (specification 1.12.0, "Decimal"). A price that came as text with two
# places is right, and one that was computed, or read without its zeros, is a hundredth of itself.
# fastavro 1.13.1 writes each as it is. In a union both take another branch than one would: the time of
# a datetime goes, or a whole number beyond 2**53 is rounded. Seen (what was given, written by each):
#
#   bytes 1.50: avro 1.50, fastavro 1.50
#   bytes 1.5: avro 0.15, fastavro 1.50
#   bytes 3: avro 0.03, fastavro 3.00
#   bytes 1E+1: avro 0.01, fastavro 10.00
#   fixed 3: avro 0.03, fastavro 3.00
#   long, double 9007199254740993: avro 9007199254740992.0, fastavro 9007199254740993
#   double, long 9007199254740993: avro 9007199254740993, fastavro 9007199254740992.0
#   date, timestamp 2026-01-01 05:00:00: avro 2026-01-01 05:00:00, fastavro 2026-01-01
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q avro==1.12.2 fastavro==1.13.1
cd "$work"
cat > look.py <<'END'
import io
import json
from datetime import datetime, timezone
from decimal import Decimal

import avro.io
import avro.schema
import fastavro

DECIMAL = {"logicalType": "decimal", "precision": 9, "scale": 2}
BYTES = {"type": "bytes", **DECIMAL}
FIXED = {"type": "fixed", "name": "amount", "size": 4, **DECIMAL}
TIMES = [
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-micros"},
]


def by_avro(schema, record):
    data = io.BytesIO()
    encoder = avro.io.BinaryEncoder(data)
    avro.io.DatumWriter(avro.schema.parse(json.dumps(schema))).write(record, encoder)
    return data


def by_fastavro(schema, record):
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), record)
    return data


def shown(value):
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


for name, kind, value in (
    ("bytes", BYTES, Decimal("1.50")),
    ("bytes", BYTES, Decimal("1.5")),
    ("bytes", BYTES, Decimal(3)),
    ("bytes", BYTES, Decimal("10").normalize()),
    ("fixed", FIXED, Decimal(3)),
    ("long, double", ["long", "double"], 2**53 + 1),
    ("double, long", ["double", "long"], 2**53 + 1),
    ("date, timestamp", TIMES, datetime(2026, 1, 1, 5, tzinfo=timezone.utc)),
):
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]}
    found = []
    for write in (by_avro, by_fastavro):
        data = write(schema, {"x": value})
        data.seek(0)
        # fastavro reads what both have written as avro does.
        found.append(shown(fastavro.schemaless_reader(data, fastavro.parse_schema(schema))["x"]))
    print(f"{name} {shown(value)}: avro {found[0]}, fastavro {found[1]}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
