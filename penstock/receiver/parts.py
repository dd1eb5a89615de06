"""`Parts`: how one attempt's block store and block generator are made, and its block server."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from penstock._setting_values import record_budget
from penstock.blockstore import BlockStore
from penstock.blockstore.replicator import FindReplicaHost, Replicator
from penstock.blockstore.store import BlockStoreOptions
from penstock.dead_letters import DeadLetterPlace, DeadLetterWriter, folder_beside
from penstock.errors import PenstockError
from penstock.receiver.block_generator import BlockGenerator, BlockGeneratorOptions
from penstock.receiver.rate_limiter import RateLimiter
from penstock.receiver.shared_rate import SharedRate, SharedRateLimiter
from penstock.settings import Settings
from penstock.wal import EncryptionKey, SyncPolicy
from penstock.wire.messages import ReceivedBlockInfo

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.receiver.launch import ReceiverLaunch

__all__ = ["Parts", "arena_name", "dead_letter_place", "log_folder"]

_POSITION_BYTES = 64 << 10

_BLOCK_SERVER_PAUSES_S = (0.5, 2.0, 10.0, 60.0)
"""Pauses between the tries to start the host's block server."""


def log_folder(block_log_root: str, stream_id: int, attempt: str) -> str:
    """Return the log folder of an attempt; no other attempt ever uses it."""
    return os.path.join(block_log_root, f"{stream_id}-{attempt}")


def arena_name(application_id: str, attempt: str) -> str:
    """Return the file name of an attempt's arena; the block server serves no other names."""
    return f"penstock-{application_id}-{attempt}"


@dataclass(frozen=True)
class Parts:
    """Makes what the supervisor of one attempt runs.

    Attributes:
        launch: What is run, and where its things lie.
        schema: Of the records, or None.
        host: This host, as Spark names it.
        start_block_server: Makes sure that this host's block server runs; may be called again.
        receiver_type: The receiver's class.
        validate: Its `Receiver.validate`, or None.
    """

    launch: ReceiverLaunch
    schema: pa.Schema | None
    host: str
    start_block_server: Callable[[ReceiverLaunch], None]
    receiver_type: str = ""
    validate: Callable[[Any], Any] | None = None

    def ensure_block_server(
        self, failed: Callable[[PenstockError], None], pause: Callable[[float], bool]
    ) -> None:
        """Try until there is one: it may be killed, or the host may be short of memory for now.

        Args:
            failed: Told of each failure.
            pause: Waits so many seconds; returns True when there is to be no further try.
        """
        for pause_s in chain(_BLOCK_SERVER_PAUSES_S, repeat(_BLOCK_SERVER_PAUSES_S[-1])):
            try:
                self.start_block_server(self.launch)
            except PenstockError as error:
                failed(error)
            else:
                return
            if pause(pause_s):
                return

    def open_storage(
        self, find: FindReplicaHost, on_error: Callable[[str, BaseException], None]
    ) -> BlockStore:
        """Open the attempt's block store.

        Args:
            find: Asks for a host of second copies.
            on_error: Told that there is none.
        """
        launch, settings = self.launch, self.launch.settings
        use_disk, use_memory = launch.storage_level[:2]
        replicator = None
        if launch.has_copies:
            replicator = Replicator(
                launch.stream_id,
                launch.attempt,
                link=launch.link,
                find=find,
                on_error=on_error,
            )
        return BlockStore(
            stream_id=launch.stream_id,
            attempt=launch.attempt,
            host=self.host,
            log_folder=log_folder(launch.logs.root, launch.stream_id, launch.attempt),
            host_folder=log_folder(launch.logs.folder_of_host, launch.stream_id, launch.attempt),
            memory_name=arena_name(launch.application_id, launch.attempt),
            options=BlockStoreOptions(
                memory_dir=settings.memory_dir,
                memory_bytes=settings.memory_bytes,
                block_max_bytes=settings.block_max_bytes,
                log=launch.log_options,
                use_memory=use_memory,
                use_disk=use_disk,
                compression=_compression(settings),
            ),
            encryption=launch.logs.encryption,
            replicator=replicator,
        )

    def make_generator(
        self,
        first_block_number: int,
        storage: BlockStore,
        report: Callable[[tuple[ReceivedBlockInfo, ...]], None],
        on_error: Callable[[str, BaseException], None],
    ) -> BlockGenerator:
        """Make the block generator; it is not started.

        Args:
            first_block_number: Of the attempt.
            storage: From `open_storage`.
            report: Reports blocks to the tracker; returns once they are in the driver log. Raises
                `RefusedError` when asking again does not help, and anything else when it may.
            on_error: Told of trouble.
        """
        launch, settings = self.launch, self.launch.settings
        return BlockGenerator(
            stream_id=launch.stream_id,
            first_block_number=first_block_number,
            block_store=storage,
            report=report,
            limiter=_limiter(launch, on_error),
            options=BlockGeneratorOptions(
                block_interval_s=settings.block_interval_ms / 1000,
                queue_size=settings.block_queue_size,
                schema=self.schema,
                validate=self.validate,
                position_bytes=min(_POSITION_BYTES, settings.max_frame_bytes // 2),
                report_bytes=settings.max_frame_bytes // 2,
                dead_letter_budget=(
                    None
                    if settings.dead_letters_budget is None
                    else record_budget(settings.dead_letters_budget)
                ),
                pauses_over_budget=settings.dead_letters_budget_action == "pause",
                trace_every=settings.otel_traces_every if settings.otel_enabled else 0,
            ),
            on_error=on_error,
            letters=self._make_letters(on_error),
        )

    def _make_letters(
        self, on_error: Callable[[str, BaseException], None]
    ) -> DeadLetterWriter | None:
        place = self.letters_place()
        return None if place is None else DeadLetterWriter(place, on_error)

    def letters_place(self) -> DeadLetterPlace | None:
        """Return where the attempt's dead letters go; None: they are not kept."""
        launch, settings = self.launch, self.launch.settings
        if not settings.dead_letters_enabled:
            return None
        logs = launch.logs
        place = dead_letter_place(settings, logs.root, logs.sync, logs.encryption)
        return replace(
            place,
            stream=launch.stream_id,
            attempt=launch.attempt,
            receiver=self.receiver_type,
            host=self.host,
        )


def dead_letter_place(
    settings: Settings, block_log_root: str, sync: str, encryption: EncryptionKey | None
) -> DeadLetterPlace:
    """Return where the dead letters of a program go; nobody's yet.

    Args:
        settings: The settings.
        block_log_root: The folder of the blocks' logs.
        sync: The sync policy of the blocks.
        encryption: The key of the logs; None: in clear.
    """
    return DeadLetterPlace(
        folder=settings.dead_letters_dir or folder_beside(block_log_root),
        stream=0,
        attempt="",
        receiver="",
        host="",
        sync=SyncPolicy(sync),
        sync_interval_s=settings.wal_sync_interval_ms / 1000,
        max_bytes=settings.dead_letters_max_bytes,
        max_age_s=settings.dead_letters_max_age_s,
        max_record_bytes=settings.dead_letters_max_record_bytes,
        encryption=encryption,
    )


def _compression(settings: Settings) -> str | None:
    return None if settings.wal_compression_codec == "none" else settings.wal_compression_codec


def _limiter(launch: ReceiverLaunch, on_error: Callable[[str, BaseException], None]) -> RateLimiter:
    if launch.shared_rate is None:
        return RateLimiter.from_settings(launch.settings)
    limiter = SharedRateLimiter.from_settings(launch.settings)
    limiter.shared = SharedRate(launch.shared_rate, on_error=on_error)
    return limiter
