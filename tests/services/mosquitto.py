"""A real mosquitto on a free port of loopback, with persistence on request."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.bounds import HANG_S
from tests.services.process import ServerProcess


class Mosquitto(ServerProcess):
    """One broker; its address stays the same when it is started again.

    Args:
        folder: An empty folder.
        lines: Lines of its configuration, beside those for the listener.
        tls: Whether the listener wants TLS, with ``server.pem`` of the folder.
        secret: The password of the user ``user``; None: anyone may come.
    """

    KEEPS = ("persistence true", "autosave_interval 1", "autosave_on_changes true")
    """Lines with which sessions outlive a kill."""

    def __init__(
        self, folder: Path, *lines: str, tls: bool = False, secret: str | None = None
    ) -> None:
        binary = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin")
        if binary is None:
            told = "platform: no mosquitto on the PATH; the distribution has a package"
            pytest.skip(told)
        super().__init__(folder)
        self.address = f"mqtt{'s' * tls}://127.0.0.1:{self.port}"
        self._secret = secret
        self._certificate = folder / "certificate.pem" if tls else None
        given = [f"listener {self.port} 127.0.0.1", f"persistence_location {folder}/"]
        given += ["log_dest stderr", "max_queued_messages 0"]
        if secret is None:
            given.append("allow_anonymous true")
        else:
            passwords = folder / "passwords"
            command = ["mosquitto_passwd", "-b", "-c", passwords, "user", secret]
            subprocess.run(command, check=True, capture_output=True, timeout=HANG_S)
            given += ["allow_anonymous false", f"password_file {passwords}"]
        if tls:
            pem = folder / "server.pem"
            given += [f"certfile {pem}", f"keyfile {pem}"]
        if not os.getuid():
            given.append("user root")
        configuration = folder / "mosquitto.conf"
        configuration.write_text("\n".join([*given, *lines, ""]))
        # Its log has a line for each packet.
        self.command = [binary, "-v", "-c", str(configuration)]

    def __enter__(self) -> Mosquitto:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def save(self) -> None:
        """Have it save its sessions, which it does by itself only now and then."""
        said = "Saving in-memory database"
        before = self.log().count(said)
        self.signal(signal.SIGUSR1)
        end = time.monotonic() + HANG_S
        while self.log().count(said) == before:
            assert time.monotonic() < end, "mosquitto does not save"
            time.sleep(0.01)

    def client(self, name: str = "", version: str = "5") -> mqtt.Client:
        """Return a client whose session the broker keeps, not connected."""
        is_v5 = version == "5"
        client = mqtt.Client(
            mqtt.CallbackAPIVersion.VERSION2,
            name,
            protocol=mqtt.MQTTv5 if is_v5 else mqtt.MQTTv311,
            clean_session=None if is_v5 else not name,
        )
        if self._certificate is not None:
            client.tls_set(str(self._certificate))
        if self._secret is not None:
            client.username_pw_set("user", self._secret)
        return client

    def make_session(self, name: str, topic: str, qos: int, version: str = "5") -> None:
        """Have the broker keep the messages of a topic for the client of a name."""
        client = self.client(name, version)
        subscribed = threading.Event()
        client.on_subscribe = lambda *_: subscribed.set()
        client.on_connect = lambda *_: client.subscribe(topic, qos)
        properties = None
        if version == "5":
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 1000
        client.connect("127.0.0.1", self.port, properties=properties)
        client.loop_start()
        try:
            assert subscribed.wait(HANG_S)
        finally:
            client.disconnect()
            client.loop_stop()

    def publish(self, topic: str, *payloads: bytes, qos: int = 1, **options: Any) -> None:
        """Publish messages, and wait until the broker has all of them."""
        client = self.client()
        client.connect("127.0.0.1", self.port)
        client.loop_start()
        try:
            sent = [client.publish(topic, each, qos, **options) for each in payloads]
            for each in sent:
                each.wait_for_publish(HANG_S)
        finally:
            client.disconnect()
            client.loop_stop()

    def unacknowledged(self, name: str) -> int:
        """Return how many messages it has sent to a client's last connection beyond the done."""
        said = self.log()
        said = said[said.rfind(f"Sending CONNACK to {name} ") :]
        sent = len(re.findall(rf"Sending PUBLISH to {name} \(d., q[12]", said))
        return sent - len(re.findall(rf"Received (?:PUBACK|PUBCOMP) from {name} ", said))
