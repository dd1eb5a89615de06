"""Logs on an object store beside the bare client: `obstore`, the same sizes, server and run.

``python -m benchmarks.object_storage`` starts a versitygw (`make s3`) and prints a table. All sides
take turns, some rounds of each, and the median counts. ``--case`` takes some of:

* ``writes``: objects of 4 MiB, one at a time and four;
* ``acknowledgements``: 10,000 records/s of 100 bytes, beside bare puts of what an interval brings;
* ``reads``: blocks of 4 MiB whose local copy is gone, as a task reads them;
* ``recovery``: of a ledger with a million blocks, beside the same on a disk of this host;
* ``slow``: 100 MB/s, and acknowledgements, through a proxy that holds back each answer for 30 ms.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import multiprocessing
import os
import secrets
import shutil
import socket
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import obstore

from benchmarks.machine import describe
from benchmarks.programs import recovery
from penstock.blockstore import BlockAccess, BlockKind, BlockStore, read_block
from penstock.blockstore.process_log import ProcessLogs
from penstock.blockstore.store import BlockStoreOptions
from penstock.receiver.blocks.block_generator import BlockGenerator
from penstock.receiver.blocks.options import BlockGeneratorOptions
from penstock.receiver.rate_limiter import RateLimiter
from penstock.tracker.ledger.received_block_tracker import ReceivedBlockTracker
from penstock.wal import LogWriter, locate
from penstock.wire.messages import ReceivedBlockInfo
from tests.services.versitygw import VersityServer, make_server

_MIB = 1 << 20
_ALIGNMENT = 4096
_OBJECT = 4 * _MIB
_RECORDS_PER_S = 10_000
_RECORD = b"x" * 100
_SAMPLED = 49
"""Of so many records one is timed: no divisor of those of an interval, or a few moments of it would
stand for all."""
_DELAY_S = 0.03
_SLOW_BYTES_PER_S = 100e6
_SLOW_INTERVAL_S = 0.2
_SLOW_BUCKET = "slow"


class Bench:
    """The server, its bare client and the options of a run."""

    def __init__(self, server: VersityServer, options: argparse.Namespace, folder: str) -> None:
        self.server = server
        self.store = server.store()
        self.root = server.authority
        self.folder = folder
        self.rounds: int = options.rounds
        self.seconds: float = options.seconds
        self.count: int = options.count

    def put(self, key: str, data: bytes) -> None:
        """Put an object by the bare client, as the log does: if there is none."""
        obstore.put(self.store, key, data, mode="create", use_multipart=False)

    def clear(self) -> None:
        """Empty the bucket."""
        for entry in (self.server.data / self.server.authority.rpartition("/")[2]).iterdir():
            shutil.rmtree(entry, ignore_errors=True)

    def address(self, name: str) -> str:
        """Return the address of a new folder."""
        return f"{self.root}/{name}-{secrets.token_hex(4)}"


def mb_per_s(size: int, work: Callable[[], object]) -> float:
    """Return at what rate so many bytes pass."""
    begun_s = time.perf_counter()
    work()
    return size / (time.perf_counter() - begun_s) / 1e6


def by(threads: int, function: Callable[[Any], object], items: Sequence[Any]) -> list[object]:
    """Call a function of each item, by so many threads at once."""
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(function, items))


def row(case: str, ours: str, beside: str, found: str) -> None:
    """Print a row of the table."""
    print(f"| {case} | {ours} | {beside} | {found} |", flush=True)


def median(values: Sequence[float]) -> float:
    """Return the median of the rounds."""
    return statistics.median(values)


def percentile(values: Sequence[float], share: float) -> float:
    """Return what a share of the values stays under."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def writes(bench: Bench) -> None:
    """Measure the log's writes."""
    data = os.urandom(_OBJECT)
    for threads in (1, 4):
        bare: list[float] = []
        ours: list[float] = []
        for _ in range(bench.rounds):
            name = secrets.token_hex(4)
            keys = [f"{name}/{number}" for number in range(bench.count)]
            bare.append(_put_by(threads, partial(bench.put, data=data), keys, len(data)))
            fs, path = locate(bench.address("log"))
            with LogWriter.create(path, fs=fs) as log:
                append = partial(_append, log, data)
                ours.append(_put_by(threads, append, keys, len(data)))
                written = log.statistics().writes
            bench.clear()
        what = f"writes of 4 MiB, {threads} at a time ({written} PUTs of {bench.count} appends)"
        _row_of_rates(what, ours, bare)


def _append(log: LogWriter, data: bytes, key: str) -> None:
    log.append(1, data)


def _put_by(threads: int, put: Callable[[str], object], keys: Sequence[str], size: int) -> float:
    return mb_per_s(len(keys) * size, lambda: by(threads, put, keys))


def _row_of_rates(what: str, ours: Sequence[float], bare: Sequence[float]) -> None:
    found, beside = median(ours), median(bare)
    row(what, f"{found:.0f} MB/s", f"{beside:.0f} MB/s", f"{found / beside:.2f}")


@contextlib.contextmanager
def block_store(bench: Bench, root: str, receivers: int, interval_s: float) -> Iterator[list[Any]]:
    """Give the block stores of the receivers of one process."""
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(ProcessLogs().use(root, interval_s))
        made = []
        for number in range(receivers):
            attempt = uuid.uuid4().hex
            store = BlockStore(
                stream_id=number,
                attempt=attempt,
                host="here",
                log_folder=f"{log.folder}/{number}-{attempt}",
                host_folder=f"{bench.folder}/{number}-{attempt}",
                options=BlockStoreOptions(memory_bytes=(1 << 30) // receivers),
                process_log=log,
            )
            # What it has in memory stays for readers.
            stack.callback(os.unlink, store.memory_path)
            stack.callback(store.close)
            made.append(store)
        yield made


def acknowledgements(bench: Bench, intervals_ms: Sequence[int] = (50, 200, 1000)) -> None:
    """Measure how long a record waits: for its log, and until the ledger has its block."""
    for interval_ms in intervals_ms:
        interval_s = interval_ms / 1000
        size = int(_RECORDS_PER_S * interval_s) * (len(_RECORD) + 4)
        data = os.urandom(size)
        puts_s = []
        for number in range(50):
            begun_s = time.perf_counter()
            bench.put(f"bare-{interval_ms}-{secrets.token_hex(4)}/{number}", data)
            puts_s.append(time.perf_counter() - begun_s)
            time.sleep(max(0, min(interval_s, 0.1) - puts_s[-1]))
        put_s = median(puts_s)
        logged_s, known_s = _acknowledged(bench, interval_s)
        bound_s = interval_s / 2 + 1.5 * put_s
        for what, times_s in (("in the log", logged_s), ("and in the ledger", known_s)):
            p50_s, p99_s = percentile(times_s, 0.5), percentile(times_s, 0.99)
            row(
                f"10,000 records/s, an interval of {interval_ms} ms, {what}",
                f"p50 {p50_s * 1e3:.0f} ms, p99 {p99_s * 1e3:.0f} ms",
                f"a put {put_s * 1e3:.0f} ms",
                f"{p50_s / bound_s:.3f} of half the interval and 1.5 puts",
            )


def _acknowledged(bench: Bench, interval_s: float) -> tuple[list[float], list[float]]:
    fs, path = locate(bench.address("ledger"))
    stored_s: dict[str, float] = {}
    logged_s: list[float] = []
    known_s: list[float] = []
    with (
        LogWriter.create(path, fs=fs) as ledger,
        block_store(bench, bench.address("blocks"), 1, interval_s) as stores,
    ):
        store = stores[0]
        put = store.put

        def timed_put(block: Any) -> ReceivedBlockInfo:
            info: ReceivedBlockInfo = put(block)
            stored_s[info.block_id] = time.monotonic()
            return info

        store.put = timed_put

        def report(infos: tuple[ReceivedBlockInfo, ...]) -> None:
            ledger.append(1, msgspec.msgpack.encode(infos))
            nonlocal newest_s
            newest_s = stored_s[infos[-1].block_id]

        newest_s = 0.0
        generator = BlockGenerator(
            block_store=store,
            report=report,
            limiter=RateLimiter(),
            options=BlockGeneratorOptions(first_block_number=1, block_interval_s=interval_s),
            on_error=lambda text, error: print(text, error),
        )
        generator.start()
        begun_s = time.monotonic()
        end_s = begun_s + bench.seconds
        for number in itertools.count():
            due_s = begun_s + number / _RECORDS_PER_S
            now_s = time.monotonic()
            if now_s > end_s:
                break
            if due_s > now_s + 0.001:
                time.sleep(due_s - now_s)
            # Whole intervals, of all moments of them, and none that the stop cuts short.
            if number % _SAMPLED or not begun_s + 2 < now_s < end_s - interval_s:
                generator.store(_RECORD)
                continue
            stored = time.monotonic()

            def acknowledge(stored: float = stored) -> None:
                logged_s.append(newest_s - stored)
                known_s.append(time.monotonic() - stored)

            generator.store(_RECORD, None, acknowledge)
        generator.stop(60)
    return logged_s, known_s


def blocks_of(stores: Sequence[BlockStore], count: int, line: bytes) -> list[ReceivedBlockInfo]:
    """Store blocks of one line, one store after the other; their copies in memory go."""
    found = []
    for number in range(count):
        store = stores[number % len(stores)]
        builder = store.open_block(BlockKind.LINES)
        builder.append_lines(line, 1)
        info = store.put(builder.seal(f"input-{store.stream_id}-{number}", 0.0))
        store.release([info.block_id], [])
        found.append(msgspec.structs.replace(info, memory=None))
    return found


def random_line(size: int) -> bytes:
    """Return bytes that nobody can compress."""
    return os.urandom(size - 1).replace(b"\n", b" ") + b"\n"


def reads(bench: Bench) -> None:
    """Measure the reading of blocks."""
    with block_store(bench, bench.address("blocks"), 1, 0.2) as stores:
        line = random_line(_OBJECT)
        infos = blocks_of(stores, bench.count, line)
        sizes = {f"bare/{at}": _logged(info) for at, info in enumerate(infos)}
        total = sum(sizes.values())
        for key, size in sizes.items():
            # As in the log a range of it is read: a server may be quicker with all of an object.
            bench.put(key, line + bytes((size | (_ALIGNMENT - 1)) + 1 - len(line)))

        def get(key: str) -> None:
            obstore.get_range(bench.store, key, start=0, end=sizes[key])

        for threads in (1, 4):
            bare: list[float] = []
            ours: list[float] = []
            for _ in range(bench.rounds):
                bare.append(mb_per_s(total, partial(by, threads, get, list(sizes))))
                ours.append(mb_per_s(total, partial(by, threads, _read, infos)))
            _row_of_rates(f"reads of blocks of 4 MiB, {threads} at a time", ours, bare)
    bench.clear()


def _read(info: ReceivedBlockInfo) -> None:
    with read_block(info, BlockAccess()) as block:
        assert block.num_records


def _logged(info: ReceivedBlockInfo) -> int:
    assert info.segment is not None
    return info.segment.length


def recover(bench: Bench) -> None:
    """Measure the recovery of a ledger."""
    found_s: dict[str, list[float]] = {}
    places = {"store": bench.address("ledger"), "disk": f"{bench.folder}/ledger"}
    for address in places.values():
        fs, path = locate(address)
        ledger = ReceivedBlockTracker.recover(range(recovery.STREAMS), path, fs=fs)
        recovery.fill(ledger)
        ledger.close()
    for _ in range(bench.rounds):
        for where, address in places.items():
            fs, path = locate(address)
            begun_s = time.perf_counter()
            ledger = ReceivedBlockTracker.recover(range(recovery.STREAMS), path, fs=fs)
            found_s.setdefault(where, []).append(time.perf_counter() - begun_s)
            ledger.close()
            del ledger
    ours, disk = median(found_s["store"]), median(found_s["disk"])
    row(
        f"recovery of a ledger with {recovery.BLOCKS:,} blocks",
        f"{ours:.1f} s",
        f"{disk:.1f} s on disk",
        f"{ours / disk:.2f}",
    )


def _delaying(target: int, ready: Connection) -> None:
    """Pass connections on; the first bytes of each answer wait."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    def pass_on(
        source: socket.socket, sink: socket.socket, asked: list[float], is_answer: bool
    ) -> None:
        with contextlib.suppress(OSError), source, sink:
            while data := source.recv(_MIB):
                if is_answer:
                    time.sleep(max(0.0, asked[0] + _DELAY_S - time.monotonic()))
                else:
                    asked[0] = time.monotonic()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    ready.send(listener.getsockname()[1])
    while True:
        client = listener.accept()[0]
        server = socket.create_connection(("127.0.0.1", target))
        asked = [0.0]
        for way in ((client, server, asked, False), (server, client, asked, True)):
            threading.Thread(target=pass_on, args=way, daemon=True).start()


@contextlib.contextmanager
def delaying(port: int) -> Iterator[str]:
    """Give the address of a proxy, in a process of its own, before a server."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_delaying, args=(port, there), daemon=True
    )
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.kill()
        process.join()


def slow(bench: Bench) -> None:
    """See whether 100 MB/s hold where each answer takes long."""
    # Of another bucket this process has no client yet.
    (bench.server.data / _SLOW_BUCKET).mkdir()
    with delaying(bench.server.port) as url:
        os.environ["AWS_ENDPOINT_URL"] = url
        put = partial(_put, bench.server.store(url), os.urandom(8 * _MIB))
        bare = median([_put_by(3, put, [f"{n}" for n in range(30)], 8 * _MIB) for _ in range(3)])
        for receivers in (1, 10):
            _receive(bench, receivers, bare)
            bench.clear()
        bench.store, bench.root = bench.server.store(url), f"s3://{_SLOW_BUCKET}"
        acknowledgements(bench, [50])


def _put(store: Any, data: bytes, key: str) -> None:
    obstore.put(store, key, data, use_multipart=False)


def _receive(bench: Bench, receivers: int, bare: float) -> None:
    size = int(_SLOW_BYTES_PER_S * _SLOW_INTERVAL_S / receivers)
    rounds = int(bench.seconds / _SLOW_INTERVAL_S)
    took_s: list[float] = []
    root = f"s3://{_SLOW_BUCKET}/{secrets.token_hex(4)}"
    with block_store(bench, root, receivers, _SLOW_INTERVAL_S) as stores:
        line = random_line(size)
        blocks_of(stores, receivers, line)
        before_mib = _memory_mib("RssAnon")
        begun_s = time.monotonic()

        def receive(store: BlockStore) -> None:
            for number in range(rounds):
                due_s = begun_s + number * _SLOW_INTERVAL_S
                time.sleep(max(0.0, due_s - time.monotonic()))
                blocks_of([store], 1, line)
                took_s.append(time.monotonic() - due_s)

        highest = _Highest(lambda: _memory_mib("RssAnon"))
        by(receivers, receive, stores)
        spent_s = time.monotonic() - begun_s
        more_mib = highest.stop() - before_mib
    row(
        f"answers take 30 ms, 100 MB/s by {receivers} receivers",
        f"{rounds * receivers * size / spent_s / 1e6:.0f} MB/s, stored after p50 "
        f"{percentile(took_s, 0.5) * 1e3:.0f} ms, p99 {percentile(took_s, 0.99) * 1e3:.0f} ms",
        f"{bare:.0f} MB/s, 8 MiB by three at a time",
        f"{more_mib:.0f} MiB of memory besides the blocks",
    )


class _Highest:
    """The highest of a value, looked at again and again."""

    def __init__(self, value: Callable[[], float]) -> None:
        self._value = value
        self._found = value()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="highest", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(0.05):
            self._found = max(self._found, self._value())

    def stop(self) -> float:
        self._is_over.set()
        self._thread.join()
        return self._found


def _memory_mib(name: str) -> float:
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(text.partition(f"{name}:")[2].split()[0]) / 1024


CASES: dict[str, Callable[[Bench], None]] = {
    "writes": writes,
    "acknowledgements": acknowledgements,
    "reads": reads,
    "recovery": recover,
    "slow": slow,
}


def main() -> None:
    """Run it and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", choices=list(CASES), help="all without it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=50, help="objects of a round")
    parser.add_argument("--folder", help="where the server keeps its objects, and logs lie")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a rate that is held")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        server = make_server(Path(folder))
        os.environ.update(server.environment())
        server.start()
        try:
            for name, value in describe(folder).items():
                print(f"{name}: {value}")
            print("| case | ours | beside | times |\n| --- | --- | --- | --- |")
            for case in options.case or CASES:
                CASES[case](Bench(server, options, folder))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
