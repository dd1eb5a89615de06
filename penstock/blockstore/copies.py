"""`BlockCopies`: a log of blocks that are in the logs of others, as they are in these."""

from __future__ import annotations

import contextlib

from msgspec.structs import replace

from penstock.blockstore._encryption import block_cipher
from penstock.blockstore.process_log import cipher_of
from penstock.blockstore.reading.reader import payload_in
from penstock.blockstore.server.replica_service import BLOCK_RECORD
from penstock.wal import EncryptionKey, LogOptions, LogWriter, SyncPolicy
from penstock.wire.messages import ReceivedBlockInfo, SegmentPlace

_OPTIONS = LogOptions(sync=SyncPolicy.NONE, segment_size=8 << 20)


class BlockCopies:
    """Takes copies of blocks into a log of its own, which is on the disk when it is closed.

    Args:
        folder: The log's folder on this host; made here.
        attempt: 32 hex digits, under which the copies are known.
        host: The host that has them.
        encryption: The key of the logs, of those that are read and of this one.

    Raises:
        WalError: The log cannot be made.
    """

    def __init__(
        self, folder: str, attempt: str, host: str, encryption: EncryptionKey | None
    ) -> None:
        self.folder = folder
        self.attempt = attempt
        self.host = host
        self._encryption = encryption
        cipher = block_cipher(encryption, attempt)
        self._writer = LogWriter.create(folder, options=_OPTIONS, cipher=cipher)

    def copy(self, info: ReceivedBlockInfo, block_id: str) -> ReceivedBlockInfo:
        """Copy a block that a log on this host has.

        Args:
            info: The block; its ``segment`` is where it is.
            block_id: The name of its copy.

        Raises:
            OSError: It is gone, or cannot be read.
            WalError: It is damaged, or there is no space for the copy.
        """
        assert info.segment is not None
        with contextlib.ExitStack() as opened:
            cipher = cipher_of(self._encryption, info.attempt, info.segment.folder)
            payload = payload_in(info.segment, info.sequence, cipher, opened)
            place = self._writer.append(BLOCK_RECORD, payload)
        return replace(
            info,
            stream_id=int(block_id.split("-")[1]),
            block_id=block_id,
            attempt=self.attempt,
            host=self.host,
            sequence=place.sequence,
            memory=None,
            segment=SegmentPlace(self.folder, place.segment, place.offset, place.length),
            replicas=(),
        )

    def close(self) -> None:
        """End the log.

        Raises:
            WalError: It cannot be forced to the disk.
        """
        self._writer.sync()
        self._writer.close()
