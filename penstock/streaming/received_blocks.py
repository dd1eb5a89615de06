"""What the batches ask of the tracker, and the answers when there is no receiver."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from penstock.blockstore import BlockAccess
from penstock.errors import IllegalStateError
from penstock.wire.messages import ReceivedBlockInfo


class ReceivedBlocks(Protocol):
    """The part of `penstock.tracker.ReceiverTracker` that batches are made from."""

    def allocate_blocks_to_batch(self, time_ms: int, /) -> None:
        """Give all unallocated blocks to a batch; logged when this returns (I3).

        Raises:
            PenstockError, OSError: It could not be logged, and may be all the same: it is asked
                again for this batch before any later one.
        """
        ...

    def get_blocks_of_batch_and_stream(
        self, time_ms: int, stream_id: int, /
    ) -> Sequence[ReceivedBlockInfo]:
        """Return a stream's blocks of a batch, in the order in which they were added (I5)."""
        ...

    def has_unallocated_blocks(self) -> bool:
        """Return whether there are blocks that no batch has."""
        ...

    def last_allocated_ms(self) -> int:
        """Return the last batch that took blocks, in this run or one before; -1 before any."""
        ...

    def incomplete_batches(self) -> tuple[int, ...]:
        """Return the times of the batches that took blocks and are not known to be complete."""
        ...

    def complete_batches(self, times_ms: Iterable[int], /) -> None:
        """Note that batches were processed; it is logged soon, at the latest at the stop."""
        ...

    def release_memory(self, time_ms: int, /) -> None:
        """Let the memory copies of a batch's blocks go; what the log has can still be read."""
        ...

    def cleanup_old_blocks_and_batches(self, threshold_ms: int, /) -> None:
        """Log that batches before `threshold_ms` are done, then let their blocks go (I4)."""
        ...

    @property
    def block_access(self) -> BlockAccess:
        """How a batch task reaches blocks."""
        ...


class NoReceivedBlocks:
    """The answers for a program without receivers."""

    def allocate_blocks_to_batch(self, time_ms: int, /) -> None:
        """There are none."""

    def get_blocks_of_batch_and_stream(
        self, time_ms: int, stream_id: int, /
    ) -> Sequence[ReceivedBlockInfo]:
        return ()

    def has_unallocated_blocks(self) -> bool:
        return False

    def last_allocated_ms(self) -> int:
        return -1

    def incomplete_batches(self) -> tuple[int, ...]:
        return ()

    def complete_batches(self, times_ms: Iterable[int], /) -> None:
        """There are none."""

    def release_memory(self, time_ms: int, /) -> None:
        """There are none."""

    def cleanup_old_blocks_and_batches(self, threshold_ms: int, /) -> None:
        """There are none."""

    @property
    def block_access(self) -> BlockAccess:
        raise IllegalStateError("a program without receivers has no blocks")
