"""versitygw, an S3 server over a folder, on a free port of loopback.

Its conditional writes are true: of 16 clients at once that create one object exactly one wins,
which is not so with moto.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.services.jars import CACHE
from tests.services.process import ServerProcess

KEYS = {"aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": "secret-of-tests"}
REGION = "us-east-1"
BUCKET = "logs"


class VersityServer(ServerProcess):
    """One server with one bucket. What was acknowledged is there after a kill.

    Args:
        folder: What it keeps, and its log.
        binary: The server's program.
    """

    scheme = "s3"

    def __init__(self, folder: Path, binary: str) -> None:
        super().__init__(folder)
        self.url = f"http://127.0.0.1:{self.port}"
        self.data = folder / "data"
        (self.data / BUCKET).mkdir(parents=True)
        address = f"127.0.0.1:{self.port}"
        keys = [KEYS["aws_access_key_id"], KEYS["aws_secret_access_key"]]
        options = ["--port", address, "--access", keys[0], "--secret", keys[1], "--keep-alive"]
        self.command: list[str] = [binary, "--quiet", *options, "posix", str(self.data)]

    @property
    def authority(self) -> str:
        """What stands before the path of its addresses."""
        return f"s3://{BUCKET}"

    @property
    def client_port(self) -> int:
        """Where clients ask."""
        return self.port

    def environment(self, url: str = "") -> dict[str, str]:
        """Return what a program needs to find it, by this address or by another one."""
        return {
            "AWS_ACCESS_KEY_ID": KEYS["aws_access_key_id"],
            "AWS_SECRET_ACCESS_KEY": KEYS["aws_secret_access_key"],
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": url or self.url,
        }

    def of_a_stranger(self) -> dict[str, str]:
        """Return what to set besides to be somebody who is not known."""
        return {"AWS_SECRET_ACCESS_KEY": "another"}

    def store(self, url: str = "", prefix: str | None = None) -> Any:
        """Return the bucket, or what is below a prefix, for the test itself."""
        from obstore.store import S3Store

        return S3Store(
            BUCKET,
            prefix=prefix,
            endpoint=url or self.url,
            access_key_id=KEYS["aws_access_key_id"],
            secret_access_key=KEYS["aws_secret_access_key"],
            region=REGION,
            client_options={"allow_http": True, "timeout": "60s"},
            retry_config={"max_retries": 0},
        )


def make_server(folder: Path, kind: type[VersityServer] = VersityServer) -> VersityServer:
    """Return a server, not started; where there is none the test is skipped."""
    built = CACHE / "versitygw-v1.8.0" / "versitygw"
    binary = shutil.which("versitygw") or (str(built) if built.exists() else None)
    if binary is None:
        pytest.skip("platform: no versitygw (`make s3` builds it, where there is go 1.25)")
    return kind(folder, binary)
