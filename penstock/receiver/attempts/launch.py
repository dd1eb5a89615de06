"""What an executor needs to run one attempt of a receiver, and what it makes of the settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark import StorageLevel

from penstock.blockstore import BlockStore, SealedBlock
from penstock.blockstore.process_log import ProcessLog
from penstock.blockstore.replicator import CopyHosts, FindReplicaHost, Replicator
from penstock.blockstore.server import launch as block_server
from penstock.blockstore.store import BlockStoreOptions
from penstock.dead_letters import DeadLetterPlace, DeadLetterWriter, folder_beside
from penstock.receiver.attempts.rate_status import REPORT_INTERVAL_S
from penstock.receiver.base import Receiver
from penstock.receiver.blocks.block_generator import BlockGenerator
from penstock.receiver.blocks.intake import dropping_refused
from penstock.receiver.blocks.options import BlockGeneratorOptions, WhenFull
from penstock.receiver.blocks.spill import Spill
from penstock.receiver.rate_limiter import RateLimiter
from penstock.receiver.shared_rate import SharedRate, SharedRateLimiter, SharedRatePlace
from penstock.receiver.threads.shared_threads import SharedThreads
from penstock.runtime.processes import ProcessIdentity
from penstock.settings import Settings
from penstock.settings.values import record_budget
from penstock.wal import RECORD_HEADER_SIZE, SEAL_SIZE, EncryptionKey, LogOptions, SyncPolicy
from penstock.wire import ApplicationLink, WireOptions
from penstock.wire.messages import ReceivedBlockInfo

_POSITION_BYTES = 64 << 10
"""The largest position that a receiver may store, where a message may have twice as much."""


def log_folder(block_log_root: str, stream_id: int, attempt: str) -> str:
    """Return the log folder of an attempt; no other attempt ever uses it."""
    return os.path.join(block_log_root, f"{stream_id}-{attempt}")


@dataclass(frozen=True)
class BlockLogs:
    """Where the receivers of an application log their blocks, and how.

    Attributes:
        root: Folder below which each attempt makes a folder of its own: on each host, or on HDFS.
        sync: The logs' sync policy: ``none``, ``interval`` or ``always``.
        host_root: Folder on each host for what only that host keeps; None for `root`, which is then
            no folder on HDFS.
        are_removed: Whether they go with the application: no restarted driver recovers from them.
        encryption: The key that they are encrypted with; None: they are in clear.
        letters_folder: Folder of the application's dead letters; None: beside `root`.
        application_id: Names its files and processes on every host.
    """

    root: str
    sync: str
    host_root: str | None = None
    are_removed: bool = False
    encryption: EncryptionKey | None = None
    letters_folder: str | None = None
    application_id: str = ""

    @property
    def folder_of_host(self) -> str:
        """The folder on each host for what only that host keeps."""
        return self.host_root or self.root

    @property
    def go_with_application(self) -> bool:
        """Whether what a host keeps goes with the application.

        What a host keeps beside logs on HDFS is of use to no one after it.
        """
        return self.are_removed or self.folder_of_host != self.root

    def letters_place(self, settings: Settings) -> DeadLetterPlace:
        """Return where the dead letters of the application go, without an owner yet."""
        return DeadLetterPlace(
            folder=self.letters_folder or settings.dead_letters_dir or folder_beside(self.root),
            stream=0,
            attempt="",
            receiver="",
            host="",
            sync=SyncPolicy(self.sync),
            sync_interval_s=settings.wal_sync_interval_ms / 1000,
            max_bytes=settings.dead_letters_max_bytes,
            max_age_s=settings.dead_letters_max_age_s,
            max_record_bytes=settings.dead_letters_max_record_bytes,
            encryption=self.encryption,
        )


def policy_of(receiver: Receiver, settings: Settings) -> WhenFull:
    """Return a receiver's own policy, or else that of the settings.

    Raises:
        SettingError: It drops, and the receiver is known to acknowledge what it stores.
    """
    policy = WhenFull(receiver.whenFull or settings.when_full)
    if policy.drops and (receiver._is_reliable or receiver._position_type is not Any):
        why = "gives positions or acknowledgements to its source"
        raise dropping_refused(policy, why, receiver._receiver_type())
    return policy


@dataclass(frozen=True)
class ReceiverLaunch:
    """All that an executor needs to run one attempt of a receiver; travels in a task's closure.

    Attributes:
        stream_id: The stream.
        attempt: This attempt: 32 hex digits, never used before.
        receiver: The pickled `Receiver`.
        link: Where the tracker is, and what proves who belongs to the application.
        settings: The application's settings.
        logs: Where and how it logs its blocks.
        storage_level: ``useDisk, useMemory, useOffHeap, deserialized, replication`` of a
            `StorageLevel`.
        executor_hosts: Executor id to host, as the driver knows them.
        shared_rate: What is shared with other applications, or None.
        driver: The driver's process.
        has_copies: Whether other hosts are to have copies of each block, as the level says.
        stream_name: What the program calls the stream.
        process_log: The log that it shares with others of its process, which gives it to it; None:
            it has its own.
        threads: The threads that it shares with them; None: it has its own.
        seals_early: See `BlockGeneratorOptions`.
        shows_blocks: Whether a function is to see blocks before they are logged.
        report_interval_s: How often it reports how its rate is used.
    """

    stream_id: int
    attempt: str
    receiver: bytes = field(repr=False)
    link: ApplicationLink
    settings: Settings
    logs: BlockLogs
    storage_level: tuple[bool, bool, bool, bool, int]
    executor_hosts: Mapping[str, str] = field(default_factory=dict)
    shared_rate: SharedRatePlace | None = None
    driver: ProcessIdentity | None = None
    has_copies: bool = False
    stream_name: str = ""
    process_log: ProcessLog | None = None
    threads: SharedThreads | None = None
    seals_early: bool = False
    shows_blocks: bool = False
    report_interval_s: float = REPORT_INTERVAL_S

    @property
    def log_options(self) -> LogOptions:
        """How the attempt's log is written, and that of its blocks' copies."""
        return LogOptions(
            segment_size=self.settings.wal_segment_bytes,
            sync=SyncPolicy(self.logs.sync),
            sync_interval_s=self.settings.wal_sync_interval_ms / 1000,
            roll_age_s=self.settings.receiver_wal_rolling_s,
        )

    def block_server(self, host: str) -> block_server.BlockServerLaunch:
        """Return what the block server of a host needs to know."""
        settings = self.settings
        return block_server.BlockServerLaunch(
            application_id=self.logs.application_id,
            link=self.link,
            host=host,
            # Beside the logs, not among them: the folder of the logs may be shared.
            scratch_folder=os.path.dirname(self.logs.folder_of_host),
            block_log_root=self.logs.folder_of_host,
            memory_folder=settings.memory_dir,
            listen_port=settings.block_server_port,
            port_retries=settings.port_max_retries,
            lease_s=settings.block_server_lease_s,
            driver=self.driver,
            driver_timeout_s=settings.driver_timeout_s,
            remove_at_lease_end=self.logs.go_with_application,
            replica_log=self.log_options,
            # Copies come encrypted, for that host has no key, or with the receiver's header.
            block_max_bytes=settings.block_max_bytes
            + (RECORD_HEADER_SIZE + SEAL_SIZE if self.logs.encryption else 0),
        )

    def open_storage(
        self, host: str, find: FindReplicaHost, on_error: Callable[[str, BaseException], None]
    ) -> BlockStore:
        """Open the attempt's block store.

        Args:
            host: This host, as Spark names it.
            find: Asks for a host of second copies.
            on_error: Called when there is none.
        """
        settings, logs = self.settings, self.logs
        use_disk, use_memory = self.storage_level[:2]
        hosts = CopyHosts()
        replicators = [
            Replicator(
                *(self.stream_id, self.attempt),
                link=self.link,
                find=find,
                on_error=on_error,
                hosts=hosts,
            )
            for _ in range(self.storage_level[4] - 1 if self.has_copies else 0)
        ]
        codec = settings.wal_compression_codec
        return BlockStore(
            stream_id=self.stream_id,
            attempt=self.attempt,
            host=host,
            log_folder=log_folder(self.process_folder or logs.root, self.stream_id, self.attempt),
            host_folder=log_folder(logs.folder_of_host, self.stream_id, self.attempt),
            options=BlockStoreOptions(
                memory_dir=settings.memory_dir,
                memory_bytes=settings.memory_bytes,
                # The block server serves no other names.
                memory_prefix=f"penstock-{logs.application_id}-",
                block_max_bytes=settings.block_max_bytes,
                log=self.log_options,
                use_memory=use_memory,
                use_disk=use_disk,
                compression=None if codec == "none" else codec,
                encryption=logs.encryption,
            ),
            replicators=replicators,
            process_log=self.process_log,
        )

    @property
    def process_folder(self) -> str:
        """The folder of the log that it shares with others; empty: it has its own."""
        return "" if self.process_log is None else self.process_log.folder

    def make_generator(
        self,
        receiver: Receiver,
        host: str,
        *,
        first_block_number: int,
        splits: tuple[str, ...] | None,
        storage: BlockStore,
        report: Callable[[tuple[ReceivedBlockInfo, ...]], None],
        show: Callable[[SealedBlock], None],
        on_error: Callable[[str, BaseException], None],
    ) -> BlockGenerator:
        """Make the block generator; it is not started.

        Args:
            receiver: Whose records it takes.
            host: This host, as Spark names it.
            first_block_number: Of the attempt.
            splits: That the attempt has; None where its source has none.
            storage: From `open_storage`.
            report: Reports blocks to the tracker; returns once they are in the driver log. Raises
                `BlocksRefusedError` when asking again does not help, and anything else when it may.
            show: See `BlockGenerator`; only called where it is asked for.
            on_error: Notified of trouble.

        Raises:
            SettingError: See `policy_of`.
        """
        settings = self.settings
        budget = settings.dead_letters_budget
        letters = self.letters_place(receiver, host)
        policy, spill = policy_of(receiver, settings), None
        if policy is WhenFull.SPILL:
            folder = self.logs.folder_of_host
            spill = Spill(folder, settings.spill_bytes, self.logs.encryption, on_error)
        return BlockGenerator(
            block_store=storage,
            report=report,
            limiter=self._limiter(on_error),
            options=BlockGeneratorOptions(
                first_block_number=first_block_number,
                block_interval_s=settings.block_interval_ms / 1000,
                queue_size=settings.block_queue_size,
                schema=receiver.schema,
                validate=receiver.validate,
                position_bytes=min(_POSITION_BYTES, settings.max_frame_bytes // 2),
                splits=None if splits is None else frozenset(splits),
                report_bytes=settings.max_frame_bytes // 2,
                dead_letter_budget=None if budget is None else record_budget(budget),
                pauses_over_budget=settings.dead_letters_budget_action == "pause",
                trace_every=settings.otel_traces_every if settings.otel_enabled else 0,
                when_full=policy,
                waiting_bytes=settings.waiting_bytes,
                seals_early=self.seals_early,
                one_thread=self.threads is not None and not self.seals_early,
            ),
            on_error=on_error,
            letters=None if letters is None else DeadLetterWriter(letters, on_error),
            spill=spill,
            show=show if self.shows_blocks else None,
        )

    def letters_place(self, receiver: Receiver, host: str) -> DeadLetterPlace | None:
        """Return where the attempt's dead letters go; None: they are not kept."""
        if not self.settings.dead_letters_enabled:
            return None
        return replace(
            self.logs.letters_place(self.settings),
            stream=self.stream_id,
            attempt=self.attempt,
            receiver=receiver._receiver_type(),
            host=host,
            stream_name=self.stream_name,
        )

    def _limiter(self, on_error: Callable[[str, BaseException], None]) -> RateLimiter:
        if self.shared_rate is None:
            return RateLimiter.from_settings(self.settings)
        limiter = SharedRateLimiter.from_settings(self.settings)
        limiter.shared = SharedRate(self.shared_rate, on_error=on_error)
        return limiter

    @property
    def wire_options(self) -> WireOptions:
        """How runners of attempts talk to the tracker: for as long as blocks are kept here."""
        return WireOptions(
            max_frame_bytes=self.settings.max_frame_bytes,
            ask_timeout_s=self.settings.ask_timeout_s,
            give_up_after_s=self.settings.block_server_lease_s,
        )

    @staticmethod
    def storage_level_tuple(level: StorageLevel) -> tuple[bool, bool, bool, bool, int]:
        """Return a storage level as it travels."""
        return (
            level.useDisk,
            level.useMemory,
            level.useOffHeap,
            level.deserialized,
            level.replication,
        )
