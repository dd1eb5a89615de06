"""Which promise is in force, and where the logs are: the table "How durable, by default".

======================  ===========================================  =========  ====================
the user set            logs                                         sync       survives
======================  ===========================================  =========  ====================
nothing                 the application's scratch folder, removed    none       the death of any
                        at stop                                                 Python worker or
                                                                                block server
a checkpoint directory  below that folder                            always     power loss of the
or a log folder                                                                 host, death of the
                                                                                driver
one of them on HDFS or  there                                        always     also the loss of a
an object store                                                                 host
======================  ===========================================  =========  ====================

With a storage level for more than one copy (``_2``) and logs that no host shares, a block is on a
second host before it is acknowledged, if there is one: then the loss of a host is also survived.

`spark.streaming.receiver.writeAheadLog.enable` wins over the table for the receivers' logs, and
`spark.penstock.wal.sync` names the sync policy whatever else is set.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from penstock._arguments import as_folder
from penstock.errors import SettingError
from penstock.files.addresses import OBJECT_ADDRESSES, is_shared
from penstock.receiver import BlockLogs
from penstock.settings import Settings
from penstock.wal import (
    EncryptionKey,
    UnsupportedAddressError,
    UnwritableFolderError,
    normal_address,
)

_WAL_ENABLE = "spark.streaming.receiver.writeAheadLog.enable"
BLOCKS = "receivedData"
LEDGER = "receivedBlockMetadata"


@dataclass(frozen=True)
class Durability:
    """The row of the table that is in force.

    Attributes:
        block_log_root: Folder below which receivers make their logs: on each host, or on HDFS.
        host_root: Folder on each host for what only that host keeps; the same where the logs are
            on each host.
        driver_log_folder: Folder of the driver's log, on its host or on HDFS.
        sync: Sync policy of the logs: ``none``, ``interval`` or ``always``.
        scratch: A folder on each host that is the application's own and goes with it, or None.
        keeps_blocks: The receivers' logs outlive the application.
        reason: What of the user's settings led here.
    """

    block_log_root: str
    host_root: str
    driver_log_folder: str
    sync: str
    scratch: str | None
    keeps_blocks: bool
    reason: str

    def logs(self, encryption: EncryptionKey | None, application_id: str) -> BlockLogs:
        """Return where and how receivers log their blocks, encrypted with this key, if any."""
        return BlockLogs(
            self.block_log_root,
            self.sync,
            self.host_root,
            are_removed=not self.keeps_blocks,
            encryption=encryption,
            application_id=application_id,
        )

    @property
    def has_block_logs(self) -> bool:
        """Whether blocks are logged whatever their storage level says."""
        return self.sync != "none" or is_shared(self.block_log_root)

    def describe(self) -> str:
        """Return one line for the log: the row, and what it survives."""
        survives = {
            "none": "the death of any Python worker or block server, not of the host or the driver",
            "interval": "power loss of a host, except for the last moments, and death of the "
            "driver",
            "always": "power loss of a host whose disk comes back, and death of the driver",
        }[self.sync]
        if is_shared(self.block_log_root):
            # Whatever the policy: see `penstock.wal._hdfs` and `penstock.wal._objects`.
            survives = "the loss of a host, and death of the driver"
        kept = "kept" if self.keeps_blocks else "removed at stop"
        return (
            f"{self.reason}: blocks are logged in {self.block_log_root} and the ledger in "
            f"{self.driver_log_folder} ({kept}), sync {self.sync}; received data survives "
            f"{survives}"
        )

    @property
    def promise(self) -> str:
        """Return in one clause where received records are, and what they survive."""
        if is_shared(self.block_log_root):
            survives = "survive the loss of a host and of the driver"
        elif not self.keeps_blocks:
            survives = "survive workers that are killed, and neither the driver nor the host"
        elif self.sync == "always":
            survives = "survive the driver and a power loss"
        elif self.sync == "interval":
            survives = "survive the driver, and a power loss but for the last moments"
        else:
            survives = "survive the driver, and no power loss"
        kept = "" if self.keeps_blocks else ", removed at stop"
        return f"log in {self.block_log_root}{kept}: records {survives}"

    def describe_copies(self, master: str) -> str:
        """Return half a line for the log: what storage levels for several copies lead to here.

        Args:
            master: Spark's master.
        """
        if is_shared(self.block_log_root):
            return "HDFS and object stores keep their own"
        if master == "local" or master.startswith("local["):
            return "one copy is kept, since all is on one host"
        return "a second one is on another host before a record is acknowledged, if there is one"


def choose_durability(
    settings: Settings,
    checkpoint_directory: str | None,
    application_id: str,
    scratch_parent: str,
) -> Durability:
    """Return the row of the table that the user's settings lead to.

    Args:
        settings: The settings.
        checkpoint_directory: What `StreamingContext.checkpoint` was given, or None.
        application_id: Spark's.
        scratch_parent: Where an application may have a scratch folder.

    Raises:
        SettingError: The settings contradict each other, or the checkpoint directory is
            neither on a local file system nor on HDFS or an object store.
    """
    scratch = os.path.join(scratch_parent, f"penstock-{application_id}")
    checkpoint = None if checkpoint_directory is None else checkpoint_address(checkpoint_directory)
    durable = checkpoint if settings.wal_dir is None else normal_address(settings.wal_dir)
    wanted = settings.receiver_wal_enable
    if wanted and durable is None:
        raise SettingError(
            _WAL_ENABLE,
            "true",
            "only with a folder that outlives the application; set one by "
            "StreamingContext.checkpoint(directory) or spark.penstock.wal.dir",
        )
    if durable is None:
        sync, reason, block_root = "none", "No checkpoint directory and no log folder set", scratch
    elif wanted is False:
        sync, reason, block_root = "none", f"{_WAL_ENABLE} is false", scratch
    else:
        folder = "spark.penstock.wal.dir" if settings.wal_dir else "A checkpoint directory"
        sync, reason, block_root = "always", f"{folder} is set", durable
    if settings.wal_sync is not None:
        sync, reason = settings.wal_sync, f"{reason}, and spark.penstock.wal.sync"
    host_root = scratch if is_shared(block_root) else block_root
    return Durability(
        block_log_root=os.path.join(block_root, BLOCKS),
        host_root=os.path.join(host_root, BLOCKS),
        driver_log_folder=os.path.join(checkpoint or durable or scratch, LEDGER),
        sync=sync,
        scratch=scratch if host_root == scratch else None,
        keeps_blocks=block_root != scratch,
        reason=reason,
    )


def scratch_parent(conf: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return the folder below which Spark keeps temporary files on this host."""
    folders = environment.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir") or ""
    first = folders.split(",")[0].strip()
    return os.path.abspath(first) if first else tempfile.gettempdir()


def checkpoint_address(directory: str) -> str:
    """Return the address of a checkpoint directory: an absolute path, ``hdfs://…``, ``s3://…``.

    Raises:
        SettingError: It is on another file system.
    """
    try:
        return normal_address(directory)
    except UnsupportedAddressError:
        raise SettingError(
            "spark.streaming.checkpoint.directory",
            directory,
            "a folder on a local file system, on HDFS such as hdfs://namenode:8020/checkpoints, or "
            f"on an object store ({OBJECT_ADDRESSES})",
        ) from None


def checkpoint_folder(directory: str | os.PathLike[str]) -> str:
    """Return the address of the folder that a program sets, which is made if it is on this host.

    Raises:
        TypeError, ValueError: It is no path.
        SettingError: It is on a file system that is not accepted.
        UnwritableFolderError: It is on this host and cannot be made or written.
    """
    text = as_folder(directory, "directory")
    address = checkpoint_address(text)
    if not is_shared(address):
        check_writable(address, 0o777)
    return address


def check_writable(folder: str, mode: int = 0o700) -> None:
    """Make a folder on this host, if there is none.

    Raises:
        UnwritableFolderError: It cannot be made, or this user may not write to it.
    """
    try:
        os.makedirs(folder, mode=mode, exist_ok=True)
    except OSError as error:
        raise UnwritableFolderError.of(folder, error) from None
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        raise UnwritableFolderError(folder, os.strerror(_refusal(folder)))


def _refusal(folder: str) -> int:
    read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
    return errno.EROFS if read_only else errno.EACCES
