"""A real HDFS, NameNodes and DataNodes, in a temporary folder on free ports of loopback.

Its addresses stay the same when a node is started again. The settings make death noticed within
seconds instead of minutes; nothing else differs from a cluster's.

With two NameNodes it is highly available: they share their edits in a folder, the standby becomes
the active one by an administrator's command (`Hdfs.fail_over`), and addresses name the service.
Who uses those needs `Hdfs.conf_dir` as its ``HADOOP_CONF_DIR``.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hdfs_native import Client, WriteOptions

from tests.bounds import HANG_S
from tests.services.jars import jars
from tests.services.ports import free_ports
from tests.services.process import paused

POM = Path(__file__).with_name("hdfs.pom.xml")
START_S = HANG_S
STOP_S = HANG_S

_NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
_HA_ADMIN = "org.apache.hadoop.hdfs.tools.DFSHAAdmin"
_FAILOVER = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"

_COMMON = {
    # Who starts it may do everything all the same.
    "dfs.permissions.enabled": "true",
    "dfs.namenode.fs-limits.min-block-size": "4096",
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.redundancy.interval.seconds": "1s",
    "dfs.heartbeat.interval": "1s",
    "dfs.namenode.heartbeat.recheck-interval": "1000",
    "dfs.namenode.stale.datanode.interval": "3000",
    "dfs.namenode.avoid.write.stale.datanode": "true",
    "dfs.namenode.handler.count": "4",
    "dfs.datanode.handler.count": "4",
    "dfs.datanode.du.reserved": "0",
    "dfs.blockreport.initialDelay": "0",
    "dfs.blockreport.intervalMsec": "3000",
    "ipc.client.connect.max.retries": "1",
    "ipc.server.listen.queue.size": "128",
    "dfs.ha.tail-edits.period": "1s",
    "dfs.ha.standby.checkpoints": "false",
}
_IMPATIENT = {
    "dfs.client.failover.max.attempts": "1",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "100",
}
LOG4J = """\
log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{1}: %m%n
"""
# The jars hold no web pages, and a NameNode does not start without these folders.
_WEB_APPS = ("hdfs", "datanode", "secondary", "static")


class _Node:
    """One process of the service, killed and started again by tests."""

    def __init__(
        self, folder: Path, main: str, settings: dict[str, str], options: Sequence[str] = ()
    ) -> None:
        self._main = main
        self._options = options
        self._conf = folder / "conf"
        self._log = folder / "log.txt"
        self._conf.mkdir(parents=True)
        for name in _WEB_APPS:
            (self._conf / "webapps" / name / "WEB-INF").mkdir(parents=True)
            (self._conf / "webapps" / name / "WEB-INF" / "web.xml").write_text("<web-app/>")
        (self._conf / "log4j.properties").write_text(LOG4J)
        write_configuration(self._conf / "core-site.xml", settings)
        write_configuration(self._conf / "hdfs-site.xml", settings)
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, *arguments: str) -> None:
        with open(self._log, "ab") as log:
            subprocess.run(
                self._java(*arguments), check=True, timeout=START_S, stdout=log, stderr=log
            )

    def start(self) -> None:
        assert self._process is None
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                self._java(), stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(STOP_S)
        self._process = None

    def paused(self) -> AbstractContextManager[None]:
        """Stop it with SIGSTOP until the end."""
        assert self._process is not None
        return paused(self._process)

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def told(self) -> str:
        return self._log.read_text()[-3000:]

    def _java(self, *arguments: str) -> list[str]:
        return java(self._conf, self._main, *arguments, options=self._options)


def java(conf: Path, main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
    """Return the command that runs a class of Hadoop's jars with a configuration folder."""
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else "java"
    classes = os.pathsep.join([str(conf), os.path.join(str(jars(POM)), "*")])
    small = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [program, *small, *options, "-cp", classes, main, *arguments]


def _service(rpcs: Sequence[str], webs: Sequence[str]) -> dict[str, str]:
    """Return the settings that say where the NameNodes are."""
    rpc, web = "dfs.namenode.rpc-address", "dfs.namenode.http-address"
    if len(rpcs) == 1:
        return {"fs.defaultFS": f"hdfs://{rpcs[0]}", rpc: rpcs[0], web: webs[0]}
    # A process keeps a client for each address, so no two of these may have the same.
    name = f"service-{uuid.uuid4().hex[:8]}"
    ids = [f"nn{number}" for number in range(len(rpcs))]
    return {
        "fs.defaultFS": f"hdfs://{name}",
        "dfs.nameservices": name,
        f"dfs.ha.namenodes.{name}": ",".join(ids),
        f"dfs.client.failover.proxy.provider.{name}": _FAILOVER,
        "dfs.ha.fencing.methods": "shell(true)",
        **{f"{rpc}.{name}.{each}": address for each, address in zip(ids, rpcs, strict=True)},
        **{f"{web}.{name}.{each}": address for each, address in zip(ids, webs, strict=True)},
    }


class Hdfs:
    """One HDFS.

    Args:
        folder: An empty folder for its configuration and its data.
        data_nodes: How many DataNodes.
        replication: Copies of each block that a client asks for by default.
        name_nodes: How many NameNodes; of two, one is the standby of the other.
        settings: More settings of its nodes and its clients.
        options: Options of the nodes' Java.
        block_size: Bytes of a block; small ones make tests meet the ends of blocks.
        host: The address of this machine that its nodes have.

    Attributes:
        address: ``hdfs://host:port``, or the name of the service when there are two NameNodes.
        conf_dir: The configuration folder of its clients.
        data_nodes: The numbers of its DataNodes.
    """

    def __init__(
        self,
        folder: Path,
        data_nodes: int = 1,
        replication: int = 1,
        name_nodes: int = 1,
        settings: Mapping[str, str] = MappingProxyType({}),
        options: Sequence[str] = (),
        block_size: int = 1 << 20,
        host: str = "127.0.0.1",
    ) -> None:
        ports = iter(free_ports(2 * name_nodes + 3 * data_nodes))
        rpcs = [f"{host}:{next(ports)}" for _ in range(name_nodes)]
        self._name_webs = [f"{host}:{next(ports)}" for _ in range(name_nodes)]
        service = _service(rpcs, self._name_webs)
        self.address = service["fs.defaultFS"]
        files = {"dfs.replication": str(replication), "dfs.blocksize": str(block_size)}
        client = {**service, **files, **settings}
        common = {**_COMMON, "hadoop.tmp.dir": str(folder / "tmp"), **client}
        if name_nodes > 1:
            common["dfs.namenode.shared.edits.dir"] = f"file://{folder}/edits"
        self._name_nodes = [
            _Node(
                folder / f"name-node-{number}",
                _NAME_NODE,
                {
                    **common,
                    "dfs.namenode.name.dir": str(folder / f"names-{number}"),
                    **({"dfs.ha.namenode.id": f"nn{number}"} if name_nodes > 1 else {}),
                },
                options,
            )
            for number in range(name_nodes)
        ]
        self._active = 0
        self._data_webs: list[str] = []
        self._data_nodes: list[_Node] = []
        self.data_nodes = range(data_nodes)
        for number in range(data_nodes):
            data, ipc, web = (f"{host}:{next(ports)}" for _ in range(3))
            self._data_webs.append(web)
            self._data_nodes.append(
                _Node(
                    folder / f"data-node-{number}",
                    _DATA_NODE,
                    {
                        **common,
                        "dfs.datanode.data.dir": str(folder / f"data-{number}"),
                        "dfs.datanode.address": data,
                        "dfs.datanode.ipc.address": ipc,
                        "dfs.datanode.http.address": web,
                    },
                    options,
                )
            )
        self.conf_dir = folder / "client"
        self.conf_dir.mkdir()
        write_configuration(self.conf_dir / "core-site.xml", client)
        write_configuration(self.conf_dir / "hdfs-site.xml", client)
        self._name_nodes[0].run("-format", "-nonInteractive")
        for number in range(1, name_nodes):
            # What `-bootstrapStandby` does, without a NameNode that runs.
            shutil.copytree(folder / "names-0", folder / f"names-{number}")

    @property
    def _nodes(self) -> list[_Node]:
        return [*self._name_nodes, *self._data_nodes]

    def start(self) -> None:
        """Start all nodes and wait until files can be written."""
        for node in self._nodes:
            node.start()
        if len(self._name_nodes) > 1:
            self._activate(0)
        self.wait_until_writable()

    def stop(self) -> None:
        """Kill what runs: the data is not needed any more."""
        for node in self._nodes:
            if node.is_running:
                node.kill()

    def mend(self) -> None:
        """Start again what was killed, and wait until files can be written."""
        dead = [node for node in self._nodes if not node.is_running]
        for node in dead:
            node.start()
        if self._name_nodes[self._active] in dead and len(self._name_nodes) > 1:
            self._activate(self._active)
        if dead:
            self.wait_until_writable()

    def kill_name_node(self) -> None:
        """Kill the active NameNode with SIGKILL."""
        self._name_nodes[self._active].kill()

    def start_name_node(self) -> None:
        """Start the NameNode again that was killed; returns at once."""
        self._name_nodes[self._active].start()

    def fail_over(self) -> None:
        """Kill the active of two NameNodes with SIGKILL and make the standby the active one."""
        self.kill_name_node()
        self.activate_standby()

    @contextmanager
    def paused_name_node(self) -> Iterator[None]:
        """Stop the active NameNode with SIGSTOP until the end."""
        with self._name_nodes[self._active].paused():
            yield

    @contextmanager
    def hung_name_node(self) -> Iterator[None]:
        """Stop the active of two NameNodes with SIGSTOP; at the end it is dead (see `mend`).

        It must not go on: it would still take itself for the active one.
        """
        hung = self._name_nodes[self._active]
        with hung.paused():
            try:
                yield
            finally:
                hung.kill()

    def activate_standby(self) -> None:
        """Make the standby of two NameNodes the active one, whatever the other one does."""
        self._activate(1 - self._active)

    def _activate(self, number: int) -> None:
        """Make a NameNode that may still be starting the active one."""
        end = time.monotonic() + START_S
        while _is_silent(self._name_webs[number]):
            assert self._name_nodes[number].is_running, self._name_nodes[number].told()
            assert time.monotonic() < end, self._name_nodes[number].told()
            time.sleep(0.1)
        # Forced: the other one is dead, and cannot say that it is not active.
        self._administer(_HA_ADMIN, "-transitionToActive", "--forceactive", f"nn{number}")
        self._active = number

    def kill_data_node(self, number: int) -> None:
        """Kill a DataNode with SIGKILL."""
        self._data_nodes[number].kill()

    @contextmanager
    def paused_data_node(self, number: int) -> Iterator[None]:
        """Stop a DataNode with SIGSTOP until the end."""
        with self._data_nodes[number].paused():
            yield

    def start_data_node(self, number: int) -> None:
        """Start a DataNode again; returns at once."""
        self._data_nodes[number].start()

    # -- what tests do with it -------------------------------------------------------------------

    def client(self, config: dict[str, str] | None = None) -> Client:
        """Return a client of it that has nothing of the environment's configuration."""
        return Client(
            self.address, config={**_IMPATIENT, **(config or {})}, config_dir=str(self.conf_dir)
        )

    def new_folder(self) -> str:
        """Return the address of a folder that is not there yet, of a name of its own."""
        return f"{self.address}/{uuid.uuid4().hex[:8]}"

    def write(
        self, address: str, data: bytes, at_s: float | None = None, *, overwrite: bool = False
    ) -> None:
        """Write a whole file: under a hidden name, then renamed.

        Args:
            address: Its address; missing folders are made.
            data: What it holds.
            at_s: When it was modified; None for now.
            overwrite: There may be one of that name.
        """
        path = self.path(address)
        folder, _, name = path.rpartition("/")
        client = self.client()
        client.mkdirs(folder, create_parent=True)
        with client.create(f"{folder}/.{name}") as file:
            file.write(data)
        if at_s is not None:
            client.set_times(f"{folder}/.{name}", round(at_s * 1000), round(at_s * 1000))
        client.rename(f"{folder}/.{name}", path, overwrite)

    def path(self, address: str) -> str:
        """Return the path in an address of this HDFS."""
        assert address.startswith(self.address)
        return address.removeprefix(self.address)

    def set_space_quota(self, path: str, size: int) -> None:
        """Bound the bytes below a folder; -1 for no bound."""
        # The client cannot; the administrator's command can.
        command = "-clrSpaceQuota" if size < 0 else "-setSpaceQuota"
        values = [] if size < 0 else [str(size)]
        self._administer(_ADMIN, command, *values, path)

    def set_safe_mode(self, on: bool) -> None:
        """Let the NameNode refuse changes, or take them again."""
        self._administer(_ADMIN, "-safemode", "enter" if on else "leave")

    def _administer(self, main: str, *arguments: str) -> None:
        command = java(self.conf_dir, main, *arguments)
        told = subprocess.run(command, timeout=START_S, capture_output=True, text=True)
        assert told.returncode == 0, f"{main} {arguments}: {told.stdout} {told.stderr}"

    def wait_until_writable(self) -> None:
        """Wait until all nodes that run are known and a file can be written."""
        nodes = self._nodes
        end = time.monotonic() + START_S
        while True:
            try:
                self._check_data_nodes()
                client = self.client()
                probe = f"/.probe-{uuid.uuid4().hex}"
                with client.create(probe, WriteOptions(replication=len(self._data_nodes))) as file:
                    file.write(b"probe")
                client.delete(probe)
                return
            except Exception as error:
                dead = [node for node in nodes if not node.is_running]
                if time.monotonic() > end or self._name_nodes[self._active] in dead:
                    told = "\n".join(node.told() for node in nodes)
                    raise AssertionError(f"HDFS does not come up: {told}") from error
                time.sleep(0.1)

    def _check_data_nodes(self) -> None:
        """Raise unless all DataNodes are with the NameNode; a file on another takes long."""
        facts = _bean(self._name_webs[self._active], "NameNode,name=FSNamesystem")
        if facts["NumLiveDataNodes"] < len(self._data_webs) or facts["StaleDataNodes"]:
            raise LookupError("the NameNode does not hear of all DataNodes")
        # It may not have noticed yet that one was killed.
        for web in self._data_webs:
            actors = json.loads(_bean(web, "DataNode,name=DataNodeInfo")["BPServiceActorInfo"])
            if {actor["ActorState"] for actor in actors} != {"RUNNING"}:
                raise LookupError(f"the DataNode at {web} is not registered")


def _is_silent(web: str) -> bool:
    try:
        return "State" not in _bean(web, "NameNode,name=NameNodeStatus")
    except (OSError, LookupError):
        return True


def _bean(web: str, name: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://{web}/jmx?qry=Hadoop:service={name}", timeout=5) as answer:
        found: dict[str, Any] = json.load(answer)["beans"][0]
    return found


def write_configuration(path: Path, settings: dict[str, str]) -> None:
    """Write a configuration file of Hadoop."""
    lines = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>\n"
        for name, value in settings.items()
    )
    path.write_text(f'<?xml version="1.0"?>\n<configuration>\n{lines}</configuration>\n')
