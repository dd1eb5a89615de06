#!/bin/sh
# PySpark 4.3.0, from_json of a STRING: a number with a fraction is not the text that stands in the
# JSON but that of the double nearest to it, so that who declares amounts as text to keep their digits
# loses them. Whole numbers are kept, however long. primitivesAsString and
# spark.sql.json.enableExactStringParsing change nothing; a DECIMAL has the digits. Seen:
#
#   1.10 is 1.1, 123456789012345678.25 is 1.2345678901234568E17, 100000000.0 is 1.0E8
#   12345678901234567890 is 12345678901234567890; as decimal(20, 2): 123456789012345678.25
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
from pyspark.sql.functions import from_json

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)


spark.conf.set("spark.sql.json.enableExactStringParsing", "true")
texts = ["1.10", "123456789012345678.25", "100000000.0", "12345678901234567890"]
frame = spark.createDataFrame([(f'{{"a": {text}}}',) for text in texts], "text string")
options = {"primitivesAsString": "true"}
found = [row[0] for row in frame.select(from_json("text", "a string", options)["a"]).collect()]
exact = frame.select(from_json("text", "a decimal(20, 2)")["a"].cast("string")).collect()[1][0]
spark.stop()
print(", ".join(f"{text} is {value}" for text, value in zip(texts[:3], found)))
print(f"{texts[3]} is {found[3]}; as decimal(20, 2): {exact}")
wanted = ["1.1", "1.2345678901234568E17", "1.0E8", texts[3]]
sys.exit(not (found == wanted and exact == texts[1]))
END
cd "$work"
"$work/venv/bin/python" "$work/finding.py" 2> "$work/log" || { tail -n 20 "$work/log"; exit 1; }
