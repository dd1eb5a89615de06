#!/bin/sh
# vortex-data 0.90.0: to a condition on a Vortex file -0.0 is less than zero and not equal to it, also if DuckDB
# or polars ask, to which both are one number.
#
# A Vortex file can stand where a dataset of pyarrow or a lazy frame of polars is wanted, and the condition goes
# to it, so that only the rows that meet it are read. There numbers are compared in the order of their bits
# (totalOrder, as the Rust crate has it for its own expressions), not by value. So with `x = 0` the row with
# -0.0, which a rounded difference or a product with zero gives, is lost, and `x < 0` has a row which DuckDB
# itself says is not below zero. And where pyarrow has no order for NaN, its own expression finds NaN
# above any number. The same rows in Parquet are
# right. Seen (the ids that are found; 1 has 0.0, 2 has -0.0, 3 has 1.5, 4 has NaN):
#
#   x = 0: pyarrow 1 of Vortex, 1 2 of Parquet; DuckDB 1, 1 2; polars 1, 1 2
#   x < 0: pyarrow 2 of Vortex, none of Parquet; DuckDB 2, none; polars 2, none
#   x >= 0: pyarrow 1 3 4 of Vortex, 1 2 3 of Parquet; DuckDB 1 2 3 4, 1 2 3 4; polars 1 3 4, 1 2 3 4
#   x > 1: pyarrow 3 4 of Vortex, 3 of Parquet; DuckDB 3 4, 3 4; polars 3 4, 3 4
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q vortex-data==0.90.0 pyarrow==26.0.1 duckdb==2.0.0 polars==2.1.0
cd "$work"
cat > look.py <<'END'
import operator

import duckdb
import polars
import pyarrow
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet
import vortex

ROWS = pyarrow.table({"id": [1, 2, 3, 4], "x": [0.0, -0.0, 1.5, float("nan")]})
vortex.io.write(vortex.array(ROWS), "rows.vortex")
pyarrow.parquet.write_table(ROWS, "rows.parquet")
file = vortex.open("rows.vortex")
assert [str(each) for each in file.scan().read_all().to_arrow_table()["x"].to_pylist()] == [
    "0.0",
    "-0.0",
    "1.5",
    "nan",
]
of_vortex, of_parquet = file.to_dataset(), pyarrow.dataset.dataset("rows.parquet")


def text(ids):
    return " ".join(map(str, sorted(ids))) or "none"


for sign, compare, number in (
    ("=", operator.eq, 0),
    ("<", operator.lt, 0),
    (">=", operator.ge, 0),
    (">", operator.gt, 1),
):
    asked = compare(pyarrow.compute.field("x"), float(number))
    by_pyarrow, by_duckdb, by_polars = [], [], []
    for source in of_vortex, of_parquet:
        by_pyarrow.append(text(source.to_table(filter=asked)["id"].to_pylist()))
        found = duckdb.sql(f"select id from source where x {sign} {number}").fetchall()
        by_duckdb.append(text(each for (each,) in found))
    for frame in file.to_polars(), polars.scan_parquet("rows.parquet"):
        found = frame.filter(compare(polars.col("x"), float(number))).collect()
        by_polars.append(text(found["id"].to_list()))
    print(
        f"x {sign} {number}: pyarrow {by_pyarrow[0]} of Vortex, {by_pyarrow[1]} of Parquet;",
        f"DuckDB {', '.join(by_duckdb)}; polars {', '.join(by_polars)}",
    )
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
