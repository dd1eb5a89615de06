"""The logs in a folder of dead letters, as readers and removers find them."""

from __future__ import annotations

import errno
import os
import re
from typing import NamedTuple

from penstock.errors import PenstockError
from penstock.wal import FileSystem, LocalFileSystem, LogCipher, LogReader, owner_of

FOLDER = "deadLetters"

_SHOWN = 40
_PROGRAM = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,59}-[0-9a-f]{32}")
"""No log has such a name: logs' names begin with a number."""
_BESIDE = re.compile(r"receivedData|receivedBlockMetadata|keyedState|checkpoint-[0-9]+")
"""What else is in the folders of a program that has no dead letters, or none any more."""
_NAME = re.compile(r"([0-9]{1,10})-([0-9a-f]{32})")
_SEGMENT = re.compile(r"segment-([0-9]+)\.log")


class FoundLog(NamedTuple):
    """A log.

    Attributes:
        reader: It.
        is_whole: False: what is being written is left out, which no one can read on HDFS.
    """

    reader: LogReader
    is_whole: bool


def program_name(shown: str, identity: str) -> str:
    """Return the name of a program's folder, among others' folders.

    Args:
        shown: What people call it.
        identity: 32 hex digits that no other program has.
    """
    text = re.sub(r"[^A-Za-z0-9_.]+", "_", shown)[:_SHOWN]
    return f"{text if re.match('[A-Za-z_]', text) else f'program_{text}'}-{identity}"


def is_program_name(name: str) -> bool:
    """Return whether `program_name` makes such names."""
    return _PROGRAM.fullmatch(name) is not None


def program_of(root: str) -> str:
    """Return whose dead letters are in a folder; empty where the one above says it."""
    name = os.path.basename(root)
    return name if is_program_name(name) else ""


def program_folders(fs: FileSystem, path: str) -> list[tuple[str, str]]:
    """Return the folders of dead letters that a folder stands for, each with its program's name.

    The name is empty where they belong to anyone who has the folder above.

    Args:
        fs: Where it is.
        path: A checkpoint directory or log folder, its folder of dead letters, or the folder of
            one program in that.

    Raises:
        OSError: It cannot be read.
        PenstockError: It has other things, and nothing of a program of Penstock.
    """
    below = os.path.join(path, FOLDER)
    root = below if fs.is_folder(below) else path
    if not fs.is_folder(root):
        return []
    found = fs.list_folder(root)
    if root == path and found and not _is_ours(path, found):
        raise not_dead_letters(fs.address(path), "has nothing that a program of Penstock keeps")
    names = sorted(filter(is_program_name, found))
    return [(program_of(root), root), *((name, os.path.join(root, name)) for name in names)]


def _is_ours(path: str, names: list[str]) -> bool:
    own = os.path.basename(path)
    return (
        own == FOLDER
        or is_program_name(own)
        or any(
            is_program_name(name) or _NAME.fullmatch(name) or _BESIDE.fullmatch(name)
            for name in names
        )
    )


def log_names(fs: FileSystem, root: str) -> list[tuple[int, str]]:
    """Return stream and name of each log of dead letters in a folder."""
    if not fs.is_folder(root):
        return []
    found = [(match[1], name) for name in fs.list_folder(root) if (match := _NAME.fullmatch(name))]
    return sorted((int(stream), name) for stream, name in found)


def segment_numbers(fs: FileSystem, path: str) -> list[int]:
    """Return the numbers of a log's segments, in order."""
    names = [os.path.basename(name) for name in fs.list_folder(path)]
    return sorted(int(match[1]) for name in names if (match := _SEGMENT.fullmatch(name)))


def is_free_log(fs: FileSystem, path: str) -> bool:
    """Return whether a log that was begun has no writer any more, and so never changes again.

    On HDFS that is not to be seen.
    """
    return isinstance(fs, LocalFileSystem) and owner_of(path) is None


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
            # Also one before the last may be: its writer could not close it.
            left = [
                number for number in segment_numbers(fs, path) if before is None or number < before
            ]
            if not left:
                raise
            before = max(left)


def not_dead_letters(folder: str, what: str = "is no log of dead letters") -> PenstockError:
    """Return the error of a folder, or a log in it, that is one of something else."""
    return PenstockError(
        f"{folder} {what}: name a checkpoint directory or log folder, the folder {FOLDER} "
        "in it, or the folder of spark.penstock.deadLetters.dir"
    )
