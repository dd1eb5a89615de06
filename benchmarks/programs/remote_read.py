"""Reading blocks of another host, beside a plain copy of the same bytes through a socket.

A real block server serves blocks that lie in a memory file; this process fetches them as a batch's
task does: the connection, requests, records, their checksums. The plain copy is `sendall` of the
same mapped bytes by another process and `recv_into` one buffer, over one connection. Both go
through loopback, and take turns; the median of each counts. Blocks that leave their host are
sealed, too: their reading is measured once more as if these did.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import subprocess
import sys
import tempfile
import time
from statistics import median

import msgspec

from benchmarks.programs._program import tell
from penstock.blockstore import BlockAccess
from penstock.blockstore.reading import fetch as _fetch
from penstock.blockstore.reading._readahead import Readahead
from penstock.blockstore.reading._remote import fetch_from_host
from penstock.blockstore.reading.fetch import KeptConnections
from penstock.blockstore.server.launch import BlockServerLaunch, ensure_block_server
from penstock.wal import RECORD_HEADER_SIZE, stamp_record
from penstock.wire import ApplicationLink, Server
from penstock.wire.messages import (
    BlockServerRegistered,
    MemoryPlace,
    ReceivedBlockInfo,
    StopBlockServer,
)

ROUNDS = 7
TOTAL = 512 << 20
SIZES = (1 << 20, 8 << 20, 32 << 20)
APPLICATION = "remote-read"
ATTEMPT = "0123456789abcdef" * 2

SENDER = """
import mmap, os, socket, sys

with socket.create_server(("127.0.0.1", 0)) as server, open(sys.argv[1], "rb") as file:
    print(server.getsockname()[1], flush=True)
    view = memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    while True:
        connection, _ = server.accept()
        with connection:
            size, count = map(int, connection.recv(100).split())
            for _ in range(count):
                connection.sendall(view[:size])
"""


class Tracker:
    """Registers the block server, as the driver does."""

    def __init__(self):
        self.peer = None

    def on_message(self, peer, message):
        self.peer = peer
        return BlockServerRegistered(60.0)

    def on_disconnect(self, peer):
        pass


def make_block(path, size):
    """Write one block's record; return what is known of it."""
    with open(path, "w+b") as file:
        file.truncate(RECORD_HEADER_SIZE + size)
        memory = mmap.mmap(file.fileno(), 0)
        memory[RECORD_HEADER_SIZE:] = os.urandom(1 << 20) * (size >> 20)
        stamp_record(memoryview(memory), 1, size, 7)
    place = MemoryPlace(path, 0, RECORD_HEADER_SIZE + size)
    return ReceivedBlockInfo(0, "input-0-1", 1, size, ATTEMPT, "there", 7, place, None)


def copied(port, size, buffer):
    """Return the bytes per second of a plain copy."""
    view = memoryview(buffer)[:size]
    with socket.create_connection(("127.0.0.1", port)) as connection:
        begun = time.perf_counter()
        connection.sendall(b"%d %d" % (size, TOTAL // size))
        for _ in range(TOTAL // size):
            place = 0
            while place < size:
                place += connection.recv_into(view[place:])
        return TOTAL / (time.perf_counter() - begun)


def fetched(address, secret, block, within_host=True):
    """Return the bytes per second of fetching it again and again, as if these were many blocks."""
    _fetch.is_within_host = lambda connected: within_host
    _fetch._connections = KeptConnections()
    access = BlockAccess({block.host: address}, ApplicationLink(secret))
    blocks = [
        msgspec.structs.replace(block, block_id=f"input-0-{number}")
        for number in range(TOTAL // block.num_bytes)
    ]
    begun = time.perf_counter()
    ahead = Readahead(blocks)
    for one in blocks:
        fetch_from_host(one, access, ahead=ahead)
    return TOTAL / (time.perf_counter() - begun)


def main():
    given = json.loads(sys.argv[1])
    folder = tempfile.mkdtemp(prefix="remote-read-", dir=given["folder"])
    memory_folder = given["memory_folder"]
    path = os.path.join(memory_folder, f"penstock-{APPLICATION}-{ATTEMPT}")
    make_block(path, max(SIZES))
    tracker, secret = Tracker(), os.urandom(32)
    server = Server(ApplicationLink(secret), tracker)
    ready = ensure_block_server(
        BlockServerLaunch(
            application_id=APPLICATION,
            link=ApplicationLink(secret, server.start()),
            host="there",
            scratch_folder=folder,
            block_log_root=folder,
            memory_folder=memory_folder,
        )
    )
    sender = subprocess.Popen(
        [sys.executable, "-c", SENDER, path], stdout=subprocess.PIPE, text=True
    )
    port = int(sender.stdout.readline())
    buffer = bytearray(max(SIZES))
    figures, notes = {}, {}
    for size in SIZES:
        block = make_block(path, size)
        plain, ours, sealed = [], [], []
        for _ in range(ROUNDS):
            plain.append(copied(port, size, buffer))
            ours.append(fetched(ready.address, secret, block))
            sealed.append(fetched(ready.address, secret, block, within_host=False))
        mib = size >> 20
        figures[f"share_{mib}_mib"] = median(ours) / median(plain)
        figures[f"sealed_share_{mib}_mib"] = median(sealed) / median(plain)
        notes[f"{mib} MiB"] = (
            f"{median(ours) / 1e6:,.0f} MB/s, sealed {median(sealed) / 1e6:,.0f} MB/s, "
            f"plain copy {median(plain) / 1e6:,.0f} MB/s"
        )
        tell({"progress": f"{mib} MiB: {notes[f'{mib} MiB']}"})
    tracker.peer.send(StopBlockServer(remove_files=True))
    sender.kill()
    sender.wait()
    server.stop()
    tell({"figures": figures, "notes": notes})


if __name__ == "__main__":
    main()
