#!/bin/sh
# chdb 4.4.0 (ClickHouse 26.9.2.1): a day before 1970 in an Arrow file is one of the years up to 2106, if it is an
# Arrow date in milliseconds, and so is one beyond 2106.
#
# Arrow has dates of two kinds, days in 32 bits and milliseconds in 64 (Schema.fbs, "Date"); the latter is what
# Arrow's library for JavaScript makes of its Date, and Java's DateMilliVector holds. ClickHouse makes a DateTime of
# it, whose seconds have 32 bits without a sign, and cuts the others off: a birthday is in the future, and the end
# of what has no end is one that is to come. No error is raised, and conditions are met by the wrong day.
# Dates of the other kind are right; DuckDB 2.0.0 and polars 2.1.0 read the same file well. Seen:
#
#   1969-12-31: date64 2106-02-06 06:28:16, date32 1969-12-31; DuckDB 1969-12-31, polars 1969-12-31
#   1900-01-01: date64 2036-02-07 06:28:16, date32 1900-01-01; DuckDB 1900-01-01, polars 1900-01-01
#   2024-01-01: date64 2024-01-01 00:00:00, date32 2024-01-01; DuckDB 2024-01-01, polars 2024-01-01
#   9999-12-31: date64 2106-01-28 08:40:32, date32 9999-12-31; DuckDB 9999-12-31, polars 9999-12-31
#   rows before 2000: date64 0, date32 2
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/chdb" && "$work/chdb/bin/pip" install -q chdb==4.4.0
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyarrow==26.0.1 duckdb==2.0.0 polars==2.1.0
cd "$work"
cat > write.py <<'END'
import datetime
import json
import pathlib

import duckdb
import polars
import pyarrow

DAYS = [datetime.date(*day) for day in ((1969, 12, 31), (1900, 1, 1), (2024, 1, 1), (9999, 12, 31))]
for name, kind in ("date64", pyarrow.date64()), ("date32", pyarrow.date32()):
    rows = pyarrow.table({"place": range(len(DAYS)), "x": pyarrow.array(DAYS, kind)})
    with pyarrow.ipc.new_file(f"{name}.arrow", rows.schema) as file:
        file.write_table(rows)
rows = pyarrow.ipc.open_file("date64.arrow").read_all()
assert rows["x"].to_pylist() == DAYS
by_duckdb = [str(day) for (day,) in duckdb.sql("select x from rows").fetchall()]
by_polars = [str(day)[:10] for day in polars.read_ipc("date64.arrow")["x"]]
pathlib.Path("others.json").write_text(json.dumps([by_duckdb, by_polars]))
END
cat > look.py <<'END'
import json
import pathlib

import chdb


def ask(name, what):
    query = f"select {what} from (select * from file('{name}.arrow', Arrow) order by place)"
    return str(chdb.query(query, "TSV")).split("\n")[:-1]


by_duckdb, by_polars = json.loads(pathlib.Path("others.json").read_text())
given = "1969-12-31", "1900-01-01", "2024-01-01", "9999-12-31"
columns = ask("date64", "toString(x, 'UTC')"), ask("date32", "x"), by_duckdb, by_polars
for day, milliseconds, days, other, third in zip(given, *columns, strict=True):
    print(f"{day}: date64 {milliseconds}, date32 {days}; DuckDB {other}, polars {third}")
counts = [ask(name, "countIf(toYear(x) < 2000)")[0] for name in ("date64", "date32")]
print(f"rows before 2000: date64 {counts[0]}, date32 {counts[1]}")
END
"$work/venv/bin/python" write.py
TZ=UTC "$work/chdb/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
