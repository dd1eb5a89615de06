#!/bin/sh
# PySpark 4.3.0, spark.read.csv with inferSchema: a column of codes that are digits and one d or f, as
# of hexadecimal or seats (12d, 5f, 7D), is inferred as DOUBLE, and the letters are gone: they are
# Java's suffixes of numbers. Two codes become one. from_csv and a cast to DOUBLE read them so, too;
# schema_of_json and schema_of_xml, of the same text, say STRING. Seen:
#
#   struct<seat:double> [12.0, 12.0, 5.0, 7.0]; schema_of_csv STRUCT<_c0: DOUBLE>
#   schema_of_xml STRUCT<a: STRING>; schema_of_json STRUCT<a: STRING>
#
# Needs python3 (3.11 or later) and Java 17. Ends with 0 while it is so, with 1 when it changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyspark==4.3.0 pyarrow==26.0.1 pandas==2.3.3
cat > "$work/finding.py" <<'END'
import sys
from pathlib import Path

from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)


Path("seats.csv").write_text("seat\n12d\n12f\n5f\n7D\n")
frame = spark.read.csv(str(Path("seats.csv").absolute()), header=True, inferSchema=True)
kind = frame.schema.simpleString()
values = [row[0] for row in frame.collect()]
csv, xml, json = spark.sql(
    """SELECT schema_of_csv('12d'), schema_of_xml('<r><a>12d</a></r>'), schema_of_json('{"a": "12d"}')"""
).first()
spark.stop()
print(f"{kind} {values}; schema_of_csv {csv}")
print(f"schema_of_xml {xml}; schema_of_json {json}")
sys.exit(
    not (
        kind == "struct<seat:double>"
        and values == [12.0, 12.0, 5.0, 7.0]
        and csv == "STRUCT<_c0: DOUBLE>"
        and xml == json == "STRUCT<a: STRING>"
    )
)
END
cd "$work"
"$work/venv/bin/python" "$work/finding.py" 2> "$work/log" || { tail -n 20 "$work/log"; exit 1; }
