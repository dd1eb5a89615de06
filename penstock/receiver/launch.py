"""`run_receiver`: the body of the Spark task that is a receiver.

PySpark's `TaskContext` tells neither the executor's id nor its host as Spark names it. The command
line of the executor's JVM does, on every cluster manager
(`CoarseGrainedExecutorBackend.parseArguments`), and that JVM is a parent of the Python worker.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import pickle
import re
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from pyspark import StorageLevel

from penstock._setting_values import record_budget
from penstock.blockstore import BlockStore
from penstock.blockstore import launch as block_server
from penstock.blockstore.process_log import ProcessLog
from penstock.blockstore.replicator import FindReplicaHost, Replicator
from penstock.blockstore.store import BlockStoreOptions
from penstock.dead_letters import DeadLetterPlace, DeadLetterWriter, folder_beside
from penstock.errors import text_of
from penstock.processes import ProcessIdentity
from penstock.receiver.base import Receiver
from penstock.receiver.block_generator import BlockGenerator, BlockGeneratorOptions
from penstock.receiver.exit_report import ExitKind, ExitReport, ReceiverFailedError
from penstock.receiver.intake import WhenFull, policy_of
from penstock.receiver.rate_limiter import RateLimiter
from penstock.receiver.shared_rate import SharedRate, SharedRateLimiter, SharedRatePlace
from penstock.receiver.spill import Spill
from penstock.receiver.supervisor import ReceiverSupervisor
from penstock.receiver.tracker_client import TrackerClient
from penstock.receiver.user_calls import UncaughtErrors
from penstock.settings import Settings
from penstock.wal import SEAL_SIZE, EncryptionKey, LogOptions, SyncPolicy
from penstock.wire import ApplicationLink, WireOptions
from penstock.wire.messages import ReceivedBlockInfo, RegisterReceiver

LOCAL_EXECUTOR = "driver"
"""Spark's name for the only executor of a local master."""

_PARENTS = 5
"""Parent processes that are searched for the executor: keeper of a slot, worker, PySpark's daemon,
wrapper, JVM."""


def executor_command(pid: int | None = None) -> tuple[str, ...]:
    """Return the command line of the executor above a process.

    Args:
        pid: The process; this one when None.

    Returns:
        The words; none where there is no such process (a local master) or no ``/proc``.
    """
    found = os.getpid() if pid is None else pid
    for _ in range(_PARENTS):
        try:
            with open(f"/proc/{found}/stat", encoding="utf-8", errors="replace") as file:
                found = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{found}/cmdline", encoding="utf-8", errors="replace") as file:
                words = tuple(file.read().split("\0"))
        except OSError:
            return ()
        if "--executor-id" in words:
            return words
    return ()


def executor_id(
    environment: Mapping[str, str] = os.environ, command: Sequence[str] | None = None
) -> str:
    """Return the id of the executor that this Python worker belongs to.

    Kubernetes sets ``SPARK_EXECUTOR_ID``; a standalone worker has it in the address of the
    executor's log (`ExecutorRunner.scala`); the executor's own command line is asked last. Where
    none tells it there is one executor (a local master), or the id is not known to Python.

    Args:
        environment: This process's.
        command: The executor's command line; looked for when None.
    """
    found = environment.get("SPARK_EXECUTOR_ID")
    if found:
        return found
    match = re.search(r"[?&]executorId=([^&]+)", environment.get("SPARK_LOG_URL_STDOUT", ""))
    if match:
        return match.group(1)
    return _option("--executor-id", command) or LOCAL_EXECUTOR


def host_name(
    executor: str, executor_hosts: Mapping[str, str], command: Sequence[str] | None = None
) -> str:
    """Return the host of `executor` under the name that Spark's scheduler knows.

    An executor that came up after the driver looked is not among those it knows. Then its own
    command line tells the name; that all others are on one host says nothing of this one.

    Args:
        executor: From `executor_id`.
        executor_hosts: What the driver knows: executor id to host.
        command: The executor's command line; looked for when None.
    """
    known = executor_hosts.get(executor) or _option("--hostname", command)
    if known:
        return known
    if len(set(executor_hosts.values())) == 1:
        return next(iter(executor_hosts.values()))
    return os.environ.get("SPARK_LOCAL_HOSTNAME") or socket.gethostname()


def _option(name: str, command: Sequence[str] | None) -> str | None:
    words = executor_command() if command is None else command
    for word, value in pairwise(words):
        if word == name:
            return value
    return None


class Watchdog:
    """Ends this process, with a traceback of each thread on stderr, when a time is over.

    It needs neither a free interpreter nor a living thread: the C code of an author may hold the
    interpreter's lock for ever. Only where the receiver has the process for itself, as in Spark's
    Python worker, whose main thread runs the task.
    """

    def __init__(self) -> None:
        self._owns_process = threading.current_thread() is threading.main_thread()
        self._armed = False

    def arm(self, timeout_s: float) -> None:
        """End the process in `timeout_s` seconds; once set, the time stands."""
        if self._owns_process and not self._armed:
            self._armed = True
            stderr = sys.__stderr__ or sys.stderr
            faulthandler.dump_traceback_later(timeout_s, exit=True, file=stderr)

    def disarm(self) -> None:
        """Let the process live."""
        if self._armed:
            self._armed = False
            faulthandler.cancel_dump_traceback_later()


logger = logging.getLogger("penstock.receiver")

LOOK_S = 1.0
"""How often the receiver checks that its executor still exists."""

_LAST_RESORT_S = 10.0
"""How long after an attempt is given up the process ends, whatever hangs in it."""


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
    """

    root: str
    sync: str
    host_root: str | None = None
    are_removed: bool = False
    encryption: EncryptionKey | None = None
    letters_folder: str | None = None

    @property
    def folder_of_host(self) -> str:
        """The folder on each host for what only that host keeps."""
        return self.host_root or self.root

    @property
    def go_with_application(self) -> bool:
        """Whether what a host keeps goes with the application.

        What is there beside logs on HDFS is of use to no one after it.
        """
        return self.are_removed or self.folder_of_host != self.root

    def letters_place(self, settings: Settings) -> DeadLetterPlace:
        """Return where the dead letters of the application go; no one's yet."""
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


@dataclass(frozen=True)
class ReceiverLaunch:
    """All that an executor needs to run one attempt of a receiver; travels in a task's closure.

    Attributes:
        stream_id: The stream.
        attempt: This attempt: 32 hex digits, never used before.
        receiver: The pickled `Receiver`.
        link: Where the tracker is, and what proves who belongs to the application.
        application_id: Spark's.
        settings: The application's settings.
        logs: Where and how it logs its blocks.
        storage_level: ``useDisk, useMemory, useOffHeap, deserialized, replication`` of a
            `StorageLevel`.
        executor_hosts: Executor id to host, as the driver knows them.
        shared_rate: What is shared with other applications, or None.
        driver: The driver's process.
        has_copies: Whether another host is to have a copy of each block.
        stream_name: What the program calls the stream.
        process_log: The log that it shares with others of its process, which gives it to it; None:
            it has its own.
        seals_early: See `BlockGeneratorOptions`.
    """

    stream_id: int
    attempt: str
    receiver: bytes = field(repr=False)
    link: ApplicationLink
    application_id: str
    settings: Settings
    logs: BlockLogs
    storage_level: tuple[bool, bool, bool, bool, int]
    executor_hosts: Mapping[str, str] = field(default_factory=dict)
    shared_rate: SharedRatePlace | None = None
    driver: ProcessIdentity | None = None
    has_copies: bool = False
    stream_name: str = ""
    process_log: ProcessLog | None = None
    seals_early: bool = False

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
            application_id=self.application_id,
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
            # Copies come encrypted: that host has no key.
            block_max_bytes=settings.block_max_bytes + (SEAL_SIZE if self.logs.encryption else 0),
        )

    def open_storage(
        self, host: str, find: FindReplicaHost, on_error: Callable[[str, BaseException], None]
    ) -> BlockStore:
        """Open the attempt's block store.

        Args:
            host: This host, as Spark names it.
            find: Asks for a host of second copies.
            on_error: Told that there is none.
        """
        settings, logs = self.settings, self.logs
        use_disk, use_memory = self.storage_level[:2]
        replicator = None
        if self.has_copies:
            replicator = Replicator(
                self.stream_id, self.attempt, link=self.link, find=find, on_error=on_error
            )
        codec = settings.wal_compression_codec
        return BlockStore(
            stream_id=self.stream_id,
            attempt=self.attempt,
            host=host,
            log_folder=log_folder(self.process_folder or logs.root, self.stream_id, self.attempt),
            host_folder=log_folder(logs.folder_of_host, self.stream_id, self.attempt),
            # The block server serves no other names.
            memory_name=f"penstock-{self.application_id}-{self.attempt}",
            options=BlockStoreOptions(
                memory_dir=settings.memory_dir,
                memory_bytes=settings.memory_bytes,
                block_max_bytes=settings.block_max_bytes,
                log=self.log_options,
                use_memory=use_memory,
                use_disk=use_disk,
                compression=None if codec == "none" else codec,
            ),
            encryption=logs.encryption,
            replicator=replicator,
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
            on_error: Notified of trouble.

        Raises:
            DroppingRefusedError: See `policy_of`.
        """
        settings = self.settings
        budget = settings.dead_letters_budget
        letters = self.letters_place(receiver, host)
        policy, spill = policy_of(receiver, settings), None
        if policy is WhenFull.SPILL:
            folder = self.logs.folder_of_host
            spill = Spill(folder, settings.spill_bytes, self.logs.encryption, on_error)
        return BlockGenerator(
            first_block_number=first_block_number,
            block_store=storage,
            report=report,
            limiter=self._limiter(on_error),
            options=BlockGeneratorOptions(
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
            ),
            on_error=on_error,
            letters=None if letters is None else DeadLetterWriter(letters, on_error),
            spill=spill,
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
        """How those talk to the tracker who run attempts: for so long as blocks are kept here."""
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


def start_block_server(launch: ReceiverLaunch) -> None:
    """Make sure that this host has a block server of the application.

    Raises:
        PenstockError: It could not be started.
    """
    host = host_name(executor_id(), launch.executor_hosts)
    block_server.ensure_block_server(launch.block_server(host))


def run_receiver(
    launch: ReceiverLaunch,
    *,
    ensure_block_server: Callable[[ReceiverLaunch], None] = start_block_server,
) -> None:
    """Run one attempt of a receiver until it ends.

    Args:
        launch: What to run.
        ensure_block_server: Makes sure that this host's block server runs.

    Returns when the receiver has ended for good: stopped by the driver, its source ended, refused
    by the driver (which is stopping or has a newer attempt), or it can never be started (then the
    driver was told so with a permanent `ReportError`).

    Raises:
        ReceiverFailedError: It ended otherwise; the driver starts another attempt.
    """
    executor = executor_id()
    host = host_name(executor, launch.executor_hosts)
    try:
        receiver = _unpickle(launch)
    except Exception as error:  # noqa: BLE001 - the author's code; it is told to the driver
        _report_permanent(launch, host, executor, error)
        return
    supervisor = ReceiverSupervisor(
        receiver,
        _registration(launch, receiver._receiver_type(), host, executor),
        launch,
        lambda: ensure_block_server(launch),
    )
    with UncaughtErrors(supervisor.thread_died, launch.stream_id):
        supervisor.start()
        exit_report = _await_end(supervisor)
    logger.info("receiver %d %s: %s", launch.stream_id, exit_report.kind.value, exit_report.message)
    if not exit_report.kind.is_for_good:
        raise ReceiverFailedError(
            launch.stream_id, exit_report.kind, exit_report.message
        ) from exit_report.error


def _await_end(supervisor: ReceiverSupervisor) -> ExitReport:
    """Wait for the end, and see to it that there is one: whatever hangs, the process is to end.

    It does not outlive its executor either.
    """
    parent = os.getppid()
    watchdog = Watchdog()
    while (exit_report := supervisor.await_termination(LOOK_S)) is None:
        if os.getppid() != parent:
            text = f"The executor of receiver {supervisor.stream_id} is gone"
            supervisor.end(ExitReport(ExitKind.FAILED, text))
        left_s = supervisor.seconds_to_end()
        if left_s is None:
            continue
        watchdog.arm(max(0.0, left_s) + _LAST_RESORT_S)
        if left_s <= 0:
            return supervisor.give_up()
    watchdog.disarm()
    return exit_report


def _unpickle(launch: ReceiverLaunch) -> Receiver:
    receiver = pickle.loads(launch.receiver)
    if not isinstance(receiver, Receiver):
        raise TypeError(f"{type(receiver).__name__} is not a Receiver")
    receiver._construct()
    return receiver


def _registration(
    launch: ReceiverLaunch, receiver_type: str, host: str, executor: str
) -> RegisterReceiver:
    return RegisterReceiver(
        stream_id=launch.stream_id,
        attempt=launch.attempt,
        receiver_type=receiver_type,
        host=host,
        executor_id=executor,
        pid=os.getpid(),
        log=launch.process_folder,
    )


def _report_permanent(launch: ReceiverLaunch, host: str, executor: str, error: Exception) -> None:
    """Tell the driver that there is no point in trying again."""
    text = f"Receiver {launch.stream_id} could not be made in the executor: {text_of(error)}"
    logger.info("%s", text, exc_info=error)
    tracker = TrackerClient(_registration(launch, "", host, executor))
    tracker.connect(
        launch,
        on_message=lambda message: None,
        on_hello_answer=lambda message, answer: None,
        on_closed=lambda reason: None,
    )
    tracker.report_error(text, error, permanent=True)
    tracker.close()
