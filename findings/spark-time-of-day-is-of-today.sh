#!/bin/sh
# PySpark 4.3.0, from_json, from_csv and spark.read.json: a TIMESTAMP whose text is a time of day alone
# becomes that time of the day on which the record is read. A batch that is computed again after
# midnight, from the same bytes, gives other rows than the first time. A TIMESTAMP_NTZ of it is null.
# Seen on any day:
#
#   from_json "12:00" of today: True; from_csv 12:00 of today: True; as timestamp_ntz: None
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


def read(function, text, kind):
    frame = spark.createDataFrame([(text,)], "text string")
    found = function("text", f"a {kind}", {"mode": "FAILFAST"} if kind == "timestamp" else {})["a"]
    return frame.select(found.cast("string")).first()[0]


def today():
    return spark.sql("SELECT cast(current_date() AS string)").first()[0]


days = {f"{today()} 12:00:00"}
json = read(from_json, '{"a": "12:00"}', "timestamp")
csv = read(from_csv, "12:00", "timestamp")
days.add(f"{today()} 12:00:00")  # if it was midnight meanwhile
no_zone = read(from_json, '{"a": "12:00"}', "timestamp_ntz")
spark.stop()
print(
    f'from_json "12:00" of today: {json in days}; from_csv 12:00 of today: {csv in days}; '
    f"as timestamp_ntz: {no_zone}"
)
sys.exit(not (json in days and csv in days and no_zone is None))
END
cd "$work"
"$work/venv/bin/python" "$work/finding.py" 2> "$work/log" || { tail -n 20 "$work/log"; exit 1; }
