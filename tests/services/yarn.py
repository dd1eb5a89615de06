"""A real YARN, one ResourceManager and one NodeManager, in a temporary folder on loopback.

Applications keep their files in that folder, not on an HDFS. The NodeManager neither looks at the
disk's free space nor at the memory of its containers: those are the machine's.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pyspark

from tests.bounds import HANG_S
from tests.services.hdfs import LOG4J, write_configuration
from tests.services.jars import jars
from tests.services.ports import free_ports

POM = Path(__file__).with_name("yarn.pom.xml")
START_S = HANG_S
_TRIES = 3
STOP_S = HANG_S

_PACKAGE = "org.apache.hadoop.yarn.server"
_OPENED = ("java.lang", "java.io", "java.util", "java.lang.reflect", "java.net")
"""What its web pages reach into; Java 17 asks to be told."""

_SCHEDULER = {
    "yarn.scheduler.capacity.root.queues": "default",
    "yarn.scheduler.capacity.root.default.capacity": "100",
    "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
}


class Yarn:
    """One YARN.

    Args:
        folder: An empty folder.

    Attributes:
        conf_dir: What ``HADOOP_CONF_DIR`` is to name.
        settings: Spark's settings that keep an application on it small.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.conf_dir = folder / "conf"
        self.conf_dir.mkdir()
        self.settings = {
            "spark.yarn.jars": f"local:{os.path.dirname(pyspark.__file__)}/jars/*",
            "spark.yarn.stagingDir": str(folder / "staging"),
            "spark.yarn.scheduler.heartbeat.interval-ms": "300",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
        }
        self._web = ""
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start both, and wait until containers can be had.

        One that dies of a port that somebody else took meanwhile is started again, with others.
        """
        for _ in range(_TRIES):
            self._configure()
            self._run("resourcemanager.ResourceManager")
            self._run("nodemanager.NodeManager")
            if self._comes_up():
                return
            self._kill()
        told = [log.read_text()[-2000:] for log in self._folder.glob("*.log")]
        raise AssertionError(f"YARN does not come up: {told}")

    def _comes_up(self) -> bool:
        end_s = time.monotonic() + START_S
        while self._active_nodes() != 1:
            dead = any(process.poll() is not None for process in self._processes)
            if dead or time.monotonic() > end_s:
                return False
            time.sleep(0.1)
        return True

    def _configure(self) -> None:
        places = [f"127.0.0.1:{port}" for port in free_ports(8)]
        self._web = places[0]
        manager, node = "yarn.resourcemanager", "yarn.nodemanager"
        settings = {
            f"{manager}.webapp.address": self._web,
            f"{manager}.address": places[1],
            f"{manager}.scheduler.address": places[2],
            f"{manager}.resource-tracker.address": places[3],
            f"{manager}.admin.address": places[4],
            f"{manager}.nodemanagers.heartbeat-interval-ms": "100",
            f"{node}.address": places[5],
            f"{node}.localizer.address": places[6],
            f"{node}.webapp.address": places[7],
            f"{node}.local-dirs": str(self._folder / "local"),
            f"{node}.log-dirs": str(self._folder / "logs"),
            f"{node}.resource.memory-mb": "4096",
            f"{node}.disk-health-checker.enable": "false",
            f"{node}.pmem-check-enabled": "false",
            f"{node}.vmem-check-enabled": "false",
            "yarn.scheduler.minimum-allocation-mb": "128",
        }
        core = {"fs.defaultFS": "file:///", "hadoop.tmp.dir": str(self._folder / "tmp")}
        write_configuration(self.conf_dir / "core-site.xml", core)
        write_configuration(self.conf_dir / "yarn-site.xml", settings)
        write_configuration(self.conf_dir / "capacity-scheduler.xml", _SCHEDULER)
        (self.conf_dir / "log4j.properties").write_text(LOG4J)

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait(STOP_S)
        self._processes.clear()

    def stop(self) -> None:
        """Kill both, and what is left of containers: nobody needs anything of it any more."""
        self._kill()
        for process_folder in Path("/proc").glob("[0-9]*"):
            # It is gone already, or another user's.
            with contextlib.suppress(OSError):
                if (process_folder / "cwd").readlink().is_relative_to(self._folder / "local"):
                    os.kill(int(process_folder.name), signal.SIGKILL)

    def _active_nodes(self) -> int:
        page = f"http://{self._web}/ws/v1/cluster/metrics"
        try:
            with urllib.request.urlopen(page, timeout=5) as answer:
                return int(json.load(answer)["clusterMetrics"]["activeNodes"])
        except (OSError, ValueError):
            return 0  # It does not listen yet.

    def _run(self, main: str) -> None:
        home = os.environ.get("JAVA_HOME")
        java = os.path.join(home, "bin", "java") if home else "java"
        classes = os.pathsep.join([str(self.conf_dir), os.path.join(str(jars(POM)), "*")])
        opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
        small = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        with open(self._folder / f"{main}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [java, *small, *opened, "-cp", classes, f"{_PACKAGE}.{main}"],
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
