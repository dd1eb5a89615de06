#!/bin/sh
# PySpark 4.3.0: a decimal in a VARIANT has up to 38 digits, and Python is given the first 28 of them, rounded: by
# collect, in a UDF and by toJson; two amounts that differ in SQL are one in Python.
#
# The digits are read exactly and then multiplied by a power of ten, in Python's default context, which has 28
# digits. A column of DECIMAL(38, 10) comes whole, and to_json of the same VARIANT is whole; parse_json makes such a
# decimal of each number in JSON that has that many digits. No error is raised, and no setting is named for
# it (decimal.getcontext().prec = 38 in each process of Python mends it). Seen:
#
#   1234567890123456789012345678.55: to_json 1234567890123456789012345678.55
#   1234567890123456789012345678.55: toJson 1234567890123456789012345679
#   1234567890123456789012345678.55: UDF 1234567890123456789012345679
#   1234567890123456789012345678.55: DECIMAL(38, 10) 1234567890123456789012345678.5500000000
#   0.12345678901234567890123456789012345678: to_json 0.12345678901234567890123456789012345678
#   0.12345678901234567890123456789012345678: toJson 0.1234567890123456789012345679
#   0.12345678901234567890123456789012345678: UDF 0.1234567890123456789012345679
#   in SQL 1000000000000000000000000000.01 and 1000000000000000000000000000.02: 2 values; in Python 1
#
# Needs python3 (3.11 or later) and Java 17. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyspark==4.3.0
cd "$work"
cat > look.py <<'END'
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
LONG, SMALL = "1234567890123456789012345678.55", "0.12345678901234567890123456789012345678"
spark.udf.register("in_python", udf(lambda value: str(value.toPython()), "string"))
for number in (LONG, SMALL):
    value, text, in_udf = spark.sql(
        f"SELECT v, to_json(v), in_python(v) FROM (SELECT parse_json('{number}') AS v)"
    ).first()
    print(f"{number}: to_json {text}")
    print(f"{number}: toJson {value.toJson()}")
    print(f"{number}: UDF {in_udf}")
    if number == LONG:
        print(f"{number}: DECIMAL(38, 10) {spark.sql(f'SELECT CAST({number}BD AS DECIMAL(38, 10))').first()[0]}")
pair = [f"1000000000000000000000000000.0{digit}" for digit in "12"]
rows = spark.createDataFrame([(text,) for text in pair], "text string")
found = rows.selectExpr("parse_json(text) AS v", "to_json(parse_json(text)) AS j").collect()
sizes = [len({row.j for row in found}), len({row.v.toPython() for row in found})]
print(f"in SQL {pair[0]} and {pair[1]}: {sizes[0]} values; in Python {sizes[1]}")
END
"$work/venv/bin/python" look.py 2> log | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen || { tail -n 20 log; exit 1; }
