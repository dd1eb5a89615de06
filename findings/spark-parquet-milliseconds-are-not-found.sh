#!/bin/sh
# PySpark 4.3.0, Parquet with times in milliseconds (by pyarrow 26.0.1, or by Spark with
# spark.sql.parquet.outputTimestampType=TIMESTAMP_MILLIS): rows are lost when they are compared with a
# time that has microseconds, as now() and watermarks have.
#
# The literal is cut to the file's milliseconds before it is compared with a column's least and largest
# value: `t < 12:00:00.0005` becomes `t < 12:00:00.000`, and a file that begins with 12:00:00.000 is
# left out. The same rows in microseconds are found. Filters in the files are documented as an
# optimization; without them the answer is right. Seen, of one row with the time 12:00:00.000: whether
# it is found with spark.sql.parquet.filterPushdown, and without:
#
#   milliseconds by pyarrow, t < 12:00:00.0005: 0, 1
#   milliseconds by pyarrow, t != 12:00:00.0005: 0, 1
#   milliseconds by Spark, t < 12:00:00.0005: 0, 1
#   milliseconds by Spark, t != 12:00:00.0005: 0, 1
#   microseconds by pyarrow, t < 12:00:00.0005: 1, 1
#   microseconds by pyarrow, t != 12:00:00.0005: 1, 1
#
# Needs python3 (3.11 or later) and Java 17. Ends with 0 while it is so, with another number when it
# changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyspark==4.3.0 pyarrow==26.0.1 pandas==2.3.3
cd "$work"
cat > look.py <<'END'
import datetime

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
noon = datetime.datetime(2026, 11, 29, 12, tzinfo=datetime.timezone.utc)
spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS")
spark.createDataFrame([(noon,)], "t timestamp").coalesce(1).write.parquet("milliseconds by Spark")
for unit, name in ("ms", "milliseconds by pyarrow"), ("us", "microseconds by pyarrow"):
    pq.write_table(pa.table({"t": pa.array([noon], pa.timestamp(unit, "UTC"))}), name)
for name in "milliseconds by pyarrow", "milliseconds by Spark", "microseconds by pyarrow":
    for compared in "<", "!=":
        condition = f"t {compared} TIMESTAMP'2026-11-29 12:00:00.0005'"
        found = []
        for filters in "true", "false":
            spark.conf.set("spark.sql.parquet.filterPushdown", filters)
            found.append(str(spark.read.parquet(name).where(condition).count()))
        print(f"{name}, t {compared} 12:00:00.0005: {', '.join(found)}")
spark.stop()
END
"$work/venv/bin/python" look.py 2> log > seen || { tail -n 20 log; exit 1; }
cat seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
