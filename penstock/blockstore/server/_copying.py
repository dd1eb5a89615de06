"""`BlockCopier`: copies blocks that this host has to another one, when the tracker asks for that.

So a copy that was lost with its host is made again, and copies of a host that is about to go are
made before it does. What is sent is what a reader of this host would take: from the slot, the
receiver's log, or the log of copies; header, sequence and CRC-32C are checked as in a read. The
other host takes it as a receiver's copy (`PeerLink`).

With a key a copy is encrypted, and this process has none. A copy goes on as it came here. From the
receiver's log the whole record goes, also its header: that is what the key opens (`opened_copy`).
Of a slot, which is in clear, the tracker then asks for no copy.
"""

from __future__ import annotations

import time

from penstock.blockstore.server._files import ApplicationFiles
from penstock.blockstore.server._serving import NotThereError, open_record
from penstock.blockstore.server.peer_link import PeerLink
from penstock.runtime.checksum import crc32c
from penstock.wal import CorruptRecordError, EncryptionMismatchError, parse_record
from penstock.wire import ApplicationLink, WireError
from penstock.wire.messages import BlocksCopied, CopyBlocks, ReceivedBlockInfo, ReplicaPlace

_STEP_BYTES = 4 << 20
_LONGEST_S = 60.0
"""After that what was copied is answered, and the rest is left."""


class BlockCopier:
    """For one thread, but for `close`.

    Args:
        files: The application's files on this host.
        link: What opens connections.
    """

    def __init__(self, files: ApplicationFiles, link: ApplicationLink) -> None:
        self._files = files
        self._application = link
        self._link: PeerLink | None = None
        self._closed = False

    def copy(self, message: CopyBlocks) -> BlocksCopied:
        """Copy blocks one after the other, until the other host takes no more, or for a minute."""
        places: list[ReplicaPlace | None] = []
        reason, is_refused = "", False
        end_s = time.monotonic() + _LONGEST_S
        try:
            for block in message.blocks:
                if self._closed or time.monotonic() >= end_s:
                    break
                try:
                    payload = self._payload(block)
                except NotThereError as error:
                    reason = f"block {block.block_id}: {error}"
                    places.append(None)
                    continue
                places.append(self._send(message, block, payload))
        except WireError as error:
            reason, is_refused = str(error), True
            places.append(None)
        finally:
            self._let_go()
        return BlocksCopied(message.request, tuple(places), reason, is_refused)

    def close(self) -> None:
        """Break off what is being copied."""
        self._closed = True
        self._let_go()

    def _let_go(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _send(
        self, message: CopyBlocks, block: ReceivedBlockInfo, payload: memoryview
    ) -> ReplicaPlace:
        link = self._link
        if link is None:
            application = self._application
            link = self._link = PeerLink(
                message.host, message.address, application.secret, application.client_context()
            )
            if self._closed:
                self._let_go()
        return link.keep(block.stream_id, block.attempt, payload, crc32c(payload))

    def _payload(self, block: ReceivedBlockInfo) -> memoryview:
        """Return what the copy of a block holds.

        Raises:
            NotThereError: This host does not have it, or not whole.
        """
        tried = []
        for place in (block.memory, block.segment):
            if place is None:
                continue
            try:
                with open_record(self._files, place, block.sequence) as record:
                    return _payload_of(b"".join(record.pieces(_STEP_BYTES)), block.sequence)
            except (NotThereError, CorruptRecordError, OSError) as error:
                tried.append(str(error))
        raise NotThereError("; ".join(tried) or "it is in clear, in memory only")


def _payload_of(record: bytes, sequence: int) -> memoryview:
    try:
        return parse_record(memoryview(record), expected_sequence=sequence)
    except EncryptionMismatchError:
        # Its checksum is right; the rest is for those who have the key.
        return memoryview(record)
