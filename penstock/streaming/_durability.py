"""Which promise is in force, and where the logs lie: the table "How durable, by default".

======================  ===========================================  =========  ====================
the user set            logs                                         sync       survives
======================  ===========================================  =========  ====================
nothing                 the application's scratch folder, removed    none       the death of any
                        at stop                                                 Python worker or
                                                                                block server
a checkpoint directory  below that folder                            always     power loss of the
or a log folder                                                                 host, death of the
                                                                                driver
======================  ===========================================  =========  ====================

`spark.streaming.receiver.writeAheadLog.enable` wins over the table for the receivers' logs, and
`spark.penstock.wal.sync` names the sync policy whatever else is set.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.errors import SettingError
from penstock.settings import Settings

__all__ = ["Durability", "choose_durability", "local_folder", "scratch_parent"]

_WAL_ENABLE = "spark.streaming.receiver.writeAheadLog.enable"
_BLOCKS = "receivedData"
_LEDGER = "receivedBlockMetadata"


@dataclass(frozen=True)
class Durability:
    """The row of the table that is in force.

    Attributes:
        block_log_root: Folder on each host below which receivers make their logs.
        driver_log_folder: Folder of the driver's log.
        sync: Sync policy of the logs: ``none``, ``interval`` or ``always``.
        scratch: A folder that is the application's own and goes with it, or None.
        reason: What of the user's settings led here.
    """

    block_log_root: str
    driver_log_folder: str
    sync: str
    scratch: str | None
    reason: str

    def describe(self) -> str:
        """Return one line for the log: the row, and what it survives."""
        survives = {
            "none": "the death of any Python worker or block server, not of the host or the driver",
            "interval": "power loss of a host, except for the last moments, and death of the "
            "driver",
            "always": "power loss of a host whose disk comes back, and death of the driver",
        }[self.sync]
        kept = "removed at stop" if self.scratch else "kept"
        return (
            f"{self.reason}: blocks are logged in {self.block_log_root} and the ledger in "
            f"{self.driver_log_folder} ({kept}), sync {self.sync}; received data survives "
            f"{survives}"
        )


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
        SettingError: The settings contradict each other, or the checkpoint directory is not on a
            local file system.
    """
    scratch = os.path.join(scratch_parent, f"penstock-{application_id}")
    checkpoint = None if checkpoint_directory is None else local_folder(checkpoint_directory)
    durable = settings.wal_dir or checkpoint
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
    return Durability(
        os.path.join(block_root, _BLOCKS),
        os.path.join(checkpoint or durable or scratch, _LEDGER),
        sync,
        scratch if scratch == block_root else None,
        reason,
    )


def scratch_parent(conf: Mapping[str, str], environment: Mapping[str, str]) -> str:
    """Return the folder below which Spark keeps temporary files on this host."""
    folders = environment.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir") or ""
    first = folders.split(",")[0].strip()
    return os.path.abspath(first) if first else tempfile.gettempdir()


def local_folder(directory: str) -> str:
    """Return the path of a checkpoint directory on this host.

    Raises:
        SettingError: It is on another file system.
    """
    scheme, colon, rest = directory.partition("://")
    if colon and scheme != "file":
        raise SettingError(
            "spark.streaming.checkpoint.directory",
            directory,
            "a folder on a local file system; other file systems are not supported yet",
        )
    path = rest if colon else directory.removeprefix("file:")
    return os.path.abspath(path)
