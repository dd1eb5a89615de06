#!/bin/sh
# PySpark 4.3.0, createDataFrame of an Arrow table (pyarrow 26.0.1): a column of time64[ns] becomes
# TIME(6), whose digits end with microseconds, and yet keeps the nanoseconds. Two values that the
# column's type makes equal are then two values: they differ under `=`, and a cast to text shows nine
# digits. Seen:
#
#   schema time(6), text ['00:00:00.000000001', '00:00:00.000000002'], distinct 2
#
# Needs python3 (3.11 or later) and Java 17. Ends with 0 while it is so, with 1 when it changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyspark==4.3.0 pyarrow==26.0.1 pandas==2.3.3
cat > "$work/finding.py" <<'END'
import sys

import pyarrow as pa
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.timeType.enabled", "true")
    .getOrCreate()
)
table = pa.table({"t": pa.array([1, 2], pa.time64("ns"))})
frame = spark.createDataFrame(table)
schema = frame.schema["t"].dataType.simpleString()
text = [row[0] for row in frame.selectExpr("cast(t as string)").collect()]
distinct = frame.select("t").distinct().count()
spark.stop()
print(f"schema {schema}, text {text}, distinct {distinct}")
sys.exit(not (schema == "time(6)" and text[0] == "00:00:00.000000001" and distinct == 2))
END
"$work/venv/bin/python" "$work/finding.py" 2> "$work/log" || { tail -n 20 "$work/log"; exit 1; }
