"""Recording: the blocks of a stream are copied, as they come, into a folder of their own."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from dataclasses import dataclass

from penstock.blockstore.copies import BlockCopies
from penstock.host.durability import BLOCKS, LEDGER
from penstock.replay._history import History, HistoryError
from penstock.tracker import ReceivedBlockTracker
from penstock.wal import EncryptionKey, SegmentNotFoundError, is_shared
from penstock.wire.messages import AddBlock, Ok, ReceivedBlockInfo

_LOOK_S = 0.1
"""Less than a batch takes: blocks stay until theirs is cleaned up."""


@dataclass(frozen=True)
class Recorded:
    """What a recording has.

    Attributes:
        records: Records.
        blocks: Blocks, each with the time at which it was sealed, and its position.
        missed: Blocks that their program had let go before they were copied.
    """

    records: int
    blocks: int
    missed: int


def record(
    folder: str,
    stream: str,
    output: str,
    *,
    encryption: EncryptionKey | None,
    stopped: threading.Event,
    for_s: float | None = None,
) -> Recorded:
    """Copy what a stream has and what comes, until it is stopped.

    Args:
        folder: The checkpoint directory or log folder of a program, on this host.
        stream: The stream's name or number.
        output: A folder that is made; it is read as that of a program with this stream alone.
        encryption: The key of those logs; the copy is encrypted with it, too.
        stopped: Ends it.
        for_s: Ends it after that many seconds.

    Raises:
        HistoryError: There is no such folder or stream, or it cannot be read.
        OSError, PenstockError: There is such an output, or it cannot be written.
    """
    if is_shared(folder):
        raise HistoryError(folder, "only logs on this host are recorded")
    end_s = None if for_s is None else time.monotonic() + for_s
    name = History(folder, encryption).name_of(stream)
    os.mkdir(output, 0o700)
    with contextlib.closing(_Recording(os.path.abspath(output), name, encryption)) as recording:
        while True:
            is_last = stopped.is_set() or (end_s is not None and time.monotonic() >= end_s)
            recording.add(History(folder, encryption).blocks(stream))
            if is_last:
                return recording.recorded
            stopped.wait(_LOOK_S)


class _Recording:
    def __init__(self, folder: str, name: str, encryption: EncryptionKey | None) -> None:
        attempt = uuid.uuid4().hex
        host = socket.gethostname()
        self.recorded = Recorded(0, 0, 0)
        self._next: dict[str, int] | None = None
        self._ledger = ReceivedBlockTracker.recover(
            (), os.path.join(folder, LEDGER), encryption=encryption
        )
        try:
            self._ledger.register_streams({name: 0})
            self._number = self._ledger.register_attempt(0, attempt, host).first_block_number
            logs = os.path.join(folder, BLOCKS)
            os.mkdir(logs, 0o700)
            log = os.path.join(logs, f"0-{attempt}")
            self._copies = BlockCopies(log, attempt, host, encryption)
        except BaseException:
            self._ledger.close()
            raise

    def add(self, blocks: tuple[ReceivedBlockInfo, ...]) -> None:
        """Copy those that are new, and note what was let go before it was seen."""
        is_first, taken = self._next is None, self._next or {}
        self._next = taken
        found: list[ReceivedBlockInfo] = []
        missed = 0
        for info in blocks:
            # What an attempt stored before the recording began is not missed.
            due = taken.get(info.attempt, info.sequence if is_first else 1)
            if info.sequence < due:
                continue
            missed += info.sequence - due
            taken[info.attempt] = info.sequence + 1
            try:
                found.append(self._copies.copy(info, f"input-0-{self._number}"))
            except (FileNotFoundError, SegmentNotFoundError):
                missed += 1
                continue
            self._number += 1
        if found:
            answer = self._ledger.add_blocks(AddBlock(0, self._copies.attempt, tuple(found)))
            if not isinstance(answer, Ok):
                raise OSError(f"the recording takes no more: {answer}")
        self.recorded = Recorded(
            self.recorded.records + sum(info.num_records for info in found),
            self.recorded.blocks + len(found),
            self.recorded.missed + missed,
        )

    def close(self) -> None:
        try:
            self._copies.close()
        finally:
            self._ledger.close()
