"""A checkpoint: the graph of a program and how far its batches are, as bytes.

They are MessagePack of the version of this format, the header (`CheckpointHeader`, MessagePack
again) and the body: the graph with the program's functions, pickled by cloudpickle. The header can
be read, and so versions be compared, before a byte of the body is unpickled. Unpickling runs code:
anyone who may write to the folder may run code as the user of the program, as in Spark.

The driver log holds them; see the room's docstring.
"""

from __future__ import annotations

import os
import platform
import re
from typing import TYPE_CHECKING

import msgspec
import pyspark

import penstock
from penstock.host.durability import LEDGER
from penstock.streaming.checkpoint.errors import (
    FORMAT,
    CheckpointReadError,
    CheckpointVersionError,
)
from penstock.streaming.checkpoint.program_code import ProgramPart
from penstock.wal import locate

if TYPE_CHECKING:
    from penstock.wal import EncryptionKey

_FORMAT = 2
"""Version 1 were files of their own."""

_FILE_OF_FORMAT_1 = re.compile(r"checkpoint-[0-9]+")


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
    """A state as it was saved last, which another version of the program can take up.

    Attributes:
        name: The state's name.
        file: Where its entries are: an `RDDFile`, or a list of them; pickled.
        time_ms: The last batch that it has; the blocks of all later ones are kept.
        form: How its entries are written down (`penstock.streaming.dstream.states.stateful`).
    """

    name: str
    file: bytes
    time_ms: int
    form: str = "entries"


class CheckpointHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What can be known of a checkpoint without unpickling it.

    Attributes:
        program: Random id of the program's first start; its restarts have the same.
        python: Version of Python that wrote it, ``major.minor``: functions are kept as its code.
        pyspark: Version of PySpark.
        penstock: Version of Penstock.
        master: Spark's master.
        app_name: Spark's name of the application.
        batch_ms: Batch interval.
        zero_ms: Zero time of the graph.
        last_batch_ms: The last batch that was made; the zero time before the first.
        pending_ms: Batches up to that one that were not complete.
        conf: Spark's configuration.
        rdd_folder: The folder of this run's RDD checkpoints.
        rdd_files: The RDD checkpoints that the graph needs.
        refusal: Why it cannot be recovered from; empty when it can.
        version: The program's version, as the program says; empty without one.
        state_names: Names of the program's states; None where an earlier Penstock wrote it.
        is_last: Written by a graceful stop that left nothing to do; `states` are as of the end.
        states: The states, each as of its own time; none where an earlier Penstock wrote it.
        needed_ms: The oldest batch whose blocks a restart needs; None as `state_names`.
        parts: What the streams were made with; none where the program did not say it.
    """

    program: str
    batch_ms: int
    zero_ms: int
    last_batch_ms: int
    pending_ms: tuple[int, ...] = ()
    python: str = ".".join(platform.python_version_tuple()[:2])
    pyspark: str = pyspark.__version__
    penstock: str = penstock.__version__
    master: str = ""
    app_name: str = ""
    conf: tuple[tuple[str, str], ...] = ()
    rdd_folder: str = ""
    rdd_files: tuple[str, ...] = ()
    refusal: str = ""
    version: str = ""
    state_names: tuple[str, ...] | None = None
    is_last: bool = False
    states: tuple[SavedState, ...] = ()
    needed_ms: int | None = None
    parts: tuple[ProgramPart, ...] = ()

    @property
    def next_ms(self) -> int:
        """The first batch that a restart makes, for the first time or again."""
        return min(self.pending_ms, default=self.last_batch_ms + self.batch_ms)


class Checkpoint(msgspec.Struct, frozen=True):
    """A header and the pickled graph."""

    header: CheckpointHeader
    body: bytes

    def encode(self) -> bytes:
        """Return the checkpoint as bytes."""
        return msgspec.msgpack.encode((_FORMAT, msgspec.msgpack.encode(self.header), self.body))

    @staticmethod
    def decode(data: bytes, folder: str) -> Checkpoint:
        """Return the checkpoint that bytes hold.

        Args:
            data: The bytes.
            folder: The checkpoint directory, for errors.

        Raises:
            CheckpointVersionError: The format is another.
            CheckpointReadError: They are no checkpoint.
        """
        try:
            version, header, body = msgspec.msgpack.decode(data, type=tuple[int, bytes, bytes])
            if version != _FORMAT:
                raise CheckpointVersionError(folder, FORMAT, str(version), str(_FORMAT))
            return Checkpoint(msgspec.msgpack.decode(header, type=CheckpointHeader), body)
        except msgspec.DecodeError as error:
            raise CheckpointReadError(folder, f"it cannot be decoded ({error})") from error

    def check_versions(self, folder: str) -> None:
        """Check that the versions that wrote it are those that run.

        Raises:
            CheckpointVersionError: One differs.
        """
        running = CheckpointHeader(program="", batch_ms=0, zero_ms=0, last_batch_ms=0)
        for what, name in (("Python", "python"), ("PySpark", "pyspark"), ("Penstock", "penstock")):
            written, now = getattr(self.header, name), getattr(running, name)
            if written != now:
                raise CheckpointVersionError(folder, what, written, now)


def read_checkpoint(
    directory: str, encryption: EncryptionKey | None = None, *, is_taken: bool = True
) -> Checkpoint | None:
    """Return the newest checkpoint in a checkpoint directory.

    Args:
        directory: The directory's address.
        encryption: The key; None: it is in clear.
        is_taken: Whether the caller goes on from it; see `penstock.tracker.read_checkpoint`.

    Returns:
        None when there is none.

    Raises:
        LogFolderInUseError: It would be taken, and a program of this host runs from it.
        CheckpointReadError: Its checkpoints are files of an earlier Penstock.
        CheckpointVersionError: It has another format.
        DamagedLedgerError, LedgerRecoveryError: The driver log is damaged.
        EncryptionMismatchError: It is encrypted and should not be, or the reverse,
            or with another key.
        OSError: It cannot be read.
    """
    from penstock.tracker import read_checkpoint as read_of_log

    found = read_of_log(os.path.join(directory, LEDGER), encryption, is_taken=is_taken)
    if found:
        return Checkpoint.decode(found, directory)
    fs, path = locate(directory)
    names = fs.list_folder(path) if fs.is_folder(path) else ()
    if any(_FILE_OF_FORMAT_1.fullmatch(name) for name in names):
        raise CheckpointReadError(
            directory,
            "its checkpoints are files checkpoint-…, as Penstock wrote them before they were "
            "records of the driver log. End the program with the version that wrote them, by "
            "stop(stopGraceFully=True), and start it in another directory; or remove these files, "
            "to go on with what was received and with its positions, and without states",
        )
    return None
