"""What an application must have before receivers start in it, and the name and promise of a run."""

from __future__ import annotations

import hashlib
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock.dead_letters import (
    DeadLetterPlace,
    LetterTail,
    folder_beside,
    is_program_name,
    program_name,
)
from penstock.errors import PenstockError
from penstock.files.addresses import is_shared
from penstock.host.durability import Durability, choose_durability, scratch_parent
from penstock.host.orphans import remove_scratch_folders
from penstock.host.spark.executor_python import check_executor_python
from penstock.host.spark.startup_checks import check_cores, check_spark_settings
from penstock.host.terminal import some_of
from penstock.runtime.clock import Clock, SystemClock
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.settings import Settings
from penstock.tracker import ReceivedBlockTracker, open_ledger, share_of, slots_of
from penstock.wal import EncryptionKey, FileSystem, locate

if TYPE_CHECKING:
    from pyspark import SparkContext

    from penstock.receiver import BlockLogs, Receiver

_log = logging.getLogger("penstock.host")


@dataclass(frozen=True)
class Run:
    """One run of a program.

    Attributes:
        run_id: Names its files and processes on every host; no other run has the name.
        durability: Where its logs are, and what is promised of them.
        settings: Its settings.
        encryption: The key that its logs are encrypted with; None: they are in clear.
        master: Spark's.
        app_name: What the program is called.
        is_kept: Whether a later start of the program finds its driver log or its checkpoints.
        clock: Time.
    """

    run_id: str
    durability: Durability
    settings: Settings
    encryption: EncryptionKey | None = None
    master: str = ""
    app_name: str = ""
    is_kept: bool = False
    clock: Clock = field(default_factory=SystemClock)

    @property
    def is_local(self) -> bool:
        """Whether receivers and tasks run on this host."""
        return self.master.startswith("local")

    def logs(self) -> BlockLogs:
        """Return where and how receivers log their blocks; the driver log is locked by now.

        Raises:
            OSError, PenstockError: It is not known whose dead letters they are.
        """
        return replace(
            self.durability.logs(self.encryption, self.run_id),
            letters_folder=letters_folder(
                self.durability,
                self.settings.dead_letters_dir,
                is_kept=self.is_kept,
                run_id=self.run_id,
                app_name=self.app_name,
            )
            if self.settings.dead_letters_enabled
            else None,
        )

    def letters_place(self) -> DeadLetterPlace:
        """Return where its dead letters go, without an owner yet; raises as `logs`."""
        return self.logs().letters_place(self.settings)

    def open_ledger(self) -> ReceivedBlockTracker:
        """Open its ledger, whose streams are yet to be registered; see `open_ledger`."""
        return open_ledger(
            (),
            self.durability.driver_log_folder,
            self.settings,
            sync=self.durability.sync,
            application=self.app_name,
            clock=self.clock,
            encryption=self.encryption,
        )


def needed_modules(
    requires: Iterable[str],
    settings: Settings,
    directory: str | None,
    encryption: EncryptionKey | None,
) -> list[str]:
    """Return what executors must be able to import beside what Penstock always needs.

    Args:
        requires: What the inputs need.
        settings: The settings.
        directory: The folder for what survives the driver, or None.
        encryption: The key; None: nothing is encrypted.
    """
    needed = set(requires)
    folders = [settings.wal_dir or directory]
    if settings.dead_letters_enabled:
        folders.append(settings.dead_letters_dir)
    if any(is_shared(folder) for folder in folders if folder is not None):
        needed.add("hdfs_native")
    if encryption is not None:
        needed.add("cryptography")
    if settings.shared_rate_storage is not None:
        is_valkey = settings.shared_rate_storage.startswith("valkey")
        needed.add("valkey" if is_valkey else "redis")
    return sorted(needed)


def check_application(
    spark_context: SparkContext,
    receivers: Sequence[Receiver],
    running: int,
    settings: Settings,
    modules: Sequence[str] = (),
    functions: int = 0,
    *,
    has_batches: bool = True,
) -> None:
    """Check that the application can run receivers, and something beside them.

    Args:
        spark_context: The Spark context.
        receivers: The receivers that run at first.
        running: How many tasks of other receivers the application has.
        settings: The settings.
        modules: See `needed_modules`.
        functions: How many tasks call functions of continuous streams.
        has_batches: Whether anything but such functions has records.

    Raises:
        NotEnoughCoresError: The receivers would hold every core.
        SettingError: Spark would start second copies of receivers, or gives them too little memory.
        ExecutorPythonError: The executors' Python cannot run the program.
    """
    shares = [share_of(receiver, settings.receivers_per_slot) for receiver in receivers]
    slots = slots_of(shares)
    tasks = len(slots) + sum(share >= 1 for share in shares)
    check_cores(spark_context, len(receivers), running, tasks, functions, has_batches=has_batches)
    in_process = max(map(len, slots), default=1)
    check_spark_settings(spark_context.getConf().get, settings, len(receivers), in_process)
    check_executor_python(spark_context, modules)


def prepare_run(
    spark_context: SparkContext,
    settings: Settings,
    directory: str | None,
    receivers: int,
    encryption: EncryptionKey | None,
    clock: Clock,
) -> Run:
    """Give a run its name and its promise; what killed programs left on this host is removed.

    Args:
        spark_context: The Spark context.
        settings: The settings.
        directory: The folder for what survives the driver, or None.
        receivers: How many receivers the program has.
        encryption: The key; None: nothing is encrypted.
        clock: Time.

    Raises:
        SettingError: The settings contradict each other.
    """
    # A name of this run's own: what a run of the same application left behind a moment ago, such
    # as a block server that has not ended yet, must not touch its files.
    run_id = f"{spark_context.applicationId}-{uuid.uuid4().hex[:8]}"
    parent = scratch_parent(dict(spark_context.getConf().getAll()), os.environ)
    durability = choose_durability(settings, directory, run_id, parent)
    remove_scratch_folders(parent)
    is_kept = directory is not None or (settings.wal_dir is not None and receivers > 0)
    return Run(
        run_id,
        durability,
        settings,
        encryption,
        spark_context.master or "",
        spark_context.appName or "",
        is_kept,
        clock,
    )


def describe_run(log: logging.Logger, run: Run, receivers: Sequence[tuple[str, Receiver]]) -> None:
    """Say in the log which promise is in force.

    Args:
        log: Where.
        run: The run.
        receivers: The receivers with their names.
    """
    if receivers:
        log.info("%s", run.durability.describe())
    if run.encryption is not None:
        log.info("What is written is encrypted with the key %s", run.encryption.key_id.hex())
    replicated = [name for name, receiver in receivers if receiver.storageLevel.replication > 1]
    if replicated:
        log.info(
            "the storage levels of %s ask for copies on other hosts: %s",
            some_of(replicated),
            run.durability.describe_copies(run.master),
        )
    levels = ((name, receiver.storageLevel) for name, receiver in receivers)
    once = [name for name, level in levels if level.replication > 1 and not level.useDisk]
    is_logged = run.durability.has_block_logs
    if once and run.encryption is not None and not (run.is_local or is_logged):
        log.warning(
            "the blocks of %s are in memory only, in clear: with spark.io.encryption.enabled each "
            "is copied when it is stored, and a copy that is lost is not made again; a storage "
            "level with a disk, such as MEMORY_AND_DISK_2, or a checkpoint directory cures that",
            some_of(once),
        )


def tail_of_run(run: Run) -> Callable[[], LetterTail] | None:
    """Return what opens the dead letters of a run to be looked at; None: not from here."""
    place = run.letters_place()
    if not run.settings.dead_letters_enabled or not (run.is_local or is_shared(place.folder)):
        return None
    limited = RateLimitedLog(_log)
    return lambda: LetterTail(place.folder, run.encryption, but=-1, tell=limited.log)


# Below which folder the dead letters of a program are: one that no other program writes to.
#
# Beside its own driver log they are among its own things. Any other folder
# (`spark.penstock.deadLetters.dir`, or `spark.penstock.wal.dir` with a checkpoint directory
# elsewhere) may also have been given to other programs; so each has a folder of its own in it, with
# a name that is made once, and kept where the program's checkpoints or its driver log are::
#
#     <checkpoint directory>/program                       meters-5d0e…
#     <deadLetters.dir>/meters-5d0e…/<stream>-<attempt>    its dead letters
#
# A program that keeps nothing is another one at each start: streams have other numbers after a
# change, and nothing would show it.

_FILE = "program"
_UNFINISHED = ".new"
_MOST_BYTES = 200


def letters_folder(
    durability: Durability, shared: str | None, *, is_kept: bool, run_id: str, app_name: str
) -> str:
    """Return the folder of a program's dead letters; it need not exist.

    The caller holds the lock of the driver log, or of the checkpoints.

    Args:
        durability: Where the logs are.
        shared: `spark.penstock.deadLetters.dir`, or None.
        is_kept: Whether a later start of the program finds its driver log or checkpoints.
        run_id: The run.
        app_name: What the program is called, for people who look at the folder.

    Raises:
        OSError: The program's name cannot be read or kept.
        PenstockError: What is kept is no name.
    """
    beside = folder_beside(durability.block_log_root)
    own = os.path.dirname(durability.driver_log_folder)
    is_own = not durability.keeps_blocks or (is_kept and os.path.dirname(beside) == own)
    if shared is None and is_own:
        return beside
    if is_kept:
        name = _kept_name(own, app_name)
    else:
        name = program_name(app_name, hashlib.blake2b(run_id.encode(), digest_size=16).hexdigest())
    return os.path.join(shared or beside, name)


def _kept_name(own: str, app_name: str) -> str:
    fs, folder = locate(own)
    path = os.path.join(folder, _FILE)
    found = kept_name(fs, folder)
    if found is not None:
        if not is_program_name(found):
            raise PenstockError(
                f"{fs.address(path)} is to have the name by which the dead letters of this program "
                "are known, and has something else: put it back, or remove it, and the program "
                "begins with dead letters of its own again"
            )
        return found
    name = program_name(app_name, uuid.uuid4().hex)
    unfinished = path + _UNFINISHED
    try:
        file = fs.create(unfinished, direct=False)
    except FileExistsError:  # A start that was killed left it.
        fs.remove(unfinished)
        file = fs.create(unfinished, direct=False)
    try:
        file.write(0, [name.encode()], sync=False)
        file.sync()
    finally:
        file.close()
    fs.rename(unfinished, path, replace=True)
    fs.sync_folder(folder)
    return name


def kept_name(fs: FileSystem, folder: str) -> str | None:
    """Return what a checkpoint directory or log folder has as its program's name; None: nothing."""
    try:
        file = fs.open(os.path.join(folder, _FILE))
    except FileNotFoundError:
        return None
    try:
        return bytes(file.read(0, min(file.size, _MOST_BYTES))).decode(errors="replace").strip()
    finally:
        file.close()
