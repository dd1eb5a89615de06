"""A checkpoint: the graph of a program and how far its batches are, as one file.

Layout of a file, integers little-endian::

    magic "PENSTKCP" | format version u32 | header length u32 | body length u64 | CRC-32C u32
    header: MessagePack (`CheckpointHeader`)
    body: the graph with the program's functions, pickled by cloudpickle

The checksum covers everything but itself. The header can be read, and so versions be compared,
before a byte of the body is unpickled. Unpickling runs code: who may write to the folder may run
code as the user of the program, as in Spark. Files are open to their user only (0600). With a key
the whole file is encrypted (`_sealed_file`).

A file is written under another name, forced to disk and renamed, and the folder is forced: a
crash leaves the old file or the new one, on HDFS as well as on a disk of this host. Its name is
``checkpoint-<last batch time in ms>``. The newest ten are kept; when the newest is damaged all the
same, an older one is read.

Who writes has claimed the folder, by a lock that ends with its process. Two programs that write
would remove each other's checkpoints, and without receivers there is no ledger whose lock refuses
one of them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import re
import struct
from collections.abc import Iterator

import msgspec
import pyspark
from crc32c import crc32c

import penstock
from penstock.streaming.checkpoint._sealed_file import FileSealer
from penstock.streaming.checkpoint.errors import (
    FORMAT,
    CheckpointFolderInUseError,
    CheckpointReadError,
    CheckpointVersionError,
    DamagedCheckpointError,
)
from penstock.streaming.checkpoint.program_code import ProgramPart
from penstock.wal import (
    EncryptionKey,
    FileSystem,
    FolderLock,
    LogFolderInUseError,
    is_on_hdfs,
    locate,
    lock_folder,
)

__all__ = [
    "KEPT_CHECKPOINTS",
    "Checkpoint",
    "CheckpointFolder",
    "CheckpointHeader",
    "DamagedCheckpointError",
    "SavedState",
]

KEPT_CHECKPOINTS = 10
"""As many as Spark keeps."""

_log = logging.getLogger("penstock.streaming.checkpoint")

_MAGIC = b"PENSTKCP"
_FORMAT = 1
_PREFIX = struct.Struct("<8sIIQ")
_CRC = struct.Struct("<I")
_UNFINISHED = ".new"
_NAME = re.compile(r"checkpoint-[0-9]+")


class SavedState(msgspec.Struct, frozen=True, kw_only=True):
    """A state as it was saved last, which another version of the program can take up.

    Attributes:
        name: The state's name.
        file: Where its entries are: an `RDDFile`, or a list of them; pickled.
        time_ms: The last batch that it has; the blocks of all later ones are kept.
        form: How its entries are written down: `penstock.streaming.dstream.stateful` says it.
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

    def encode(self) -> list[bytes]:
        """Return the file's content, in parts."""
        header = msgspec.msgpack.encode(self.header)
        prefix = _PREFIX.pack(_MAGIC, _FORMAT, len(header), len(self.body))
        crc = crc32c(self.body, crc32c(header, crc32c(prefix)))
        return [prefix, _CRC.pack(crc), header, self.body]

    @staticmethod
    def decode(data: bytes, folder: str) -> Checkpoint:
        """Return the checkpoint that a file holds.

        Raises:
            DamagedCheckpointError: It is torn, or its checksum is wrong.
            CheckpointVersionError: The format is another.
        """
        begin = _PREFIX.size + _CRC.size
        if len(data) < begin:
            raise DamagedCheckpointError(f"it has {len(data)} bytes")
        magic, version, header_length, body_length = _PREFIX.unpack_from(data)
        if magic != _MAGIC:
            raise DamagedCheckpointError("it does not begin like a checkpoint")
        end = begin + header_length + body_length
        if len(data) != end:
            raise DamagedCheckpointError(f"it has {len(data)} bytes instead of {end}")
        view = memoryview(data)
        if (
            crc32c(view[begin:], crc32c(view[: _PREFIX.size]))
            != _CRC.unpack_from(data, _PREFIX.size)[0]
        ):
            raise DamagedCheckpointError("its checksum is wrong")
        if version != _FORMAT:
            raise CheckpointVersionError(folder, FORMAT, str(version), str(_FORMAT))
        try:
            header = msgspec.msgpack.decode(
                view[begin : begin + header_length], type=CheckpointHeader
            )
        except msgspec.DecodeError as error:
            raise DamagedCheckpointError(f"its header cannot be decoded ({error})") from error
        return Checkpoint(header, data[begin + header_length :])

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


class CheckpointFolder:
    """The checkpoints in a folder.

    Args:
        path: The folder: a path of this host, or ``hdfs://…``.
        fs: The file system that `path` is on, for tests; None for the one that it names.
        encryption: The key that its files are encrypted with; None: they are in clear.

    Raises:
        UnsupportedAddressError: It is on another file system.
        MissingClientError: It is on HDFS, and the client's package is not installed.
    """

    def __init__(
        self, path: str, fs: FileSystem | None = None, encryption: EncryptionKey | None = None
    ) -> None:
        self.path = path
        self._sealer = FileSealer(path, encryption)
        self._fs, self._path = locate(path) if fs is None else (fs, path)
        self._lock: FolderLock | None = None

    def claim(self, application: str = "") -> None:
        """Take the folder for this process until `release`; it is made if it is not there.

        Args:
            application: Told to whoever wants the folder meanwhile.

        Raises:
            CheckpointFolderInUseError: A living process has it.
            OSError: The folder cannot be written.
        """
        self._make(self._path)
        try:
            self._lock = lock_folder(self._fs, self._path, application)
        except LogFolderInUseError as error:
            raise CheckpointFolderInUseError(self.path, error.owner) from None

    def release(self) -> None:
        """Let others take the folder; without effect when it was not claimed."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def check_unclaimed(self) -> None:
        """Check that no other process of this host has the folder; on HDFS `claim` tells.

        Raises:
            CheckpointFolderInUseError: One has.
        """
        if is_on_hdfs(self.path):
            return  # A claim there would take the folder from a driver on another host.
        # Who may not write there, may read.
        with contextlib.suppress(OSError):
            self.claim()
        self.release()

    def names(self) -> list[str]:
        """Return the names of the checkpoints, the newest first; none when there is no folder.

        As in Spark, a folder with such a name is none.
        """
        found = self._files_ending("")
        return sorted(found, key=lambda name: int(name.rpartition("-")[2]), reverse=True)

    def write(self, checkpoint: Checkpoint) -> str:
        """Write a checkpoint; when this returns it is on the disk under its name.

        One of the same batch time is replaced.

        Returns:
            The name.

        Raises:
            OSError: It was not written; those before are still there. With ESTALE: a newer driver
                has taken the folder over.
        """
        self._make(self._path)
        name = f"checkpoint-{checkpoint.header.last_batch_ms}"
        target = os.path.join(self._path, name)
        temporary = target + _UNFINISHED
        try:
            file = self._fs.create(temporary, direct=False)
        except FileExistsError:  # An earlier try left it.
            self._fs.remove(temporary)
            file = self._fs.create(temporary, direct=False)
        try:
            try:
                file.write(0, self._sealer.seal(name, checkpoint.encode()), sync=False)
                file.sync()
            finally:
                file.close()
            if self._lock is not None:
                self._lock.check()
            self._fs.rename(temporary, target, replace=True)
        except Exception:
            # Each batch has another name: on a full disk they would take what room there is.
            with contextlib.suppress(OSError):
                self._fs.remove(temporary)
            raise
        self._fs.sync_folder(self._path)
        return name

    def read(self, name: str) -> Checkpoint:
        """Read one checkpoint.

        Raises:
            DamagedCheckpointError: It is torn, or its checksum is wrong.
            CheckpointVersionError: The format is another.
            OSError: It cannot be read.
            EncryptionMismatchError: It is encrypted and should not be, or the reverse.
            WrongKeyError: It was encrypted with another key.
        """
        file = self._fs.open(os.path.join(self._path, name))
        try:
            data = file.read(0, file.size)
        finally:
            file.close()
        return Checkpoint.decode(self._sealer.open(name, data), self.path)

    def check_encryption(self) -> None:
        """Check that what is there is encrypted with this key, or in clear when there is none.

        What cannot be read is passed over: whoever needs it tells of it.

        Raises:
            EncryptionMismatchError, WrongKeyError: As `read`.
        """
        unreadable = (OSError, DamagedCheckpointError, CheckpointVersionError)
        with contextlib.suppress(OSError):
            for name in self.names():
                with contextlib.suppress(*unreadable):
                    self._check_file(name)

    def _check_file(self, name: str) -> None:
        file = self._fs.open(os.path.join(self._path, name))
        try:
            fits = self._sealer.fits(file.read(0, FileSealer.HEAD_SIZE))
        finally:
            file.close()
        if not fits:
            self.read(name)

    def read_newest(self, *, for_graph: bool = True) -> Checkpoint | None:
        """Return the newest checkpoint that is whole, or None when there is none at all.

        Each one that is not whole is one line of the log. One that cannot be read is an error: it
        may be whole, and what an older one tells of would be done again.

        Args:
            for_graph: Whether its graph is wanted, which only the versions that wrote it can read.

        Raises:
            CheckpointReadError: There are some, and none is whole, or a newer one cannot be read.
            CheckpointVersionError: The newest was written by other versions, or has another format.
            EncryptionMismatchError, WrongKeyError: As `read`.
        """
        reasons = []
        for name, found in self.each():
            if isinstance(found, Checkpoint):
                if for_graph:
                    found.check_versions(self.path)
                return found
            if isinstance(found, CheckpointVersionError):
                raise found
            if isinstance(found, OSError) and not isinstance(found, FileNotFoundError):
                raise CheckpointReadError(
                    self.path,
                    f"{name} cannot be read ({found}), which may pass: then start again. Where it "
                    "does not, remove that file, and the next older one is read",
                ) from found
            reasons.append(f"{name}: {found}")
            _log.warning(
                "%s in %s cannot be used, an older one is tried: %s", name, self.path, found
            )
        if reasons:
            raise CheckpointReadError(
                self.path,
                f"none of its checkpoints is whole: {'; '.join(reasons)}. `penstock checkpoint "
                f"{self.path}` says what is there. Bring the folder back from a copy; or, to give "
                "up states and what was received, start with another checkpoint directory",
            )
        return None

    def headers(self) -> dict[str, CheckpointHeader]:
        """Return the headers of all whole checkpoints by name, the newest first."""
        return {name: found.header for name, found in self.each() if isinstance(found, Checkpoint)}

    def each(self) -> Iterator[tuple[str, Checkpoint | Exception]]:
        """Yield each name, the newest first, with its checkpoint or with why there is none.

        Raises:
            EncryptionMismatchError, WrongKeyError: As `read`.
        """
        for name in self.names():
            try:
                yield name, self.read(name)
            except (DamagedCheckpointError, CheckpointVersionError, OSError) as error:
                yield name, error

    def remove(self, name: str) -> None:
        """Remove a checkpoint; one that is gone already is fine."""
        try:
            self._fs.remove(os.path.join(self._path, name))
        except FileNotFoundError:
            return

    def remove_unfinished(self) -> None:
        """Remove what writers left that did not come to the end."""
        for name in self._files_ending(_UNFINISHED):
            self.remove(name)

    def _files_ending(self, ending: str) -> list[str]:
        """Return the files that are named like a checkpoint with that ending."""
        try:
            found = self._fs.list_folder(self._path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return [
            name
            for name in found
            if name.endswith(ending)
            and _NAME.fullmatch(name.removesuffix(ending))
            and not self._fs.is_folder(os.path.join(self._path, name))
        ]

    def _make(self, folder: str) -> None:
        if self._fs.is_folder(folder):
            return
        parent = os.path.dirname(folder)
        if parent != folder:
            self._make(parent)
        try:
            self._fs.make_folder(folder)
        except FileExistsError:
            return
        self._fs.sync_folder(parent)
