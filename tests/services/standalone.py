"""A real Spark standalone cluster on loopback: a Master and Workers, as processes of this host."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyspark

from tests.bounds import HANG_S
from tests.services.ports import free_ports

START_S = HANG_S
STOP_S = HANG_S
_PACKAGE = "org.apache.spark.deploy"


class StandaloneCluster:
    """One Master; Workers are added.

    Args:
        folder: An empty folder for logs and the Workers' files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._port, self._web_port = free_ports(2)
        self.address = f"spark://127.0.0.1:{self._port}"

    def start(self, workers: int, cores: int, memory: str = "1g") -> None:
        """Start the Master and Workers, and wait until they are registered."""
        self._run("master.Master", "--port", self._port, "--webui-port", self._web_port)
        self._wait(lambda: True)
        for number in range(workers):
            folder = self._folder / f"worker-{number}"
            options = ["--webui-port", 0, "--cores", cores, "--memory", memory]
            self._run("worker.Worker", *options, "--work-dir", folder, self.address)
        self._wait(lambda: len(self.state()["workers"]) == workers)

    def state(self) -> dict[str, Any]:
        """Return what the Master knows, as its page for programs has it."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._web_port}/json/", timeout=5) as page:
            found: dict[str, Any] = json.load(page)
        return found

    def stop(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(STOP_S)

    def _run(self, main: str, *arguments: object) -> None:
        home = os.path.dirname(pyspark.__file__)
        command = [os.path.join(home, "bin", "spark-class"), f"{_PACKAGE}.{main}"]
        command += ["--host", "127.0.0.1", *map(str, arguments)]
        environment = {
            **os.environ,
            "SPARK_HOME": home,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
        }
        with open(self._folder / f"{main}-{len(self._processes)}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command, stdout=log, stderr=log, env=environment, start_new_session=True
                )
            )

    def _wait(self, condition: Any) -> None:
        end_s = time.monotonic() + START_S
        while True:
            try:
                self.state()
                if condition():
                    return
            except (OSError, ValueError):
                pass  # It does not listen yet, or has only its page for people yet.
            if time.monotonic() > end_s or any(p.poll() is not None for p in self._processes):
                told = [log.read_text()[-1500:] for log in self._folder.glob("*.log")]
                raise AssertionError(f"the cluster does not come up: {told}")
            time.sleep(0.1)
