#!/bin/sh
# polars 2.1.0 (read_csv with try_parse_dates) and DuckDB 2.0.0 (CSV as it comes) take versions for dates, each
# another one, and 15.03.24 for a day of the year 24 or of 2015.
#
# polars infers "most ISO8601-like formats ... as well as a handful of others", as it is documented; one of these is
# day, month and year with points, where a year may have one digit or be 0. DuckDB tries formats in turn, and
# one with the year in two digits in front is among them. So a column of versions whose numbers are in
# the calendar is one of dates, without an error, and 4.13.0 makes it text again: a job whose releases were dates
# for a year changes its type with one release. A column of German dates with two digits for the year is wrong
# by both. pyarrow 26.0.1 leaves all of them as text. Seen:
#
#   4.1.0, 4.3.0: polars Date 0000-01-04, 0000-03-04; DuckDB text
#   4.1.0, 4.13.0: polars text; DuckDB text
#   10.4.2, 10.4.15: polars Date 0002-04-10, 0015-04-10; DuckDB DATE 2010-04-02, 2010-04-15
#   15.03.24, 16.03.24: polars Date 0024-03-15, 0024-03-16; DuckDB DATE 2015-03-24, 2016-03-24
#   15.03.2024, 16.03.2024: polars Date 2024-03-15, 2024-03-16; DuckDB DATE 2024-03-15, 2024-03-16
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q polars==2.1.0 duckdb==2.0.0 pyarrow==26.0.1
cd "$work"
cat > look.py <<'END'
import pathlib

import duckdb
import polars
import pyarrow.csv


def text(kind, found, values):
    return "text" if found == values else f"{kind} {', '.join(found)}"


for values in (
    ["4.1.0", "4.3.0"],
    ["4.1.0", "4.13.0"],
    ["10.4.2", "10.4.15"],
    ["15.03.24", "16.03.24"],
    ["15.03.2024", "16.03.2024"],
):
    lines = ["place,value", *(f"{place},{value}" for place, value in enumerate(values))]
    pathlib.Path("rows.csv").write_text("\n".join(lines) + "\n")
    assert pyarrow.csv.read_csv("rows.csv")["value"].to_pylist() == values
    column = polars.read_csv("rows.csv", try_parse_dates=True)["value"]
    by_polars = text(column.dtype, column.cast(polars.String).to_list(), values)
    found = duckdb.sql("select cast(value as varchar), typeof(value) from 'rows.csv'").fetchall()
    by_duckdb = text(found[0][1], [value for value, _ in found], values)
    print(f"{', '.join(values)}: polars {by_polars}; DuckDB {by_duckdb}")
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
