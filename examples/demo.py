"""The main job on real input: pushed lines to word counts, through a crash of the receiver.

Another process pushes numbered lines over TCP (`sender`), a receiver in a local Spark takes and
acknowledges them (`line_receiver`), and every second the words of a batch are counted. Half-way
the receiver's process is killed. At the end every number is accounted for.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from line_receiver import LineReceiver
from local_spark import Interrupts, local_spark
from progress import Progress
from pyspark import RDD

from penstock.streaming import StopReport, StreamingContext, StreamingListener

HERE = Path(__file__).resolve().parent
CONNECT_BOUND_S = 60.0
BATCH_BOUND_S = 60.0
ACKNOWLEDGE_BOUND_S = 60.0
WORD = re.compile(r"[a-z]{4,}")


def main() -> int:
    options = parse_options()
    interrupts = Interrupts()
    with Progress(sys.stdout, interval_s=None if sys.stdout.isatty() else 5.0) as show:
        try:
            with ExitStack() as undo:
                return run(options, show, interrupts, undo)
        except KeyboardInterrupt:
            show.close()
            print("Nothing was checked, nothing is left behind.")
            return 130


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make demo ARGS=...",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--rate", type=float, default=50_000, help="lines/s to send; 0: no limit (default: 50000)"
    )
    parser.add_argument(
        "--seconds", type=float, default=30, help="how long to send, at least 4 (default: 30)"
    )
    parser.add_argument(
        "--log-dir",
        type=Path,
        metavar="FOLDER",
        help="keep the logs in a new folder in this one (default: a temporary one is removed)",
    )
    parser.add_argument("--no-kill", action="store_true", help="let the receiver live")
    options = parser.parse_args()
    if options.seconds < 4:
        parser.error("--seconds must be at least 4")
    if options.rate < 0:
        parser.error("--rate must not be negative")
    return options


def run(
    options: argparse.Namespace, show: Progress, interrupts: Interrupts, undo: ExitStack
) -> int:
    scratch = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    undo.callback(shutil.rmtree, scratch, ignore_errors=True)
    # A folder for each run: in the last one's, the receiver would go on after its last line.
    run_name = f"demo-{datetime.now():%Y%m%d-%H%M%S}"
    log_folder = (options.log_dir / run_name if options.log_dir else scratch / "log").absolute()

    show.show("starting Spark")
    sc = undo.enter_context(local_spark(scratch, log_folder, interrupts))
    sc.addPyFile(str(HERE / "line_receiver.py"))
    show.print(f"Spark {sc.version} as {sc.master}, application {sc.applicationId}")
    sender = undo.enter_context(Sender(options.rate, options.seconds))
    show.print(
        f"Process {sender.pid} pushes the text of this machine's Python documentation and "
        f"library to 127.0.0.1:{sender.port}, {options.rate:,.0f} lines/s"
    )
    show.print(f"Logs, forced to disk before anything is acknowledged: {log_folder}")

    ssc = StreamingContext(sc, 1)
    tally = Tally()
    batches = Batches(show)
    lines = ssc.receiverStream(LineReceiver("127.0.0.1", sender.port))
    lines.foreachRDD(tally.take)
    counts = lines.flatMap(words).map(lambda word: (word, 1)).reduceByKey(operator.add)
    counts.foreachRDD(batches.print_top)
    ssc.addStreamingListener(batches)
    undo.callback(ssc.stop, stopSparkContext=False)
    ssc.start()
    interrupts.check()

    progress = LiveLine(show, sender, tally, batches)
    wait = Waiting(ssc, progress, interrupts)
    progress.phase = "starting the receiver"
    wait.until(lambda: sender.connections > 0, CONNECT_BOUND_S, "the receiver to connect")
    began = time.monotonic()
    progress.phase = "receiving"
    if not options.no_kill:
        wait.until(
            lambda: time.monotonic() > began + options.seconds / 2 and bool(tally.log_folders),
            options.seconds / 2 + BATCH_BOUND_S,
            "the first batch",
        )
        killed = kill_receiver(tally.log_folders[-1], sender, show)
        wait.until(lambda: sender.connections > 1, CONNECT_BOUND_S, "the receiver to come back")
        show.print(
            f">>> it is back after {time.monotonic() - killed:.1f} s and goes on after line "
            f"{sender.resumed_after:,}, its last durable position"
        )
    bound_s = options.seconds + ACKNOWLEDGE_BOUND_S
    wait.until(lambda: sender.done, bound_s, "the last line to be acknowledged")
    show.print("All lines are sent and acknowledged. A graceful stop processes what is left.")
    progress.phase = "stopping"
    progress.show()
    with interrupts.raised():
        stopped = ssc.stop(stopSparkContext=False, stopGraceFully=True)
    progress.show()
    show.close()
    return report(sender.sent, sender.acknowledged, tally, stopped or StopReport())


def words(line: str) -> list[str]:
    """Return the words of four letters and more."""
    return WORD.findall(line.lower())


class Waiting:
    """Waits, shows the progress meanwhile, and raises what a batch failed of."""

    def __init__(self, ssc: StreamingContext, progress: LiveLine, interrupts: Interrupts) -> None:
        self._ssc = ssc
        self._progress = progress
        self._interrupts = interrupts

    def until(self, done: Callable[[], bool], bound_s: float, what: str) -> None:
        end = time.monotonic() + bound_s
        while not done():
            self._interrupts.check()
            if self._ssc.awaitTerminationOrTimeout(0.1):
                raise SystemExit("The streams ended early.")
            if time.monotonic() > end:
                raise SystemExit(f"Waited {bound_s:.0f} s in vain for {what}.")
            self._progress.show()


def kill_receiver(log_folder: str, sender: Sender, show: Progress) -> float:
    """Kill the Python process that the receiver runs in, and return when that was.

    It is the owner of the receiver's log.
    """
    owner = re.search(r"process (\d+)", (Path(log_folder) / "LOCK").read_text())
    assert owner is not None
    pid = int(owner[1])
    show.print(
        f">>> SIGKILL to the receiver's process {pid}, with "
        f"{sender.sent - sender.acknowledged:,} lines not acknowledged yet"
    )
    os.kill(pid, signal.SIGKILL)
    return time.monotonic()


def report(sent: int, acknowledged: int, tally: Tally, stopped: StopReport) -> int:
    """Print what became of the lines; return the exit code.

    Args:
        sent: How many lines were sent.
        acknowledged: How many of them were acknowledged.
        tally: What was processed.
        stopped: What the stop gave up: a machine may be too slow to process all in its time.
    """
    distinct = tally.distinct()
    missing, doubles = tally.missing(acknowledged), tally.taken() - distinct
    given_up = sum(stopped.waiting_records.values()) + sum(stopped.given_up_records.values())
    in_log = min(missing, given_up) if stopped.are_kept else 0
    lost = missing - in_log
    print()
    for name, number in (
        ("sent", sent),
        ("acknowledged", acknowledged),
        ("processed", distinct),
        ("in the log", in_log),
        ("lost", lost),
        ("doubles", doubles),
    ):
        print(f"{name:>14} {number:>12,}")
    print()
    if lost:
        print(f"{lost:,} acknowledged lines were lost.")
    elif doubles:
        print("Nothing acknowledged was lost, but lines were processed twice.")
    elif in_log:
        print(
            f"Nothing was lost, but {in_log:,} acknowledged lines were not processed in the "
            f"{stopped.duration_s:.0f} s of the stop: this machine is slower than that. They are "
            "in the log, and a program that starts over it processes them. Try --rate=5000."
        )
    else:
        print("Nothing acknowledged was lost, and nothing was processed twice.")
    if lost or doubles:
        return 1
    return 3 if in_log else 0


# -- the source ------------------------------------------------------------------------------------


class Sender:
    """The process that pushes lines, and what it tells of itself."""

    def __init__(self, rate: float, seconds: float) -> None:
        command = [sys.executable, str(HERE / "sender.py"), "--end-with-stdin"]
        command += [f"--rate={rate}", f"--seconds={seconds}"]
        # A session of its own: Ctrl-C in the terminal is the demo's business.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self.pid = self._process.pid
        self.port: int = json.loads(self._output.readline())["port"]
        self.sent = 0
        self.acknowledged = 0
        self.done = False
        self.connections = 0
        self.resumed_after = 0
        self._reader = threading.Thread(target=self._read, name="sender-output", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._output:
            facts = json.loads(line)
            if facts["event"] == "connected":
                self.connections += 1
                self.resumed_after = facts["after"]
            elif facts["event"] == "state":
                self.sent, self.acknowledged = facts["sent"], facts["acknowledged"]
                self.done = facts["done"]

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._reader.join(10)


# -- what was processed ----------------------------------------------------------------------------


class Tally:
    """The numbers that were processed, as runs of consecutive ones. One thread writes."""

    def __init__(self) -> None:
        self.runs: list[tuple[int, int]] = []
        self.blocks = 0
        self.logged_bytes = 0
        self.log_folders: list[str] = []

    def take(self, rdd: RDD[str]) -> None:
        """Take the numbers of a batch, and what is known of its blocks."""
        runs = rdd.mapPartitions(runs_of_numbers).collect()
        self.runs += runs
        for block in getattr(rdd, "blocks", ()):
            self.blocks += 1
            self.logged_bytes += block.segment.length
            if block.segment.folder not in self.log_folders:
                self.log_folders.append(block.segment.folder)

    def taken(self) -> int:
        return sum(last - first + 1 for first, last in self.runs)

    def distinct(self) -> int:
        return sum(last - first + 1 for first, last in self._merged())

    def missing(self, up_to: int) -> int:
        """Return how many numbers from 1 to `up_to` were not processed."""
        merged = self._merged()
        return up_to - sum(max(0, min(last, up_to) - first + 1) for first, last in merged)

    def _merged(self) -> list[tuple[int, int]]:
        merged: list[tuple[int, int]] = []
        for first, last in sorted(self.runs):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = merged[-1][0], max(last, merged[-1][1])
            else:
                merged.append((first, last))
        return merged


def runs_of_numbers(lines: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield the first and last number of each run of consecutive numbers."""
    first, last = 0, -1  # none yet
    for line in lines:
        number = int(line.split(" ", 1)[0])
        if number != last + 1:
            if first <= last:
                yield first, last
            first = number
        last = number
    if first <= last:
        yield first, last


# -- what is shown ---------------------------------------------------------------------------------


class Batches(StreamingListener):
    """Prints batches and what happens to the receiver."""

    def __init__(self, show: Progress) -> None:
        self.show = show
        self.delay_s = 0.0
        self.records = 0

    def print_top(self, time: datetime, counts: RDD[tuple[str, int]]) -> None:
        top = counts.takeOrdered(5, key=lambda word_count: -word_count[1])
        if top:
            words = "  ".join(f"{word} {count:,}" for word, count in top)
            self.show.print(f"{time:%H:%M:%S}  {words}")

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        info = batchCompleted.batchInfo()
        self.delay_s = info.totalDelay() / 1000
        self.records += info.numRecords()

    def onReceiverStarted(self, receiverStarted: Any) -> None:
        self.show.print(f">>> receiver {receiverStarted.receiverInfo().name()} started")

    def onReceiverError(self, receiverError: Any) -> None:
        message = receiverError.receiverInfo().lastErrorMessage()
        self.show.print(f">>> receiver error: {message}")

    def onReceiverStopped(self, receiverStopped: Any) -> None:
        self.show.print(f">>> receiver {receiverStopped.receiverInfo().name()} stopped")


class LiveLine:
    """The line that changes."""

    def __init__(self, show: Progress, sender: Sender, tally: Tally, batches: Batches) -> None:
        self.phase = ""
        self._show = show
        self._sender = sender
        self._tally = tally
        self._batches = batches
        self._marks: list[tuple[float, int]] = []

    def show(self) -> None:
        now = time.monotonic()
        acknowledged = self._sender.acknowledged
        self._marks = [mark for mark in self._marks if mark[0] > now - 2] + [(now, acknowledged)]
        (then, before) = self._marks[0]
        rate = (acknowledged - before) / (now - then) if now > then else 0.0
        self._show.show(
            f"{self.phase} | {rate:,.0f} records/s | {acknowledged:,} acknowledged "
            f"| {self._tally.blocks} blocks | batch delay {self._batches.delay_s:.2f} s "
            f"| {self._tally.logged_bytes / 1e6:,.1f} MB in the log"
        )


if __name__ == "__main__":
    sys.exit(main())
