"""moto's server on a free port of loopback: SQS and Kinesis as far as it is true to them.

What it does otherwise than AWS documents, and so proves nothing here: after a split or a merge the
parent shard goes on; an iterator never expires, and nothing is trimmed; a queue takes a receipt
handle whose visibility ran out.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.services.process import ServerProcess

KEYS = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "secret-of-tests"}
REGION = "eu-west-1"


class MotoServer(ServerProcess):
    """One server. It keeps everything in memory, so a kill loses it all.

    Args:
        folder: For its log.
        port: A free port if None.
    """

    def __init__(self, folder: Path, port: int | None = None) -> None:
        super().__init__(folder, port)
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-c", "from moto.server import main; main()"]
        self.command = [*command, "-H", "127.0.0.1", "-p", str(self.port)]

    def client(self, service: str) -> Any:
        """Return a client of boto3's for the test itself."""
        import boto3

        return boto3.client(service, region_name=REGION, endpoint_url=self.url, **KEYS)


@contextlib.contextmanager
def moto_server(folder: Path) -> Iterator[MotoServer]:
    """Give a running server until the `with` ends."""
    server = MotoServer(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
