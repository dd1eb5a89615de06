#!/bin/sh
# PySpark 4.3.0, createDataFrame of an Arrow table (pyarrow 26.0.1): a map that has a key twice, as
# fields of a Redis stream, headers of HTTP and tags of logs have, stays so in Spark, and what its
# value is depends on who asks: SQL gives the first, `collect` and toPandas the last, explode both.
#
# Spark says that a map has each key once, and that a second one is an error
# (`spark.sql.mapKeyDedupPolicy`, EXCEPTION by default): so it is where SQL makes the map. Seen:
#
#   size 2, m['a'] = 1, collect {'a': 2}, explode [1, 2]
#   map_from_entries of the same: SparkRuntimeException
#
# Needs python3 and Java 17.
# Ends with 0 while it is so, with another number when it changes.
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
from pyspark.errors import SparkRuntimeException
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.log.level", "OFF").getOrCreate()
maps = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))
frame = spark.createDataFrame(pa.table({"m": maps}))
((size, value),) = frame.selectExpr("size(m)", "m['a']").collect()
exploded = [row.value for row in frame.selectExpr("explode(m)").collect()]
print(f"size {size}, m['a'] = {value}, collect {frame.collect()[0].m}, explode {exploded}")
try:
    frame.selectExpr("map_from_entries(map_entries(m))").collect()
except SparkRuntimeException as error:
    print("map_from_entries of the same:", type(error).__name__)
spark.stop()
END
"$work/venv/bin/python" look.py 2>errors | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
