"""Real Kafka brokers (KRaft) in temporary folders, on free ports of loopback."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import time
import uuid
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import InvalidReplicationFactorError, TopicAlreadyExistsError

from tests.bounds import HANG_S
from tests.services.jars import jars
from tests.services.ports import free_ports
from tests.services.process import paused
from tests.services.tls import certificate_of_host

POM = Path(__file__).with_name("kafka.pom.xml")
START_S = HANG_S
STOP_S = HANG_S

_PROPERTIES = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},\\
 SASL_SSL://127.0.0.1:{secure}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{secure}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.sasl_ssl.plain.sasl.jaas.config=\\
 org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=\\
 org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.ssl.keystore.type=PEM
listener.name.sasl_ssl.ssl.keystore.location={folder}/server.pem
log.dirs={folder}/data
default.replication.factor={brokers}
offsets.topic.replication.factor={brokers}
offsets.topic.num.partitions=1
transaction.state.log.replication.factor={brokers}
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=200
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
auto.create.topics.enable=false
log.retention.ms=-1
log.retention.check.interval.ms=500
log.cleaner.backoff.ms=200
log.segment.delete.delay.ms=0
"""

USER, PASSWORD = "reader", "word-of-mine"
"""Who may connect to the addresses that want TLS and SASL, by `PLAIN` or `SCRAM-SHA-256`."""

_SCRAM = f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"


@dataclass(frozen=True)
class Node:
    """A broker's place among those of its cluster.

    Attributes:
        number: Its number, from 1.
        ports: Of each broker: for clients, for controllers, for clients with TLS and SASL.
        cluster: The id of the cluster.
    """

    number: int
    ports: tuple[tuple[int, int, int], ...]
    cluster: str

    @classmethod
    def of_cluster(cls, brokers: int) -> list[Node]:
        """Return the places of a new cluster."""
        free = free_ports(3 * brokers)
        ports = tuple((a, b, c) for a, b, c in zip(free[::3], free[1::3], free[2::3], strict=True))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # One that began with a dash would be taken for an option.
        cluster = cluster.replace("-", "A")
        return [cls(number, ports, cluster) for number in range(1, brokers + 1)]


class Kafka:
    """Brokers that run, and what tests do with them.

    Attributes:
        address: Of the brokers.
        engine: The client by which streams of the tests read them.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.engine = "kafka-python"

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
            self._create(admin, NewTopic(name, partitions, -1, topic_configs=configs))

    def create_again(self, name: str, partitions: int = 1) -> None:
        """Delete a topic, and create another of its name as soon as that is taken."""
        with self.admin() as admin:
            admin.delete_topics([name])
            self._create(admin, NewTopic(name, partitions, -1), TopicAlreadyExistsError)

    def _create(self, admin: KafkaAdminClient, topic: NewTopic, *passing: type[Exception]) -> None:
        end = time.monotonic() + START_S
        while True:
            try:
                admin.create_topics([topic])
                break
            # Brokers whose beat of the heart came late, on a machine that is busy, are fenced.
            except (InvalidReplicationFactorError, *passing):
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)
        admin.wait_for_topics([topic.name])

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


class Broker(Kafka):
    """One broker; its address stays the same when it is started again.

    Args:
        folder: An empty folder for its configuration and its data.
        node: Its place in a cluster; None for one of its own.
        more_properties: Lines of its configuration that win over those of all.

    Attributes:
        number: Its number in its cluster, from 1.
        secure_address: Its own, with TLS and SASL.
        certificate: What a client trusts there.
    """

    def __init__(self, folder: Path, node: Node | None = None, more_properties: str = "") -> None:
        node = Node.of_cluster(1)[0] if node is None else node
        super().__init__(",".join(f"127.0.0.1:{port}" for port, _, _ in node.ports))
        self._folder = folder
        self.number = node.number
        self._port, controller, secure = node.ports[node.number - 1]
        self.secure_address = f"127.0.0.1:{secure}"
        self.certificate = certificate_of_host(folder)
        self._process: subprocess.Popen[bytes] | None = None
        self._properties = folder / "server.properties"
        self._properties.write_text(
            _PROPERTIES.format(
                node=node.number,
                voters=",".join(
                    f"{number}@127.0.0.1:{ports[1]}" for number, ports in enumerate(node.ports, 1)
                ),
                port=self._port,
                controller=controller,
                secure=secure,
                user=USER,
                password=PASSWORD,
                folder=folder,
                brokers=len(node.ports),
            )
            + more_properties
        )
        cluster = node.cluster
        with open(folder / "format.log", "wb") as log:
            subprocess.run(
                self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-S", _SCRAM, "-c"),
                check=True,
                timeout=START_S,
                stdout=log,
                stderr=log,
            )

    def _java(self, main: str, *arguments: str) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = os.path.join(home, "bin", "java") if home else "java"
        classes = os.path.join(str(jars(POM)), "*")
        small = ["-Xmx384m", "-Xms384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        return [java, *small, "-cp", classes, main, *arguments, str(self._properties)]

    @classmethod
    def started(cls, folder: Path) -> Broker:
        """Return one that runs: the second, where somebody took a port of the first meanwhile."""
        first, second = folder / "first", folder / "second"
        first.mkdir()
        broker = cls(first)
        try:
            broker.start()
        except AssertionError:
            second.mkdir()
            broker = cls(second)
            broker.start()
        return broker

    def start(self) -> None:
        """Start it and wait until it takes connections and knows itself as a broker."""
        self.begin()
        try:
            self.await_start()
        except BaseException:
            self.stop()
            raise

    def begin(self) -> None:
        """Start it."""
        assert self._process is None
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka"), stdout=log, stderr=log, start_new_session=True
            )

    def await_start(self) -> None:
        """Wait until it takes connections and knows itself as a broker."""
        assert self._process is not None
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

    def paused(self) -> AbstractContextManager[None]:
        """Stop it with SIGSTOP until the end."""
        assert self._process is not None
        return paused(self._process)

    def stop(self) -> None:
        """Kill it if it runs: the data is not needed any more."""
        if self._process is not None:
            self.kill()

    def _end(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(STOP_S)
        self._process = None
