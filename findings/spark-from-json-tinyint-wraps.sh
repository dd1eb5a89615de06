#!/bin/sh
# PySpark 4.3.0, from_json of a TINYINT: 128 to 255 wrap to −128 to −1, without a word and in the mode
# FAILFAST, too. 256 is null, and so is what a SMALLINT cannot hold; from_csv has null for 128. So a
# device's unsigned byte that is declared as TINYINT is right up to 127, and negative beyond. Seen:
#
#   from_json tinyint 127: 127, 128: -128, 255: -1, 256: None; in FAILFAST 200: -56
#   from_json smallint 32768: None; from_csv tinyint 128: None
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


tiny = [read(from_json, f'{{"a": {n}}}', "tinyint") for n in (127, 128, 255, 256)]
strict = read(from_json, '{"a": 200}', "tinyint", mode="FAILFAST")
small = read(from_json, '{"a": 32768}', "smallint")
csv = read(from_csv, "128", "tinyint")
spark.stop()
names = ("127", "128", "255", "256")
shown = ", ".join(f"{name}: {value}" for name, value in zip(names, tiny))
print(f"from_json tinyint {shown}; in FAILFAST 200: {strict}")
print(f"from_json smallint 32768: {small}; from_csv tinyint 128: {csv}")
sys.exit(not (tiny == [127, -128, -1, None] and strict == -56 and small is None and csv is None))
END
cd "$work"
"$work/venv/bin/python" "$work/finding.py" 2> "$work/log" || { tail -n 20 "$work/log"; exit 1; }
