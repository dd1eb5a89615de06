"""What receivers cost that receive nothing.

``python -m benchmarks.idle_receivers`` starts a program on ``local[2]`` whose receivers share a
slot, and takes the processor time of its processes for some seconds, all of them and by what they
are: the share of one core, how often their threads are woken, and the memory that each has for
itself (of a receiver alone: ``--receivers 1``). With ``--functions`` each stream
goes to a continuous function of its own, and no batch is made; each needs a task.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pyspark import SparkConf, SparkContext

from benchmarks.machine import describe
from penstock.receiver import Receiver
from penstock.streaming import FileSink, StreamingContext

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Idle(Receiver):
    """Receives nothing."""

    def onStart(self) -> None:
        """Begin nothing."""

    def onStop(self) -> None:
        """End nothing."""


@dataclass
class Used:
    """What a process has used so far."""

    cpu_s: float
    wakes: int
    threads: int
    own_mib: float


def used(pid: int) -> Used:
    """Return what a process has used, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    wakes = threads = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            status = (task / "status").read_text()
        except OSError:
            continue  # It has just ended.
        wakes += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
        threads += 1
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    own_kib = sum(map(int, re.findall(r"^Private_\w+: +(\d+) kB", rollup, re.MULTILINE)))
    cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return Used(cpu_s, wakes, threads, own_kib / 1024)


def family() -> dict[int, str]:
    """Return this process and all below it, and what each is."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            parents[int(entry.name)] = int(text.rpartition(")")[2].split()[1])
            names[int(entry.name)] = " ".join(words)
    found = {os.getpid(): "driver"}
    grown = True
    while grown:
        new = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        for pid in new:
            parent = found[parents[pid]]
            name = names[pid]
            if "java" in name.partition(" ")[0]:
                found[pid] = "executors" if "CoarseGrainedExecutorBackend" in name else "JVM"
            elif "penstock.blockstore.server.block_server" in name:
                found[pid] = "block servers"
            elif parent == "worker":
                found[pid] = "receivers"
            elif parent == "PySpark's daemon":
                found[pid] = "worker"
            elif "pyspark.daemon" in name or "penstock.daemon" in name:
                found[pid] = "PySpark's daemon"
            else:
                found[pid] = "others"
        grown = bool(new)
    return found


def main() -> None:
    """Run it and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receivers", type=int, default=20)
    parser.add_argument("--functions", action="store_true", help="have a function on each")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--batch", type=float, default=10.0, help="seconds of a batch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run(options, folder)


def run(options: argparse.Namespace, folder: str) -> None:
    """Run it, with what it writes in a folder."""
    cores = 2 + (options.receivers if options.functions else 0)
    conf = SparkConf().setMaster(f"local[{cores}]").setAppName("idle receivers")
    conf.set("spark.ui.showConsoleProgress", "false").set("spark.ui.enabled", "false")
    conf.set("spark.penstock.receivers.perSlot", str(options.receivers))
    sc = SparkContext(conf=conf)
    sc.setLogLevel("ERROR")
    ssc = StreamingContext(sc, options.batch)
    streams = [ssc.receiverStream(Idle()) for _ in range(options.receivers)]
    if options.functions:
        for number, stream in enumerate(streams):
            stream.continuous(lambda batch: batch, sink=FileSink(f"{folder}/{number}"))
    else:
        ssc.union(*streams).foreachRDD(lambda rdd: rdd.count())
    ssc.start()
    try:
        while not all(status.state == "running" for status in ssc.receivers()):
            ssc.awaitTerminationOrTimeout(0.5)
        ssc.awaitTerminationOrTimeout(2 * options.batch)
        before = {pid: (name, used(pid)) for pid, name in family().items()}
        begin_s = time.perf_counter()
        ssc.awaitTerminationOrTimeout(options.seconds)
        took_s = time.perf_counter() - begin_s
        shares: dict[str, list[float]] = {}
        for pid, (name, first) in before.items():
            try:
                now = used(pid)
            except OSError:
                continue
            sums = shares.setdefault(name, [0.0, 0.0, 0.0, 0.0])
            sums[0] += 100 * (now.cpu_s - first.cpu_s) / took_s
            sums[1] += (now.wakes - first.wakes) / took_s
            sums[2] += now.threads
            sums[3] += now.own_mib
    finally:
        ssc.stop(stopSparkContext=True)
    for name, value in describe(tempfile.gettempdir()).items():
        print(f"{name}: {value}")
    functions = ", each with a continuous function" if options.functions else ""
    print(f"{options.receivers} idle receivers in one slot{functions}, {took_s:.0f} s, no records")
    print(f"{'':20}{'% of a core':>12}{'wakes/s':>10}{'threads':>10}{'MiB':>10}")
    for name, (cpu, wakes, threads, own_mib) in shares.items():
        print(f"{name:20}{cpu:12.2f}{wakes:10.1f}{threads:10.0f}{own_mib:10.1f}")


if __name__ == "__main__":
    main()
