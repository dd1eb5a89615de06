"""A block that is lost: both of its copies are written over."""

from __future__ import annotations

from penstock.wal import segment_path
from penstock.wire.messages import ReceivedBlockInfo

__all__ = ["spoil"]


def spoil(block: ReceivedBlockInfo) -> None:
    """Write over a block's copies in memory and in the log."""
    assert block.memory is not None
    assert block.segment is not None
    log = segment_path(block.segment.folder, block.segment.segment)
    for path, offset in ((block.memory.path, block.memory.offset), (log, block.segment.offset)):
        with open(path, "r+b") as file:
            file.seek(offset)
            file.write(bytes(64))
