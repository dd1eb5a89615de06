#!/bin/sh
# PySpark 4.3.0, from_json: of a value in which two JSON objects stand one after the other, as many
# senders put several into one message, the first is read and the others are gone, in FAILFAST, too,
# and nothing is in the column of corrupt records. So is text after an object. A file of such lines
# read by spark.read.json loses them in the same way. Seen:
#
#   from_json: 1 and 1, corrupt: None; spark.read.json: [1]
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
from pyspark.sql.functions import from_json

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)


TWO = '{"a": 1}{"a": 2}'
frame = spark.createDataFrame([(TWO, '{"a": 1} and more')], "two string, more string")
strict = {"mode": "FAILFAST"}
told = from_json("two", "a int, _corrupt_record string")["_corrupt_record"]
two, more, corrupt = frame.select(
    from_json("two", "a int", strict)["a"], from_json("more", "a int", strict)["a"], told
).first()
Path("two.json").write_text(TWO + "\n")
file = spark.read.json(str(Path("two.json").absolute()), "a int", mode="FAILFAST")
read = [row[0] for row in file.collect()]
spark.stop()
print(f"from_json: {two} and {more}, corrupt: {corrupt}; spark.read.json: {read}")
sys.exit(not (two == more == 1 and corrupt is None and read == [1]))
END
cd "$work"
"$work/venv/bin/python" "$work/finding.py" 2> "$work/log" || { tail -n 20 "$work/log"; exit 1; }
