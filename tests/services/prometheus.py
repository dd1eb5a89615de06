"""A real Prometheus that scrapes one address; it keeps nothing when it ends."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from tests.bounds import HANG_S
from tests.services.ports import free_ports

__all__ = ["Prometheus", "PrometheusMissingError"]

START_S = HANG_S
STOP_S = HANG_S


class PrometheusMissingError(Exception):
    """There is no Prometheus to run; the message says what to install."""


class Prometheus:
    """One server that asks one address every second.

    Args:
        folder: An empty folder.
        target: The address, ``host:port``.
        rules: A file of alert rules.
    """

    def __init__(self, folder: Path, target: str, rules: Path) -> None:
        binary = shutil.which("prometheus")
        if binary is None:
            raise PrometheusMissingError("prometheus is not installed")
        (port,) = free_ports(1)
        self._address = f"http://127.0.0.1:{port}"
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [{"job_name": "penstock", "static_configs": [{"targets": [target]}]}],
        }
        # JSON is YAML, too.
        (folder / "prometheus.yml").write_text(json.dumps(configuration))
        self._told = folder / "server.log"
        with open(self._told, "wb") as log:
            self._process = subprocess.Popen(
                [
                    binary,
                    f"--config.file={folder / 'prometheus.yml'}",
                    f"--storage.tsdb.path={folder / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def ask(self, path: str, **query: str) -> Any:
        """Return the data of an answer of its API, as soon as it answers."""
        address = f"{self._address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        end_s = time.monotonic() + START_S
        while True:
            try:
                with urllib.request.urlopen(address, timeout=START_S) as answer:
                    return json.load(answer)["data"]
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end_s:
                    told = self._told.read_text()[-3000:]
                    raise AssertionError(f"the server does not come up: {told}") from None
                time.sleep(0.05)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(STOP_S)
