#!/bin/sh
# PySpark 4.3.0 and pyarrow 26.0.1 read other days from each other's ORC files, before October 1582: so
# 0001-01-01, which stands for "none" or "always" in many tables, is 0001-01-03, or in the year 0.
#
# Both have the Gregorian calendar, back before its introduction too, and agree in Parquet. ORC's footer
# has a field for the calendar (orc_proto.proto, CalendarKind), and neither sets it: pyarrow writes its days as
# they are, Spark by the Julian calendar, and each reads as it writes. Conditions are met by the moved
# day. No error is raised. Seen:
#
#   ORC by pyarrow, UNKNOWN_CALENDAR, read by Spark: 0001-01-03, 1499-12-23, 1600-01-01
#   ORC by Spark, UNKNOWN_CALENDAR, read by pyarrow: 0000-12-30, 1500-01-10, 1600-01-01
#   Parquet by pyarrow, read by Spark: 0001-01-01, 1500-01-01, 1600-01-01
#   Parquet by Spark, read by pyarrow: 0001-01-01, 1500-01-01, 1600-01-01
#   rows with 0001-01-01 in pyarrow's ORC, by Spark: 0
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
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
days = [datetime.date(year, 1, 1) for year in (1, 1500, 1600)]
table = pa.table({"day": pa.array(days)})
frame = spark.createDataFrame([(day,) for day in days], "day date").coalesce(1)
java = spark._jvm.org.apache
options = java.orc.OrcFile.readerOptions(spark._jsc.hadoopConfiguration())


def calendar(file):
    tail = java.orc.OrcFile.createReader(java.hadoop.fs.Path(file), options).getFileTail()
    return tail.getFooter().getCalendar().toString()


def by_spark(frame):
    return ", ".join(row[0] for row in frame.selectExpr("CAST(day AS string)").collect())


def by_pyarrow(table):
    return ", ".join(map(str, table["day"].to_numpy()))  # Python's dates have no year 0.


orc.write_table(table, "pyarrow.orc")
pq.write_table(table, "pyarrow.parquet")
frame.write.orc("orc")
frame.write.parquet("parquet")
(spark_orc,) = map(str, pathlib.Path("orc").glob("*.orc"))
print(f"ORC by pyarrow, {calendar('pyarrow.orc')}, read by Spark: {by_spark(spark.read.orc('pyarrow.orc'))}")
print(f"ORC by Spark, {calendar(spark_orc)}, read by pyarrow: {by_pyarrow(orc.read_table(spark_orc))}")
print(f"Parquet by pyarrow, read by Spark: {by_spark(spark.read.parquet('pyarrow.parquet'))}")
print(f"Parquet by Spark, read by pyarrow: {by_pyarrow(pq.read_table('parquet'))}")
found = spark.read.orc("pyarrow.orc").where("day = DATE'0001-01-01'").count()
print(f"rows with 0001-01-01 in pyarrow's ORC, by Spark: {found}")
spark.stop()
END
"$work/venv/bin/python" look.py 2> log > seen || { tail -n 20 log; exit 1; }
cat seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
