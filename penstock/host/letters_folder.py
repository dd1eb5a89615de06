"""Below which folder the dead letters of a program lie: one that no other program writes to.

Beside its own driver log they are among its own things. Any other folder
(`spark.penstock.deadLetters.dir`, or `spark.penstock.wal.dir` with a checkpoint directory
elsewhere) other programs may have been given, too; so there each has a folder of its own, with a
name that is made once, and kept where the program's checkpoints or its driver log are::

    <checkpoint directory>/program                       meters-5d0e…
    <deadLetters.dir>/meters-5d0e…/<stream>-<attempt>    its dead letters

A program of which nothing is kept is another one at each start: streams have other numbers after
a change, and nothing would tell.
"""

from __future__ import annotations

import hashlib
import os
import uuid

from penstock.dead_letters import folder_beside, is_program_name, program_name
from penstock.errors import PenstockError
from penstock.host.durability import Durability
from penstock.wal import FileSystem, locate

_FILE = "program"
_UNFINISHED = ".new"
_MOST_BYTES = 200


class ProgramNameError(PenstockError):
    """A file that is to have the name of a program has something else.

    Attributes:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is to have the name by which the dead letters of this program are known, and "
            "has something else: put it back, or remove it, and the program begins with dead "
            "letters of its own again"
        )
        self.path = path


def letters_folder(
    durability: Durability, shared: str | None, *, is_kept: bool, run_id: str, app_name: str
) -> str:
    """Return the folder of a program's dead letters; it need not be there.

    To be called by who holds the lock of the driver log, or of the checkpoints.

    Args:
        durability: Where the logs lie.
        shared: `spark.penstock.deadLetters.dir`, or None.
        is_kept: Whether a later start of the program finds its driver log or checkpoints.
        run_id: The run.
        app_name: What the program is called, for people who look at the folder.

    Raises:
        OSError: The program's name cannot be read or kept.
        ProgramNameError: What is kept is none.
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
    found = _read(fs, path)
    if found is not None:
        if not is_program_name(found):
            raise ProgramNameError(fs.address(path))
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


def _read(fs: FileSystem, path: str) -> str | None:
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return None
    try:
        return bytes(file.read(0, min(file.size, _MOST_BYTES))).decode(errors="replace").strip()
    finally:
        file.close()
