#!/bin/sh
# logfmt 1.4.0 (npm): the end of a line in a quoted value is read as the letter n, and a tab as t; and the writer puts
# the end of a line into the line as it is, so that one record is two.
#
# A quoted value has the escapes of JSON: so go-logfmt writes it, which Grafana and Prometheus log with. The parser
# drops the backslash and leaves what follows, so that a trace of calls runs together; the text "true" in quotes is a
# boolean. What the writer wrote, read line by line as logs are, gives a record that ends early and one that has made-up
# fields. No error is raised. go-logfmt v0.6.1 has what was meant. Seen (the line; the value of a):
#
#   a="b\nc": logfmt "bnc", go-logfmt "b\nc"
#   a="b\tc": logfmt "btc", go-logfmt "b\tc"
#   a="b\u0041c": logfmt "bu0041c", go-logfmt "bAc"
#   a="true": logfmt true, go-logfmt "true"
#   a of "b\nc d=1" is written: logfmt "a=\"b\nc d=1\"", go-logfmt "a=\"b\\nc d=1\""
#
# Needs python3, Node 20 and Go. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
npm install --silent --no-fund --no-audit --ignore-scripts logfmt@1.4.0 > log 2>&1 || { tail -n 20 log; exit 1; }
export GOPATH="$work/go" GOFLAGS="-modcacherw"
cat > main.go <<'END'
package main

import (
	"encoding/json"
	"os"
	"strings"

	"github.com/go-logfmt/logfmt"
)

func main() {
	var found []string
	for _, line := range os.Args[2:] {
		decoder := logfmt.NewDecoder(strings.NewReader(line))
		decoder.ScanRecord()
		for decoder.ScanKeyval() {
			found = append(found, string(decoder.Value()))
		}
		if decoder.Err() != nil {
			panic(decoder.Err())
		}
	}
	line, err := logfmt.MarshalKeyvals("a", os.Args[1])
	if err != nil {
		panic(err)
	}
	json.NewEncoder(os.Stdout).Encode(append(found, string(line)))
}
END
go mod init look 2> log
go get -v github.com/go-logfmt/logfmt@v0.6.1 >> log 2>&1 || { tail -n 20 log; exit 1; }
go build -o other .
cat > look.py <<'END'
import json
import subprocess

PROGRAM = """
const logfmt = require('logfmt');
const [written, ...lines] = JSON.parse(process.argv[1]);
console.log(JSON.stringify([...lines.map((line) => logfmt.parse(line).a), logfmt.stringify({ a: written })]));
"""
LINES = (r'a="b\nc"', r'a="b\tc"', r'a="b\u0041c"', 'a="true"')
WRITTEN = "b\nc d=1"


def ask(*command):
    return json.loads(subprocess.run(command, check=True, stdout=-1).stdout)


one = ask("node", "-e", PROGRAM, json.dumps([WRITTEN, *LINES]))
two = ask("./other", WRITTEN, *LINES)
names = (*LINES, f"a of {json.dumps(WRITTEN)} is written")
for name, *found in zip(names, one, two, strict=True):
    by_logfmt, by_other = map(json.dumps, found)
    print(f"{name}: logfmt {by_logfmt}, go-logfmt {by_other}")
END
python3 look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
