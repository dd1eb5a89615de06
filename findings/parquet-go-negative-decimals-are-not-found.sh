#!/bin/sh
# parquet-go v0.32.0 (Go): of its decimals with more than 18 digits rows are not found by their value, where one
# of them is negative, by pyarrow, polars or DataFusion.
#
# Such a decimal is a number with a sign in bytes of a fixed length, and its least and largest value are those of
# signed numbers (parquet.thrift, ColumnOrder: "DECIMAL - signed comparison of the represented value"). The
# library compares the bytes as they stand, so that each negative number is larger than those above zero, and
# least and largest change places: 0.05 and -0.01. A reader that leaves out what cannot have the value leaves
# out these rows, the positive ones, too, and without an error. DuckDB 2.0.0 does not use such values. Without
# negative ones, and for decimals in 32 or 64 bits, all is found. Seen (rows found of one each; least, largest):
#
#   128 bits, -0.01: pyarrow 0, polars 0, DataFusion 0, DuckDB 1; 0.05, -0.01
#   128 bits, 0.05: pyarrow 0, polars 0, DataFusion 0, DuckDB 1; 0.05, -0.01
#   128 bits, none negative, 0.05: pyarrow 1, polars 1, DataFusion 1, DuckDB 1; 0.01, 0.05
#   64 bits, -0.01: pyarrow 1, polars 1, DataFusion 1, DuckDB 1; -0.01, 0.05
#
# Needs python3 and Go 1.25. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyarrow==26.0.1 polars==2.1.0 datafusion==55.0.0 duckdb==2.0.0
mkdir "$work/program"
cd "$work/program"
export GOPATH="$work/go" GOFLAGS="-modcacherw"
cat > main.go <<'END'
package main

import "github.com/parquet-go/parquet-go"

type Wide struct {
	X [16]byte `parquet:"x,decimal(2:38)"`
}

type Narrow struct {
	X int64 `parquet:"x,decimal(2:18)"`
}

func wide(number int8) Wide {
	row := Wide{}
	if number < 0 {
		for place := range row.X {
			row.X[place] = 0xff
		}
	}
	row.X[15] = byte(number)
	return row
}

func write[T any](name string, rows ...T) {
	if err := parquet.WriteFile(name+".parquet", rows); err != nil {
		panic(err)
	}
}

func main() {
	write("128 bits", wide(-1), wide(5))
	write("128 bits, none negative", wide(1), wide(5))
	write("64 bits", Narrow{-1}, Narrow{5})
}
END
cat > look.py <<'END'
from decimal import Decimal

import datafusion
import duckdb
import polars
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet

for name, text in (
    ("128 bits", "-0.01"),
    ("128 bits", "0.05"),
    ("128 bits, none negative", "0.05"),
    ("64 bits", "-0.01"),
):
    path, value = f"{name}.parquet", Decimal(text)
    file = pyarrow.parquet.ParquetFile(path)
    kind = file.schema_arrow.field("x").type
    kept = file.metadata.row_group(0).column(0).statistics
    assert file.read()["x"].to_pylist().count(value) == 1
    session = datafusion.SessionContext()
    session.register_parquet("rows", path)
    literal = f"cast('{text}' as decimal({kind.precision}, {kind.scale}))"
    found = {
        "pyarrow": pyarrow.dataset.dataset(path)
        .to_table(filter=pyarrow.compute.field("x") == pyarrow.scalar(value, kind))
        .num_rows,
        "polars": polars.scan_parquet(path).filter(polars.col("x") == value).collect().height,
        "DataFusion": session.sql(f"select x from rows where x = {literal}").count(),
        "DuckDB": len(duckdb.sql(f"select x from '{path}' where x = {literal}").fetchall()),
    }
    counts = ", ".join(f"{reader} {count}" for reader, count in found.items())
    print(f"{name}, {text}: {counts}; {kept.min}, {kept.max}")
END
{
    go mod init finding
    go get github.com/parquet-go/parquet-go@v0.32.0
    go run .
} > log 2>&1 || { tail -n 20 log; exit 1; }
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
