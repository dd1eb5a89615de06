"""Azurite, Microsoft's emulator of Azure Blob Storage, on a free port of loopback.

What it does otherwise than Azure, and what is done about it here:

* Of several clients that create one object at once two may win, on a machine that is busy. So what
  clients talk to passes one PUT after the other on; else nothing could be shown of fences.
* It keeps its index in memory, and writes it every few seconds. So it is asked to end (SIGTERM),
  where other servers are killed.
* It has no hierarchical namespaces, and ignores ``startFrom``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import shutil
import signal
import sys
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.bounds import HANG_S
from tests.services.http_faults import Answered, FaultyHttp
from tests.services.process import ServerProcess
from tests.services.versitygw import BUCKET

ACCOUNT = "devstoreaccount1"
# Known to everyone: Azurite has no other.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class _Front(FaultyHttp):
    """One PUT after the other."""

    def __init__(self, port: int) -> None:
        self._puts = threading.Lock()
        super().__init__(port)

    def _ask(
        self, request: BaseHTTPRequestHandler, body: bytes, *, is_cut: bool = False
    ) -> Answered | None:
        if request.command != "PUT":
            return super()._ask(request, body, is_cut=is_cut)
        with self._puts:
            return super()._ask(request, body, is_cut=is_cut)


class AzuriteServer(ServerProcess):
    """One server with one container.

    Args:
        folder: What it keeps, and its log.
        binary: The server's program.
    """

    scheme = "abfss"

    def __init__(self, folder: Path, binary: str) -> None:
        super().__init__(folder)
        self.front = _Front(self.port)
        self.url = self.front.url
        self.data = folder / "data"
        options = ["--blobHost", "127.0.0.1", "--blobPort", str(self.port), "--silent"]
        more = ["--location", str(self.data), "--skipApiVersionCheck", "--disableTelemetry"]
        self.command = [binary, *options, *more]

    @property
    def authority(self) -> str:
        """What stands before the path of its addresses."""
        return f"abfss://{BUCKET}@{ACCOUNT}.dfs.core.windows.net"

    @property
    def client_port(self) -> int:
        """Where clients ask."""
        return self.front.port

    def start(self) -> None:
        """Start it and make its container."""
        super().start()
        # 409: it is there since the last start.
        assert self._make_container() in (201, 409)

    def _make_container(self) -> int:
        path, version = f"/{ACCOUNT}/{BUCKET}", "2023-11-03"
        date = formatdate(usegmt=True)
        signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{version}\n"
        signed += f"/{ACCOUNT}{path}\nrestype:container"
        digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": date,
            "x-ms-version": version,
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
            "Content-Length": "0",
        }
        server = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HANG_S)
        server.request("PUT", f"{path}?restype=container", headers=headers)
        status = server.getresponse().status
        server.close()
        return status

    def environment(self, url: str = "") -> dict[str, str]:
        """Return what a program needs to find it, by this address or by another one."""
        return {
            "AZURE_STORAGE_ENDPOINT": f"{url or self.url}/{ACCOUNT}",
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
        }

    def of_a_stranger(self) -> dict[str, str]:
        """Return what to set besides to be somebody who is not known."""
        return {"AZURE_STORAGE_ACCOUNT_KEY": "YW5vdGhlcg=="}

    def store(self, url: str = "", prefix: str | None = None) -> Any:
        """Return the container, or what is below a prefix, for the test itself."""
        from obstore.store import AzureStore

        return AzureStore(
            BUCKET,
            prefix=prefix,
            account_name=ACCOUNT,
            account_key=KEY,
            endpoint=f"{url or self.url}/{ACCOUNT}",
            client_options={"allow_http": True, "timeout": "60s"},
            retry_config={"max_retries": 0},
        )

    def kill(self) -> None:
        """Ask it to end, which writes what it has acknowledged."""
        assert self._process is not None
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        self._process.wait(HANG_S)
        self._process = None

    def stop(self) -> None:
        """End it if it runs."""
        super().stop()
        self.front.close()


def make_server(folder: Path) -> AzuriteServer:
    """Return a server, not started; where there is none the test is skipped."""
    beside = Path(sys.executable).parents[1] / "azurite/node_modules/.bin/azurite-blob"
    binary = str(beside) if beside.exists() else shutil.which("azurite-blob")
    if binary is None:
        pytest.skip("platform: no azurite (`make azurite` installs it, where there is npm)")
    return AzuriteServer(folder, binary)
