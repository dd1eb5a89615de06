"""A real Spark standalone cluster on several hosts of this machine.

Each host is a network namespace with an address of its own on a bridge, a `/dev/shm` of its own,
and, below the one path `data`, a folder of its own. So what lies on one host is not there for the
processes of another, and reaches them over the network only. The driver stays where the test is,
at the bridge's address.

All that is made on the machine has a name with this process's id in it. What a run left that was
killed is removed by the next one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyspark

from penstock.wire.addresses import bare_host
from tests.bounds import HANG_S

START_S = HANG_S
WAIT_S = HANG_S
HOST_VARIABLE = "PENSTOCK_TEST_HOST"
"""Tells a process of a host, in its environment, the host's address."""

_PREFIX = "pstk"
_MASTER_PORT, _WEB_PORT = 7077, 8080
_MASTER = 2
"""The Master is the second address of the network; the hosts follow, the first is the driver."""


def hosts_are_impossible(*, ipv6: bool = False) -> str | None:
    """Return why there can be no hosts on this machine, or none with addresses of IPv6; or None."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no command ip (iproute2)"
    name = f"{_PREFIX}-{os.getpid()}-try"
    tried = _ip("netns", "add", name)
    if tried.returncode == 0:
        tried = _ip(
            "link",
            "add",
            f"{_PREFIX}t{os.getpid()}",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            name,
        )
        if ipv6 and tried.returncode == 0:
            # It may be turned off here, or in new namespaces.
            address = ("addr", "add", "fd50::1/64", "dev")
            tried = _ip(*address, f"{_PREFIX}t{os.getpid()}")
            if tried.returncode == 0:
                tried = _ip("-n", name, *address, "eth0")
        _ip("netns", "del", name)
    return tried.stderr.strip() or "no network namespaces" if tried.returncode else None


class Host:
    """One host of the cluster.

    Attributes:
        address: Its address as Spark writes it, with brackets if it is one of IPv6: that is also
            the name that Spark has for it.
        folder: The name of its folder.
    """

    def __init__(self, number: int, address: str) -> None:
        self.address = address
        self.folder = f"host-{number}"
        self._name = f"{_PREFIX}-{os.getpid()}-{number}"
        # Names of interfaces have 15 characters at most.
        self._link = f"{_PREFIX}{number}-{os.getpid()}"

    def make(self, bridge: str) -> None:
        _must("netns", "add", self._name)
        _must(
            "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", self._name
        )
        _must("link", "set", self._link, "master", bridge, "up")
        for words in (
            ("link", "set", "lo", "up"),
            ("addr", "add", *_with_mask(self.address), "dev", "eth0"),
            ("link", "set", "eth0", "up"),
        ):
            _must("-n", self._name, *words)

    def command(self, script: str) -> list[str]:
        """Return a command that runs its further arguments there, after a shell script."""
        return ["ip", "netns", "exec", self._name, "sh", "-ec", f'{script}\nexec "$@"', "sh"]

    def cut_off(self) -> None:
        """Take its cable out: nothing gets to it or from it, and nobody is told."""
        _must("link", "set", self._link, "down")

    def join(self) -> None:
        """Put the cable in again."""
        _must("link", "set", self._link, "up")

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that have come to it over the network, and those that have left it."""
        counted = Path("/sys/class/net", self._link, "statistics")
        # What the near end of its cable sends, comes to it.
        sent, received = ((counted / f"{way}_bytes").read_text() for way in ("tx", "rx"))
        return int(sent), int(received)

    def processes(self) -> list[int]:
        return [int(pid) for pid in _ip("netns", "pids", self._name).stdout.split()]

    def kill(self) -> None:
        """Kill all its processes, whoever started them."""
        _kill_all(self._name)

    def remove(self) -> None:
        _remove_namespace(self._name)
        _ip("link", "del", self._link)


class HostCluster:
    """A Master and one Worker on each host.

    Args:
        folder: An empty folder for logs and the Workers' files.
        hosts: How many hosts.
        ipv6: Whether they have addresses of IPv6 only, instead of IPv4 only.

    Attributes:
        data: A path at which each host has a folder of its own.
        driver_address: The address of the driver.
        hosts: The hosts with Workers.
        master: Spark's address of the Master.
    """

    def __init__(self, folder: Path, hosts: int, *, ipv6: bool = False) -> None:
        remove_leftovers()
        self._folder = folder
        self._bridge = f"{_PREFIX}br{os.getpid()}"
        pid = os.getpid()
        # Of addresses for private use (RFC 1918, RFC 4193).
        form = f"10.{200 + pid // 250 % 50}.{pid % 250}.{{}}"
        if ipv6:
            form = f"[fd50:{pid >> 16:x}:{pid & 0xFFFF:x}::{{}}]"
        self.driver_address = form.format(1)
        self._master = Host(0, form.format(_MASTER))
        self.hosts = [Host(n, form.format(_MASTER + n)) for n in range(1, hosts + 1)]
        self.data = folder / "data"
        self.data.mkdir()
        self.master = f"spark://{self._master.address}:{_MASTER_PORT}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._worker: list[Any] = []

    def start(self, cores: int, memory: str = "1g", python: str = sys.executable) -> None:
        """Make all of it, and wait until the Workers are registered."""
        _must("link", "add", self._bridge, "type", "bridge")
        _must("addr", "add", *_with_mask(self.driver_address), "dev", self._bridge)
        _must("link", "set", self._bridge, "up")
        for host in (self._master, *self.hosts):
            host.make(self._bridge)
        ports = ["--port", _MASTER_PORT, "--webui-port", _WEB_PORT]
        self._run(self._master, "master.Master", ports, python)
        self._wait(0)
        self._worker = ["--cores", cores, "--memory", memory, "--webui-port", 0, self.master]
        for host in self.hosts:
            self._run(host, "worker.Worker", self._worker, python)
        self._wait(len(self.hosts))

    def start_again(self, host: Host, python: str = sys.executable) -> None:
        """Start the Worker of a host again that was killed, and wait until it is registered."""
        assert not host.processes()
        self._processes = [process for process in self._processes if process.poll() is None]
        self._run(host, "worker.Worker", self._worker, python)
        self._wait(len(self.hosts))

    def host(self, address: str) -> Host:
        """Return the host with this address."""
        return next(host for host in self.hosts if host.address == address)

    def data_of(self, host: Host) -> Path:
        """Return what the host has at `data`."""
        return self._folder / host.folder / "data"

    def state(self) -> dict[str, Any]:
        """Return what the Master knows, as its page for programs has it."""
        page = f"http://{self._master.address}:{_WEB_PORT}/json/"
        with urllib.request.urlopen(page, timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def stop(self) -> None:
        """Kill all processes of the hosts and remove all that was made."""
        for host in (*self.hosts, self._master):
            host.remove()
        for process in self._processes:
            process.wait(WAIT_S)
        _ip("link", "del", self._bridge)

    def _run(self, host: Host, main: str, options: list[Any], python: str) -> None:
        own = self._folder / host.folder
        for name in ("work", "data", "tmp"):
            (own / name).mkdir(parents=True, exist_ok=True)
        home = os.path.dirname(pyspark.__file__)
        spark = [os.path.join(home, "bin", "spark-class"), f"org.apache.spark.deploy.{main}"]
        if main == "worker.Worker":
            spark += ["--work-dir", str(own / "work")]
        command = [
            *host.command(
                "mount -t tmpfs -o size=512m penstock-test /dev/shm\n"
                f"mount --bind '{own}/data' '{self.data}'"
            ),
            *spark,
            *("--host", host.address),
            *map(str, options),
        ]
        environment = {
            **os.environ,
            "SPARK_HOME": home,
            "SPARK_LOCAL_IP": host.address,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": python,
            HOST_VARIABLE: host.address,
        }
        with open(self._folder / f"{main}-{host.folder}.log", "wb") as log:
            self._processes.append(
                subprocess.Popen(
                    command, stdout=log, stderr=log, env=environment, start_new_session=True
                )
            )

    def _wait(self, workers: int) -> None:
        end_s = time.monotonic() + START_S
        pause = threading.Event()
        while True:
            # Before its page for programs it has one for people.
            with contextlib.suppress(OSError, ValueError):
                states = [worker["state"] for worker in self.state()["workers"]]
                if states.count("ALIVE") == workers:
                    return
            if time.monotonic() > end_s or any(p.poll() is not None for p in self._processes):
                told = [log.read_text()[-1500:] for log in self._folder.glob("*.log")]
                raise AssertionError(f"the cluster does not come up: {told}")
            pause.wait(0.1)


def _with_mask(address: str) -> tuple[str, ...]:
    bare = bare_host(address)
    # Nobody else can have it, so it need not be tried for a while whether somebody has.
    return (f"{bare}/64", "nodad") if ":" in bare else (f"{bare}/24",)


def remove_leftovers() -> None:
    """Remove the namespaces and interfaces of runs whose process is gone."""
    for line in _ip("netns", "list").stdout.splitlines():
        name = (line.split() or [""])[0]
        words = name.split("-")
        if words[0] == _PREFIX and len(words) == 3 and not Path("/proc", words[1]).exists():
            _remove_namespace(name)
    for line in _ip("-br", "link", "show", "type", "bridge").stdout.splitlines():
        name = line.split()[0]
        pid = name.removeprefix(f"{_PREFIX}br")
        if pid != name and not Path("/proc", pid).exists():
            _ip("link", "del", name)


def _remove_namespace(name: str) -> None:
    _kill_all(name)
    # Its interfaces, and the other ends of them, go with it.
    _ip("netns", "del", name)


def _kill_all(name: str) -> None:
    """Kill until none is left: a dying process may just have started another."""
    end_s = time.monotonic() + WAIT_S
    while pids := _ip("netns", "pids", name).stdout.split():
        assert time.monotonic() < end_s, f"processes of {name} do not end: {pids}"
        for pid in map(int, pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        threading.Event().wait(0.02)


def _ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["ip", *words], capture_output=True, text=True, timeout=HANG_S, check=False
    )


def _must(*words: str) -> None:
    done = _ip(*words)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
