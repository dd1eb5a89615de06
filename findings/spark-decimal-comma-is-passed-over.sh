#!/bin/sh
# PySpark 4.3.0, from_json and from_csv: a DECIMAL that is written with a comma, as much of Europe
# does it, is ten or a hundred times as much, for the comma is passed over as one between thousands,
# wherever it is. A DOUBLE of the same CSV text is null, and FAILFAST finds nothing wrong. With a
# locale of commas it is the point that is passed over. Seen:
#
#   decimal from JSON: '1,5' is 15.00, '1,2,3' is 123.00, '12,50' is 1250.00; from CSV: '1,5' is 15.00
#   in de-DE '1.5' is 15.00; a double from CSV: '1,5' is None
#
# Needs python3 (3.11 or later) and Java 17. Ends with 0 while it is so, with 1 when it changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyspark==4.3.0 pyarrow==26.0.1 pandas==2.3.3
cat > "$work/finding.py" <<'END'
import sys
from decimal import Decimal

from pyspark.sql import SparkSession
from pyspark.sql.functions import from_csv, from_json

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)


def read(function, text, kind, **options):
    frame = spark.createDataFrame([(text,)], "text string")
    return frame.select(function("text", f"a {kind}", options)["a"]).first()[0]


def json(text, **options):
    return read(from_json, f'{{"a": "{text}"}}', "decimal(10, 2)", **options)


texts = ("1,5", "1,2,3", "12,50")
found = [json(text, mode="FAILFAST") for text in texts]
csv = read(from_csv, '"1,5"', "decimal(10, 2)", mode="FAILFAST")
german = json("1.5", locale="de-DE")
double = read(from_csv, '"1,5"', "double")
spark.stop()
shown = ", ".join(f"{text!r} is {value}" for text, value in zip(texts, found))
print(f"decimal from JSON: {shown}; from CSV: '1,5' is {csv}")
print(f"in de-DE '1.5' is {german}; a double from CSV: '1,5' is {double}")
wanted = [Decimal("15.00"), Decimal("123.00"), Decimal("1250.00")]
sys.exit(not (found == wanted and csv == german == wanted[0] and double is None))
END
cd "$work"
"$work/venv/bin/python" "$work/finding.py" 2> "$work/log" || { tail -n 20 "$work/log"; exit 1; }
