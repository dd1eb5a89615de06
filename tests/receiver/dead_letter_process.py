"""A receiver that discards records, in a process of its own: to be killed, or to fill a disk.

It stores rows with positions behind the last one that is durable; every second row does not fit,
nor does the first one.
"""

from __future__ import annotations

import pickle
import sys
from typing import Any

import pyarrow as pa

from penstock.receiver import Receiver, run_receiver


class EverySecondFits(Receiver):
    """Goes on behind the last durable position, up to `count`."""

    schema = pa.schema([("number", pa.int64())])

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def onStart(self) -> None:
        for place in range(self.lastPosition or 0, self.count):
            row: dict[str, Any] = {"number": place if place % 2 else f"bad {place}"}
            self.store(row, position=place + 1)

    def onStop(self) -> None:
        pass


if __name__ == "__main__":
    run_receiver(
        pickle.loads(bytes.fromhex(sys.stdin.read())), ensure_block_server=lambda launch: None
    )
