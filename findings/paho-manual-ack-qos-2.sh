#!/bin/sh
# paho-mqtt 2.2.0 with manual_ack=True still acknowledges a message of QoS 2 by itself: it sends PUBREC
# as soon as the message has come, before the program has seen it, and calls on_message only when the
# broker has answered by PUBREL. `ack()` sends the PUBCOMP.
#
# PUBREC is what takes the message off the broker (MQTT 3.1.1, 4.3.3: after it the broker must not send
# the PUBLISH again). From there until on_message has done its work, only the memory of the process has
# the message: a process that is killed gets a PUBREL when it is back, and never the message. With QoS
# 1 it is as the documentation says, nothing is sent before `ack()`. Seen:
#
#   paho-mqtt 2.2.0
#   QoS 1: the broker got nothing before ack(), on_message was called 1 time
#   QoS 2: the broker got PUBREC before ack(), on_message was called 0 times
#   QoS 2, back after a kill, PUBREL comes: on_message was called 0 times: the message is lost
#
# Ends with 0 while it is so, with another number when it changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 2' INT TERM

python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q paho-mqtt==2.2.0
cat > "$work/show.py" <<'END'
import socket
import sys

import paho.mqtt
from paho.mqtt.client import CallbackAPIVersion, Client

NAMES = {0x40: "PUBACK", 0x50: "PUBREC", 0x70: "PUBCOMP"}


def packet(link):
    """Read a packet of less than 128 bytes; return its first byte, or None if none comes."""
    try:
        first, length = link.recv(2)
    except TimeoutError:
        return None
    if length:
        link.recv(length)
    return first


def session(*packets):
    """Connect a client, send it packets; return what it answered, and how often on_message ran."""
    listener = socket.create_server(("127.0.0.1", 0))
    client = Client(CallbackAPIVersion.VERSION2, "c", clean_session=False, manual_ack=True)
    calls = []
    client.on_message = lambda client, data, message: calls.append(message)
    client.connect("127.0.0.1", listener.getsockname()[1])
    client.loop_start()
    link, _ = listener.accept()
    link.settimeout(2)
    packet(link)
    link.sendall(b"\x20\x02\x01\x00")  # CONNACK, with a session
    answers = []
    for each in packets:
        link.sendall(each)
        answers.append(NAMES.get(packet(link)))
    # The process is gone: nothing of it comes to the broker any more.
    link.close()
    client.disconnect()
    client.loop_stop()
    listener.close()
    return answers, len(calls)


def publish(qos):
    return bytes([0x30 | qos << 1, 8]) + b"\x00\x01t" + b"\x00\x05" + b"one"


print(f"paho-mqtt {paho.mqtt.__version__}")
[one], one_calls = session(publish(1))
print(f"QoS 1: the broker got {one or 'nothing'} before ack(), on_message was called {one_calls} time")
[two], two_calls = session(publish(2))
print(f"QoS 2: the broker got {two or 'nothing'} before ack(), on_message was called {two_calls} times")
_, after_calls = session(b"\x62\x02\x00\x05")  # PUBREL of the message
print(
    f"QoS 2, back after a kill, PUBREL comes: on_message was called {after_calls} times: "
    "the message is lost"
)
found = (one, one_calls, two, two_calls, after_calls)
sys.exit(0 if found == (None, 1, "PUBREC", 0, 0) else 1)
END
"$work/venv/bin/python" -W ignore "$work/show.py"
