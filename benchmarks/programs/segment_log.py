"""The segment log alone, beside the best raw write: bytes forced to the same disk per second.

Raw writes are tried in several ways and sizes, each with nothing but the write itself: direct into
a preallocated file (its first write, as the log does it, and once more over written blocks),
direct by two threads at a time, and through the page cache with `fdatasync`. The log appends slots
of the same sizes, with everything that it does beside: headers, segments, their ends, and the
removal of old segments, whose files it uses again; a first part is left out. It is given
the payload's checksum, so that the figure is of the log and not of CRC-32C (a receiver has the log
compute it, at more than ten times the disk's speed).

All ways take turns, several times; the median of each counts, then the best of raw and of log.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from crc32c import crc32c

from benchmarks.programs._program import tell
from benchmarks.programs._slots import touched
from penstock.wal import RECORD_HEADER_SIZE, LogOptions, LogWriter

ROUNDS = 3
TOTAL = 512 << 20
SIZES = (1 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20)
BUFFERED_SIZES = (8 << 20, 32 << 20)


def preallocated(path, flags):
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
    os.posix_fallocate(descriptor, 0, TOTAL)
    os.fsync(descriptor)
    return descriptor


def rate(write):
    begun = time.monotonic()
    write()
    return TOTAL / (time.monotonic() - begun)


def direct(folder, size, slot):
    """Return the rates of a first write and of one over it."""
    path = os.path.join(folder, "raw")
    descriptor = preallocated(path, os.O_DIRECT | os.O_DSYNC)

    def write():
        for place in range(0, TOTAL, size):
            assert os.pwrite(descriptor, slot[:size], place) == size

    try:
        return rate(write), rate(write)
    finally:
        os.close(descriptor)
        os.unlink(path)


def direct_by_two(folder, size, slot):
    path = os.path.join(folder, "raw")
    descriptor = preallocated(path, os.O_DIRECT | os.O_DSYNC)
    try:
        with ThreadPoolExecutor(2) as pool:
            places = range(0, TOTAL, size)
            return rate(
                lambda: list(pool.map(lambda at: os.pwrite(descriptor, slot[:size], at), places))
            )
    finally:
        os.close(descriptor)
        os.unlink(path)


def buffered(folder, size, slot):
    path = os.path.join(folder, "raw")
    descriptor = preallocated(path, 0)

    def write():
        for place in range(0, TOTAL, size):
            assert os.pwrite(descriptor, slot[:size], place) == size
            os.fdatasync(descriptor)

    try:
        return rate(write)
    finally:
        os.close(descriptor)
        os.unlink(path)


def log(folder, size, slot):
    writer = LogWriter.create(os.path.join(folder, "log"), options=LogOptions())
    checksum = crc32c(slot[RECORD_HEADER_SIZE:size])

    def write():
        last = 0
        for _ in range(0, TOTAL, size):
            place = writer.append_slot(1, slot[:size], size - RECORD_HEADER_SIZE, checksum)
            if place.segment > last:
                # As batches do it that are done: what is older is needed no more.
                writer.remove_segments(range(last, place.segment))
                last = place.segment

    try:
        write()  # A log that runs for a while writes into the files of removed segments.
        return rate(write)
    finally:
        writer.close()
        shutil.rmtree(os.path.join(folder, "log"))


def main():
    parent = json.loads(sys.argv[1])["folder"]
    folder = tempfile.mkdtemp(prefix="segment-log-", dir=parent)
    slot = touched(max(SIZES))
    raw, logs = {}, {}

    def take(table, name, measured):
        table.setdefault(name, []).append(measured)
        tell({"progress": f"{name}: {measured / 1e6:,.0f} MB/s"})

    def a_round():
        for size in SIZES:
            mib = size >> 20
            take(logs, f"log, {mib} MiB", log(folder, size, slot))
            try:
                first, again = direct(folder, size, slot)
                take(raw, f"direct, {mib} MiB", first)
                take(raw, f"direct over written blocks, {mib} MiB", again)
                take(raw, f"direct by two threads, {mib} MiB", direct_by_two(folder, size, slot))
            except OSError as error:
                tell({"progress": f"no direct writes here: {error}"})
            if size in BUFFERED_SIZES:
                name = f"page cache and fdatasync, {mib} MiB"
                take(raw, name, buffered(folder, size, slot))

    try:
        for _ in range(ROUNDS):
            a_round()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    best_raw = max(raw, key=lambda name: median(raw[name]))
    best_log = max(logs, key=lambda name: median(logs[name]))
    figures = {
        "log_mb_per_s": median(logs[best_log]) / 1e6,
        "raw_mb_per_s": median(raw[best_raw]) / 1e6,
    }
    figures["share_of_raw"] = figures["log_mb_per_s"] / figures["raw_mb_per_s"]
    ways = {name: median(rates) / 1e6 for name, rates in {**logs, **raw}.items()}
    tell({"figures": figures, "notes": {"best log": best_log, "best raw write": best_raw, **ways}})


main()
