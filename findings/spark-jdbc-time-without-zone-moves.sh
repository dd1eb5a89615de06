#!/bin/sh
# PySpark 4.3.0 by JDBC (pgjdbc 42.7.8) from PostgreSQL 16.2 (of pgserver 0.1.4): a timestamp without a time
# zone is moved by an hour, also as TIMESTAMP_NTZ.
#
# With preferTimestampNTZ such a column is read as TIMESTAMP_NTZ (manual, "JDBC To Other Databases"), the
# type of values that no zone changes. But each is made by java.sql.Timestamp, in the zone of the JVM,
# where the hour that is left out in spring does not exist: 02:30 is 03:30, and two rows become equal.
# spark.sql.session.timeZone is UTC here and helps nothing. In the same way a day of October 1582 is
# another, though PostgreSQL's calendar and Spark's both have it. psycopg 3.3.9 reads what is stored.
# Seen, with the JVM in the zone Europe/Berlin:
#
#   timestamp_ntz, date by Spark: 2026-03-29 02:30:00 is 2026-03-29 03:30:00; 1582-10-10 is 1582-10-20
#   timestamp_ntz, date by Spark: 2026-03-29 03:30:00 is 2026-03-29 03:30:00; 1582-10-20 is 1582-10-20
#   by psycopg: 2026-03-29 02:30:00 is 2026-03-29 02:30:00; 1582-10-10 is 1582-10-10
#   by psycopg: 2026-03-29 03:30:00 is 2026-03-29 03:30:00; 1582-10-20 is 1582-10-20
#
# Needs python3 (3.11 or later), Java 17 and Maven. Run as root it uses the user nobody, as PostgreSQL
# does not run as root. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
bin=
as=
if [ "$(id -u)" = 0 ]; then
    as="runuser -u nobody --"
fi
end() {
    [ -z "$bin" ] || $as "$bin/pg_ctl" -D "$work/data" -m immediate -w stop > "$work/log" 2>&1 || true
    rm -rf "$work"
}
trap end EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyspark==4.3.0 'psycopg[binary]==3.3.9' pgserver==0.1.4
cat > "$work/pom.xml" <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>finding</groupId><artifactId>driver</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies><dependency>
    <groupId>org.postgresql</groupId><artifactId>postgresql</artifactId><version>42.7.8</version>
  </dependency></dependencies>
</project>
END
mvn -B -q -f "$work/pom.xml" \
    org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies \
    -DoutputDirectory="$work/jars"
bin=$("$work/venv/bin/python" -c \
    "import pathlib, pgserver; print(pathlib.Path(pgserver.__file__).parent / 'pginstall' / 'bin')")
port=$(python3 -c 'import socket; print(socket.create_server(("127.0.0.1", 0)).getsockname()[1])')
if [ -n "$as" ]; then
    chmod -R go+rX "$work"
    chown nobody "$work"
fi
cd "$work"
$as "$bin/initdb" -D "$work/data" -U postgres -A trust -E UTF8 --locale=C -N > log
$as "$bin/pg_ctl" -D "$work/data" -w -l "$work/data/server.log" \
    -o "-c listen_addresses=127.0.0.1 -p $port -k $work" start >> log
cat > look.py <<'END'
import sys

import psycopg
from pyspark.sql import SparkSession

address = f"postgresql://127.0.0.1:{sys.argv[1]}/postgres?user=postgres"
rows = ("2026-03-29 02:30:00", "1582-10-10"), ("2026-03-29 03:30:00", "1582-10-20")


def told(name, found):
    for row, of_it in zip(rows, sorted(found)):
        pairs = "; ".join(f"{stored} is {value}" for stored, value in zip(row, of_it[1:]))
        print(f"{name}: {pairs}", flush=True)


with psycopg.connect(address) as connection:
    connection.execute("CREATE TABLE events (number int, at timestamp, day date)")
    for number, row in enumerate(rows):
        connection.execute("INSERT INTO events VALUES (%s, %s, %s)", [number, *row])
    read = connection.execute("SELECT * FROM events").fetchall()
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", "-Duser.timezone=Europe/Berlin")
    .config("spark.driver.extraClassPath", "jars/*")
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
events = (
    spark.read.format("jdbc")
    .options(url=f"jdbc:{address}", dbtable="events", driver="org.postgresql.Driver")
    .option("preferTimestampNTZ", "true")
    .load()
)
_, at, day = (field.dataType.simpleString() for field in events.schema)
texts = events.selectExpr("number", "CAST(at AS string)", "CAST(day AS string)")
told(f"{at}, {day} by Spark", [tuple(row) for row in texts.collect()])
told("by psycopg", read)
spark.stop()
END
"$work/venv/bin/python" look.py "$port" 2> errors > seen || { tail -n 20 errors; exit 1; }
cat seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
