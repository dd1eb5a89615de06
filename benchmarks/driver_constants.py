"""What a receiver and a block cost the driver: ``python -m benchmarks.driver_constants``.

The real ledger, its log synced, in this process: receivers are registered, two minutes of blocks
are added as their tracker adds them, given to a batch, and all is read back from the log. Prints
each cost; benchmarks/single_runs.md has them, and docs/scale.md says what follows.
"""

from __future__ import annotations

import argparse
import gc
import resource
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.machine import describe
from penstock.tracker import ExecutorLocation, ReceivedBlockTracker
from penstock.tracker.receivers.receiver_scheduling_policy import ReceiverSchedulingPolicy
from penstock.wal import LogOptions, SyncPolicy
from penstock.wire.messages import AddBlock, MemoryPlace, ReceivedBlockInfo, SegmentPlace

_OPTIONS = LogOptions(sync=SyncPolicy.ALWAYS)


def memory() -> int:
    """Return the bytes that this process has in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@contextmanager
def timed(what: str, count: int) -> Iterator[None]:
    """Print what one of so many took, and how much memory it left behind."""
    before, begun_s, used_s = memory(), time.monotonic(), time.process_time()
    yield
    wall_s, cpu_s = time.monotonic() - begun_s, time.process_time() - used_s
    kept = (memory() - before) / count
    each = f"{wall_s / count * 1e6:10.1f} µs {cpu_s / count * 1e6:10.1f} µs of a core"
    print(f"{what:44}{each}{kept:10.0f} bytes", flush=True)


def block_of(stream: int, attempt: str, number: int) -> ReceivedBlockInfo:
    """Return what a receiver says of a block."""
    memory_place = MemoryPlace(f"/dev/shm/penstock-app-{attempt}", 4096 * number, 4096)
    segment = SegmentPlace(f"/data/receivedData/{stream}-{attempt}", 1, 4096 * number, 4096)
    return ReceivedBlockInfo(
        *(stream, f"input-{stream}-{number}", 100, 4000, attempt, f"host-{stream % 100}"),
        *(number, memory_place, segment),
    )


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--receivers", type=int, default=10_000)
    parser.add_argument("--executors", type=int, default=1000)
    parser.add_argument("--blocks", type=int, default=333_000, help="two minutes of 10 M an hour")
    parser.add_argument("--group", type=int, default=30, help="blocks of one record of the log")
    parser.add_argument("--folder", help="where the log lies; a temporary folder when left out")
    options = parser.parse_args()
    receivers, blocks = options.receivers, options.blocks
    executors = [
        ExecutorLocation(f"host-{number % 100}", str(number)) for number in range(options.executors)
    ]
    with timed(f"placement on {options.executors} executors, a receiver", receivers):
        ReceiverSchedulingPolicy().schedule_receivers(dict.fromkeys(range(receivers)), executors)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        streams = range(receivers)
        with timed("a stream of a new ledger", receivers):
            ledger = ReceivedBlockTracker.recover(streams, folder, options=_OPTIONS)
        attempts = [uuid.uuid4().hex for _ in streams]
        with timed("its receiver's registration", receivers):
            first = [
                ledger.register_attempt(stream, attempts[stream], "host").first_block_number
                for stream in streams
            ]
        messages = [
            AddBlock(stream, attempts[stream], (block_of(stream, attempts[stream], number),))
            for at in range(blocks)
            for stream in [at % receivers]
            for number in [first[stream] + at // receivers]
        ]
        with timed(f"a block, {options.group} in a record", blocks):
            for at in range(0, blocks, options.group):
                ledger.add_many(messages[at : at + options.group])
        with timed("a block given to a batch", blocks):
            assert ledger.allocate_blocks_to_batch(1000)
        ledger.close()
        del ledger, messages
        with timed("a block read back", blocks):
            ReceivedBlockTracker.recover(streams, folder, options=_OPTIONS).close()
        print(", ".join(f"{what}: {text}" for what, text in describe(folder).items()))


if __name__ == "__main__":
    sys.exit(main())
