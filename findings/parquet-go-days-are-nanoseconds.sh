#!/bin/sh
# parquet-go v0.32.0 (Go): a time.Time in a column of dates is written as its nanoseconds, cut to 32 bits, for
# days, and a time.Duration in a column of times as its nanoseconds for microseconds.
#
# Both are what the package's documentation has: "date | for int32, time.Time ...", "time | ... time.Duration ...".
# A date is the number of days since 1970 and a time(microsecond) that of microseconds (Parquet's "Logical Types"),
# but no conversion is done: 2024-01-02 is a day in the year -5018523, and half past one in the morning becomes
# 1500 o'clock, which pyarrow shows as noon. No error is raised, and the library reads its own days back as wrong as
# the others do. A time.Time in a column of timestamps is converted; but what such a column has after 2262, as the
# end of what has no end, it reads as another century though the file is right. Seen:
#
#   date 1970-01-01: 0 days by pyarrow, by parquet-go 1970-01-01
#   date 2024-01-02: -1833697280 days by pyarrow, by parquet-go -5018523-05-15
#   date 2024-01-03: 604176384 days by pyarrow, by parquet-go 1656148-10-03
#   time(microsecond) 1h30m0s: 5400000000000 us by pyarrow, 12:00:00, by parquet-go 1500h0m0s
#   timestamp(millisecond) 9999-12-31: 9999-12-31 by pyarrow, by parquet-go 1816-03-29
#
# Needs python3 and Go 1.25. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pyarrow==26.0.1
mkdir "$work/program"
cd "$work/program"
export GOPATH="$work/go" GOFLAGS="-modcacherw"
cat > main.go <<'END'
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
)

type Day struct {
	X time.Time `parquet:"x,date"`
}

type Length struct {
	X time.Duration `parquet:"x,time(microsecond)"`
}

type Moment struct {
	X time.Time `parquet:"x,timestamp(millisecond)"`
}

func again[T any](name string, rows []T) []T {
	if err := parquet.WriteFile(name+".parquet", rows); err != nil {
		panic(err)
	}
	read, err := parquet.ReadFile[T](name + ".parquet")
	if err != nil {
		panic(err)
	}
	return read
}

func day(year int, month time.Month, number int) time.Time {
	return time.Date(year, month, number, 0, 0, 0, 0, time.UTC)
}

func main() {
	lines := []string{}
	for _, row := range again("day", []Day{{day(1970, 1, 1)}, {day(2024, 1, 2)}, {day(2024, 1, 3)}}) {
		lines = append(lines, row.X.UTC().Format("2006-01-02"))
	}
	for _, row := range again("length", []Length{{90 * time.Minute}}) {
		lines = append(lines, fmt.Sprint(row.X))
	}
	for _, row := range again("moment", []Moment{{day(9999, 12, 31)}}) {
		lines = append(lines, row.X.UTC().Format("2006-01-02"))
	}
	if err := os.WriteFile("own", []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		panic(err)
	}
}
END
cat > read.py <<'END'
import pathlib

import pyarrow
import pyarrow.parquet


def column(name):
    return pyarrow.parquet.read_table(f"{name}.parquet")["x"]


*days, length, moment = pathlib.Path("own").read_text().splitlines()
kept = column("day")
assert kept.type == pyarrow.date32()
given = "1970-01-01", "2024-01-02", "2024-01-03"
for day, number, own in zip(given, kept.cast(pyarrow.int32()).to_pylist(), days, strict=True):
    print(f"date {day}: {number} days by pyarrow, by parquet-go {own}")
kept = column("length")
assert kept.type == pyarrow.time64("us")
(number,) = kept.cast(pyarrow.int64()).to_pylist()
print(
    f"time(microsecond) 1h30m0s: {number} us by pyarrow, {kept[0].as_py()},",
    f"by parquet-go {length}",
)
(value,) = column("moment").to_pylist()
print(f"timestamp(millisecond) 9999-12-31: {value.date()} by pyarrow, by parquet-go {moment}")
END
{
    go mod init finding
    go get github.com/parquet-go/parquet-go@v0.32.0
    go run .
} > log 2>&1 || { tail -n 20 log; exit 1; }
"$work/venv/bin/python" read.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
