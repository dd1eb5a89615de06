#!/bin/sh
# PySpark 4.3.0, from_xml of a DOUBLE: what begins with a number is that number, and the rest is
# dropped, in the mode FAILFAST, too. A date is its year, a version its first two parts, a comma is
# passed over. from_csv has null for each of these texts, and so has from_xml for an INT. Seen:
#
#   12 kW 12.0, 4.3.0 4.3, 2024-05-01 2024.0, 1,5 15.0, 10% 10.0
#   from_csv [None, None, None, None, None]; as int [None, None, None, None, None]
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
from pyspark.sql.functions import from_csv, from_xml

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)


texts = ["12 kW", "4.3.0", "2024-05-01", "1,5", "10%"]
rows = [(f"<r><a>{text}</a></r>", f'"{text}"') for text in texts]
frame = spark.createDataFrame(rows, "xml string, csv string")
found = frame.select(
    from_xml("xml", "a double", {"mode": "FAILFAST"})["a"],
    from_csv("csv", "a double")["a"],
    from_xml("xml", "a int")["a"],
).collect()
spark.stop()
doubles, csv, whole = ([row[at] for row in found] for at in range(3))
print(", ".join(f"{text} {value}" for text, value in zip(texts, doubles)))
print(f"from_csv {csv}; as int {whole}")
nothing = [None] * len(texts)
sys.exit(not (doubles == [12.0, 4.3, 2024.0, 15.0, 10.0] and csv == whole == nothing))
END
cd "$work"
"$work/venv/bin/python" "$work/finding.py" 2> "$work/log" || { tail -n 20 "$work/log"; exit 1; }
