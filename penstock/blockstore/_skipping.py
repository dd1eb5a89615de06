"""Going on without a block that no host has, where the user has chosen that.

The task that misses the block fails as always, so that Spark tries it again, here or on another
host. Only its last try leaves the block out, and only after the tracker has taken note of it: what
is left out is logged and counted, once for each block. Where there is no tracker any more, the task
logs it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from pyspark import TaskContext

from penstock.blockstore.reader import Block, BlockAccess, BlockNotFoundError, read_block
from penstock.wire.messages import Ok, ReceivedBlockInfo, SkippedBlock

__all__ = ["read_block_if_any"]

_log = logging.getLogger("penstock.blockstore")


@contextlib.contextmanager
def read_block_if_any(info: ReceivedBlockInfo, access: BlockAccess) -> Iterator[Block | None]:
    """Open a block for reading, as `read_block`.

    Yields:
        The block; None when it is nowhere, and the batch goes on without it.

    Raises:
        BlockNotFoundError: It is nowhere, and that is an error; or the tracker could not be told.
    """
    with contextlib.ExitStack() as stack:
        block: Block | None = None
        try:
            block = stack.enter_context(read_block(info, access))
        except BlockNotFoundError as error:
            if not _is_last_try(access) or not _is_noted(info, access, error):
                raise
        yield block


def _is_last_try(access: BlockAccess) -> bool:
    context = TaskContext.get()
    if access.skip_after is None or context is None:
        return False
    return context.attemptNumber() + 1 >= access.skip_after


def _is_noted(info: ReceivedBlockInfo, access: BlockAccess, error: BlockNotFoundError) -> bool:
    if access.tracker is None:
        _log.warning("Block %s, which is lost, is left out: %s", info.block_id, error)
        return True
    # It is rare; the import would cost every task.
    from penstock.blockstore._remote import ask_tracker

    message = SkippedBlock(info.stream_id, info.block_id, str(error))
    return isinstance(ask_tracker(message, access, access.fetch_timeout_s), Ok)
