"""Lines from a socket, counted, with the log on HDFS: beside the peer, on the same cluster.

A real HDFS of two DataNodes that keep two copies, and a real Spark standalone cluster of two
Workers, all on this machine. Both sides have their checkpoints, and so the peer its log, on HDFS.
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
WINDOW = Window()
WORKERS, CORES = 2, 2


def run(side, hdfs, cluster, folder):
    address = hdfs.new_folder()
    settings = {
        "spark.master": cluster.address,
        "spark.driver.memory": "1g",
        "spark.executor.memory": "2g",
        "spark.penstock.wal.dir": address + "/log",
    }
    options = ProgramOptions(
        side, "", "count", settings=tuple(settings.items()), checkpoint=address + "/checkpoint"
    )
    streaming = StreamingRun("benchmarks.programs.count", options, FeederOptions())
    return run_streaming(streaming, WINDOW, folder, lambda text: tell({"progress": text}))


def main():
    folder = tempfile.mkdtemp(prefix="hdfs-log-", dir=json.loads(sys.argv[1])["folder"])
    cluster_folder, hdfs_folder = Path(folder, "cluster"), Path(folder, "hdfs")
    cluster_folder.mkdir()
    hdfs_folder.mkdir()
    hdfs = Hdfs(hdfs_folder, data_nodes=2, replication=2)
    cluster = StandaloneCluster(cluster_folder)
    rates = {side: [] for side in SIDES}
    try:
        hdfs.start()
        cluster.start(WORKERS, CORES, memory="2g")
        for number in range(ROUNDS):
            for side in SIDES if number % 2 else reversed(SIDES):
                rates[side].append(run(side, hdfs, cluster, folder)["records_per_s"])
    finally:
        cluster.stop()
        hdfs.stop()
    ours, peer = median(rates["penstock"]), median(rates["pyspark"])
    figures = {"records_per_s": ours, "peer_records_per_s": peer, "of_peer": ours / peer}
    notes = {side: [round(rate) for rate in found] for side, found in rates.items()}
    tell({"figures": figures, "notes": notes})


if __name__ == "__main__":
    main()
