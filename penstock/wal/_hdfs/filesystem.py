"""HDFS as a file system, by its client; its open files, and who writes a log on it."""

from __future__ import annotations

import errno
import importlib
import logging
import os
import posixpath
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock.runtime.backoff import Backoff
from penstock.wal._answers import (
    Answer,
    BoundedCalls,
    Outage,
    StorageAwayError,
    TooLongError,
    answer_of,
)
from penstock.wal._errors import MissingClientError
from penstock.wal._filesystem import read_once
from penstock.wal._hdfs.client import (
    AUTHENTICATION,
    HadoopConfiguration,
    HdfsAuthenticationError,
    HdfsUnavailableError,
    explained,
    translated,
)
from penstock.wal._hdfs.limits import NewFiles, WriteLimit
from penstock.wal._owner import Mark, Owner, TakenOverError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_SLOWEST_BYTES_PER_S = 1 << 20

# Who writes a log: a file in its folder says so, and each new segment asks it.
#
# HDFS has no lock that ends with its process. So ``LOCK`` is a small closed file with the name of
# its owner, put there by an atomic rename, and the newest owner wins:
#
# * An owner of the same host, whose process lives and has not let go, keeps the folder; the
#   newcomer is refused. That it has not is seen by a memory file that it holds open (`Mark`):
#   ``LOCK`` itself stays where it was let go while the NameNode was away.
# * An owner whose process is gone, or that is on another host, is replaced. That is what a cluster
#   manager needs that starts a driver again elsewhere.
# * A replaced owner cannot write on. Before the newcomer reads the log it has the leases of all
#   its segments recovered, which breaks the open segment of a writer that is not dead after all;
#   and a new segment is begun only while the lock is its writer's, which is asked again when it has
#   its name, before the first append. So the newcomer, which looks at the names after it has the
#   lock, sees every segment that an append can go to, whatever its number.


class HdfsFolderLock:
    """The ownership of a folder; made by `HdfsFileSystem.lock`.

    Raises:
        BlockingIOError: A living process of this host has it.
        OSError: HDFS cannot be reached.
    """

    def __init__(self, fs: HdfsFileSystem, path: str, owner: str) -> None:
        self._fs = fs
        self._path = path
        self._owner = Owner.this_process(owner)
        before = self._read()
        if before is not None and before.is_alive_here:
            raise BlockingIOError(errno.EWOULDBLOCK, before.name, path)
        if before is not None:
            _logger.warning("taking the log folder of %s over from %s", path, before.name)
        self._mark = Mark(self._owner.token)
        try:
            self._put()
        except BaseException:
            self._mark.release()
            raise

    def _put(self) -> None:
        present = f"{self._path}.{self._owner.token}"
        file = self._fs.create(present, direct=False)
        try:
            file.write(0, [msgspec.json.encode(self._owner)], sync=True)
        finally:
            file.close()
        self._fs.rename(present, self._path, replace=True)

    def _read(self) -> Owner | None:
        try:
            file = self._fs.open(self._path)
        except FileNotFoundError:
            return None
        return Owner.read(file.read(0, file.size))

    def check(self) -> None:
        """Make sure that no one has taken the folder over.

        Raises:
            TakenOverError: It was.
            OSError: HDFS cannot be reached.
        """
        now = self._read()
        if now is None or now.token != self._owner.token:
            taker = "somebody who removed it" if now is None else now.name
            raise TakenOverError(taker, self._path)

    def release(self) -> None:
        """Let others take it; one that was taken over, or cannot be reached, is left."""
        try:
            # A stop does not wait for a NameNode; the next owner replaces a dead one.
            if self._fs.answers():
                self.check()
                self._fs.remove(self._path)
        except OSError as error:
            _logger.debug("%s is left: %s", self._path, error)
        finally:
            self._mark.release()


_logger = logging.getLogger("penstock.wal")

_T = TypeVar("_T")

_NAME = "HDFS"
PATIENCE_S = 60.0
"""How long a NameNode may be away: longer than a restart of it mostly takes."""

_ANSWER_S = 10.0
"""How long an answer of the NameNode may take, at least,"""
_LONG_ANSWER_S = 30.0
"""and one that takes many calls of the client, or several DataNodes that do not answer."""
_SLOWEST_BYTES_PER_S = 1 << 20

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

    `_lock` guards which client it is that calls use.

    Attributes:
        write_limit: How long a write to one of its files may take.
        new_files: How those fare that are made.

    Raises:
        MissingClientError: The package of the client is not installed.
        OSError: The address or the configuration is not accepted.
    """

    begins_at_once = False
    has_folders = True
    writes_at_once = 1

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
        self._outage = Outage(_NAME, patience_s)
        self._lock = threading.Lock()
        self._turn = 0
        self._client = self._client_of_turn(0)

    # -- what the log asks -----------------------------------------------------------------------

    def create(self, path: str, *, direct: bool) -> HdfsAppendFile:
        # Not the client's own writer around it: that one closes itself when it is collected, in any
        # thread, and waits without a bound while the NameNode hangs (hdfs-native 0.14.7).
        made = self.call(path, lambda: self._client.inner.create(path, self._options), again=False)
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

    def read_range(self, path: str, offset: int, length: int) -> memoryview:
        return read_once(self, path, offset, length)

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
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while True:
            reasons = {path: self._not_recovered(path) for path in open_paths}
            open_paths = [path for path, reason in reasons.items() if reason]
            if not open_paths:
                return
            if time.monotonic() > end_s:
                raise StorageAwayError(
                    f"HDFS did not recover the lease of a dead writer in {self.patience_s:g} s: "
                    f"{reasons[open_paths[0]]}",
                    open_paths[0],
                )
            time.sleep(backoff.next_s())

    def _not_recovered(self, path: str) -> str:
        """Have a lease recovered; return why it is not yet, empty when it is.

        Raises:
            OSError: It is refused, which would not pass; or HDFS is away.
        """
        try:
            done = self.call(path, lambda: self._client.recover_lease(path))
        except FileNotFoundError:
            return ""
        except OSError as error:
            if isinstance(error, StorageAwayError) or answer_of(error) is Answer.REFUSED:
                raise
            # The DataNode that leads the recovery died: the next call chooses another.
            _logger.info("the recovery of the lease of %s goes on: %s", path, error)
            return str(error)
        return "" if done else "its DataNodes are still at it"

    def answers(self) -> bool:
        """Return whether the NameNode answers."""
        try:
            limit_s = min(_ANSWER_S, self.patience_s)
            self._call_once("/", lambda: self._client.get_file_info("/"), limit_s)
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
            self._call_once(path, lambda: self._client.recover_lease(path))
        except OSError as error:
            _logger.debug("the recovery of the lease of %s was not begun: %s", path, error)

    def truncate(self, path: str, size: int, *, is_settled: bool = False) -> None:
        # Of a file that was not closed the NameNode does not know the length yet.
        is_closed = not self._not_recovered(path)
        found = self.call(path, lambda: self._client.get_file_info(path))
        if not is_closed or found.length > size:
            raise OSError(errno.EOPNOTSUPP, "a file on HDFS is not cut", path)

    def sync_file(self, path: str) -> None:
        """Do nothing: a file on HDFS was forced when it was written."""

    def write_again(self, path: str, begin: int, end: int) -> None:
        """Do nothing: a file on HDFS was forced when it was written."""

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        before = self.call(source, lambda: self._client.get_file_info(source))
        try:
            self.call(source, lambda: self._client.rename(source, target, replace))
        except FileNotFoundError:
            # Perhaps it was done, and the answer was lost.
            if not self._is_the_same(target, before):
                raise

    def _is_the_same(self, path: str, before: Any) -> bool:
        """Return whether a path still has the file that this was known of."""
        try:
            now = self.call(path, lambda: self._client.get_file_info(path))
        except FileNotFoundError:
            return False
        seen = (before.isdir, before.length, before.modification_time)
        return (now.isdir, now.length, now.modification_time) == seen

    def remove(self, path: str) -> None:
        self.call(path, lambda: self._client.delete(path, False))

    def list_folder(self, folder: str) -> list[str]:
        return [posixpath.basename(found.path) for found in self._list(folder)]

    def sync_folder(self, folder: str) -> None:
        """Do nothing: the NameNode has logged a name before it says that there is one."""

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
        self.call(path, lambda: self._client.delete(path, True), within_s=_LONG_ANSWER_S)

    def folders(self, pattern: str) -> list[str]:
        """Return the paths of the folders that fit a glob of Hadoop's."""
        found = self.call(
            pattern,
            lambda: list(self._client.glob_status(pattern)),
            within_s=_LONG_ANSWER_S,
        )
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
        return self.call(
            folder,
            lambda: list(self._client.list_status(folder)),
            within_s=_LONG_ANSWER_S,
        )

    def read(self, path: str, function: Callable[[], _T], size: int) -> _T:
        """Call the client for bytes of a file, which DataNodes give.

        Args:
            path: The file.
            function: The call.
            size: How many bytes.

        Raises:
            OSError: With an error number and the path.
        """
        within_s = _LONG_ANSWER_S + size / _SLOWEST_BYTES_PER_S
        return self._call(path, function, Outage(_NAME, self.patience_s), within_s=within_s)

    def call(
        self,
        path: str,
        function: Callable[[], _T],
        *,
        again: bool = True,
        within_s: float = _ANSWER_S,
    ) -> _T:
        """Call the client for an answer of the NameNode; while HDFS is away, wait and call again.

        Args:
            path: What it is about, for errors.
            function: The call.
            again: It may be done twice; else it is called again only when it was refused.
            within_s: How long one try may take at least.

        Raises:
            OSError: With an error number and the path.
        """
        return self._call(path, function, self._outage, again=again, within_s=within_s)

    def _call(
        self,
        path: str,
        function: Callable[[], _T],
        outage: Outage,
        *,
        within_s: float,
        again: bool = True,
    ) -> _T:
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        said = False
        while True:
            try:
                with outage.asking(path):
                    found = self._call_once(path, function, outage.limit_s(within_s))
            except (HdfsUnavailableError, TooLongError) as error:
                left_s = outage.failed()
                is_refusal = isinstance(error, HdfsUnavailableError) and error.is_refusal
                if not (again or is_refusal) or not left_s:
                    raise
                if not said:
                    self._check_that_it_is_not_kerberos(path, error)
                    _logger.warning("%s; asked again for up to %.0f s", error.strerror, left_s)
                    said = True
                time.sleep(min(backoff.next_s(), left_s))
            except StorageAwayError:
                raise
            except OSError:
                outage.answered()
                raise
            else:
                outage.answered()
                return found

    def _call_once(
        self, path: str, function: Callable[[], _T], timeout_s: float | None = None
    ) -> _T:
        """Call the client once; after a call that takes too long there is a new client.

        Raises:
            OSError: With an error number and the path.
        """
        limit_s = self._outage.limit_s(_ANSWER_S) if timeout_s is None else timeout_s
        client, calls = self._client, BoundedCalls(_NAME)
        try:
            return self.call_by(calls, path, function, limit_s)
        except TooLongError:
            self._replace_client(client)
            raise
        finally:
            calls.abandon()

    def call_by(
        self, calls: BoundedCalls, path: str, function: Callable[[], _T], timeout_s: float
    ) -> _T:
        """Call the client once.

        Args:
            calls: Makes the call.
            path: What it is about, for errors.
            function: The call.
            timeout_s: How long it may take.

        Raises:
            OSError: With an error number and the path. `TooLongError`: `calls` is of no more use.
        """
        try:
            found: _T = calls.call(function, timeout_s, path)
        except BaseException as error:
            # A panic of the client is no `Exception`; Ctrl-C and the like go on.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            told = translated(error, path)
            raise explained(told, self.authority, self._configuration) from error
        return found

    def _replace_client(self, hung: Any) -> None:
        """Let the next calls have a new client, which asks another NameNode first."""
        with self._lock:
            if self._client is hung:
                self._turn += 1
                self._client = self._client_of_turn(self._turn)

    def _client_of_turn(self, turn: int) -> Any:
        return self._made_client(self._configuration.in_turn(self.authority, turn))

    def _made_client(self, more: dict[str, str]) -> Any:
        calls = BoundedCalls(_NAME)
        try:
            # It may ask name servers.
            make = partial(self._new_client, config={**self._settings, **more})
            return self.call_by(calls, self.authority, make, self._outage.limit_s(_ANSWER_S))
        finally:
            calls.abandon()

    def _check_that_it_is_not_kerberos(self, path: str, error: StorageAwayError) -> None:
        """Raise if HDFS is not away, but breaks connections off that do not begin by Kerberos.

        The client says nothing of the NameNode's answer to those.
        """
        is_cut_off = isinstance(error, HdfsUnavailableError) and error.is_cut_off
        if self._configuration.uses_kerberos or not is_cut_off:
            return
        try:
            asking = self._made_client({AUTHENTICATION: "kerberos"})
            # One that does not ask for Kerberos also answers this client.
            self._call_once(path, lambda: asking.get_file_info("/"))
            self._call_once(path, lambda: self._client.get_file_info("/"))
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


class HdfsAppendFile:
    """A file of HDFS that is being written, from its beginning to its end.

    When a DataNode dies while the client waits for its answer to an `hsync`, the client may wait
    for ever: the task that sends packets waits for a next one, and the one that should begin the
    recovery waits for that task (hdfs-native 0.14.7, `Pipeline::shutdown`; no setting bounds it).

    `_lock` is held by each call: the client's writer takes one at a time. After a failure the file
    takes no more: how much of the failed write it has is not known.
    """

    def __init__(
        self, fs: HdfsFileSystem, path: str, writer: Any, copies: int | None = None
    ) -> None:
        self._fs = fs
        self._path = path
        self._writer = writer
        self._copies = copies
        self._calls = BoundedCalls("HDFS")
        self._lock = threading.Lock()
        self._size = 0
        self._is_broken = False
        self._closed = False

    @property
    def direct(self) -> bool:
        return False

    @property
    def forces_writes(self) -> bool:
        return True

    @property
    def preallocates(self) -> bool:
        return False

    def preallocate(self, size: int) -> None:
        """Do nothing: HDFS reserves a block when its first byte is written."""

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        with self._lock:
            if offset != self._size or self._is_broken or self._closed:
                raise OSError(errno.ESPIPE, f"HDFS writes at the end, not at {offset}", self._path)
            views = [memoryview(buffer).cast("B") for buffer in buffers]
            size = sum(map(len, views))
            self._is_broken = True
            try:
                # Once: after a failure between two of HDFS's blocks a part of it is written. As
                # `bytes`: of any other buffer the client takes one byte after the other, with the
                # interpreter's lock (hdfs-native 0.14.7: 14 ms a MiB in place of 0.3).
                self._call(partial(self._writer.write, b"".join(views)), size)
                self._force(size)
            except OSError as error:
                # A NameNode that hangs looks the same from here.
                if not self._size and _is_of_data_nodes(error) and self._fs.answers():
                    self._fs.new_files.failed()
                raise
            if not self._size:
                self._ask_for_all_copies()
            self._size += size
            self._is_broken = False

    def _ask_for_all_copies(self) -> None:
        copies = self._copies
        if copies is None:
            self._fs.new_files.began()
            return
        try:
            self._fs.set_copies(self._path, copies)
        except OSError as error:
            # Its bytes are forced; the next file will be another attempt.
            _logger.warning("%s stays with fewer copies than %d: %s", self._path, copies, error)

    def sync(self) -> None:
        """Do nothing but say what broke: `write` returns when its bytes are forced."""
        with self._lock:
            if self._is_broken:
                raise OSError(errno.EIO, "an earlier write failed", self._path)

    def _force(self, size: int) -> None:
        """Force what was written; while the NameNode is away, wait and ask again.

        That does no harm: what the DataNodes already have is not sent again. But when it was a
        DataNode that did not answer, the client would wait for ever: then the write has failed.
        """
        end_s = time.monotonic() + self._fs.patience_s
        may_be_back = True
        while True:
            try:
                self._call(self._writer.hsync, size)
            except HdfsUnavailableError as error:
                if time.monotonic() > end_s:
                    raise
                if not error.by_name_node and self._fs.answers():
                    # The NameNode refused, and is back since, or else refuses again.
                    if not (error.is_refusal and may_be_back):
                        raise
                    may_be_back = False
                else:
                    may_be_back = True
                    self._fs.wait_until_it_answers()
            else:
                return

    def _call(self, function: Callable[[], Any], size: int) -> None:
        limit_s = min(self._fs.write_limit.now_s, self._fs.patience_s)
        timeout_s = limit_s + size / _SLOWEST_BYTES_PER_S
        begin_s = time.monotonic()
        try:
            self._fs.call_by(self._calls, self._path, function, timeout_s)
        except TooLongError:
            self._fs.write_limit.passed(limit_s)
            raise
        self._fs.write_limit.kept(time.monotonic() - begin_s)

    def truncate(self, size: int) -> None:
        if size != self._size:
            raise OSError(errno.EOPNOTSUPP, "a file on HDFS is not cut", self._path)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            writer, self._writer = self._writer, None
            if self._is_broken:
                # To close it would be tried for a quarter of a minute. The recovery of its lease
                # ends it in the background; a reader that comes before waits for that.
                self._calls.abandon()
                self._fs.begin_recovery(self._path)
                return
            try:
                self._call(writer.close, 0)
            except OSError:
                # All its bytes are forced; what ends a dead writer's file also ends this one.
                self._calls.abandon()
                self._fs.settle([self._path])
            else:
                self._calls.end()


def _is_of_data_nodes(error: OSError) -> bool:
    if isinstance(error, HdfsUnavailableError):
        return not error.by_name_node
    return answer_of(error) is Answer.AWAY or error.errno == errno.EIO


class HdfsReadFile:
    """A file of HDFS that is being read; its size is that at the opening."""

    def __init__(self, fs: HdfsFileSystem, path: str, reader: Any) -> None:
        self._fs = fs
        self._path = path
        self._reader = reader
        self._size = len(reader)

    @property
    def size(self) -> int:
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        # The client dies of a read beyond the end instead of raising.
        length = min(length, self._size - offset)
        if length <= 0 or offset < 0:
            return b""
        return bytes(
            self._fs.read(self._path, lambda: self._reader.read_range(offset, length), length)
        )

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Do nothing: nothing is held open."""
