"""Recovery of a ledger with one million blocks, all in batches that were not cleaned up."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import uuid

from benchmarks.programs._program import tell
from benchmarks.programs.add_block import block
from penstock.tracker.ledger.received_block_tracker import ReceivedBlockTracker
from penstock.wire.messages import AddBlock, Ok

STREAMS = 4
BATCHES = 200
BLOCKS_PER_STREAM_AND_BATCH = 1250
BLOCKS = STREAMS * BATCHES * BLOCKS_PER_STREAM_AND_BATCH


def fill(ledger):
    attempts = {}
    for stream_id in range(STREAMS):
        attempt = uuid.uuid4().hex
        first = ledger.register_attempt(stream_id, attempt, "localhost").first_block_number
        attempts[stream_id] = (attempt, first)
    for batch in range(BATCHES):
        for stream_id, (attempt, first) in attempts.items():
            begin = first + batch * BLOCKS_PER_STREAM_AND_BATCH
            numbers = range(begin, begin + BLOCKS_PER_STREAM_AND_BATCH)
            blocks = tuple(block(stream_id, attempt, number) for number in numbers)
            assert isinstance(ledger.add_blocks(AddBlock(stream_id, attempt, blocks)), Ok)
        assert ledger.allocate_blocks_to_batch((batch + 1) * 1000)
        if batch % 20 == 0:
            tell({"progress": f"{batch * 100 // BATCHES} % of the ledger written"})


def main():
    folder = tempfile.mkdtemp(prefix="recovery-", dir=json.loads(sys.argv[1])["folder"])
    log = os.path.join(folder, "log")
    try:
        ledger = ReceivedBlockTracker.recover(range(STREAMS), log)
        fill(ledger)
        ledger.close()
        del ledger
        size = sum(entry.stat().st_size for entry in os.scandir(log))
        begun = time.monotonic()
        ledger = ReceivedBlockTracker.recover(range(STREAMS), log)
        seconds = time.monotonic() - begun
        found = sum(
            len(blocks)
            for batch in ledger.batch_times_ms
            for blocks in ledger.get_blocks_of_batch(batch).values()
        )
        assert found == BLOCKS, found
        ledger.close()
        tell({"figures": {"recovery_s": seconds, "blocks": found, "log_mib": size / (1 << 20)}})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
