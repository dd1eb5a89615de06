#!/bin/sh
# PySpark 4.3.0, with Parquet written by pyarrow 26.0.1: rows with NaN are not found, though Spark says
# that they meet the condition.
#
# To Spark NaN is equal to itself and larger than any other number (SQL reference, "NaN Semantics").
# pyarrow leaves NaN out of a column's least and largest value, as Parquet's format tells it to ("NaNs
# should not be written to min or max statistics fields"), and tells readers to pass over both when
# they look for NaN. Spark leaves the file out by them. Of its own files, whose writer gives no such
# values if there is a NaN, it finds all; so it does of pyarrow's without filters in the files. Seen, of
# the rows 1.0 and NaN: how many are found with spark.sql.parquet.filterPushdown, and without:
#
#   by Spark, x > 5: 1, 1
#   by Spark, x != 1: 1, 1
#   by Spark, x = double('NaN'): 1, 1
#   by pyarrow, x > 5: 0, 1
#   by pyarrow, x != 1: 0, 1
#   by pyarrow, x = double('NaN'): 0, 1
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
values = [1.0, float("nan")]
spark.createDataFrame([(x,) for x in values], "x double").coalesce(1).write.parquet("Spark")
pq.write_table(pa.table({"x": values}), "pyarrow")
for writer in "Spark", "pyarrow":
    for condition in "x > 5", "x != 1", "x = double('NaN')":
        found = []
        for filters in "true", "false":
            spark.conf.set("spark.sql.parquet.filterPushdown", filters)
            found.append(str(spark.read.parquet(writer).where(condition).count()))
        print(f"by {writer}, {condition}: {', '.join(found)}")
spark.stop()
END
"$work/venv/bin/python" look.py 2> log > seen || { tail -n 20 log; exit 1; }
cat seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
