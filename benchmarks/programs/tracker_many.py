"""A tracker alone with a thousand receivers: what it takes at 100,000 blocks a minute, and at most.

The tracker is the real one, its driver log synced before each answer; the receivers are played by
other processes over real sockets. Meanwhile a batch is allocated each second and cleaned up after.

An answer's time is taken where it is waited for, and once more in the driver, from the arrival of
its message to the moment when it is handed to the socket: those who play the receivers are two
processes for a thousand, and what all are told at one time makes their answers wait there, too.

At most is measured twice: with one block in each message, where half of the machine's CPU goes to
those who play the receivers, and with as many as wait in a receiver whose queue is full.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path

from benchmarks.batches import quantile
from benchmarks.programs import _many_peers
from benchmarks.programs._program import tell
from benchmarks.programs._synthetic import Events, Source, SyntheticCluster
from penstock.receiver import BlockLogs
from penstock.runtime.clock import SystemClock
from penstock.settings import Settings
from penstock.tracker import ReceiverTracker, open_ledger
from penstock.wal import _filesystem
from penstock.wire import Server
from penstock.wire.messages import AddBlock

RECEIVERS = 1000
EXECUTORS = 100
BLOCKS_PER_MINUTE = 100_000
PROCESSES = 2
BATCH_S = 1.0
REMEMBERED = 2
WARM_UP_S = 5.0
SECONDS = 30.0
MOST_S = 15.0
REPORTING_S = 5.0
QUEUED = Settings().block_queue_size
WAIT_S = 180.0
MIB = 1 << 20


class Writes:
    """How long calls of the system took that write to the log."""

    def __init__(self):
        self._calls = deque(maxlen=10_000)
        write = _filesystem.LocalAppendFile._write_some

        def timed(*arguments):
            begun_s = time.perf_counter()
            try:
                return write(*arguments)
            finally:
                self._calls.append((begun_s, time.perf_counter()))

        _filesystem.LocalAppendFile._write_some = timed

    def within(self, begun_s, ended_s):
        """Return how many seconds of a time they were under way."""
        both = ((max(begun_s, one), min(ended_s, end)) for one, end in tuple(self._calls))
        return sum(end - one for one, end in both if end > one)


writes = Writes()


class Answers:
    """How long the driver took for each answer to `AddBlock`."""

    def __init__(self):
        self.seconds = deque(maxlen=1_000_000)
        began_s = {}
        received, reply = Server.frame_received, Server._reply

        def begin(server, connection, ask_id, kind, message):
            if type(message) is AddBlock:
                began_s[connection, ask_id] = time.perf_counter()
            return received(server, connection, ask_id, kind, message)

        def end(server, connection, ask_id, message):
            reply(server, connection, ask_id, message)
            begun_s = began_s.pop((connection, ask_id), None)
            if begun_s is not None:
                self.seconds.append(time.perf_counter() - begun_s)

        Server.frame_received, Server._reply = begin, end


answers = Answers()


class Batches:
    """Allocates a batch each second, and cleans up what is done, on a thread."""

    def __init__(self, tracker):
        self.allocation_s = []
        self.write_s = []
        self.blocks = []
        self.error = None
        self._tracker = tracker
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="batches")
        self._thread.start()

    def stop(self):
        self._over.set()
        self._thread.join(WAIT_S)
        if self.error is not None:
            raise self.error

    def _run(self):
        try:
            at_ms = int(time.time()) * 1000
            while not self._over.wait(BATCH_S):
                at_ms += int(BATCH_S * 1000)
                self._make(at_ms)
            self._make(at_ms + int(BATCH_S * 1000))
        except BaseException as error:  # noqa: BLE001 - it travels to who stops it
            self.error = error

    def _make(self, at_ms):
        begun_s = time.perf_counter()
        self._tracker.allocate_blocks_to_batch(at_ms)
        ended_s = time.perf_counter()
        self.allocation_s.append(ended_s - begun_s)
        self.write_s.append(writes.within(begun_s, ended_s))
        found = self._tracker.get_blocks_of_batch(at_ms)
        self.blocks.append(sum(len(blocks) for blocks in found.values()))
        self._tracker.release_memory(at_ms)
        self._tracker.cleanup_old_blocks_and_batches(at_ms - int(REMEMBERED * BATCH_S * 1000))


class Peers:
    """The processes that play the receivers."""

    def __init__(self, address, secret, receivers):
        spawn = multiprocessing.get_context("spawn")
        self._pipes, self._processes = [], []
        for number in range(PROCESSES):
            ours, theirs = spawn.Pipe()
            found = receivers[number::PROCESSES]
            arguments = (address, secret, found, theirs)
            process = spawn.Process(target=_many_peers.run, args=arguments, daemon=True)
            process.start()
            self._processes.append(process)
            theirs.close()
            self._pipes.append(ours)
        self._hear()

    def work(self, interval_s, seconds, blocks=1):
        """Have all add blocks for a while; return how long each answer took."""
        for pipe in self._pipes:
            pipe.send((interval_s, seconds, blocks))
        return [
            latency
            for of_peers in self._hear(seconds)
            for latencies in of_peers
            for latency in latencies
        ]

    def close(self):
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join(WAIT_S)
            assert process.exitcode == 0, process.exitcode

    def _hear(self, more_s=0.0):
        heard = []
        for pipe in self._pipes:
            assert pipe.poll(WAIT_S + more_s), "the receivers' process is silent"
            heard.append(pipe.recv())
        return heard


def main():
    parent = json.loads(sys.argv[1])["folder"]
    folder = tempfile.mkdtemp(prefix="tracker-many-", dir=parent)
    cluster = SyntheticCluster(EXECUTORS)
    tracker = ReceiverTracker(
        cluster,
        {number: (Source(), f"Source [{number}]") for number in range(RECEIVERS)},
        Settings(),
        ledger=open_ledger(
            range(RECEIVERS),
            os.path.join(folder, "receivedBlockMetadata"),
            Settings(),
            sync="always",
            clock=SystemClock(),
        ),
        logs=BlockLogs(os.path.join(folder, "receivedData"), "always", application_id="app"),
        events=Events(),
    )
    tracker.start()
    try:
        launched = [cluster.next_receiver() for _ in range(RECEIVERS)]
        try:
            tell(measure(tracker, launched))
        finally:
            for receiver in launched:
                receiver.die()
    finally:
        tracker.stop(graceful=False, timeout_s=WAIT_S)
        shutil.rmtree(folder, ignore_errors=True)


def measure(tracker, launched):
    places = [(r.stream_id, r.attempt, r.location.host, r.location.executor_id) for r in launched]
    launch = launched[0].launch
    begun_s = time.monotonic()
    peers = Peers(launch.link.tracker_address, launch.link.secret, places)
    registered_s = time.monotonic() - begun_s
    tell({"progress": f"{RECEIVERS} receivers registered in {registered_s:.1f} s"})
    batches = Batches(tracker)
    interval_s = RECEIVERS * 60 / BLOCKS_PER_MINUTE
    peers.work(interval_s, WARM_UP_S)
    paced = window(tracker, batches, peers, interval_s, SECONDS)
    tell({"progress": f"{paced['added_per_minute']:,.0f} blocks a minute"})
    single = window(tracker, batches, peers, 0.0, MOST_S)
    most = window(tracker, batches, peers, 0.0, MOST_S, QUEUED)
    reports_us = reports(peers)
    batches.stop()
    added = counts(tracker)[0]
    assert sum(batches.blocks) == added, (sum(batches.blocks), added)
    memory = re.search(r"^VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    figures = {
        **paced,
        "single_added_per_minute": single["added_per_minute"],
        "most_added_per_minute": most["added_per_minute"],
        "most_p99_ms": most["p99_ms"],
        "registered_s": registered_s,
        "report_us": reports_us,
        "driver_mib": int(memory[1]) / 1024,
    }
    peers.close()
    return {
        "figures": figures,
        "notes": {
            "at 100,000 blocks a minute": in_words(paced),
            "as many as answers allow, one block a message": in_words(single),
            f"the same, {QUEUED} blocks a message": in_words(most),
            "a report of a receiver's rate, µs of a core": reports_us,
            "receivers' connections": f"{RECEIVERS:,}, all registered after {registered_s:.1f} s",
            "memory of the driver, MiB": figures["driver_mib"],
        },
    }


def counts(tracker):
    """Return how many blocks the ledger took, and the records and bytes that it wrote."""
    log = tracker.ledger._driver_log
    blocks = sum(tracker.ledger.received(stream)[1] for stream in tracker.tracking_infos())
    return blocks, log.records, log.size_bytes


def window(tracker, batches, peers, interval_s, seconds, blocks_each=1):
    """Have blocks added for a while; return what came of it."""
    before, cpu_s, first = counts(tracker), time.process_time(), len(batches.allocation_s)
    answers.seconds.clear()
    begun_s = time.monotonic()
    latencies = sorted(peers.work(interval_s, seconds, blocks_each))
    taken_s = time.monotonic() - begun_s
    cpu_s = time.process_time() - cpu_s
    after = counts(tracker)
    in_driver = sorted(answers.seconds)
    allocation_s = sorted(batches.allocation_s[first:])
    longest = max(range(first, len(batches.write_s)), key=batches.allocation_s.__getitem__)
    blocks = sum(batches.blocks[first : len(batches.allocation_s)])
    added, records, size = (now - then for now, then in zip(after, before, strict=True))
    return {
        "added_per_minute": added / taken_s * 60,
        "p50_ms": quantile(latencies, 0.5) * 1000,
        "p99_ms": quantile(latencies, 0.99) * 1000,
        "in_driver_p50_ms": quantile(in_driver, 0.5) * 1000,
        "in_driver_p99_ms": quantile(in_driver, 0.99) * 1000,
        "driver_cores": cpu_s / taken_s,
        "log_mib_per_minute": size / MIB / taken_s * 60,
        "log_bytes_per_block": size / max(1, added),
        "log_records_per_s": records / taken_s,
        "allocation_ms": quantile(allocation_s, 0.5) * 1000,
        "longest_allocation_ms": batches.allocation_s[longest] * 1000,
        "longest_allocation_writes_ms": batches.write_s[longest] * 1000,
        "allocation_us_per_block": sum(allocation_s) / max(1, blocks) * 1e6,
    }


def reports(peers):
    """Return what a report of a rate takes of the driver, in microseconds of a core."""
    cpu_s = time.process_time()
    count = len(peers.work(0.0, REPORTING_S, 0))
    return (time.process_time() - cpu_s) / count * 1e6


def in_words(found):
    return (
        f"{found['added_per_minute']:,.0f} a minute; answer p50 {found['p50_ms']:.1f} ms, "
        f"p99 {found['p99_ms']:.1f} ms, in the driver {found['in_driver_p50_ms']:.1f} and "
        f"{found['in_driver_p99_ms']:.1f}; {found['driver_cores']:.2f} cores; driver log "
        f"{found['log_bytes_per_block']:.0f} bytes a block, {found['log_records_per_s']:.0f} "
        f"records/s; allocation {found['allocation_ms']:.1f} ms a batch of 1 s, "
        f"{found['longest_allocation_ms']:.1f} at most, of which the log was written "
        f"{found['longest_allocation_writes_ms']:.1f}"
    )


if __name__ == "__main__":
    main()
