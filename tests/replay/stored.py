"""A program's folder with what its receivers stored at times that a test sets: without Spark."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.blockstore import BlockKind, BlockStore
from penstock.blockstore.building.builder import join_binary
from penstock.blockstore.building.record_pickles import pickle_record
from penstock.blockstore.process_log import ProcessLog
from penstock.blockstore.store import BlockStoreOptions
from penstock.host.durability import BLOCKS, LEDGER
from penstock.runtime.clock import ManualClock
from penstock.tracker import ReceivedBlockTracker
from penstock.wal import LogOptions, locate
from tests.tracker.ledger_cases import LOG_OPTIONS, add

BEGIN_MS = 1_000_000


class Stored:
    """The stream ``clicks``, number 0: real logs and a real ledger.

    Args:
        folder: For all that it has.
        address: Where its logs are kept, if not in this folder.
        log: The name of a log that its attempts share with others; empty: each has its own.
    """

    def __init__(self, folder: Path, address: str = "", log: str = "") -> None:
        self.folder = folder / "checkpoint"
        self._logs = address or str(self.folder)
        self._shared = os.path.join(self._logs, BLOCKS, log) if log else ""
        self._process_log = ProcessLog(self._shared, 0.0) if log else None
        self.clock = ManualClock(BEGIN_MS)
        self._memory_dir = str(folder)
        fs, path = locate(os.path.join(self._logs, LEDGER))
        self._ledger = ReceivedBlockTracker.recover(
            (), path, fs=fs, options=LOG_OPTIONS, clock=self.clock
        )
        self._ledger.register_streams({"clicks": 0}, ())
        self._store: BlockStore | None = None
        self.begin_attempt()

    def begin_attempt(self) -> None:
        """Store what comes in the log of another attempt."""
        if self._store is not None:
            self._store.close()
        attempt = uuid.uuid4().hex
        registration = self._ledger.register_attempt(0, attempt, "here", self._shared)
        self._number = registration.first_block_number
        self._store = BlockStore(
            stream_id=0,
            attempt=attempt,
            host="here",
            log_folder=os.path.join(self._shared or f"{self._logs}/{BLOCKS}", f"0-{attempt}"),
            process_log=self._process_log,
            options=BlockStoreOptions(
                memory_dir=self._memory_dir,
                memory_bytes=1 << 20,
                block_max_bytes=64 << 10,
                log=LogOptions(segment_size=64 << 10, alignment=64, roll_age_s=1.0, direct=False),
            ),
            clock=self.clock,
        )

    def begin_segment(self, after_ms: int = 1000) -> None:
        """Have the next block begin another segment."""
        self.clock.advance(after_ms)

    def put(self, *records: bytes, sealed_ms: int | None = None) -> None:
        """Store a block of bytes; it was sealed now, or then."""
        assert self._store is not None
        builder = self._store.open_block(BlockKind.BINARY)
        builder.append(*join_binary(records))
        self._add(builder, sealed_ms)

    def put_objects(self, *records: Any) -> None:
        """Store a block of pickled objects."""
        assert self._store is not None
        builder = self._store.open_block(BlockKind.PICKLED)
        builder.append(*join_binary([pickle_record(record) for record in records]))
        self._add(builder, None)

    def put_rows(self, batch: pa.RecordBatch) -> None:
        """Store a block of one Arrow batch."""
        assert self._store is not None
        builder = self._store.open_block(BlockKind.ARROW, batch.schema)
        assert builder.append_batch(batch)
        self._add(builder, None)

    def _add(self, builder: Any, sealed_ms: int | None) -> None:
        assert self._store is not None
        time_ms = self.clock.time_ms() if sealed_ms is None else sealed_ms
        sealed = builder.seal(f"input-0-{self._number}", 0.0, time_ms=time_ms)
        add(self._ledger, 0, self._store.attempt, [self._store.put(sealed)])
        self._number += 1

    def close(self) -> None:
        """End the program."""
        if self._store is not None:
            self._store.close()
        if self._process_log is not None:
            self._process_log.close()
        self._ledger.close()
