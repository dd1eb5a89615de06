#!/bin/sh
# mosquitto 2.0.11 (Debian 12) gives a message of QoS 2 again that it has released: so a client that
# keeps to the protocol gets it twice.
#
# When the broker has sent PUBREL the client may forget the message's number; the broker must not send
# the PUBLISH again after it had the PUBREC (MQTT 3.1.1, 4.3.3). After a lost connection it sends the
# PUBREL again, as it must. But if another connection of the same client comes in between and ends at
# once behind its CONNECT, as one does that was given up because the broker did not answer soon, then
# the next one gets the PUBLISH, marked as a repetition, as if there had been no PUBREC. Seen:
#
#   the connection is lost: then PUBREL
#   and one that ends behind its CONNECT: then PUBLISH again
#
# Needs python3 and Debian 12, from whose packages the broker is taken. Ends with 0 while it is so, with
# another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
cd "$work"
apt-get download -q mosquitto=2.0.11-1.2+deb12u2 libdlt2=2.18.8-6 libwrap0=7.6.q-32 >/dev/null 2>&1
for package in *.deb; do dpkg -x "$package" .; done
PATH=$work/usr/sbin:$PATH
LD_LIBRARY_PATH=$(dirname "$(find "$work/usr/lib" -name 'libwrap.so.0')")
export LD_LIBRARY_PATH
mosquitto -h | grep -q 'version 2\.0\.11$' || { echo "mosquitto 2.0.11 is needed" >&2; exit 2; }
cat > look.py <<'END'
import contextlib
import pathlib
import signal
import socket
import subprocess
import time

CONNECT, CONNACK, PUBLISH, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE = 1, 2, 3, 5, 6, 7, 8
PERSISTENT, CLEAN = 0, 2
ONE = b"\0\1"


def text(value):
    return len(value).to_bytes(2, "big") + value


def packet(kind, flags, body):
    return bytes([kind << 4 | flags, len(body)]) + body


class Connection:
    def __init__(self, port, client, flags):
        self.socket = socket.create_connection(("127.0.0.1", port), 10)
        self.send(CONNECT, 0, text(b"MQTT") + bytes([4, flags]) + b"\0\x3c" + text(client))

    def send(self, kind, flags, body):
        self.socket.sendall(packet(kind, flags, body))

    def read(self):
        """Return a packet's kind, flags and body; all of them are short here."""
        first, size = self.exactly(2)
        return first >> 4, first & 15, self.exactly(size)

    def exactly(self, size):
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            assert part, "the broker closed the connection"
            found += part
        return found

    def close(self):
        self.socket.close()


def receive_and_lose(port, name):
    """Take a message up to its PUBREL, and lose the connection."""
    reader = Connection(port, name, PERSISTENT)
    assert reader.read()[0] == CONNACK
    reader.send(SUBSCRIBE, 2, ONE + text(name) + b"\2")
    reader.read()
    sender = Connection(port, b"sender of " + name, CLEAN)
    assert sender.read()[0] == CONNACK
    sender.send(PUBLISH, 4, text(name) + ONE + b"x")
    assert sender.read()[0] == PUBREC
    sender.send(PUBREL, 2, ONE)
    assert sender.read()[0] == PUBCOMP
    kind, _, body = reader.read()
    assert kind == PUBLISH
    reader.send(PUBREC, 0, body[2 + len(name) : 4 + len(name)])
    assert reader.read()[0] == PUBREL
    reader.close()
    sender.close()


def next_packet(port, name):
    reader = Connection(port, name, PERSISTENT)
    assert reader.read()[0] == CONNACK
    kind, flags, _ = reader.read()
    reader.close()
    return {PUBREL: "PUBREL", PUBLISH: f"PUBLISH{' again' * (flags >> 3)}"}[kind]


with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
pathlib.Path("broker.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
command = ["mosquitto", "-c", "broker.conf"]
with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as broker:
    try:
        for _ in range(100):
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.1)
        receive_and_lose(port, b"a")
        print("the connection is lost: then", next_packet(port, b"a"))
        receive_and_lose(port, b"b")
        time.sleep(0.5)
        # Ended before the broker has a look at it.
        broker.send_signal(signal.SIGSTOP)
        Connection(port, b"b", PERSISTENT).close()
        broker.send_signal(signal.SIGCONT)
        time.sleep(0.5)
        print("and one that ends behind its CONNECT: then", next_packet(port, b"b"))
    finally:
        broker.kill()
END
python3 look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
