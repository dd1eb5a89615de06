"""How long no records flow after the SIGKILL of a receiver's executor: beside the peer.

A real Spark standalone cluster of two Workers on this machine. A server pushes numbered lines to
whoever connects, each with the number of its connection. The executor whose process has the
connection is killed while the other one is up; what counts is the time until a batch is complete
that has a line of the next connection.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

from benchmarks.child import Child
from benchmarks.programs._program import ProgramOptions, tell
from tests.services.standalone import StandaloneCluster

KILLS = 5
ROUNDS = 2
WORKERS = 2
SIDES = ("pyspark", "penstock")
BOUND_S = 120.0
BATCH_S = 0.5
PER_TICK, TICK_S = 10, 0.01
EXECUTOR = b"CoarseGrainedExecutorBackend"


class Source:
    """Pushes lines to one connection at a time."""

    def __init__(self):
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.connections = 0
        self.connected_s = 0.0
        self.client_port = 0
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            connection, (_, port) = self._server.accept()
            self.client_port, self.connected_s = port, time.monotonic()
            self.connections += 1
            lines = b"".join(b"%06d line\n" % self.connections for _ in range(PER_TICK))
            with connection, contextlib.suppress(OSError):
                while True:
                    connection.sendall(lines)
                    time.sleep(TICK_S)


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def executor_at(port):
    """Return the process id of the executor that has the local port, or whose child has it."""
    wanted = f":{port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    rows += [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    links = {f"socket:[{row[9]}]" for row in rows if row[1].endswith(wanted)}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            found = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir()}
            if not found & links:
                continue
            while pid != 1:
                if EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
                pid = parent_of(pid)
    raise AssertionError(f"nobody has the port {port}")


class Run:
    """One side's program, whose executors are killed."""

    def __init__(self, side, cluster, folder, memory_folder):
        self._side = side
        self._source = Source()
        self._last = 0
        self._executors = 0
        self._began_s = 0.0
        self._started = False
        settings = {
            "spark.master": cluster.address,
            "spark.driver.memory": "1g",
            "spark.executor.memory": "1g",
            "spark.penstock.memory.dir": memory_folder,
            "spark.penstock.memory.size": "256m",
            "spark.python.daemon.module": "penstock.daemon",
        }
        options = ProgramOptions(
            side,
            tempfile.mkdtemp(dir=folder),
            port=self._source.port,
            batch_s=BATCH_S,
            settings=tuple(settings.items()),
        )
        module = "benchmarks.programs.last_line"
        self._child = Child(module, options.as_dict(), self._hear, {"TMPDIR": folder})

    def _hear(self, message):
        self._executors = message.get("executors", self._executors)
        if message.get("last", 0) > self._last:
            self._last, self._began_s = message["last"], message["ended"]

    def pauses(self):
        """Yield for each kill the seconds until a connection and until a complete batch."""
        self._child.wait("first records", lambda: self._last == 1, BOUND_S)
        for number in range(KILLS):
            # The Worker starts another one, where the receiver can go at the next kill.
            time.sleep(8)
            self._child.wait("two executors", lambda: self._executors == WORKERS, BOUND_S)
            executor = executor_at(self._source.client_port)
            killed_s = time.monotonic()
            os.kill(executor, signal.SIGKILL)
            self._child.wait(
                "records after a kill", lambda wanted=number + 2: self._last >= wanted, BOUND_S
            )
            pause = self._source.connected_s - killed_s, self._began_s - killed_s
            text = f"{self._side}: connected after {pause[0]:.2f} s, a batch after {pause[1]:.2f} s"
            tell({"progress": text})
            yield pause

    def end(self):
        self._child.end()


def main():
    given = json.loads(sys.argv[1])
    folder = tempfile.mkdtemp(prefix="killed-executor-", dir=given["folder"])
    pauses = {side: [] for side in SIDES}
    for number in range(ROUNDS):
        for side in SIDES if number % 2 else reversed(SIDES):
            cluster_folder = Path(tempfile.mkdtemp(dir=folder))
            cluster = StandaloneCluster(cluster_folder)
            run = None
            try:
                cluster.start(workers=WORKERS, cores=2)
                run = Run(side, cluster, folder, given["memory_folder"])
                pauses[side].extend(run.pauses())
            finally:
                if run is not None:
                    run.end()
                cluster.stop()
    connected = {side: median(each[0] for each in found) for side, found in pauses.items()}
    processed = {side: median(each[1] for each in found) for side, found in pauses.items()}
    figures = {
        "pause_s": processed["penstock"],
        "peer_pause_s": processed["pyspark"],
        "of_peer": processed["penstock"] / processed["pyspark"],
        "connected_s": connected["penstock"],
        "peer_connected_s": connected["pyspark"],
    }
    notes = {side: [round(each[1], 2) for each in found] for side, found in pauses.items()}
    tell({"figures": figures, "notes": notes})


if __name__ == "__main__":
    main()
