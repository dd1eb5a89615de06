"""Files that commands write for a person: each has its name once it is whole.

Until then it is called ``<name>.<pid>.part``: half of the records look like all of them. An error
or Ctrl-C removes that; a kill leaves it. Nothing is overwritten, and all is private.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from typing import IO

from penstock.errors import PenstockError


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[IO[bytes]]:
    """Make a file, whose bytes are on the disk when it has its name.

    Raises:
        FileExistsError: There is one of that name.
        OSError: It cannot be written; names the file.
    """
    part = _part(path)
    _refuse_to_overwrite(path)
    _refuse_without_folder(path)
    try:
        with _named(path):
            with open(part, "xb", opener=private) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _give_name(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


@contextlib.contextmanager
def whole_folder(path: str) -> Iterator[str]:
    """Make a folder, which has its name when all is written in it.

    Yields:
        What it is called until then.

    Raises:
        FileExistsError: There is one of that name.
        OSError: It cannot be made, or what is in it; names the folder.
    """
    part = _part(path)
    _refuse_to_overwrite(path)
    os.makedirs(part, mode=0o700)
    try:
        with _named(path):
            yield part
            _refuse_to_overwrite(path)
            os.rename(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def private(path: str, flags: int) -> int:
    """Open a file for its user only, as an ``opener``."""
    return os.open(path, flags, 0o600)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Have errors of writing name what is written; Arrow's, Parquet's and `write`'s do not."""
    try:
        yield
    except OSError as error:
        if error.filename is None and not isinstance(error, PenstockError):
            raise OSError(error.errno, error.strerror or str(error), path) from error
        raise


def _part(path: str) -> str:
    return f"{path.rstrip(os.sep) or path}.{os.getpid()}.part"


def _refuse_to_overwrite(path: str) -> None:
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, "it is there already, and nothing is overwritten", path)


def _refuse_without_folder(path: str) -> None:
    # The error of the system would name the file that is written first.
    folder = os.path.dirname(path.rstrip(os.sep)) or os.curdir
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", folder)


def _give_name(part: str, path: str) -> None:
    """Name a file that is whole, unless there is one of that name by now."""
    try:
        os.link(part, path)
    except FileExistsError:
        _refuse_to_overwrite(path)
        raise
    except OSError:
        # A file system without hard links.
        _refuse_to_overwrite(path)
        os.rename(part, path)
