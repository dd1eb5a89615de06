"""A driver without Spark: a ledger on an object store, to be paused.

``python -m tests.system.ledger_driver ADDRESS NAME`` says what it found there, then each change
that was acknowledged, and in the end why it ended: a line of JSON each. Standard input says ``go
N``: make N blocks; its end ends the driver. A block has one record, whose position is the next
number, as of a receiver that goes on after its last one.
"""

from __future__ import annotations

import sys
import time
import uuid

from penstock.errors import PenstockError
from penstock.tracker import LedgerWriteError, ReceivedBlockTracker
from penstock.tracker.ledger._driver_log import SnapshotRule
from penstock.wal import LogOptions, SyncPolicy, locate
from penstock.wire.messages import Ok
from tests.system.program import say
from tests.tracker.ledger_cases import add, block

STREAM = 0


def open_ledger(address: str, name: str) -> ReceivedBlockTracker:
    """Take a ledger, whose segments are so small that it often begins one and removes others."""
    fs, path = locate(address)
    return ReceivedBlockTracker.recover(
        [STREAM],
        path,
        fs=fs,
        options=LogOptions(segment_size=64 << 10, alignment=64, sync=SyncPolicy.ALWAYS),
        snapshots=SnapshotRule(6000),
        application=name,
    )


def contents(ledger: ReceivedBlockTracker) -> list[int]:
    """Return the positions of all blocks, by batch and then of those that wait."""
    blocks = [
        info
        for time_ms in ledger.batch_times_ms
        for info in ledger.get_blocks_of_batch_and_stream(time_ms, STREAM)
    ]
    blocks += ledger.unallocated_blocks(STREAM)
    return [int(info.position or b"-1") for info in blocks]


class Worker:
    """Makes blocks, batches and checkpoints of one attempt."""

    def __init__(self, ledger: ReceivedBlockTracker) -> None:
        self.ledger = ledger
        self.attempt = uuid.uuid4().hex
        registered = ledger.register_attempt(STREAM, self.attempt, "host")
        self.number = registered.first_block_number
        self.position = int(ledger.last_position(STREAM) or b"-1")

    def work(self) -> None:
        at = self.position + 1
        info = block(STREAM, self.attempt, self.number, position=b"%d" % at)
        answer = add(self.ledger, STREAM, self.attempt, [info])
        if answer != Ok():
            raise LedgerWriteError("a block", str(answer))
        self.number, self.position = self.number + 1, at
        say("added", position=at)
        if at % 3 == 0:
            self.ledger.allocate_blocks_to_batch(max(self.ledger.last_allocated_ms, 0) + 1)
        if at % 7 == 0:
            self.ledger.write_checkpoint(b"%d" % at)
            say("checkpoint", position=at)


def main(address: str, name: str) -> int:
    try:
        ledger = open_ledger(address, name)
        say("found", positions=contents(ledger), checkpoint=ledger.checkpoint.decode())
        worker = Worker(ledger)
    except (PenstockError, OSError) as error:
        return end(f"{type(error).__name__}: {error}")
    for line in sys.stdin:
        for _ in range(int(line.split()[1])):
            try:
                worker.work()
            except PenstockError as error:
                return end(f"{type(error).__name__}: {error}", worker)
            time.sleep(0.005)
        say("done")
    ledger.close()
    return end("")


def end(why: str, worker: Worker | None = None) -> int:
    """Say why it ends; who is refused once is refused for ever."""
    if worker is not None:
        for _ in range(3):
            try:
                worker.work()
            except PenstockError:
                continue
            say("came back")
    say("ended", why=why)
    return bool(why)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
