#!/bin/sh
# hamba/avro v2.31.0 (Go): a decimal that may be null is zero when it is read into a *big.Rat, which is the type
# of a decimal that may not be null, and whose fields of both kinds are written well.
#
# For a type T that may be null the documentation has *T, which makes **big.Rat of a decimal's *big.Rat. But the
# other one is not refused: a struct writes 1.25, other libraries find 1.25 in it, and the same struct reads 0,
# without an error; and null stays nil, so that it looks as if the column were understood. twmb/avro v1.9.1, which
# takes the same tags, and the field's type without the union read 1.25. Dates of times before 1970 are
# those of the next day unless they are midnight, as seconds are divided towards zero; and a time.Time in an
# `any`, of a union that has timestamps first, is written as a date if the union has one. Seen:
#
#   1.25 as decimal: *big.Rat reads 1.25, fastavro 1.25
#   1.25 as [null, decimal]: *big.Rat reads 0.00, **big.Rat 1.25, any 1.25, twmb 1.25, fastavro 1.25
#   null as [null, decimal]: *big.Rat reads nil, twmb nil, fastavro None
#   1969-12-31 12:00 as date: fastavro 1970-01-01; by twmb 1969-12-31
#   1970-01-02 12:00 as date: fastavro 1970-01-02; by twmb 1970-01-02
#   1970-01-02 12:00 as [null, timestamp-micros, date]: fastavro 1970-01-02; by twmb 1970-01-02 12:00:00+00:00
#
# Needs python3 and Go 1.25. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q fastavro==1.13.1
mkdir "$work/program"
cd "$work/program"
export GOPATH="$work/go" GOFLAGS="-modcacherw"
cat > main.go <<'END'
package main

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"time"

	hamba "github.com/hamba/avro/v2"
	twmb "github.com/twmb/avro"
)

const decimal = `{"type":"bytes","logicalType":"decimal","precision":6,"scale":2}`
const date = `{"type":"int","logicalType":"date"}`
const moment = `{"type":"long","logicalType":"timestamp-micros"}`

type Line struct{ Text, Schema, Hamba, Twmb string }

type Amount struct {
	X *big.Rat `avro:"x"`
}

func schema(kind string) string {
	return `{"type":"record","name":"R","fields":[{"name":"x","type":` + kind + `}]}`
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func text(number *big.Rat) string {
	if number == nil {
		return "nil"
	}
	return number.FloatString(2)
}

func write(kind string, value any) (string, string) {
	byHamba := must(hamba.Marshal(must(hamba.Parse(schema(kind))), value))
	byTwmb := must(must(twmb.Parse(schema(kind))).Encode(value))
	return hex.EncodeToString(byHamba), hex.EncodeToString(byTwmb)
}

func amount(name, kind, label string, number *big.Rat) Line {
	byHamba, byTwmb := write(kind, Amount{number})
	data := must(hex.DecodeString(byHamba))
	parsed := must(hamba.Parse(schema(kind)))
	var plain Amount
	check(hamba.Unmarshal(parsed, data, &plain))
	line := fmt.Sprintf("%s as %s: *big.Rat reads %s", name, label, text(plain.X))
	if kind != decimal {
		if number != nil {
			var twice struct {
				X **big.Rat `avro:"x"`
			}
			var open struct {
				X any `avro:"x"`
			}
			check(hamba.Unmarshal(parsed, data, &twice))
			check(hamba.Unmarshal(parsed, data, &open))
			line += fmt.Sprintf(", **big.Rat %s, any %s", text(*twice.X), text(open.X.(*big.Rat)))
		}
		var other Amount
		must(must(twmb.Parse(schema(kind))).Decode(data, &other))
		line += ", twmb " + text(other.X)
	}
	return Line{line + ", fastavro", schema(kind), byHamba, byTwmb}
}

func day(kind, label string, at time.Time) Line {
	var value any = struct {
		X time.Time `avro:"x"`
	}{at}
	if kind != date {
		value = struct {
			X any `avro:"x"`
		}{at}
	}
	byHamba, byTwmb := write(kind, value)
	name := at.Format("2006-01-02 15:04")
	return Line{fmt.Sprintf("%s as %s: fastavro", name, label), schema(kind), byHamba, byTwmb}
}

func main() {
	nullable := `["null",` + decimal + `]`
	before := time.Date(1969, 12, 31, 12, 0, 0, 0, time.UTC)
	after := time.Date(1970, 1, 2, 12, 0, 0, 0, time.UTC)
	lines := []Line{
		amount("1.25", decimal, "decimal", big.NewRat(5, 4)),
		amount("1.25", nullable, "[null, decimal]", big.NewRat(5, 4)),
		amount("null", nullable, "[null, decimal]", nil),
		day(date, "date", before),
		day(date, "date", after),
		day(`["null",`+moment+`,`+date+`]`, "[null, timestamp-micros, date]", after),
	}
	check(os.WriteFile("lines.json", must(json.Marshal(lines)), 0o644))
}
END
cat > read.py <<'END'
import io
import json
import pathlib

import fastavro


def read(line, library):
    schema = fastavro.parse_schema(json.loads(line["Schema"]))
    return fastavro.schemaless_reader(io.BytesIO(bytes.fromhex(line[library])), schema)["x"]


for line in json.loads(pathlib.Path("lines.json").read_text()):
    found, other = read(line, "Hamba"), read(line, "Twmb")
    rest = "" if "decimal" in line["Schema"] else f"; by twmb {other}"
    print(f"{line['Text']} {found}{rest}")
END
{
    go mod init finding
    go get github.com/hamba/avro/v2@v2.31.0 github.com/twmb/avro@v1.9.1
    go run .
} > log 2>&1 || { tail -n 20 log; exit 1; }
"$work/venv/bin/python" read.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
