"""HDFS as a file system of the segment log, by the `hdfs-native` client.

What is another thing there than on a disk of this host:

* A write is forced (`hsync`: on the disks of all DataNodes of the block) whatever the sync policy
  says: between the client's memory and the DataNodes' disks the client knows no step that a dead
  process would survive. So a crash of the writer takes nothing that an append has returned for.
* There is no direct I/O, no reserved space, no writing over what is there, no cutting.
* A file that is being written cannot be read: for a reader its last block is not there yet. It can
  be read once its writer has closed it, or once its lease was recovered, which also ends the
  writing of whoever still has it (`settle`).
* There is no `flock`. Who has a folder is said by a file; see `HdfsFolderLock`.
* Names are durable when the call that made them returns: there is nothing to force in a folder.

When the NameNode cannot be reached or is in safe mode, calls wait and ask again until
`patience_s` is over, as far as asking again cannot do harm: always after a refusal, and after a
lost answer for what may be done twice.

The client has threads of its own, which a fork does not copy: each process has its own clients
(`hdfs_file_system`), made at the first use.

Who writes a log: a file in its folder says so, and each new segment asks it.

HDFS has no lock that ends with its process. So ``LOCK`` is a small closed file with the name of its
owner, put there by an atomic rename, and the newest owner wins:

* An owner of the same host, whose process lives, keeps the folder; the newcomer is refused.
* An owner whose process is gone, or that is on another host, is replaced. That is what a cluster
  manager needs that starts a driver again elsewhere.
* Whoever was replaced cannot write on. Before the newcomer reads the log it has the leases of all
  its segments recovered, which breaks the open segment of a writer that is not dead after all; and
  of a new segment it is checked that the lock is still its writer's before it is begun, and again
  when it has its name, before the first append. So the newcomer, who looks at the names after it
  has the lock, sees every segment that an append can go to, whatever its number.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import posixpath
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec

from penstock.backoff import Backoff
from penstock.processes import ProcessIdentity
from penstock.wal._errors import MissingClientError
from penstock.wal._hdfs_client import (
    AUTHENTICATION,
    HadoopConfiguration,
    HdfsAuthenticationError,
    HdfsUnavailableError,
    explained,
    translated,
)
from penstock.wal._hdfs_files import HdfsAppendFile, HdfsReadFile, NewFiles, WriteLimit

__all__ = ["HdfsFile", "HdfsFileSystem", "HdfsFolderLock", "hdfs_file_system"]

_logger = logging.getLogger("penstock.wal")

_T = TypeVar("_T")

PATIENCE_S = 60.0
"""How long a NameNode may be away: longer than a restart of it mostly takes."""

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0

# The client's own tries, before it says that a NameNode is away; with its defaults it takes three
# minutes. The tries find the active one of several NameNodes; waiting is done here.
_CLIENT_SETTINGS = {
    "dfs.client.failover.max.attempts": "3",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "500",
}

_SILENCE = "dfs.client.socket-timeout"
_LONGEST_SILENCE_MS = 5000
"""How long a DataNode may say nothing when it is asked for a block or a place for one: less than a
write may take (`WriteLimit`), so that it is the client that gives a dead one up."""

_held: set[str] = set()
"""Tokens of the locks of this process; single additions and removals need no lock."""


@dataclass(frozen=True)
class HdfsFile:
    """A file as a listing has it.

    Attributes:
        path: Its path.
        modified_ms: When it was last modified; for a new file, when it was closed.
        size: Its bytes.
    """

    path: str
    modified_ms: int
    size: int


class HdfsFileSystem:
    """The files of one HDFS. Safe to use from any thread of the process that made it.

    Configuration, high availability and Kerberos come from the files in ``HADOOP_CONF_DIR`` or
    ``HADOOP_HOME``, as for other clients of Hadoop. Of them ``dfs.blocksize`` and
    ``dfs.replication`` hold for new files; without them the NameNode's defaults do.

    Args:
        authority: ``hdfs://host:port`` or ``hdfs://nameservice``; empty for ``fs.defaultFS``.
        patience_s: How long HDFS may be away before a call fails, in seconds.

    Attributes:
        write_limit: How long a write to one of its files may take.
        new_files: How those fare that are made.

    Raises:
        MissingClientError: The package of the client is not installed.
        OSError: The address or the configuration is not accepted.
    """

    def __init__(self, authority: str, *, patience_s: float = PATIENCE_S) -> None:
        try:
            native: Any = importlib.import_module("hdfs_native")
        except ImportError as error:
            raise MissingClientError(authority, "hdfs-native", "penstock[hdfs]") from error
        self.authority = authority
        self.patience_s = patience_s
        self.write_limit = WriteLimit()
        self.new_files = NewFiles()
        self._configuration = configuration = HadoopConfiguration.of(os.environ)
        self._options = native.WriteOptions(
            block_size=configuration.number("dfs.blocksize"),
            replication=configuration.number("dfs.replication"),
            permission=0o600,
            overwrite=False,
            create_parent=False,
        )
        silence_ms = configuration.number(_SILENCE) or _LONGEST_SILENCE_MS
        silence = {_SILENCE: str(min(silence_ms, _LONGEST_SILENCE_MS))}
        self._new_client = partial(native.Client, authority or None)
        self._settings = {**_CLIENT_SETTINGS, **silence}
        self._client = self.call_once(authority, lambda: self._new_client(config=self._settings))

    # -- what the log asks -----------------------------------------------------------------------

    def create(self, path: str, *, direct: bool) -> HdfsAppendFile:
        made = self.call(path, lambda: self._client.create(path, self._options), again=False)
        left_out = self.new_files.copies_left_out
        copies = self._begin_with_fewer_copies(path, left_out) if left_out else None
        return HdfsAppendFile(self, path, made, copies)

    def _begin_with_fewer_copies(self, path: str, left_out: int) -> int | None:
        """Have a new file written to fewer DataNodes; return how many it should have had."""
        wanted = int(self.call(path, lambda: self._client.get_file_info(path)).replication or 1)
        copies = max(1, wanted - left_out)
        if copies == wanted:
            return None
        self.set_copies(path, copies)
        text = "files before it could not be written: %s begins with %d instead of %d copies"
        _logger.warning(text, path, copies, wanted)
        return wanted

    def set_copies(self, path: str, copies: int) -> None:
        """Set how many DataNodes should hold a file; the NameNode makes those that are missing."""
        self.call(path, lambda: self._client.set_replication(path, copies))

    def reopen(self, path: str, *, direct: bool) -> HdfsAppendFile:
        raise OSError(errno.EOPNOTSUPP, "HDFS has no writing over what a file holds", path)

    def open(self, path: str) -> HdfsReadFile:
        found = self.call(path, lambda: self._client.get_file_info(path))
        if found.isdir:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        reader = self.call(path, lambda: self._client.read(path))
        if len(reader) < found.length:
            raise OSError(errno.EBUSY, "it is being written, or its writer died", path)
        return HdfsReadFile(self, path, reader)

    def address(self, path: str) -> str:
        return f"{self.authority or 'hdfs://'}{path}"

    def settle(self, paths: Sequence[str]) -> None:
        open_paths = list(paths)
        end_s = time.monotonic() + self.patience_s
        while open_paths:
            open_paths = [path for path in open_paths if not self._is_recovered(path)]
            if open_paths and time.monotonic() > end_s:
                raise OSError(
                    errno.ETIMEDOUT,
                    f"HDFS did not recover the lease of a dead writer in {self.patience_s:g} s",
                    open_paths[0],
                )
            if open_paths:
                time.sleep(_FIRST_PAUSE_S)

    def _is_recovered(self, path: str) -> bool:
        try:
            return bool(self.call(path, lambda: self._client.recover_lease(path)))
        except FileNotFoundError:
            return True
        except HdfsUnavailableError:
            raise
        except OSError as error:
            # The DataNode that leads the recovery died: the next call chooses another.
            _logger.info("the recovery of the lease of %s goes on: %s", path, error)
            return False

    def answers(self) -> bool:
        """Tell whether the NameNode answers."""
        try:
            self.call_once("/", lambda: self._client.get_file_info("/"))
        except OSError:
            return False
        return True

    def wait_until_it_answers(self) -> None:
        """Wait for the NameNode, for at most `patience_s`.

        Raises:
            OSError: It did not answer.
        """
        # A moment also when it does: it may be in safe mode.
        time.sleep(_FIRST_PAUSE_S)
        self.call("/", lambda: self._client.get_file_info("/"))

    def begin_recovery(self, path: str) -> None:
        """Have a file ended that cannot be closed; returns before it is, and raises nothing."""
        try:
            self.call_once(path, lambda: self._client.recover_lease(path))
        except OSError as error:
            _logger.debug("the recovery of the lease of %s was not begun: %s", path, error)

    def truncate(self, path: str, size: int) -> None:
        # Of a file that was not closed the NameNode does not know the length yet.
        is_closed = self._is_recovered(path)
        found = self.call(path, lambda: self._client.get_file_info(path))
        if not is_closed or found.length > size:
            raise OSError(errno.EOPNOTSUPP, "a file on HDFS is not cut", path)

    def sync_file(self, path: str) -> None:
        """Do nothing: a file on HDFS was forced when it was written."""

    def write_again(self, path: str, begin: int, end: int) -> None:
        """Do nothing: a file on HDFS was forced when it was written."""

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        tries = 0

        def once() -> None:
            nonlocal tries
            tries += 1
            try:
                self._client.rename(source, target, replace)
            except FileNotFoundError:
                # After a lost answer: it had been done.
                if tries == 1 or not self._exists(target):
                    raise

        self.call(source, once)

    def remove(self, path: str) -> None:
        if not self.call(path, lambda: self._client.delete(path, False)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def list_folder(self, folder: str) -> list[str]:
        return [posixpath.basename(found.path) for found in self._list(folder)]

    def sync_folder(self, folder: str) -> None:
        """Do nothing: the NameNode has logged a name before it says that it is there."""

    def make_folder(self, folder: str) -> None:
        self.call(folder, lambda: self._client.mkdirs(folder, 0o700, False))

    def remove_folder(self, folder: str) -> None:
        self.remove(folder)

    def is_folder(self, folder: str) -> bool:
        try:
            return bool(self.call(folder, lambda: self._client.get_file_info(folder)).isdir)
        except FileNotFoundError:
            return False

    def free_bytes(self, folder: str) -> int:
        return -1

    def lock(self, path: str, owner: str) -> HdfsFolderLock:
        return HdfsFolderLock(self, path, owner)

    # -- what others ask -------------------------------------------------------------------------

    def remove_tree(self, path: str) -> None:
        """Remove a file, or a folder with all that is in it; one that is gone is fine."""
        self.call(path, lambda: self._client.delete(path, True))

    def folders(self, pattern: str) -> list[str]:
        """Return the paths of the folders that fit a glob of Hadoop's."""
        found = self.call(pattern, lambda: list(self._client.glob_status(pattern)))
        return sorted(status.path for status in found if status.isdir)

    def files(self, folder: str) -> Iterator[HdfsFile]:
        """Yield the files in a folder, not those in folders below it.

        Raises:
            FileNotFoundError: There is no such folder.
        """
        for found in self._list(folder):
            if not found.isdir:
                yield HdfsFile(found.path, found.modification_time, found.length)

    def _list(self, folder: str) -> list[Any]:
        return self.call(folder, lambda: list(self._client.list_status(folder)))

    def _exists(self, path: str) -> bool:
        try:
            self._client.get_file_info(path)
        except FileNotFoundError:
            return False
        return True

    def call_once(self, path: str, function: Callable[[], _T]) -> _T:
        """Call the client.

        Args:
            path: What it is about, for errors.
            function: The call.

        Raises:
            OSError: With an error number and the path.
        """
        try:
            return function()
        except BaseException as error:
            # A panic of the client is no `Exception`; Ctrl-C and the like go on.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            found = translated(error, path)
            raise explained(found, self.authority, self._configuration) from error

    def call(self, path: str, function: Callable[[], _T], *, again: bool = True) -> _T:
        """Call the client; while HDFS is away, wait and call again.

        Args:
            path: What it is about, for errors.
            function: The call.
            again: It may be done twice; else it is called again only when it was refused.

        Raises:
            OSError: With an error number and the path.
        """
        end_s = time.monotonic() + self.patience_s
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        said = False
        while True:
            try:
                return self.call_once(path, function)
            except HdfsUnavailableError as error:
                if not (again or error.is_refusal) or time.monotonic() > end_s:
                    raise
                if not said:
                    self._check_that_it_is_not_kerberos(path, error)
                    _logger.warning(
                        "%s; asked again for up to %g s", error.strerror, self.patience_s
                    )
                    said = True
            time.sleep(backoff.next_s())

    def _check_that_it_is_not_kerberos(self, path: str, error: HdfsUnavailableError) -> None:
        """Raise if HDFS is not away, but breaks connections off that do not begin by Kerberos.

        Of the NameNode's answer to those the client tells nothing.
        """
        if self._configuration.uses_kerberos or not error.is_cut_off:
            return
        asking = self._new_client(config={**self._settings, AUTHENTICATION: "kerberos"})
        try:
            # One that does not ask for Kerberos answers this client, too.
            self.call_once(path, lambda: asking.get_file_info("/"))
            self.call_once(path, lambda: self._client.get_file_info("/"))
        except HdfsAuthenticationError:
            raise
        except HdfsUnavailableError as again:
            if again.is_cut_off:
                refused = HdfsAuthenticationError(str(again.strerror), path)
                raise explained(refused, self.authority, self._configuration) from again
        except OSError as other:
            _logger.debug("whether HDFS asks for Kerberos is not known: %s", other)


class _Clients:
    """The file systems of this process. One lock guards them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Those of a parent process stay here unused: to drop one would wait for threads that the
        # fork did not copy.
        self._made: dict[tuple[int, str], HdfsFileSystem] = {}

    def get(self, authority: str) -> HdfsFileSystem:
        key = (os.getpid(), authority)
        with self._lock:
            if key not in self._made:
                self._made[key] = HdfsFileSystem(authority)
            return self._made[key]

    def renew_lock(self) -> None:
        self._lock = threading.Lock()


_clients = _Clients()
os.register_at_fork(after_in_child=_clients.renew_lock)


def hdfs_file_system(authority: str) -> HdfsFileSystem:
    """Return this process's file system of an address; see `HdfsFileSystem`."""
    return _clients.get(authority)


class _Owner(msgspec.Struct, frozen=True):
    """What the file holds. Host and process are recognised, the name is for people."""

    name: str
    token: str
    host: str
    pid: int
    started: str

    @classmethod
    def this_process(cls, name: str) -> _Owner:
        this = ProcessIdentity.this_process()
        return cls(name, secrets.token_hex(16), this.host, this.pid, this.started)

    @property
    def is_alive_here(self) -> bool:
        """Whether it is a living process that this one can see, and still has the folder."""
        if not ProcessIdentity(self.host, self.pid, self.started).is_alive_here:
            return False
        # This process may have let go of a lock whose file it could not remove.
        return self.pid != os.getpid() or self.token in _held


class HdfsFolderLock:
    """The ownership of a folder; made by `HdfsFileSystem.lock`.

    Raises:
        BlockingIOError: A living process of this host has it.
        OSError: HDFS cannot be reached.
    """

    def __init__(self, fs: HdfsFileSystem, path: str, owner: str) -> None:
        self._fs = fs
        self._path = path
        self._owner = _Owner.this_process(owner)
        before = self._read()
        if before is not None and before.is_alive_here:
            raise BlockingIOError(errno.EWOULDBLOCK, before.name, path)
        if before is not None:
            _logger.warning("taking the log folder of %s over from %s", path, before.name)
        self._put()
        _held.add(self._owner.token)

    def _put(self) -> None:
        present = f"{self._path}.{self._owner.token}"
        file = self._fs.create(present, direct=False)
        try:
            file.write(0, [msgspec.json.encode(self._owner)], sync=True)
        finally:
            file.close()
        self._fs.rename(present, self._path, replace=True)

    def _read(self) -> _Owner | None:
        try:
            file = self._fs.open(self._path)
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(file.read(0, file.size), type=_Owner)
        except msgspec.DecodeError:
            return _Owner("an owner that has not said its name", "", "", 0, "")

    def check(self) -> None:
        """Make sure that nobody has taken the folder over.

        Raises:
            OSError: Somebody has; or HDFS cannot be reached.
        """
        now = self._read()
        if now is None or now.token != self._owner.token:
            taker = "somebody who removed it" if now is None else now.name
            raise OSError(errno.ESTALE, f"the log was taken over by {taker}", self._path)

    def release(self) -> None:
        """Let others take it; one that was taken over, or cannot be reached, is left."""
        _held.discard(self._owner.token)
        try:
            # A stop does not wait for a NameNode; who comes next replaces a dead owner.
            if self._fs.answers():
                self.check()
                self._fs.remove(self._path)
        except OSError as error:
            _logger.debug("%s is left: %s", self._path, error)
