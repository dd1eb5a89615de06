#!/bin/sh
# github.com/xitongsys/parquet-go v1.6.2 (Go): of a column with one NaN the numbers before it are not found by
# their value by pyarrow and DuckDB, and DuckDB finds all rows for the one behind it.
#
# The least value so far gives way wherever it is not less than the next one, and it never is if one of them is
# NaN: of 1, NaN, 2 the least is 2. Parquet's format says that NaN is not to be in these values ("NaNs should not
# be written to min or max statistics fields"), and both must hold for the rest. Readers leave out what cannot
# have the value (polars 2.1.0 does not here), so a gap of one sensor hides the readings before it; DuckDB
# takes the column for one that is 2 throughout, and gives the rows with 1 and NaN, too. No error is raised, and
# without NaN all is right. Seen (values; least, largest; rows with x = 1 and x = 2, of which there is one each):
#
#   1, NaN, 2: 2.0, 2.0; pyarrow 0 and 1, polars 1 and 1, DuckDB 0 and 3
#   1, 3, 2: 1.0, 3.0; pyarrow 1 and 1, polars 1 and 1, DuckDB 1 and 1
#
# Needs python3 and Go 1.25. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyarrow==26.0.1 polars==2.1.0 duckdb==2.0.0
mkdir "$work/program"
cd "$work/program"
export GOPATH="$work/go" GOFLAGS="-modcacherw"
cat > main.go <<'END'
package main

import (
	"math"

	"github.com/xitongsys/parquet-go-source/local"
	"github.com/xitongsys/parquet-go/writer"
)

type Row struct {
	X float64 `parquet:"name=x, type=DOUBLE"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func write(name string, values ...float64) {
	file, err := local.NewLocalFileWriter(name + ".parquet")
	check(err)
	rows, err := writer.NewParquetWriter(file, new(Row), 1)
	check(err)
	for _, value := range values {
		check(rows.Write(Row{value}))
	}
	check(rows.WriteStop())
	check(file.Close())
}

func main() {
	write("1, NaN, 2", 1, math.NaN(), 2)
	write("1, 3, 2", 1, 3, 2)
}
END
cat > look.py <<'END'
import duckdb
import polars
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet

for name in "1, NaN, 2", "1, 3, 2":
    path = f"{name}.parquet"
    file = pyarrow.parquet.ParquetFile(path)
    values = file.read()["x"].to_pylist()
    assert (values.count(1.0), values.count(2.0), len(values)) == (1, 1, 3)
    kept = file.metadata.row_group(0).column(0).statistics
    found = {"pyarrow": [], "polars": [], "DuckDB": []}
    for value in 1.0, 2.0:
        rows = pyarrow.dataset.dataset(path).to_table(filter=pyarrow.compute.field("x") == value)
        found["pyarrow"].append(rows.num_rows)
        frame = polars.scan_parquet(path).filter(polars.col("x") == value)
        found["polars"].append(frame.collect().height)
        rows = duckdb.sql(f"select x from '{path}' where x = {value}").fetchall()
        found["DuckDB"].append(len(rows))
    counts = ", ".join(f"{reader} {ones} and {twos}" for reader, (ones, twos) in found.items())
    print(f"{name}: {kept.min}, {kept.max}; {counts}")
END
{
    go mod init finding
    go get github.com/xitongsys/parquet-go@v1.6.2
    go get github.com/xitongsys/parquet-go-source@v0.0.0-20241021075129-b732d2ac9c9b
    go mod tidy
    go run .
} > log 2>&1 || { tail -n 20 log; exit 1; }
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
