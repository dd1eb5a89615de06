#!/bin/sh
# pyarrow 26.0.1 and PySpark 4.3.0: a time before 1970 that has a fraction of a second makes an ORC file of pyarrow's
# one that Spark cannot read, whichever of its two readers is asked; other rows of the file are lost with it.
#
# An ORC timestamp is a number of seconds and one of nanoseconds, which is never negative in other files: 23:59:58.001
# in 1969 is so many whole seconds and then a millisecond. pyarrow divides towards zero and writes the rest with its
# minus. The readers of C++ add the two and find the time again, Java's refuses the nanoseconds. What Spark writes
# pyarrow reads, except for the last second before 1970, which Spark writes as the first one after it (ORC-763 has that;
# it is not about this). Times without a fraction and dates are read. Seen:
#
#   1970-01-01 00:00:00.250: pyarrow and pyorc 1970-01-01 00:00:00.250000, Spark 1970-01-01 00:00:00.25
#   1965-01-01 00:00:00.000: pyarrow and pyorc 1965-01-01 00:00:00, Spark 1965-01-01 00:00:00
#   1969-12-31 23:59:58.001: pyarrow and pyorc 1969-12-31 23:59:58.001000, Spark nanos > 999999999 or < 0
#   1965-01-01 00:00:00.250: pyarrow and pyorc 1965-01-01 00:00:00.250000, Spark nanos > 999999999 or < 0
#   1965-01-01 00:00:00.250 by pyorc: Spark 1965-01-01 00:00:00.25
#
# Needs python3 (3.11 or later) and Java 17. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyspark==4.3.0 pyarrow==26.0.1 pyorc==0.11.0
cd "$work"
cat > look.py <<'END'
import datetime
import re

import pyarrow
import pyarrow.orc
import pyorc
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

TEXTS = ["1970-01-01 00:00:00.250", "1965-01-01 00:00:00.000", "1969-12-31 23:59:58.001", "1965-01-01 00:00:00.250"]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")


def by_spark(name):
    found = set()
    for reader in ("native", "hive"):
        spark.conf.set("spark.sql.orc.impl", reader)
        try:
            found.add(spark.read.orc(name).selectExpr("CAST(t AS STRING)").first()[0])
        except Py4JJavaError as error:
            found.add(re.findall(r"IllegalArgumentException: (.*)", str(error))[0])
    (answer,) = found
    return answer


for text in TEXTS:
    time = datetime.datetime.fromisoformat(text)
    pyarrow.orc.write_table(pyarrow.table({"t": pyarrow.array([time], pyarrow.timestamp("us"))}), "of-pyarrow")
    own = pyarrow.orc.read_table("of-pyarrow")["t"][0]
    with open("of-pyarrow", "rb") as file:
        ((other,),) = pyorc.Reader(file)
    assert other.replace(tzinfo=None) == own.as_py()
    print(f"{text}: pyarrow and pyorc {own.as_py()}, Spark {by_spark('of-pyarrow')}")
with open("of-pyorc", "wb") as file, pyorc.Writer(file, "struct<t:timestamp>") as writer:
    writer.write((time.replace(tzinfo=datetime.timezone.utc),))
print(f"{text} by pyorc: Spark {by_spark('of-pyorc')}")
END
TZ=UTC "$work/venv/bin/python" look.py 2> log | tee seen || { tail -n 20 log; exit 1; }
sed -n 's/^#   //p' "$this" > expected
diff expected seen
