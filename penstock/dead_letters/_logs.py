"""The logs in a folder of dead letters, as who reads or removes them finds them."""

from __future__ import annotations

import errno
import os
import re
from typing import NamedTuple

from penstock.wal import FileSystem, LogCipher, LogReader

__all__ = ["FoundLog", "log_names", "open_log"]

_NAME = re.compile(r"([0-9]{1,10})-([0-9a-f]{32})")
_SEGMENT = re.compile(r"segment-([0-9]+)\.log")


class FoundLog(NamedTuple):
    """A log.

    Attributes:
        reader: It.
        is_whole: False: what is being written is left out, which nobody can read on HDFS.
    """

    reader: LogReader
    is_whole: bool


def log_names(fs: FileSystem, root: str) -> list[tuple[int, str]]:
    """Return stream and name of each log of dead letters in a folder."""
    if not fs.is_folder(root):
        return []
    found = [(match[1], name) for name in fs.list_folder(root) if (match := _NAME.fullmatch(name))]
    return sorted((int(stream), name) for stream, name in found)


def open_log(fs: FileSystem, path: str, cipher: LogCipher | None = None) -> FoundLog | None:
    """Open a log, or what can be read of it; None: it was removed.

    Raises:
        OSError: It cannot be read.
    """
    before: int | None = None
    while True:
        try:
            return FoundLog(
                LogReader.open(path, fs=fs, before=before, cipher=cipher), before is None
            )
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno != errno.EBUSY:
                raise
            names = [os.path.basename(name) for name in fs.list_folder(path)]
            numbers = [int(match[1]) for name in names if (match := _SEGMENT.fullmatch(name))]
            # Also one before the last may be: its writer could not close it.
            left = [number for number in numbers if before is None or number < before]
            if not left:
                raise
            before = max(left)
