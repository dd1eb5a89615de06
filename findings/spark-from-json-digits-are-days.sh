#!/bin/sh
# PySpark 4.3.0, from_json of a DATE: text of digits alone is a number of days since 1970, so that a
# date in ISO 8601's basic form (20200101) is one in the year 57275, and seconds since 1970 as text
# are one in the year 4321940. No mode finds anything wrong. The same number without quotes is null,
# and from_csv has null for the same text. Seen:
#
#   from_json "20200101": +57275-12-31, "1577836800": +4321940-06-07, in FAILFAST "0": 1970-01-01
#   from_json 20200101: None; from_csv 20200101: None
#
# Needs python3 (3.11 or later) and Java 17. Ends with 0 while it is so, with 1 when it changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyspark==4.3.0 pyarrow==26.0.1 pandas==2.3.3
cat > "$work/finding.py" <<'END'
import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import from_csv, from_json

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)


def read(function, text, **options):
    frame = spark.createDataFrame([(text,)], "text string")
    return frame.select(function("text", "a date", options)["a"].cast("string")).first()[0]


texts = ("20200101", "1577836800", "0")
found = [read(from_json, f'{{"a": "{text}"}}', mode="FAILFAST") for text in texts]
number = read(from_json, '{"a": 20200101}')
csv = read(from_csv, "20200101")
spark.stop()
print(f'from_json "20200101": {found[0]}, "1577836800": {found[1]}, in FAILFAST "0": {found[2]}')
print(f"from_json 20200101: {number}; from_csv 20200101: {csv}")
wanted = ["+57275-12-31", "+4321940-06-07", "1970-01-01"]
sys.exit(not (found == wanted and number is None and csv is None))
END
cd "$work"
"$work/venv/bin/python" "$work/finding.py" 2> "$work/log" || { tail -n 20 "$work/log"; exit 1; }
