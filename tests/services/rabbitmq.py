"""A real RabbitMQ on a free port of loopback, a node of its own; it takes seconds to start."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.bounds import HANG_S
from tests.services.ports import free_ports

START_S = HANG_S
STOP_S = HANG_S
_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class RabbitMQ:
    """One node; its address stays the same when it is started again.

    Args:
        folder: An empty folder.
        lines: Lines of its configuration.
    """

    def __init__(self, folder: Path, *lines: str) -> None:
        if not _SERVER.exists():
            told = f"platform: no {_SERVER}; the distribution has a package rabbitmq-server"
            pytest.skip(told)
        self._folder = folder
        self.port, self._epmd = free_ports(2)
        self.address = f"amqp://127.0.0.1:{self.port}"
        given = dict(line.split(" = ") for line in lines)
        self._credentials = pika.PlainCredentials(
            given.get("default_user", "guest"), given.get("default_pass", "guest")
        )
        (folder / "rabbitmq.conf").write_text("\n".join(["log.console = false", *lines, ""]))
        (folder / "enabled_plugins").write_text("[].\n")
        self._environment = {
            **os.environ,
            "HOME": str(folder),
            "ERL_CRASH_DUMP": str(folder / "crash.dump"),
            "ERL_EPMD_PORT": str(self._epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"t{uuid.uuid4().hex[:8]}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._names: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> RabbitMQ:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start it and wait until it takes clients."""
        assert self._process is None
        if self._names is None:
            # The server would leave one behind.
            self._names = subprocess.Popen(["epmd"], env=self._environment)
        # Another for each start: while it is down, anyone may get the one that it had.
        self._environment["RABBITMQ_DIST_PORT"] = str(free_ports(1)[0])
        with open(self._folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [_SERVER], stdout=log, stderr=log, env=self._environment, start_new_session=True
            )
        end = time.monotonic() + START_S
        while True:
            try:
                return self.connection().close()
            except (pika.exceptions.AMQPError, OSError):
                if self._process.poll() is not None or time.monotonic() > end:
                    said = (self._folder / "server.log").read_text(errors="replace")[-3000:]
                    raise AssertionError(f"RabbitMQ does not come up: {said}") from None
                time.sleep(0.1)

    @property
    def is_running(self) -> bool:
        """Whether it was started, and not killed since."""
        return self._process is not None

    def kill(self) -> None:
        """Kill it with SIGKILL, and what it started."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(STOP_S)
        self._process = None

    def stop(self) -> None:
        """End it, and the process in which it registered its name."""
        if self._process is not None:
            self.kill()
        if self._names is not None:
            self._names.kill()
            self._names.wait(STOP_S)
            self._names = None

    def control(self, *command: str) -> str:
        """Call ``rabbitmqctl``."""
        return subprocess.run(
            ["/usr/lib/rabbitmq/bin/rabbitmqctl", "-q", *command],
            env=self._environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=HANG_S,
        ).stdout

    def connection(self) -> pika.BlockingConnection:
        """Return a connection to it."""
        parameters = pika.ConnectionParameters(
            "127.0.0.1", self.port, credentials=self._credentials
        )
        return pika.BlockingConnection(parameters)

    @contextlib.contextmanager
    def channel(self) -> Iterator[Any]:
        """Open a channel that confirms what is published."""
        connection = self.connection()
        try:
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel
        finally:
            if connection.is_open:
                connection.close()

    def declare(self, queue: str, **arguments: Any) -> None:
        """Make a queue that outlives a kill; arguments such as ``x_queue_type="quorum"``."""
        given = {name.replace("_", "-"): value for name, value in arguments.items()}
        with self.channel() as channel:
            channel.queue_declare(queue, durable=True, arguments=given)

    def publish(
        self, queue: str, payloads: Sequence[bytes], *, ids: bool = True, **properties: Any
    ) -> None:
        """Publish messages, and wait until the server has them on its disk."""
        with self.channel() as channel:
            for payload in payloads:
                given = {"message_id": uuid.uuid4().hex, **properties} if ids else properties
                channel.basic_publish(
                    "", queue, payload, pika.BasicProperties(delivery_mode=2, **given)
                )

    def ready(self, queue: str) -> int:
        """Return how many messages of a queue wait to be given."""
        with self.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).method.message_count)
