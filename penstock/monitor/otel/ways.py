"""`Ways`: a block's times from its receiver, put together with those of its batch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.monitor.application import Application
from penstock.monitor.records import Batch
from penstock.wire.messages import BlockTrace, ReceivedBlockInfo

_MOST = 2_000
"""Blocks that may wait for their batch or their receiver's times; beyond that, the oldest are
dropped."""


@dataclass(frozen=True)
class Way:
    """The way of a block to the end of its batch.

    Attributes:
        trace: Its times until the driver knew it.
        block: The block.
        batch: Its batch, which is complete.
    """

    trace: BlockTrace
    block: ReceivedBlockInfo
    batch: Batch


class Ways:
    """Waits until both parts of a block's way are known. For one thread.

    Args:
        application: Tells traces, and the blocks of a batch.
        every: Of how many blocks one is traced.
    """

    def __init__(self, application: Application, every: int) -> None:
        self._application = application
        self._every = every
        self._looked_at: OrderedDict[int, None] = OrderedDict()
        self._traces: OrderedDict[str, BlockTrace] = OrderedDict()
        self._blocks: OrderedDict[str, tuple[ReceivedBlockInfo, int]] = OrderedDict()

    def take(self, batches: Iterable[Batch]) -> list[Way]:
        """Return the ways that are complete by now, each once.

        A lost report of a receiver loses its traces; what misses a part is given up in time.

        Args:
            batches: Those that the model keeps.
        """
        for trace in self._application.take_traces():
            self._traces[trace.block_id] = trace
        known = {batch.time_ms: batch for batch in batches}
        for time_ms in sorted(known):
            if time_ms not in self._looked_at:
                self._looked_at[time_ms] = None
                self._look_at(time_ms)
        found = []
        for block_id in [block_id for block_id in self._traces if block_id in self._blocks]:
            block, time_ms = self._blocks[block_id]
            batch = known.get(time_ms)
            if batch is not None and batch.end_ms is None:
                continue
            trace = self._traces.pop(block_id)
            del self._blocks[block_id]
            if batch is not None:
                found.append(Way(trace, block, batch))
        for kept in (self._traces, self._blocks):
            while len(kept) > _MOST:
                kept.popitem(last=False)
        while len(self._looked_at) > max(_MOST, len(known)):
            self._looked_at.popitem(last=False)
        return found

    def _look_at(self, time_ms: int) -> None:
        for block in self._application.blocks_of_batch(time_ms):
            if BlockTrace.is_due(block.block_id, self._every):
                self._blocks[block.block_id] = block, time_ms
