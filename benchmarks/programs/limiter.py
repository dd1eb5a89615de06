"""The rate limiter: its cost per record at a rate that is never reached, and its accuracy.

The cost is that of a countdown of leased permits, as `store` does it, less that of the same loop
without permits; and that of `store` with such a limiter less that without any limit. The accuracy
is that of a real block generator, whose `store` is called in a loop for ten seconds.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import tempfile
import threading
import time
import uuid
from statistics import median

from benchmarks.programs._program import tell
from penstock.blockstore import BlockStore
from penstock.blockstore.store import BlockStoreOptions
from penstock.receiver import BlockGenerator, BlockGeneratorOptions, RateLimiter
from penstock.wal import LogOptions, SyncPolicy

RECORDS = 3_000_000
LEASE = 1300
NEVER_REACHED = 1e9
ROUNDS = 5
ACCURACY_S = 10.0
RATES = (1_000, 10_000, 100_000)


def countdown(limiter):
    """Return the seconds of a loop that takes a permit per record."""
    permits = iter(())
    begun = time.perf_counter()
    for _ in itertools.repeat(None, RECORDS):
        if next(permits, None) is None:
            granted = limiter.lease(LEASE, 1.0, in_hand=1, lessee="single")
            permits = itertools.repeat(True, granted - 1)
    return time.perf_counter() - begun


def nothing():
    """Return the seconds of the same loop without permits."""
    begun = time.perf_counter()
    for _ in itertools.repeat(None, RECORDS):
        pass
    return time.perf_counter() - begun


class Stored:
    """A block generator over a store of its own; stored blocks are released at once."""

    def __init__(self, folder, memory_folder, limiter):
        attempt = uuid.uuid4().hex
        self.block_store = BlockStore(
            stream_id=0,
            attempt=attempt,
            host="localhost",
            log_folder=os.path.join(folder, attempt),
            options=BlockStoreOptions(
                memory_dir=memory_folder,
                memory_bytes=256 << 20,
                log=LogOptions(sync=SyncPolicy.NONE),
            ),
        )
        self.generator = BlockGenerator(
            block_store=self.block_store,
            report=self.report,
            limiter=limiter,
            options=BlockGeneratorOptions(),
            on_error=lambda message, error: tell({"progress": f"{message}: {error}"}),
        )

    def report(self, infos):
        self.block_store.release([info.block_id for info in infos], [])

    def __enter__(self):
        self.generator.start()
        return self.generator

    def __exit__(self, *_):
        self.generator.stop(20)
        self.block_store.close()
        os.unlink(self.block_store.memory_path)


def store_seconds(folder, memory_folder, limiter):
    record = b"x" * 100
    with Stored(folder, memory_folder, limiter) as generator:
        store = generator.store
        begun = time.perf_counter()
        for _ in itertools.repeat(None, RECORDS):
            store(record)
        return time.perf_counter() - begun


def passed(folder, memory_folder, rate):
    """Return how many records passed in ten seconds, less what was saved up at the beginning."""
    record = b"x" * 100
    with Stored(folder, memory_folder, RateLimiter(rate)) as generator:
        store = generator.store
        stopping = threading.Event()
        count = 0

        def loop():
            nonlocal count
            while not stopping.is_set():
                store(record)
                count += 1

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        time.sleep(1.0)  # what the bucket had saved is gone by then
        before, begun = count, time.monotonic()
        time.sleep(ACCURACY_S)
        after, ended = count, time.monotonic()
        stopping.set()
        thread.join(5)
        return (after - before) / (ended - begun)


def main():
    parent = json.loads(sys.argv[1])
    folder = tempfile.mkdtemp(prefix="limiter-", dir=parent["folder"])
    memory_folder = parent["memory_folder"]
    try:
        leases, stores = [], []
        for number in range(ROUNDS):
            tell({"progress": f"cost per record, {number + 1} of {ROUNDS}"})
            leases.append(countdown(RateLimiter(NEVER_REACHED)) - nothing())
            limited = store_seconds(folder, memory_folder, RateLimiter(NEVER_REACHED))
            stores.append(limited - store_seconds(folder, memory_folder, RateLimiter()))
        figures = {
            "lease_ns_per_record": median(leases) / RECORDS * 1e9,
            "store_difference_ns_per_record": median(stores) / RECORDS * 1e9,
        }
        for rate in RATES:
            tell({"progress": f"accuracy at {rate:,} records/s"})
            error = passed(folder, memory_folder, rate) / rate - 1
            figures[f"error_at_{rate}"] = error
        figures["largest_error"] = max(abs(figures[f"error_at_{rate}"]) for rate in RATES)
        tell({"figures": figures})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
