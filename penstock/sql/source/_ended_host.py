"""`EndedHost`: the directory of a `ReceiverHost` that has ended, as what answers about its places.

Its ledger is read, and nothing is written. Blocks are looked for below the directory first, by the
names of their receiver attempts, so that a copy of a directory is read wherever it is; then where
the ledger says.
"""

from __future__ import annotations

import os
from typing import TypeVar

import msgspec

from penstock.blockstore.process_log import moved
from penstock.errors import PenstockError
from penstock.files.addresses import is_shared
from penstock.host.durability import BLOCKS, LEDGER
from penstock.runtime.clock import SystemClock
from penstock.sql.errors import FolderError, SourceError
from penstock.tracker import KeptStreamSettings, PlaceService, ReceivedBlockTracker, Retention
from penstock.wal import EncryptionKey, locate, owner_of
from penstock.wire.messages import (
    BlocksAt,
    Failure,
    Message,
    ReceivedBlockInfo,
    Refused,
    SegmentPlace,
)

M = TypeVar("M")


class EndedHost:
    """Answers as the host would, from its directory.

    Args:
        folder: The directory, on this host or ``hdfs://…``.
        encryption: The key that its logs are encrypted with; None: they are in clear.

    Raises:
        FolderError: It is no such directory, cannot be read, or its host runs.
    """

    def __init__(self, folder: str, encryption: EncryptionKey | None = None) -> None:
        self._folder = folder
        try:
            fs, path = locate(os.path.join(folder, LEDGER))
            if not fs.is_folder(path):
                raise FolderError(folder, f"there is no ledger {LEDGER} in it")
            owner = None if is_shared(folder) else owner_of(path)
            if owner is not None:
                raise FolderError(
                    folder,
                    f"its host runs ({owner}). Read the stream from that one, without the "
                    "directory, or stop it first",
                )
            ledger = ReceivedBlockTracker.read(path, fs=fs, encryption=encryption)
            self._blocks = os.path.join(folder, BLOCKS)
            blocks_fs, blocks = locate(self._blocks)
            is_there = blocks_fs.is_folder(blocks)
            self._attempts = frozenset(blocks_fs.list_folder(blocks) if is_there else ())
        except FolderError:
            raise
        except (OSError, PenstockError) as error:
            raise FolderError(folder, str(error)) from error
        streams = ledger.kept_streams()
        if not streams:
            raise FolderError(
                folder, "its streams are those of a StreamingContext, which have no places"
            )
        self._service = PlaceService(
            ledger.places,
            {number: KeptStreamSettings(name, Retention(None)) for name, number in streams.items()},
            clock=SystemClock(),
            servers=dict,
            # Of this host; the rest is by size.
            parallelism=lambda: os.cpu_count() or 1,
        )

    def ask(self, message: Message, kind: type[M]) -> M:
        """Return the answer to one of the questions about places.

        Raises:
            SourceError: There is no such stream.
        """
        answer = self._service.answer(None, message)
        if isinstance(answer, BlocksAt):
            blocks = tuple(map(self._as_it_lies_now, answer.blocks))
            answer = msgspec.structs.replace(answer, blocks=blocks)
        if isinstance(answer, kind):
            return answer
        if isinstance(answer, (Refused, Failure)):
            raise SourceError(f"{self._folder}: {answer.reason}")
        raise SourceError(f"{self._folder}: {type(answer).__name__} is no answer")

    def close(self) -> None:
        """Do nothing: nothing is open between questions."""

    def _as_it_lies_now(self, block: ReceivedBlockInfo) -> ReceivedBlockInfo:
        replicas = tuple(
            msgspec.structs.replace(copy, segment=self._found(copy.segment))
            for copy in block.replicas
        )
        segment = None if block.segment is None else self._found(block.segment)
        # The copy in memory has gone with the application.
        return msgspec.structs.replace(block, memory=None, segment=segment, replicas=replicas)

    def _found(self, place: SegmentPlace) -> SegmentPlace:
        folder = moved(place.folder, self._blocks, self._attempts)
        return msgspec.structs.replace(place, folder=folder)
