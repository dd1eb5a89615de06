"""MQTT: messages a second by `MqttReceiver`, beside a bare loop of the same client.

``python -m benchmarks.sources.mqtt [messages]``. QoS 1, MQTT 5. The bare loop is paho's own, and
acknowledges each message as it comes, without storing. Both have a session of their own in which
the messages wait.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from benchmarks.sources.comparing import received_s, show
from penstock.sources.mqtt import MqttReceiver
from tests.services.mosquitto import Mosquitto

_MESSAGES = 50_000
_MOST = 4000


def main() -> None:
    """Print the figures."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else _MESSAGES
    lines = (f"max_inflight_messages {_MOST}", "log_type error")
    with tempfile.TemporaryDirectory() as folder, Mosquitto(Path(folder), *lines) as broker:
        for size in (100, 1000):
            for name in ("bare", "received"):
                broker.make_session(name, f"size/{size}", 1)
            broker.publish(f"size/{size}", *[b"x" * size] * count)
            bare_s = _bare(broker, count)
            ours_s = _received(broker, size, count)
            show(f"{size} B", count, bare_s, ours_s)


def _bare(broker: Mosquitto, count: int) -> float:
    client = broker.client("bare")
    client.manual_ack_set(True)
    left = count

    def take(client: Client, data: object, message: Any) -> None:
        nonlocal left
        client.ack(message.mid, message.qos)
        left -= 1
        if not left:
            client.disconnect()

    client.on_message = take
    properties = Properties(PacketTypes.CONNECT)
    properties.ReceiveMaximum = _MOST
    properties.SessionExpiryInterval = 1000
    began_s = time.perf_counter()
    client.connect("127.0.0.1", broker.port, clean_start=False, properties=properties)
    client.loop_forever()
    return time.perf_counter() - began_s


def _received(broker: Mosquitto, size: int, count: int) -> float:
    receiver = MqttReceiver(
        broker.address, f"size/{size}", client_id="received", max_unacknowledged=_MOST
    )
    return received_s(receiver, count)


if __name__ == "__main__":
    main()
