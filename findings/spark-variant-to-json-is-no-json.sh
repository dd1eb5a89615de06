#!/bin/sh
# PySpark 4.3.0: VariantVal.toJson, by which Python has a VARIANT as text, gives text that is no JSON, and
# other digits than to_json of the same value; parseJson takes what parse_json refuses.
#
# A double that is not finite is nan, inf and -inf, which neither JSON has nor Python's own parser takes; it
# comes from JSON as well, as 1e400 becomes one. to_json has them in quotes. A FLOAT is the double that is
# next to it, with digits that nobody wrote. The other way a name that an object has twice is an error by
# parse_json, and by parseJson the last value, without a word. So a value that went through Python is not
# the one that stayed in SQL. Seen:
#
#   1e400: to_json "Infinity", toJson inf
#   {"t":1e400}: to_json {"t":"Infinity"}, toJson {"t":inf}
#   double NaN: to_json "NaN", toJson nan
#   float 0.1: to_json 0.1, toJson 0.10000000149011612
#   Python's json of toJson: raises, raises, raises, reads
#   {"a":1,"a":2}: parse_json raises VARIANT_DUPLICATE_KEY, parseJson {"a":2}
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
import json

from pyspark.sql import SparkSession
from pyspark.sql.types import VariantVal

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
read = []
for name, made in (
    ("1e400", "parse_json('1e400')"),
    ('{"t":1e400}', """parse_json('{"t":1e400}')"""),
    ("double NaN", "cast(double('NaN') AS variant)"),
    ("float 0.1", "cast(float('0.1') AS variant)"),
):
    value, text = spark.sql(f"SELECT {made}, to_json({made})").first()
    print(f"{name}: to_json {text}, toJson {value.toJson()}")
    try:
        json.loads(value.toJson())
        read.append("reads")
    except json.JSONDecodeError:
        read.append("raises")
print("Python's json of toJson:", ", ".join(read))
twice = '{"a":1,"a":2}'
try:
    answer = spark.sql(f"SELECT parse_json('{twice}')").first()[0].toJson()
except Exception as error:
    found = "VARIANT_DUPLICATE_KEY" in str(error)
    answer = f"raises {'VARIANT_DUPLICATE_KEY' if found else error}"
print(f"{twice}: parse_json {answer}, parseJson {VariantVal.parseJson(twice).toJson()}")
spark.stop()
END
PYSPARK_PYTHON="$work/venv/bin/python" "$work/venv/bin/python" look.py 2> errors | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
