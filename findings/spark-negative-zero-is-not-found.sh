#!/bin/sh
# PySpark 4.3.0 loses the rows with -0.0 of its own Parquet and ORC files when it looks for zero, or
# for what is not below zero.
#
# To Spark -0.0 and 0.0 are equal (SQL migration guide, from 2.4 to 3.0), and so it says without
# filters in the files. With them, as is the default, the readers of both formats compare by
# Double.compare, to which -0.0 is less: a file whose values are all -0.0, as are the products of a zero
# and a sign, is left out as a whole. Parquet's format asks readers to take +0 for -0 at the ends of a
# range ("If the min is +0, the row group may contain -0 values as well"). Seen, of two rows that have
# -0.0: how many are found with spark.sql.FORMAT.filterPushdown, and without:
#
#   parquet, x = 0.0D: 0, 2
#   parquet, x >= 0.0D: 0, 2
#   parquet, x IN (0.0D, 1.0D): 0, 2
#   orc, x = 0.0D: 0, 2
#   orc, x >= 0.0D: 0, 2
#   orc, x IN (0.0D, 1.0D): 0, 2
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
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
frame = spark.createDataFrame([(0.0, 1), (0.0, 2)], "amount double, number int")
signed = frame.selectExpr("-1 * amount AS x", "number").coalesce(1)
for format in "parquet", "orc":
    signed.write.format(format).save(format)
    for condition in "x = 0.0D", "x >= 0.0D", "x IN (0.0D, 1.0D)":
        found = []
        for filters in "true", "false":
            spark.conf.set(f"spark.sql.{format}.filterPushdown", filters)
            found.append(str(spark.read.format(format).load(format).where(condition).count()))
        print(f"{format}, {condition}: {', '.join(found)}")
spark.stop()
END
"$work/venv/bin/python" look.py 2> log > seen || { tail -n 20 log; exit 1; }
cat seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
