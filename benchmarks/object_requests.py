"""What logs on an object store ask of it, and what that costs a month.

``python -m benchmarks.object_requests`` starts a program whose checkpoint directory is on a
versitygw (`make s3`) of its own, and counts in that server's log what is asked for in some seconds.
``--prices A,B,STORAGE`` makes a month's bill of it: of 1,000 requests that write or list, of 1,000
that read, of a GB for a month. Deletions cost nothing with S3 and Google. The table of
`docs/costs.md` is `benchmarks.object_costs`.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from pyspark import SparkConf, SparkContext

from benchmarks.machine import describe
from penstock.receiver import Receiver
from penstock.streaming import StreamingContext
from tests.services.versitygw import make_server

_ASKED = re.compile(r" s3_(Put|Get|Head|List|Delete)\w* \S+ (\S+)")
_HOW = {"Put": "write", "Get": "read", "Head": "read", "List": "list", "Delete": "delete"}
_STEP_S = 0.05
_MONTH_S = 30 * 86_400


class Steady(Receiver):
    """Stores as many bytes in a second as it is told."""

    def __init__(self, bytes_per_s: float) -> None:
        super().__init__()
        self._size = max(1, int(bytes_per_s * _STEP_S))

    def onStart(self) -> None:
        """Begin to store."""
        threading.Thread(target=self._run, name="steady", daemon=True).start()

    def onStop(self) -> None:
        """Do nothing: the thread asks."""

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self.isStopped():
            # What cannot be compressed: so many bytes are logged.
            self.store(random.randbytes(self._size))
            due_s = max(due_s + _STEP_S, time.monotonic() - 1)
            time.sleep(max(0.0, due_s - time.monotonic()))


def asked(log: Path, begin: int) -> Counter[tuple[str, str]]:
    """Return what was asked for, from a place in the server's log on: for what, and how."""
    found: Counter[tuple[str, str]] = Counter()
    with open(log, errors="replace") as file:
        file.seek(begin)
        for method, target in _ASKED.findall(file.read()):
            what = "checkpoints, and deletions of many"
            if "receivedData" in target:
                what = "blocks"
            elif "receivedBlockMetadata" in target:
                what = "ledger"
            found[what, _HOW[method]] += 1
    return found


def measure(options: argparse.Namespace, folder: Path) -> Counter[tuple[str, str]]:
    """Run the program, and return its requests in the seconds that were asked for."""
    log = folder / "access.log"
    server = make_server(folder)
    server.command = [server.command[0], "--access-log", str(log), *server.command[1:]]
    os.environ.update(server.environment())
    server.start()
    try:
        conf = SparkConf().setMaster("local[3]").setAppName("requests")
        conf.set("spark.ui.showConsoleProgress", "false").set("spark.ui.enabled", "false")
        conf.set("spark.penstock.receivers.perSlot", str(options.receivers))
        conf.set("spark.streaming.blockInterval", f"{options.block_ms}ms")
        sc = SparkContext(conf=conf)
        sc.setLogLevel("ERROR")
        ssc = StreamingContext(sc, options.batch)
        ssc.checkpoint(f"{server.authority}/app")
        each = options.bytes / options.receivers
        streams = [ssc.receiverStream(Steady(each)) for _ in range(options.receivers)]
        ssc.union(*streams).foreachRDD(lambda rdd: rdd.count())
        ssc.start()
        while not all(status.state == "running" for status in ssc.receivers()):
            ssc.awaitTerminationOrTimeout(0.5)
        ssc.awaitTerminationOrTimeout(2 * options.batch)
        begin, begin_s = log.stat().st_size, time.monotonic()
        ssc.awaitTerminationOrTimeout(options.seconds)
        options.seconds = time.monotonic() - begin_s
        found = asked(log, begin)
        ssc.stop(stopGraceFully=False)
        return found
    finally:
        server.stop()


def main() -> None:
    """Run it and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receivers", type=int, default=1, help="in one process")
    parser.add_argument("--bytes", type=float, default=1e6, help="a second, in all")
    parser.add_argument("--block-ms", type=int, default=200, help="spark.streaming.blockInterval")
    parser.add_argument("--batch", type=float, default=1.0, help="seconds of a batch")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--prices", default="0.005,0.0004,0.023")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(options, Path(folder))
        about = describe(folder)
    price_a, price_b, _ = map(float, options.prices.split(","))
    print(f"{about['date']}, {about['commit']}; {options}")
    print("| for | writes/s | lists/s | reads/s | deletions/s | a month |")
    print("| --- | --- | --- | --- | --- | --- |")
    for what in sorted({what for what, _ in found}):
        rates = [found[what, how] / options.seconds for how in ("write", "list", "read", "delete")]
        bill = _MONTH_S / 1000 * ((rates[0] + rates[1]) * price_a + rates[2] * price_b)
        print(f"| {what} | {' | '.join(f'{rate:.2f}' for rate in rates)} | {bill:.0f} |")


if __name__ == "__main__":
    main()
