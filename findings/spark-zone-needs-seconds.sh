#!/bin/sh
# PySpark 4.3.0, from_json, from_csv and try_cast: a TIMESTAMP without seconds is read if it has no
# zone, and null if it has one. Java's OffsetDateTime and ZonedDateTime leave out seconds that are
# zero, so of a sender that cuts its times to seconds one record in sixty has no time. Minutes may be
# missing, too, but not before a zone. Seen:
#
#   2020-06-01T12:00 2020-06-01 12:00:00
#   2020-06-01T12:00Z None
#   2020-06-01T12:00+02:00 None
#   2020-06-01T12:00:00Z 2020-06-01 12:00:00
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
from pyspark.sql.functions import expr, from_csv, from_json

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)


texts = [
    "2020-06-01T12:00",
    "2020-06-01T12:00Z",
    "2020-06-01T12:00+02:00",
    "2020-06-01T12:00:00Z",
]
rows = [(text, f'{{"a": "{text}"}}') for text in texts]
frame = spark.createDataFrame(rows, "text string, json string")
found = frame.select(
    from_json("json", "a timestamp")["a"].cast("string"),
    from_csv("text", "a timestamp")["a"].cast("string"),
    expr("cast(try_cast(text AS timestamp) AS string)"),
).collect()
spark.stop()
for text, row in zip(texts, found):
    print(text, *set(row))
noon = "2020-06-01 12:00:00"
sys.exit([set(row) for row in found] != [{noon}, {None}, {None}, {noon}])
END
cd "$work"
"$work/venv/bin/python" "$work/finding.py" 2> "$work/log" || { tail -n 20 "$work/log"; exit 1; }
