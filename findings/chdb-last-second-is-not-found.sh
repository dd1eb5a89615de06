#!/bin/sh
# chdb 4.4.0 (ClickHouse 26.9.2.1): rows of the last second before a time, or of the first second behind it,
# are not found, where a part of a table or a row group of Parquet has no others.
#
# A time with fractions (DateTime64) may be compared with one that has none: toDateTime, now() and TIMESTAMP
# '...' are such. Row by row it is right. But to leave out what cannot have a row, ClickHouse makes `v <
# 00:00:01` into `v <= 00:00:00`, as one may with whole numbers, and `>` into `>=` of the second behind (so
# says EXPLAIN indexes = 1), and what lies between has no place any more. So a batch that is written each
# second, as one file or one part, is missing in the hour that ends or begins with it. Against a DateTime64
# all is found. Seen, of rows at 00:00:00.001 and .999, with `v < 00:00:01` and `v > 00:00:00`:
#
#   table in the order of v: 0 and 0, with a DateTime64 2 and 2
#   table in no order: 2 and 2, with a DateTime64 2 and 2
#   Parquet: 0 and 0, with a DateTime64 2 and 2
#   Parquet without statistics: 2 and 2, with a DateTime64 2 and 2
#   key condition of the first: v in (-Inf, 1704067200]
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q chdb==4.4.0 chdb-core==26.9.0 pyarrow==26.0.1
cd "$work"
cat > look.py <<'END'
import datetime
import re

import pyarrow
import pyarrow.parquet
from chdb.session import Session

UTC = datetime.timezone.utc
times = [datetime.datetime(2024, 1, 1, 0, 0, 0, part, UTC) for part in (1_000, 999_000)]
rows = pyarrow.table({"v": pyarrow.array(times, pyarrow.timestamp("us", "UTC"))})
pyarrow.parquet.write_table(rows, "with.parquet")
pyarrow.parquet.write_table(rows, "without.parquet", write_statistics=False)
session = Session("data")
session.query("CREATE DATABASE d ENGINE = Atomic")
for table, order in ("sorted", "v"), ("heap", "tuple()"):
    session.query(
        f"CREATE TABLE d.{table} (v DateTime64(6, 'UTC')) ENGINE = MergeTree ORDER BY {order}"
    )
    session.query(f"INSERT INTO d.{table} SELECT v FROM file('with.parquet')")


def found(source, low, high):
    counts = [
        str(session.query(f"SELECT count() FROM {source} WHERE v {condition}", "TSV")).strip()
        for condition in (f"< {high}", f"> {low}")
    ]
    return " and ".join(counts)


WHOLE = "toDateTime('2024-01-01 00:00:00', 'UTC')", "toDateTime('2024-01-01 00:00:01', 'UTC')"
EXACT = tuple(f"toDateTime64('2024-01-01 00:00:0{second}', 6, 'UTC')" for second in (0, 1))
for name, source in (
    ("table in the order of v", "d.sorted"),
    ("table in no order", "d.heap"),
    ("Parquet", "file('with.parquet')"),
    ("Parquet without statistics", "file('without.parquet')"),
):
    print(f"{name}: {found(source, *WHOLE)}, with a DateTime64 {found(source, *EXACT)}")
plan = str(session.query(f"EXPLAIN indexes = 1 SELECT v FROM d.sorted WHERE v < {WHOLE[1]}", "TSV"))
print("key condition of the first:", re.search(r"Condition: \((v in [^)]*])", plan)[1])
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
