#!/bin/sh
# amqtt 0.12.1, its broker: a message comes with the subscription's quality of service, also where it was sent
# with less; and of two clients with one name the first stays connected and gets nothing any more.
#
# What is sent in response to a subscription must have the smaller one of both (MQTT 3.1.1, 3.8.4). Here a
# value that was sent with 0, because it may be lost, costs four packets at each subscriber that has asked for
# 2, and the subscriber cannot tell any more what its sender promised. When a client connects with a name that
# is in use, the one that has it must be disconnected (3.1.4): that is how a program learns that another one
# was started in its place. amqtt leaves it connected and sends to the second only. Seen, by paho-mqtt 2.2.0:
#
#   granted 0: sent with 0, 1, 2, came with [0, 0, 0]
#   granted 1: sent with 0, 1, 2, came with [1, 1, 1]
#   granted 2: sent with 0, 1, 2, came with [2, 2, 2]
#   same name: the first is connected, has 0, the second has 1
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
this=$(cd "$(dirname "$0")" && pwd)/$(basename "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q amqtt==0.12.1 paho-mqtt==2.2.0
cd "$work"
cat > look.py <<'END'
import asyncio
import logging
import socket
import threading
import time

import paho.mqtt.client as mqtt
from amqtt.broker import Broker

logging.disable()
with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = free.getsockname()[1]
PLUGIN = "amqtt.plugins.authentication.AnonymousAuthPlugin"
CONFIG = {
    "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{PORT}"}},
    "plugins": {PLUGIN: {"allow_anonymous": True}},
}
started, stopping = threading.Event(), threading.Event()


async def serve():
    broker = Broker(CONFIG)
    await broker.start()
    started.set()
    while not stopping.is_set():
        await asyncio.sleep(0.1)
    await broker.shutdown()


def until(condition):
    for _ in range(100):
        if condition():
            return
        time.sleep(0.05)
    raise TimeoutError


def connected(name, topic=None, qos=0):
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name)
    client.seen, client.subscribed, client.lost = [], [], []
    client.on_message = lambda c, _, message: c.seen.append(message)
    client.on_subscribe = lambda c, *_: c.subscribed.append(True)
    client.on_disconnect = lambda c, *_: c.lost.append(True)
    client.connect("127.0.0.1", PORT)
    client.loop_start()
    until(client.is_connected)
    if topic:
        client.subscribe(topic, qos)
        until(lambda: client.subscribed)
    return client


server = threading.Thread(target=lambda: asyncio.run(serve()))
server.start()
started.wait(30)
sender = connected("sender")
for granted in (0, 1, 2):
    reader = connected(f"reader-{granted}", "values", granted)
    for qos in (0, 1, 2):
        sender.publish("values", b"", qos)
        time.sleep(0.3)
    until(lambda: len(reader.seen) == 3)
    print(f"granted {granted}: sent with 0, 1, 2, came with", [m.qos for m in reader.seen])
first = connected("same", "alarms", 1)
second = connected("same", "alarms", 1)
time.sleep(2)
sender.publish("alarms", b"", 1)
until(lambda: second.seen)
time.sleep(1)
state = "lost" if first.lost else "connected"
print(f"same name: the first is {state}, has {len(first.seen)}, the second has {len(second.seen)}")
for client in (sender, first, second):
    client.disconnect()
    client.loop_stop()
stopping.set()
server.join(10)
END
"$work/venv/bin/python" look.py | tee seen
sed -n 's/^#   //p' "$this" > expected
diff expected seen
