#!/bin/sh
# PySpark 4.3.0 by JDBC (pgjdbc 42.7.8) from PostgreSQL 16.2 (of pgserver 0.1.4): a row is not found by the
# float that Spark itself has read from it.
#
# The column is real, Spark's type for it is float, and so is the literal. But the condition goes to
# PostgreSQL as "r" = 0.1, and there a constant without a type is numeric and is compared as double
# precision: the real 0.1 is 0.10000000149 then. So = finds nothing, and <= leaves out the row at the
# limit; IN, for which PostgreSQL takes the column's type, is right. That conditions go to the database
# is documented as being faster (pushDownPredicate, which is on, in the manual's "JDBC To Other
# Databases"). Seen, of the rows 0.1 and 0.5: what is found with it, and without:
#
#   r = 0.1F: [], [0.1]
#   r >= 0.1F: [0.1, 0.5], [0.1, 0.5]
#   r <= 0.1F: [], [0.1]
#   r IN (0.1F, 0.5F): [0.1, 0.5], [0.1, 0.5]
#   r = 0.5F: [0.5], [0.5]
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
with psycopg.connect(address) as connection:
    connection.execute("CREATE TABLE readings AS SELECT unnest(ARRAY[0.1, 0.5])::real AS r")
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.extraClassPath", "jars/*")
    .getOrCreate()
)
source = spark.read.format("jdbc").options(
    url=f"jdbc:{address}", dbtable="readings", driver="org.postgresql.Driver"
)
for condition in "r = 0.1F", "r >= 0.1F", "r <= 0.1F", "r IN (0.1F, 0.5F)", "r = 0.5F":
    found = []
    for given in "true", "false":
        rows = source.option("pushDownPredicate", given).load().where(condition)
        texts = [row[0] for row in rows.selectExpr("CAST(r AS string)").collect()]
        found.append(f"[{', '.join(sorted(texts))}]")
    print(f"{condition}: {', '.join(found)}", flush=True)
spark.stop()
END
"$work/venv/bin/python" look.py "$port" 2> errors > seen || { tail -n 20 errors; exit 1; }
cat seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
