#!/bin/sh
# PySpark 4.3.0 by JDBC (sqlite-jdbc 3.50.3.0): a column of SQLite that is declared INTEGER wraps at 32 bits,
# one declared INT or BIGINT does not; and by a condition it is still what was stored.
#
# SQLite's integers have up to 64 bits whatever the column is called ("Datatypes In SQLite", 2), and
# INTEGER is the usual name for keys and for times in milliseconds. Spark reads such a column as int, and neither
# it nor the driver says that a value does not fit. Conditions go to SQLite, so that a row found by one
# has a value that does not meet it. Python's sqlite3 gives all digits. Seen, of a row with
# 1795910400000 in each column:
#
#   INTEGER: int 614070272; rows above 1000000000: 1
#   INT: bigint 1795910400000; rows above 1000000000: 1
#   BIGINT: decimal(20,0) 1795910400000; rows above 1000000000: 1
#
# Needs python3 (3.11 or later), Java 17 and Maven. Ends with 0 while it is so, with another number when
# it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyspark==4.3.0
cat > "$work/pom.xml" <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>driver</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.xerial</groupId><artifactId>sqlite-jdbc</artifactId><version>3.50.3.0</version>
  </dependency></dependencies>
</project>
END
mvn -B -q -f "$work/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DoutputDirectory="$work/jars"
cd "$work"
cat > look.py <<'END'
import sqlite3

from pyspark.sql import SparkSession

TYPES = "INTEGER", "INT", "BIGINT"
with sqlite3.connect("events.db") as database:
    database.execute(f"CREATE TABLE events ({', '.join(f'of_{name} {name}' for name in TYPES)})")
    database.execute("INSERT INTO events VALUES (?, ?, ?)", [1795910400000] * len(TYPES))
database.close()
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.extraClassPath", "jars/*")
    .getOrCreate()
)
events = (
    spark.read.format("jdbc")
    .options(url="jdbc:sqlite:events.db", dbtable="events", driver="org.sqlite.JDBC")
    .load()
)
for name in TYPES:
    column = f"of_{name}"
    read = events.schema[column].dataType.simpleString()
    (value,) = events.select(column).first()
    above = events.where(f"{column} > 1000000000").count()
    print(f"{name}: {read} {value}; rows above 1000000000: {above}")
spark.stop()
END
"$work/venv/bin/python" look.py 2> errors > seen || { tail -n 20 errors; exit 1; }
cat seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
