"""Taking a log's folder for one process."""

from __future__ import annotations

import os
import socket

from penstock.wal._errors import LogFolderInUseError
from penstock.wal._filesystem import FileSystem, FolderLock
from penstock.wal._names import LOCK_NAME

__all__ = ["lock_folder"]


def lock_folder(fs: FileSystem, folder: str, application: str = "") -> FolderLock:
    """Take a log's folder for this process.

    Args:
        fs: Where it lives.
        folder: The log's folder, which exists.
        application: Told to whoever wants the folder meanwhile.

    Raises:
        LogFolderInUseError: Another living process has it.
    """
    owner = f"process {os.getpid()} on host {socket.gethostname()}"
    if application:
        owner += f", application {application}"
    try:
        return fs.lock(os.path.join(folder, LOCK_NAME), owner)
    except BlockingIOError as error:
        raise LogFolderInUseError(folder, error.strerror or "an unknown process") from error
