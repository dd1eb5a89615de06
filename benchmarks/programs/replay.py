"""Reading again what a receiver stored, from local logs into Arrow, beside a plain read of them.

A ledger and a log are written as a receiver and its driver leave them: blocks of 4 MiB, of Arrow
record batches in one stream and of lines in the other. All of it is then in the page cache, so the
figures are of the reading and not of the disk. Of each stream every record becomes a row of an
Arrow batch, in one thread, as each task of `penstock.replay.read` does it, or the command.

The ways take turns, several times; the median of each counts.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
import uuid
from statistics import median

import pyarrow as pa

from benchmarks.programs._program import tell
from penstock.blockstore import BlockKind
from penstock.blockstore.arrow_frames import plain_schema
from penstock.blockstore.building.builder import DATA_START, DESCRIPTOR, KIND_CODES, MAGIC
from penstock.replay._read import find, first_schema, tables
from penstock.tracker import ReceivedBlockTracker
from penstock.wal import LogOptions, LogWriter
from penstock.wire.messages import AddBlock, Ok, ReceivedBlockInfo, SegmentPlace

ROUNDS = 5
TOTAL = int(os.environ.get("REPLAY_BYTES", 1 << 30))
BLOCK = 4 << 20
LINE = 100
HOST = "localhost"


def arrow_block():
    rows = BLOCK // 40
    batch = pa.record_batch(
        {
            "number": pa.array(range(rows), pa.int64()),
            "value": pa.array([float(row) for row in range(rows)]),
            "name": pa.array([f"sensor {row:09d}" for row in range(rows)]),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return BlockKind.ARROW, rows, sink.getvalue().to_pybytes()


def line_block():
    lines = BLOCK // LINE
    return BlockKind.LINES, lines, b"".join(b"%099d\n" % line for line in range(lines))


def payload(kind, records, data):
    now_ms = time.time_ns() // 1_000_000
    head = (MAGIC, KIND_CODES[kind], 0, 0, 0, records, DATA_START, len(data), 0, now_ms)
    return DESCRIPTOR.pack(*head) + data


def write(folder, ledger, stream_id, block):
    """Write the log of a stream; return how many bytes of records it has."""
    kind, records, data = block
    attempt = uuid.uuid4().hex
    first = ledger.register_attempt(stream_id, attempt, HOST).first_block_number
    log_folder = os.path.join(folder, "receivedData", f"{stream_id}-{attempt}")
    os.makedirs(os.path.dirname(log_folder), exist_ok=True)
    count = max(1, TOTAL // len(data))
    with LogWriter.create(log_folder, options=LogOptions(segment_size=128 << 20)) as log:
        for number in range(first, first + count):
            place = log.append(1, payload(kind, records, data))
            info = ReceivedBlockInfo(
                stream_id=stream_id,
                block_id=f"input-{stream_id}-{number}",
                num_records=records,
                num_bytes=len(data),
                attempt=attempt,
                host=HOST,
                sequence=place.sequence,
                memory=None,
                segment=SegmentPlace(log_folder, place.segment, place.offset, place.length),
                kind=kind.value,
            )
            assert isinstance(ledger.add_blocks(AddBlock(stream_id, attempt, (info,))), Ok)
    return count * len(data), count * records


def replayed(folder, stream, records):
    """Return the seconds that it takes to read all records into Arrow."""
    begun = time.monotonic()
    window, segments = find(folder, stream, None, None, None)
    schema = plain_schema(first_schema(segments, window, None))
    rows = sum(
        batch.num_rows for segment in segments for batch in tables(segment, window, None, schema)
    )
    assert rows == records, (rows, records)
    return time.monotonic() - begun


def read_plainly(folder):
    begun = time.monotonic()
    size = 0
    buffer = bytearray(BLOCK)
    for parent, _, names in os.walk(os.path.join(folder, "receivedData")):
        for name in names:
            with open(os.path.join(parent, name), "rb", buffering=0) as file:
                while found := file.readinto(buffer):
                    size += found
    return size / (time.monotonic() - begun)


def main():
    folder = tempfile.mkdtemp(prefix="replay-", dir=json.loads(sys.argv[1])["folder"])
    blocks = {"rows": arrow_block(), "lines": line_block()}
    try:
        metadata = os.path.join(folder, "receivedBlockMetadata")
        ledger = ReceivedBlockTracker.recover(range(len(blocks)), metadata)
        numbers = ledger.register_streams({name: n for n, name in enumerate(blocks)})
        written = {name: write(folder, ledger, numbers[name], blocks[name]) for name in blocks}
        ledger.close()
        read_plainly(folder)  # The log was written past the page cache.
        rates = {}
        for turn in range(ROUNDS):
            for name, (size, records) in written.items():
                rates.setdefault(name, []).append(size / replayed(folder, name, records))
            rates.setdefault("plain", []).append(read_plainly(folder))
            tell({"progress": f"round {turn + 1} of {ROUNDS}"})
        figures = {f"{name}_mb_per_s": median(found) / 1e6 for name, found in rates.items()}
        tell({"figures": figures})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
