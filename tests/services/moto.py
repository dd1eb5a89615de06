"""moto's server on a free port of loopback: SQS and Kinesis as far as it is true to them.

What it does otherwise than AWS documents, and so proves nothing here: after a split or a merge the
parent shard goes on; an iterator never expires, and nothing is trimmed; a queue takes a receipt
handle whose visibility ran out.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.bounds import HANG_S
from tests.services.ports import free_ports

KEYS = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "secret-of-tests"}
REGION = "eu-west-1"


class MotoServer:
    """One server. It keeps everything in memory, so a kill loses it all.

    Args:
        folder: For its log.
        port: A free port if None.
    """

    def __init__(self, folder: Path, port: int | None = None) -> None:
        (self.port,) = free_ports(1) if port is None else (port,)
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "moto.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        command = [sys.executable, "-c", "from moto.server import main; main()"]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [*command, "-H", "127.0.0.1", "-p", str(self.port)],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end = time.monotonic() + HANG_S
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise AssertionError(self._log.read_text()[-3000:]) from None
                time.sleep(0.02)

    def client(self, service: str) -> Any:
        """Return a client of boto3's for the test itself."""
        import boto3

        return boto3.client(service, region_name=REGION, endpoint_url=self.url, **KEYS)

    def stall(self) -> None:
        """Let it answer nothing, with its connections open."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """End a stall."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it with SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(HANG_S)
            self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)


@contextlib.contextmanager
def moto_server(folder: Path) -> Iterator[MotoServer]:
    """Give a running server until the `with` ends."""
    server = MotoServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.kill()
