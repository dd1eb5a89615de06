"""Lines from a socket, counted, with the log on HDFS: beside the peer, on the same cluster.

A real HDFS of two DataNodes that keep two copies, and a real Spark standalone cluster of two
Workers, all on this machine. Both sides have their checkpoints, and so the peer its log, on HDFS.
The lines are words that differ in frequency as in natural text: how well they are compressed is
part of the figure. The other codecs, and none, are shown beside it.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.feeder import FeederOptions
from benchmarks.programs._program import ProgramOptions, tell
from benchmarks.streaming_run import StreamingRun, Window, run_streaming
from tests.services.hdfs import Hdfs
from tests.services.standalone import StandaloneCluster

ROUNDS = 3
SIDES = ("pyspark", "penstock")
CODEC = "spark.penstock.wal.compression.codec"
OTHER_CODECS = ("lz4", "none")
WINDOW = Window()
WORKERS, CORES = 2, 2
BLOCK_SIZE = 128 << 20
"""Hadoop's default, which the peer's client takes in any case."""


def run(side, hdfs, cluster, folder, **more):
    address = hdfs.new_folder()
    settings = {
        "spark.master": cluster.address,
        "spark.driver.memory": "1g",
        "spark.executor.memory": "2g",
        "spark.penstock.wal.dir": address + "/log",
        **more,
    }
    options = ProgramOptions(
        side, "", "count", settings=tuple(settings.items()), checkpoint=address + "/checkpoint"
    )
    feeder = FeederOptions(content="words")
    streaming = StreamingRun("benchmarks.programs.count", options, feeder)
    found = run_streaming(streaming, WINDOW, folder, lambda text: tell({"progress": text}))
    return found["records_per_s"]


def main():
    folder = tempfile.mkdtemp(prefix="hdfs-log-", dir=json.loads(sys.argv[1])["folder"])
    cluster_folder, hdfs_folder = Path(folder, "cluster"), Path(folder, "hdfs")
    cluster_folder.mkdir()
    hdfs_folder.mkdir()
    hdfs = Hdfs(hdfs_folder, data_nodes=2, replication=2, block_size=BLOCK_SIZE)
    cluster = StandaloneCluster(cluster_folder)
    rates = {side: [] for side in SIDES}
    try:
        hdfs.start()
        cluster.start(WORKERS, CORES, memory="2g")
        for number in range(ROUNDS):
            for side in SIDES if number % 2 else reversed(SIDES):
                rates[side].append(run(side, hdfs, cluster, folder))
        for codec in OTHER_CODECS:
            rates[codec] = [run("penstock", hdfs, cluster, folder, **{CODEC: codec})]
    finally:
        cluster.stop()
        hdfs.stop()
    ours, peer = median(rates["penstock"]), median(rates["pyspark"])
    figures = {"records_per_s": ours, "peer_records_per_s": peer, "of_peer": ours / peer}
    notes = {side: [round(rate) for rate in found] for side, found in rates.items()}
    tell({"figures": figures, "notes": notes})


if __name__ == "__main__":
    main()
