"""Many small receivers that share slots: their start, what they cost, and that no record is lost.

``python -m benchmarks.many_receivers --receivers 1000 --slots 8`` starts a program whose receivers
share Spark tasks, on ``local[N]`` or, with ``--executors``, on executors that Spark starts as
processes of this host. Each stores numbered records; batches see to it that every number is there
once, in order. It prints the time until all receivers are registered, and, of the batches after
that, processor time and memory by kind of process, and the writes that were forced to the disk
that has the log, by whomever. ``--cycles`` starts and stops the program as often in one
SparkContext, and prints what was there before the first and is after each. It gives up after
``--bound`` seconds, or on SIGTERM, and removes its processes and folders.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from pyspark import RDD, SparkConf, SparkContext

from benchmarks.idle_receivers import family, used
from benchmarks.machine import describe
from penstock.receiver import Receiver, ReceiverContext
from penstock.streaming import StreamingContext

_BOUND_S = 600.0
_TICK_S = 1.0
"""How often records come, if there are several in that time."""


class Numbers(Receiver):
    """Stores numbers from 0, and writes how many it has stored when it is stopped."""

    def __init__(self, folder: str, per_s: float) -> None:
        super().__init__()
        self.folder = folder
        self.per_s = per_s

    def onStart(self) -> None:
        """Begin."""
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.receive, daemon=True)
        self.thread.start()

    def onStop(self) -> None:
        """End, and tell how many there were."""
        self.stopping.set()
        self.thread.join(30)
        Path(self.folder, str(self.streamId)).write_text(str(self.stored))

    def receive(self) -> None:
        """Store them."""
        self.stored = 0
        many = max(1, round(self.per_s * _TICK_S))
        while not self.stopping.wait(many / self.per_s):
            numbers = range(self.stored, self.stored + many)
            self.store([b"%d %d" % (self.streamId, number) for number in numbers])
            self.stored += many

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "thread": None, "stopping": None}


def numbers(folder: str, per_s: float) -> Any:
    """Return the same as a coroutine, which shares an event loop with the others of its slot."""

    async def store(context: ReceiverContext) -> None:
        stored = 0
        many = max(1, round(per_s * _TICK_S))
        try:
            while True:
                await asyncio.sleep(many / per_s)
                begun = range(stored, stored + many)
                context.store([b"%d %d" % (context.stream_id, number) for number in begun])
                stored += many
        finally:
            Path(folder, str(context.stream_id)).write_text(str(stored))

    return store


def runs(records: Iterable[bytes]) -> Iterator[tuple[int, int, int]]:
    """Yield stream, first number and how many follow it one by one."""
    stream = first = -1
    count = 0
    for record in records:
        found, number = map(int, record.split())
        if (found, number) != (stream, first + count):
            if count:
                yield stream, first, count
            stream, first, count = found, number, 0
        count += 1
    if count:
        yield stream, first, count


class Checked:
    """What the batches had; the numbers of each stream must go on where they were."""

    def __init__(self) -> None:
        self.next: dict[int, int] = defaultdict(int)
        self.seconds: list[float] = []
        self.changed = threading.Condition()

    def batch(self, rdd: RDD[Any]) -> None:
        """Look at a batch."""
        begun_s = time.monotonic()
        found = rdd.collect()
        took_s = time.monotonic() - begun_s
        for stream, first, count in found:
            assert first == self.next[stream], (stream, first, self.next[stream])
            self.next[stream] = first + count
        with self.changed:
            self.seconds.append(took_s)
            self.changed.notify_all()

    def wait(self, batches: int) -> None:
        """Wait for so many more."""
        with self.changed:
            enough = len(self.seconds) + batches
            assert self.changed.wait_for(lambda: len(self.seconds) >= enough, _BOUND_S)


def memory_mib() -> dict[str, float]:
    """Return the proportional set sizes of this run's processes, by kind."""
    found: Counter[str] = Counter()
    for pid, kind in family().items():
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue  # It has just ended.
        pss = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
        found[kind] += int(pss[1]) / 1024 if pss else 0.0
    return found


def syncs(folder: str) -> int:
    """Return how often the disk of a folder was told to flush so far."""
    device = os.stat(folder).st_dev
    path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return int(path.read_text().split()[15])


def things(folder: str, memory_folder: str) -> dict[str, int]:
    """Return what may be left behind."""
    here = Path("/proc/self")
    return {
        "processes": len(family()),
        "descriptors": len(os.listdir(here / "fd")),
        "threads": threading.active_count(),
        "files of the log": sum(len(files) for _, _, files in os.walk(folder)),
        "folders of the log": sum(len(folders) for _, folders, _ in os.walk(folder)),
        "shared memory": len(os.listdir(memory_folder)),
    }


def context(options: argparse.Namespace, folder: str, memory_folder: str) -> SparkContext:
    """Start Spark."""
    master = f"local[{options.slots + 2}]"
    if options.executors:
        cores = -(-options.slots // options.executors) + 1
        master = f"local-cluster[{options.executors},{cores},{options.executor_mib}]"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": os.path.join(folder, "spark"),
        "spark.executor.memory": f"{options.executor_mib}m",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.executorEnv.PYTHONPATH": os.getcwd(),
        "spark.python.daemon.module": "penstock.daemon",
        "spark.streaming.blockInterval": f"{options.block_ms}ms",
        "spark.streaming.receiver.writeAheadLog.enable": str(not options.no_log).lower(),
        "spark.penstock.wal.dir": os.path.join(folder, "log"),
        "spark.penstock.memory.dir": memory_folder,
        "spark.penstock.memory.size": "1m",
        "spark.penstock.block.maxSize": "256k",
        "spark.penstock.receivers.perSlot": str(-(-options.receivers // options.slots)),
    }
    conf = SparkConf().setMaster(master).setAppName("many receivers").setAll(list(settings.items()))
    for given in options.conf:
        conf.set(*given.split("=", 1))
    begun_s = time.monotonic()
    sc = SparkContext(conf=conf)
    sc.setLogLevel("ERROR")
    java: Any = sc._jsc
    # Their processes take the machine's cores for some seconds, whatever runs on them.
    while java.sc().statusStore().executorList(True).size() < options.executors + 1:
        assert time.monotonic() - begun_s < _BOUND_S, "not all executors came up"
        time.sleep(0.1)
    print(f"executors up after {time.monotonic() - begun_s:.1f} s", flush=True)
    return sc


def cycle(options: argparse.Namespace, sc: SparkContext, folder: str) -> dict[str, Any]:
    """Start the program, look at it, and stop it."""
    stored = tempfile.mkdtemp(dir=folder)
    log = Path(folder, "log")
    log.mkdir(exist_ok=True)
    ssc = StreamingContext(sc, options.batch)
    checked = Checked()
    make = numbers if options.coroutines else Numbers
    streams = [ssc.receiverStream(make(stored, options.rate)) for _ in range(options.receivers)]
    ssc.union(*streams).mapPartitions(runs).foreachRDD(checked.batch)
    begun_s = time.monotonic()
    ssc.start()
    started_s = time.monotonic() - begun_s
    while not all(status.state == "running" for status in ssc.receivers()):
        assert time.monotonic() - begun_s < _BOUND_S, "not all receivers were registered"
        time.sleep(0.5)
    figures: dict[str, Any] = {
        "start() returned after s": started_s,
        "registered after s": time.monotonic() - begun_s,
    }
    print(json.dumps(figures), flush=True)
    checked.wait(1)
    if options.batches:
        before = {pid: (kind, used(pid)) for pid, kind in family().items()}
        first, first_syncs, first_s = len(checked.seconds), syncs(folder), time.monotonic()
        checked.wait(options.batches)
        took_s = time.monotonic() - first_s
        cpu: Counter[str] = Counter()
        for pid, (kind, then) in before.items():
            try:
                cpu[kind] += 100 * (used(pid).cpu_s - then.cpu_s) / took_s
            except OSError:
                continue
        memory = memory_mib()
        figures |= {
            "batch's job, median s": median(checked.seconds[first:]),
            "batch's job, longest s": max(checked.seconds[first:]),
            "forced writes a second": (syncs(folder) - first_syncs) / took_s,
            "threads": sum(used(pid).threads for pid in family()),
            "% of a core": {"all": sum(cpu.values()), **cpu},
            "memory, MiB": {"all": sum(memory.values()), **memory},
        }
    begun_s = time.monotonic()
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    figures["stopped after s"] = time.monotonic() - begun_s
    counts = {int(path.name): int(path.read_text()) for path in Path(stored).iterdir()}
    assert len(counts) == options.receivers, f"{len(counts)} receivers told their count"
    missing = {s: n - checked.next[s] for s, n in counts.items() if n != checked.next[s]}
    assert not missing, f"records are missing, by stream: {missing}"
    figures["records, each once and in order"] = sum(counts.values())
    return figures


def main() -> None:
    """Run it and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receivers", type=int, default=1000)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--executors", type=int, default=0, help="0: a local master")
    parser.add_argument("--executor-mib", type=int, default=512)
    parser.add_argument("--rate", type=float, default=10.0, help="records a second of each")
    parser.add_argument("--batch", type=float, default=10.0, help="seconds of a batch")
    parser.add_argument("--block-ms", type=int, default=5000)
    parser.add_argument("--batches", type=int, default=6, help="that are looked at")
    parser.add_argument("--cycles", type=int, default=1)
    parser.add_argument("--bound", type=int, default=1800, help="seconds that it takes at most")
    parser.add_argument("--coroutines", action="store_true", help="in place of threads")
    parser.add_argument("--no-log", action="store_true", help="nothing is forced to the disk")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()

    def give_up(number: int, _: object) -> None:
        raise TimeoutError(f"{signal.Signals(number).name}: given up, {options.bound} s at most")

    signal.signal(signal.SIGALRM, give_up)
    signal.signal(signal.SIGTERM, give_up)
    signal.alarm(options.bound)
    for name, value in describe(tempfile.gettempdir()).items():
        print(f"{name}: {value}")
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory_folder,
    ):
        sc = context(options, folder, memory_folder)
        try:
            print(things(os.path.join(folder, "log"), memory_folder))
            for _ in range(options.cycles):
                found = cycle(options, sc, folder)
                print(json.dumps(found, indent=2), flush=True)
                print(things(os.path.join(folder, "log"), memory_folder), flush=True)
        finally:
            sc.stop()


if __name__ == "__main__":
    main()
