#!/bin/sh
# github.com/linkedin/goavro v2.15.0 (Go): a decimal that does not fit its fixed bytes is written as 0, without an
# error, and 0 itself cannot be written there; avro 1.12.2 for Python writes more bytes than there are, and what
# follows is read as something else.
#
# A decimal in a fixed type is a number in two's complement as long as the type (Avro specification 1.12.0,
# "Decimal"), and its precision says how many digits it may have. Where a positive number needs more bytes goavro
# writes as many zeros as there is room for; a bytes decimal takes more digits than its precision, too. Zero needs no
# byte, and is refused as too short, so that what a reader finds as 0 was another number each time. Avro's own
# library for Python does not compare the length at all, so that one such amount spoils the rest of its record and
# all that come behind. Seen (precision 9, scale 2; a record has the amount and a count):
#
#   fixed(4) 1.50: 00000096
#   fixed(4) -1.50: ffffff6a
#   fixed(4) 12345678901234.56: 00000000
#   fixed(4) -12345678901234.56: error: datum size ought to equal schema size: 7 != 4
#   fixed(4) 0: error: datum size ought to equal schema size: 1 != 4
#   bytes 12345678901234.56: 0e0462d53c8abac0
#   avro for Python, fixed(4) 1.50 and 5: 00000096 0a, read 1.50 and 5
#   avro for Python, fixed(4) 12345678901234.56 and 5: 0462d53c 8abac00a, read 735859.80 and 11013765
#
# Needs python3 and Go 1.25. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q avro==1.12.2
mkdir "$work/program"
cd "$work/program"
export GOPATH="$work/go" GOFLAGS="-modcacherw"
cat > main.go <<'END'
package main

import (
	"fmt"
	"math/big"
	"strings"

	"github.com/linkedin/goavro/v2"
)

const logical = `"logicalType":"decimal","precision":9,"scale":2}`

func write(name, schema string, values ...string) {
	codec, err := goavro.NewCodec(schema + logical)
	if err != nil {
		panic(err)
	}
	for _, value := range values {
		number, _ := new(big.Rat).SetString(value)
		bytes, err := codec.BinaryFromNative(nil, number)
		if err != nil {
			parts := strings.SplitN(err.Error(), ": ", 2)
			fmt.Printf("%s %s: error: %s\n", name, value, parts[1])
			continue
		}
		fmt.Printf("%s %s: %x\n", name, value, bytes)
	}
}

func main() {
	write("fixed(4)", `{"type":"fixed","name":"amount","size":4,`,
		"1.50", "-1.50", "12345678901234.56", "-12345678901234.56", "0")
	write("bytes", `{"type":"bytes",`, "12345678901234.56")
}
END
cat > look.py <<'END'
import io
import json
from decimal import Decimal

import avro.io
import avro.schema

amount = {
    "type": "fixed",
    "name": "amount",
    "size": 4,
    "logicalType": "decimal",
    "precision": 9,
    "scale": 2,
}
fields = [{"name": "amount", "type": amount}, {"name": "count", "type": "long"}]
kind = avro.schema.parse(json.dumps({"type": "record", "name": "Sale", "fields": fields}))
for value in ("1.50", "12345678901234.56"):
    out = io.BytesIO()
    sale = {"amount": Decimal(value), "count": 5}
    avro.io.DatumWriter(kind).write(sale, avro.io.BinaryEncoder(out))
    data = out.getvalue()
    read = avro.io.DatumReader(kind).read(avro.io.BinaryDecoder(io.BytesIO(data)))
    print(
        f"avro for Python, fixed(4) {value} and 5: {data[:4].hex()} {data[4:].hex()}, "
        f"read {read['amount']} and {read['count']}"
    )
END
{
    go mod init finding
    go get github.com/linkedin/goavro/v2@v2.15.0
    go build -o write .
} > log 2>&1 || { tail -n 20 log; exit 1; }
{
    ./write
    "$work/venv/bin/python" look.py
} | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
