"""64 receivers on 8 small executors, 2,000 blocks in a batch: all of them, exactly, and the cost.

Spark starts the executors as processes of this host (``local-cluster``). Each has a slot for every
receiver of its own and one for tasks. Receivers store numbered records; a batch gives the numbers
of each of its blocks, and every number must be there once, in order.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

from pyspark import SparkConf, SparkContext

from benchmarks.child import MARK, marked_processes
from benchmarks.programs._program import LEVEL, tell
from penstock.receiver import Receiver
from penstock.streaming import StreamingContext, StreamingListener

RECEIVERS = 64
EXECUTORS = 8
SLOTS = RECEIVERS // EXECUTORS + 1
EXECUTOR_MIB = 512
"""Spark takes no less than 450."""
BATCH_S = 20
BLOCK_MS = 640
BLOCKS = RECEIVERS * BATCH_S * 1000 // BLOCK_MS
RECORDS_PER_S = 100
WARM_UP = 2
MEASURED = 4
WAIT_S = 600.0
_TICK_S = 0.1
_KINDS = (
    ("driver", "SparkSubmit"),
    ("executors", "CoarseGrainedExecutorBackend"),
    ("block servers", "penstock.blockstore.server.block_server"),
    ("receivers and tasks", "pyspark.daemon"),
    ("driver", "benchmarks.programs.many"),
)


class Numbers(Receiver):
    """Stores numbers from 0, and writes how many it has stored when it is stopped."""

    def __init__(self, folder):
        super().__init__(LEVEL)
        self.folder = folder

    def onStart(self):
        self.thread = threading.Thread(target=self.receive, daemon=True)
        self.thread.start()

    def onStop(self):
        self.thread.join(30)
        Path(self.folder, str(self.streamId)).write_text(str(self.stored))

    def receive(self):
        self.stored = 0
        begun_s = time.monotonic()
        while not self.isStopped():
            due = int((time.monotonic() - begun_s) * RECORDS_PER_S)
            while self.stored < due and not self.isStopped():
                self.store(b"%d %d" % (self.streamId, self.stored))
                self.stored += 1
            time.sleep(_TICK_S)

    def __getstate__(self):
        return {**super().__getstate__(), "thread": None}


def numbers_of_block(records):
    """Yield the stream, the first number and how many follow it one by one."""
    stream = first = None
    count = 0
    for record in records:
        found, number = map(int, record.split())
        if stream is None:
            stream, first = found, number
        if (found, number) != (stream, first + count):
            raise AssertionError(f"{found} {number} where {stream} {first + count} should be")
        count += 1
    if count:
        yield stream, first, count


class Checked:
    """What the batches had; the numbers of each stream must go on where they were."""

    def __init__(self):
        self.next = defaultdict(int)
        self.blocks = []
        self.streams = []
        self.seconds = []
        self.changed = threading.Condition()

    def batch(self, rdd):
        begun_s = time.monotonic()
        found = rdd.collect()
        taken_s = time.monotonic() - begun_s
        for stream, first, count in found:
            assert first == self.next[stream], (stream, first, self.next[stream])
            self.next[stream] = first + count
        with self.changed:
            self.blocks.append(len(found))
            self.streams.append(len({stream for stream, _, _ in found}))
            self.seconds.append(taken_s)
            self.changed.notify_all()
        tell({"progress": f"{len(found)} blocks in {taken_s:.1f} s"})


class Started(StreamingListener):
    def __init__(self):
        self.streams = set()
        self.all = threading.Event()

    def onReceiverStarted(self, receiverStarted):
        self.streams.add(receiverStarted.receiverInfo().streamId())
        if len(self.streams) == RECEIVERS:
            self.all.set()


def context(folder, memory_folder):
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": os.path.join(folder, "spark"),
        "spark.executor.memory": f"{EXECUTOR_MIB}m",
        "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
        "spark.streaming.blockInterval": f"{BLOCK_MS}ms",
        "spark.streaming.receiver.writeAheadLog.enable": "true",
        "spark.penstock.wal.dir": os.path.join(folder, "log"),
        "spark.penstock.memory.dir": memory_folder,
        "spark.penstock.memory.size": "8m",
        "spark.penstock.block.maxSize": "1m",
    }
    master = f"local-cluster[{EXECUTORS},{SLOTS},{EXECUTOR_MIB}]"
    conf = SparkConf().setMaster(master).setAppName("penstock-many").setAll(list(settings.items()))
    return SparkContext(conf=conf)


def memory_mib():
    """Return the proportional set sizes of this run's processes, by kind."""
    found = Counter()
    for pid in marked_processes(os.environ[MARK]):
        try:
            command = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue  # It has just ended.
        kind = next((kind for kind, mark in _KINDS if mark in command), "others")
        pss = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
        found[kind] += int(pss[1]) / 1024 if pss else 0.0
    return found


def main():
    given = json.loads(sys.argv[1])
    stored = os.path.join(given["folder"], "stored")
    os.makedirs(stored)
    sc = context(given["folder"], given["memory_folder"])
    ssc = StreamingContext(sc, BATCH_S)
    started = Started()
    ssc.addStreamingListener(started)
    checked = Checked()
    streams = [
        ssc.receiverStream(Numbers(stored)).mapPartitions(numbers_of_block)
        for _ in range(RECEIVERS)
    ]
    # What is done with each stream before the union is done by the tasks that read the blocks.
    ssc.union(*streams).foreachRDD(checked.batch)
    begun_s = time.monotonic()
    ssc.start()
    assert started.all.wait(WAIT_S), f"only {len(started.streams)} receivers registered"
    registered_s = time.monotonic() - begun_s
    tell({"progress": f"{RECEIVERS} receivers registered after {registered_s:.0f} s"})
    with checked.changed:
        skipped = len(checked.blocks) + WARM_UP
        enough = skipped + MEASURED
        ran = checked.changed.wait_for(lambda: len(checked.blocks) >= enough, WAIT_S)
        assert ran, f"{len(checked.blocks)} batches"
    memory = memory_mib()
    measured = slice(skipped, enough)
    blocks, seconds = checked.blocks[measured], checked.seconds[measured]
    assert min(checked.streams[measured]) == RECEIVERS, checked.streams
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    counts = {int(path.name): int(path.read_text()) for path in Path(stored).iterdir()}
    assert len(counts) == RECEIVERS, sorted(counts)
    assert counts == dict(checked.next), "not every record was in a batch"
    sc.stop()
    figures = {
        "blocks_per_batch": median(blocks),
        "batch_s": median(seconds),
        "ms_per_block": median(seconds) / median(blocks) * 1000,
        "registered_s": registered_s,
        "memory_mib": sum(memory.values()),
    }
    notes = {
        "blocks in a batch": f"{min(blocks):,} to {max(blocks):,}, of all {RECEIVERS} receivers",
        "records, each once and in order": f"{sum(counts.values()):,}",
        "a batch's job, s": f"{min(seconds):.1f} to {max(seconds):.1f}",
        **{f"memory of {kind}, MiB": mib for kind, mib in sorted(memory.items())},
    }
    tell({"figures": figures, "notes": notes})


if __name__ == "__main__":
    main()
