"""A driver's ledger in a process of its own, to be killed: argument 1 is the driver log's folder.

Says its address and the first block number of each stream in one line of JSON.
"""

from __future__ import annotations

import json
import sys
import time

from penstock.tracker import ReceivedBlockTracker
from penstock.tracker._endpoint import TrackerEndpoint
from penstock.tracker.ledger._driver_log import SnapshotRule
from penstock.wal import LogOptions, SyncPolicy
from penstock.wire import ApplicationLink, WireOptions
from tests.tracker.ledger_cases import attempt_name

SECRET = bytes(range(32))
STREAMS = (0, 1, 2, 3)


def main(folder: str) -> None:
    ledger = ReceivedBlockTracker.recover(
        STREAMS,
        folder,
        options=LogOptions(segment_size=256 << 10, alignment=64, sync=SyncPolicy.ALWAYS),
        snapshots=SnapshotRule(100_000),
    )
    first = [
        ledger.register_attempt(stream, attempt_name(stream), "host").first_block_number
        for stream in STREAMS
    ]
    endpoint = TrackerEndpoint(
        ApplicationLink(SECRET), ledger, host="127.0.0.1", port=0, options=WireOptions()
    )
    address = endpoint.start()
    print(json.dumps({"address": address, "first": first}), flush=True)
    started = time.monotonic()
    batch = 0
    while time.monotonic() - started < 60:
        time.sleep(0.01)
        batch += 1
        ledger.allocate_blocks_to_batch(batch)


if __name__ == "__main__":
    main(sys.argv[1])
