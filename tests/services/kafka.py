"""A real Kafka broker (KRaft, one node) in a temporary folder, on free ports of loopback."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from tests.services.jars import jars

START_S = 60.0
STOP_S = 20.0

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=200
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
auto.create.topics.enable=false
log.retention.check.interval.ms=500
log.cleaner.backoff.ms=200
log.segment.delete.delay.ms=0
"""


class Broker:
    """One broker; its address stays the same when it is started again.

    Args:
        folder: An empty folder for its configuration and its data.

    Attributes:
        engine: The client by which streams of the tests read it.
    """

    def __init__(self, folder: Path) -> None:
        self.engine = "kafka-python"
        self._folder = folder
        self._port, controller = _free_ports(2)
        self.address = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = folder / "server.properties"
        self._properties.write_text(
            _PROPERTIES.format(port=self._port, controller=controller, folder=folder)
        )
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # One that began with a dash would be taken for an option.
        cluster = cluster.replace("-", "A")
        with open(folder / "format.log", "wb") as log:
            subprocess.run(
                self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c"),
                check=True,
                timeout=START_S,
                stdout=log,
                stderr=log,
            )

    def _java(self, main: str, *arguments: str) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = os.path.join(home, "bin", "java") if home else "java"
        classes = os.path.join(str(jars()), "*")
        small = ["-Xmx384m", "-Xms384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [java, *small, "-cp", classes, main, *arguments, str(self._properties)]

    def start(self) -> None:
        """Start it and wait until it takes connections and knows itself as a broker."""
        assert self._process is None
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka"), stdout=log, stderr=log, start_new_session=True
            )
        end = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                with self.admin(bootstrap_timeout_ms=2000):
                    return
            except Exception as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    told = (self._folder / "server.log").read_text()[-3000:]
                    raise AssertionError(f"the broker does not come up: {told}") from error
                time.sleep(0.05)

    def kill(self) -> None:
        """Kill it with SIGKILL; what was acknowledged is in the page cache."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Kill it if it runs: the data is not needed any more."""
        if self._process is not None:
            self.kill()

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(STOP_S)
        self._process = None

    # -- what tests do with it -------------------------------------------------------------------

    def admin(self, **settings: Any) -> KafkaAdminClient:
        """Return a client that administers it; close it."""
        return KafkaAdminClient(bootstrap_servers=self.address, **settings)

    def create_topic(self, partitions: int = 1, **settings: str) -> str:
        """Create a topic with a name of its own; return the name."""
        name = f"topic-{uuid.uuid4().hex[:8]}"
        self.create(name, partitions, **settings)
        return name

    def create(self, name: str, partitions: int = 1, **settings: str) -> None:
        """Create a topic. In the settings' names ``_`` stands for a dot."""
        configs = {key.replace("_", "."): value for key, value in settings.items()}
        with self.admin() as admin:
            admin.create_topics([NewTopic(name, partitions, 1, topic_configs=configs)])
            admin.wait_for_topics([name])

    def producer(self, **settings: Any) -> KafkaProducer:
        """Return a producer; close it."""
        return KafkaProducer(bootstrap_servers=self.address, **settings)

    def send(self, topic: str, partition: int, values: list[bytes]) -> None:
        """Write values to a partition and wait until all are acknowledged."""
        producer = self.producer(linger_ms=5)
        try:
            for value in values:
                producer.send(topic, value, partition=partition)
            producer.flush(START_S)
        finally:
            producer.close()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
