#!/bin/sh
# mochi-mqtt server v2.7.9 (Go, an MQTT broker): what is published while a session's client is away is sent in any
# order when it is back, and each is marked as a repetition (DUP) though it was never sent before.
#
# What is kept for a session lies in a map, and is sorted by the whole second in which it came: within one the order
# is the map's, another each time. MQTT has the messages of a topic come in the order in which they were published
# (3.1.1 and 5.0, 4.6), and DUP 0 on the first attempt (3.3.1.1). So of a meter's readings that came during a restart the
# last is not the latest. What comes while the client is there is in order and not marked. Seen (50 messages of one
# publisher to one topic, QoS 1):
#
#   MQTT 3.1.1, there: 50, in order, DUP 0
#   MQTT 3.1.1, back after being away: 50, in another order, DUP 1
#   MQTT 5.0, there: 50, in order, DUP 0
#   MQTT 5.0, back after being away: 50, in another order, DUP 1
#
# Needs python3 and Go 1.25. Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q paho-mqtt==2.2.0
mkdir "$work/program"
cd "$work/program"
export GOPATH="$work/go" GOFLAGS="-modcacherw"
cat > main.go <<'END'
package main

import (
	"io"
	"log/slog"
	"os"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	server := mqtt.New(&mqtt.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	check(server.AddHook(new(auth.AllowHook), nil))
	check(server.AddListener(listeners.NewTCP(listeners.Config{ID: "tcp", Address: "127.0.0.1:" + os.Args[1]})))
	check(server.Serve())
	_, _ = io.ReadAll(os.Stdin)
}
END
{
    go mod init finding
    go get github.com/mochi-mqtt/server/v2@v2.7.9 github.com/mochi-mqtt/server/v2/hooks/auth@v2.7.9
    go build -mod=mod -o server .
} > log 2>&1 || { tail -n 20 log; exit 1; }
cat > look.py <<'END'
import socket
import subprocess
import time

import paho.mqtt.client as mqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = free.getsockname()[1]
COUNT = 50


def connect(name, version):
    """Return a client with a session that is kept, and what it is given."""
    found = []
    if version == mqtt.MQTTv5:
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, protocol=version)
        kept = Properties(PacketTypes.CONNECT)
        kept.SessionExpiryInterval = 600
        options = {"clean_start": False, "properties": kept}
    else:
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, name, protocol=version, clean_session=False)
        options = {}
    client.on_message = lambda _, __, message: found.append((message.payload, int(message.dup)))
    client.connect("127.0.0.1", PORT, **options)
    client.loop_start()
    time.sleep(1)
    return client, found


def end(client):
    client.disconnect()
    client.loop_stop()
    time.sleep(0.5)


def publish(client, topic):
    for info in [client.publish(topic, str(number), 1) for number in range(COUNT)]:
        info.wait_for_publish(20)
    time.sleep(1)


def told(name, found):
    numbers = [int(payload) for payload, _ in found]
    order = "in order" if numbers == sorted(numbers) else "in another order"
    marks = " and ".join(sorted({f"DUP {mark}" for _, mark in found}))
    print(f"{name}: {len(set(numbers))}, {order}, {marks}")


def look(name, version):
    publisher, _ = connect(f"{name} publisher", version)
    client, found = connect(name, version)
    client.subscribe(f"{name}/#", 1)
    time.sleep(0.5)
    publish(publisher, f"{name}/1")
    end(client)
    told(f"{name}, there", found)
    publish(publisher, f"{name}/1")
    client, found = connect(name, version)
    time.sleep(2)
    end(client)
    end(publisher)
    told(f"{name}, back after being away", found)


server = subprocess.Popen(["./server", str(PORT)], stdin=subprocess.PIPE)
try:
    time.sleep(2)
    look("MQTT 3.1.1", mqtt.MQTTv311)
    look("MQTT 5.0", mqtt.MQTTv5)
finally:
    server.kill()
    server.wait()
END
timeout 100 "$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
