"""The tracker: `AddBlock` messages per second from four connections, with the driver log on.

The server, the ledger and the log are the tracker's own, the log synced before each answer. Each of
the four clients is a process of its own, and keeps a bounded number of asks unanswered.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
import uuid

from benchmarks.programs._program import tell
from penstock.tracker._endpoint import TrackerEndpoint
from penstock.tracker.ledger.received_block_tracker import ReceivedBlockTracker
from penstock.wire import ApplicationLink, Client, WireOptions
from penstock.wire.messages import (
    AddBlock,
    MemoryPlace,
    Ok,
    ReceivedBlockInfo,
    SegmentPlace,
)

CLIENTS = 4
UNANSWERED = 512
WARM_UP_S = 2.0
SECONDS = 8.0


def counts(ledger):
    """Return how many blocks the ledger took, and how many records it wrote."""
    blocks = sum(ledger.received(stream)[1] for stream in range(CLIENTS))
    return blocks, ledger._driver_log.records


def block(stream_id, attempt, number):
    length = 4096
    return ReceivedBlockInfo(
        stream_id=stream_id,
        block_id=f"input-{stream_id}-{number}",
        num_records=40,
        num_bytes=length,
        attempt=attempt,
        host="localhost",
        sequence=number & 0xFFFFFFFF,
        memory=MemoryPlace(f"/dev/shm/{attempt}", (number % 1000) * length, length),
        segment=SegmentPlace(f"/log/{stream_id}-{attempt}", number >> 16, length, length),
    )


def add_blocks(address, secret, stream_id, attempt, first_number, seconds):
    """Body of a client process."""
    client = Client(ApplicationLink(secret, address))
    client.connect()
    free = threading.Semaphore(UNANSWERED)

    def answered(future):
        assert isinstance(future.result(), Ok), future.result()
        free.release()

    number = first_number
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(64):
            free.acquire()
            message = AddBlock(stream_id, attempt, (block(stream_id, attempt, number),))
            client.ask_async(message).add_done_callback(answered)
            number += 1
    for _ in range(UNANSWERED):
        free.acquire()
    client.close()


def main():
    parent = json.loads(sys.argv[1])["folder"]
    folder = tempfile.mkdtemp(prefix="add-block-", dir=parent)
    spawn = multiprocessing.get_context("spawn")
    try:
        ledger = ReceivedBlockTracker.recover(range(CLIENTS), os.path.join(folder, "log"))
        secret = secrets.token_bytes(32)
        endpoint = TrackerEndpoint(
            ApplicationLink(secret), ledger, host="127.0.0.1", port=0, options=WireOptions()
        )
        address = endpoint.start()
        clients = []
        for stream_id in range(CLIENTS):
            attempt = uuid.uuid4().hex
            first = ledger.register_attempt(stream_id, attempt, "localhost").first_block_number
            seconds = WARM_UP_S + SECONDS + 4
            arguments = (address, secret, stream_id, attempt, first, seconds)
            clients.append(spawn.Process(target=add_blocks, args=arguments))
            clients[-1].start()
        while counts(ledger)[0] < 1000:
            time.sleep(0.05)
        time.sleep(WARM_UP_S)
        before, begun = counts(ledger), time.monotonic()
        tell({"progress": "four clients add blocks"})
        time.sleep(SECONDS)
        after, ended = counts(ledger), time.monotonic()
        for client in clients:
            client.join(30)
        assert all(client.exitcode == 0 for client in clients)
        endpoint.stop()
        ledger.close()
        added, records = (now - then for now, then in zip(after, before, strict=True))
        tell(
            {
                "figures": {
                    "messages_per_s": added / (ended - begun),
                    "messages_per_log_record": added / max(1, records),
                }
            }
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
