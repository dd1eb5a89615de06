"""An object store as a file system, by chains of objects, and the owner of a log on it."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import operator
import os
import secrets
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from penstock.runtime.backoff import Backoff
from penstock.wal._answers import Outage, StorageAwayError
from penstock.wal._objects.client import ObjectsClient
from penstock.wal._objects.clouds import cloud_of
from penstock.wal._objects.settings import given_storage, storage_settings
from penstock.wal._owner import Mark, Owner, TakenOverError

if TYPE_CHECKING:
    from typing_extensions import Buffer

_TRIES = 100
_NOBODY = Owner("", "", "", 0, "")


class ObjectFolderLock:
    """The ownership of a folder; made by `ObjectFileSystem.lock`. See `penstock.wal._objects`.

    Raises:
        BlockingIOError: A living process of this host has it.
        OSError: The store cannot be reached.
    """

    def __init__(self, fs: ObjectFileSystem, path: str, owner: str) -> None:
        self._fs = fs
        self._path = path
        self._owner = Owner.this_process(owner)
        self._mark = Mark(self._owner.token)
        try:
            self._key = self._take()
        except BaseException:
            self._mark.release()
            raise

    def _take(self) -> str:
        for _ in range(_TRIES):
            epochs, before = self._newest()
            if before.is_alive_here:
                raise BlockingIOError(errno.EWOULDBLOCK, before.name, self._path)
            epoch = int(epochs[-1].rpartition("@")[2]) + 1 if epochs else 1
            key = self._fs.part_key(self._path, epoch)
            try:
                self._fs.make(key, msgspec.json.encode(self._owner))
            except FileExistsError:
                continue  # Another one was quicker.
            if before.name:
                _logger.warning("taking the log %s over from %s", self._address, before.name)
            # The oldest first: so one that exists proves that all after it do.
            for old in epochs:
                self._fs.call(partial(self._fs.client.delete, [old]))
            return key
        raise OSError(errno.EBUSY, "others take it again and again", self._address)

    @property
    def _address(self) -> str:
        return self._fs.address(self._path)

    def _newest(self) -> tuple[list[str], Owner]:
        """Return the keys of all epochs in order, and the owner that the newest names."""
        for _ in range(_TRIES):
            epochs = self._fs.keys_of(self._path)
            if not epochs:
                return [], _NOBODY
            try:
                return epochs, Owner.read(self._fs.call(partial(self._fs.client.get, epochs[-1])))
            except FileNotFoundError:
                continue  # It was taken over and removed since.
        raise OSError(errno.EBUSY, "others take it again and again", self._address)

    def check(self) -> None:
        """Make sure that no one has taken the folder over.

        Raises:
            TakenOverError: It was.
            OSError: The store cannot be reached.
        """
        epochs, now = self._newest()
        if not epochs or now.token != self._owner.token:
            let_go = "another process, which has let it go since"
            taker = "somebody who removed it" if not epochs else now.name or let_go
            raise TakenOverError(taker, self._address)

    def release(self) -> None:
        """Let others take it; one that was taken over, or cannot be reached, is left."""
        try:
            # A stop does not wait for the store; the next owner replaces a dead one.
            if self._fs.answers(self._path):
                self.check()
                # It stays: epochs never go back.
                data = msgspec.json.encode(_NOBODY)
                self._fs.call(lambda: self._fs.client.replace(self._key, data))
        except OSError as error:
            _logger.debug("%s is left: %s", self._address, error)
        finally:
            self._mark.release()


_logger = logging.getLogger("penstock.wal")

_T = TypeVar("_T")

PATIENCE_S = 60.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_FENCE_TRIES = 1000
_DELETED_AT_ONCE = 1000
_DIGITS = 15
_LOST = -1
_PLUG = bytes(1)
_KNOWN_FILES = 64
"""For this many the parts are kept in memory, for reading one block after the other."""


def _no_conditions(address: str, said: str = "") -> OSError:
    """Return that a store makes an object that must not exist, though there is one.

    Args:
        address: Where that was tried.
        said: What it says of a condition, empty when it ignores it.
    """
    cloud = cloud_of(address)
    condition = "" if cloud is None else f" ({cloud.condition})"
    how = f"has no conditions{condition}, and says {said!r}"
    if not said:
        how = (
            f"ignores conditions{condition}: it replaced an object that was to be "
            "created only if there is none"
        )
    return OSError(
        errno.EOPNOTSUPP,
        f"this store {how}. Two drivers could then write one log, and records "
        "would be lost: no log is kept there. Use a store that has conditional writes",
        address,
    )


class ObjectFileSystem:
    """The files of one bucket. Safe to use from any thread of the process that made it.

    Args:
        client: The bucket.
        authority: ``s3://bucket``, or that of another service.
        patience_s: How long the store may be away before a call fails, in seconds.

    `_lock` guards whether the store was tried, and what is known of files that were read.
    """

    begins_at_once = True
    has_folders = False
    writes_at_once = 8
    reads_at_once = 16
    part_bytes = 8 << 20

    def __init__(
        self, client: ObjectsClient, authority: str, *, patience_s: float = PATIENCE_S
    ) -> None:
        self.authority = authority
        self.client = client
        self._outage = Outage(f"the object store of {authority}", patience_s)
        self._lock = threading.Lock()
        self._has_conditions = False
        self._known: dict[str, Parts] = {}
        self._process = os.getpid()

    # -- what the log asks -----------------------------------------------------------------------

    def create(self, path: str, *, direct: bool) -> ObjectAppendFile:
        return ObjectAppendFile(self, path)

    def reopen(self, path: str, *, direct: bool) -> ObjectAppendFile:
        raise OSError(errno.EOPNOTSUPP, "an object is not written over", self.address(path))

    def open(self, path: str) -> ObjectReadFile:
        return ObjectReadFile(self, path, self.parts(path))

    def read_range(self, path: str, offset: int, length: int) -> memoryview:
        with self._lock:
            known = self._known.get(path)
        if known is not None and offset + length <= known.made:
            # Parts do not change; all that can be is that they are removed.
            with contextlib.suppress(FileNotFoundError):
                return ObjectReadFile(self, path, known).view(offset, length)
        file = self.open(path)
        with self._lock:
            self._known.pop(path, None)
            self._known[path] = file.parts
            if len(self._known) > _KNOWN_FILES:
                del self._known[next(iter(self._known))]
        return file.view(offset, length)

    def address(self, path: str) -> str:
        return f"{self.authority}{path}"

    def settle(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._fence(path)

    def _fence(self, path: str) -> None:
        for _ in range(_FENCE_TRIES):
            parts = self.parts(path)
            if not parts.begins or parts.is_fenced:
                return
            try:
                # The fence last: it says that it is done.
                for gap in parts.gaps:
                    self.make(self.part_key(path, gap), _PLUG)
                self.make(self.part_key(path, parts.size), b"")
            except FileExistsError:
                continue  # Its writer was quicker: what it wrote is a part of the file.
            return
        raise StorageAwayError("another process writes it, and does not end", self.address(path))

    def truncate(self, path: str, size: int, *, is_settled: bool = False) -> None:
        """Put a fence at a place, where a part must begin or end: a late request is refused at it.

        What begins there or behind it is removed, the last parts first, if it is settled. Otherwise
        a part that begins there stays, with what is behind it, and is void by the header of the
        next segment: a writer that was replaced would remove here what its successor has read.
        Where none begins no one has read what is behind it, and it is void by the fence.
        """
        for _ in range(_FENCE_TRIES):
            parts = self.parts(path)
            if not parts.begins:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.address(path))
            ends = map(operator.add, parts.begins, parts.sizes)
            is_place = size in (*parts.begins[1:], *ends, parts.size)
            if not is_place or (size in parts.begins and not is_settled):
                raise OSError(errno.EOPNOTSUPP, "an object is not cut", self.address(path))
            if is_settled:
                self._delete_from_end([self.part_key(path, at) for at in parts.begins if at > size])
            if parts.size == size and parts.is_fenced:
                return
            key = self.part_key(path, size)
            if size in parts.begins:
                # At once: what it stands in the way of could come in between.
                self.call(partial(self.client.replace, key, b""))
                return
            with contextlib.suppress(FileExistsError):
                self.make(key, b"")
                return
        raise StorageAwayError("another process writes it, and does not end", self.address(path))

    def sync_file(self, path: str) -> None:
        """Do nothing: an object that was acknowledged is durable."""

    def write_again(self, path: str, begin: int, end: int) -> None:
        """Do nothing: an object that was acknowledged is durable."""

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        begins = self.parts(source).begins
        if not begins:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.address(source))
        old = self.parts(target).begins if replace else []
        if len(old) > 1 or (old and len(begins) > 1):
            text = "a file of several objects is not replaced at once"
            raise OSError(errno.EOPNOTSUPP, text, self.address(target))
        # The first part last: with it the name exists.
        for begin in reversed(begins):
            data = self.call(partial(self.client.get, self.part_key(source, begin)))
            key = self.part_key(target, begin)
            if replace:
                self.call(partial(self.client.replace, key, data))
            else:
                self.make(key, data)
        self.remove(source)

    def remove(self, path: str) -> None:
        first = self.part_key(path, 0)
        found = self._list(path)
        self._delete([key for key, _ in found if key == first])
        self._delete([key for key, size in found if key != first and size > len(_PLUG)])

    def list_folder(self, folder: str) -> list[str]:
        keys, folders = self.call(lambda: self.client.level(key_of(folder)))
        if not keys and not folders and key_of(folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.address(folder))
        names = [os.path.basename(found) for found in folders]
        for key in keys:
            name, begin = _split(os.path.basename(key))
            if begin in (0, None):
                names.append(name)
        return names

    def sync_folder(self, folder: str) -> None:
        """Do nothing: an object that was acknowledged has its name."""

    def make_folder(self, folder: str) -> None:
        """Do nothing: there are no folders."""

    def remove_folder(self, folder: str) -> None:
        """Remove the fences of files that were removed."""
        keys, _ = self.call(lambda: self.client.level(key_of(folder)))
        self._delete(keys)

    def is_folder(self, folder: str) -> bool:
        if folder == "/":
            return True
        return self.call(lambda: next(self.client.keys(key_of(folder)), None)) is not None

    def free_bytes(self, folder: str) -> int:
        return -1

    def lock(self, path: str, owner: str) -> ObjectFolderLock:
        self.check_conditions(os.path.dirname(path))
        lock = ObjectFolderLock(self, path, owner)
        try:
            self._remove_nameless(os.path.dirname(path), path)
        except BaseException:
            lock.release()
            raise
        return lock

    # -- what others ask -------------------------------------------------------------------------

    def check_conditions(self, folder: str) -> None:
        """Make sure that the store refuses to create what exists; asked once for a bucket.

        Raises:
            OSError: It does not, cannot be reached, or this user may not write to it.
        """
        with self._lock:
            if self._has_conditions:
                return
        key = f"{key_of(folder)}/TRIAL-{secrets.token_hex(8)}".lstrip("/")
        try:
            self.make(key, b"one")
        except OSError as error:
            if error.errno == errno.EOPNOTSUPP:
                raise _no_conditions(self.address(folder), error.strerror or "") from error
            raise
        try:
            self.make(key, b"other")
        except FileExistsError:
            pass
        else:
            raise _no_conditions(self.address(folder))
        finally:
            self._delete([key])
        with self._lock:
            self._has_conditions = True

    def remove_tree(self, path: str) -> None:
        """Remove a file, or all that is below a folder, with its fences."""
        keys = [key for key, _ in self._list(path)]
        keys += [key for key, _ in self.call(lambda: list(self.client.keys(key_of(path))))]
        self._delete(keys)

    def make(self, key: str, data: bytes | memoryview) -> None:
        """Make an object that no other writer makes with these bytes; return when it is stored.

        Raises:
            FileExistsError: There is one of another writer.
        """

        def make() -> None:
            try:
                self.client.create(key, data)
            except FileExistsError:
                # Perhaps it was a try before this one, whose answer was lost.
                try:
                    found = self.client.get(key)
                except FileNotFoundError as error:
                    text = "the write met an object that is gone since"
                    raise StorageAwayError(text, f"{self.authority}/{key}") from error
                if found != data:
                    raise

        self.call(make)

    def call(self, function: Callable[[], _T]) -> _T:
        """Make requests that may be made twice; while the store is away, wait and make them again.

        Raises:
            OSError: With an error number and the address.
        """
        if os.getpid() != self._process:
            raise _forked(self.authority)
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        said = False
        while True:
            try:
                with self._outage.asking(self.authority):
                    found = function()
            except StorageAwayError as error:
                left_s = self._outage.failed()
                if not left_s:
                    raise
                if not said:
                    text = "%s: %s; asked again for up to %.0f s"
                    _logger.warning(text, error.filename, error.strerror, left_s)
                    said = True
                time.sleep(min(backoff.next_s(), left_s))
            except OSError:
                self._outage.answered()
                raise
            else:
                self._outage.answered()
                return found

    def answers(self, path: str) -> bool:
        """Return whether the store answers, asked once."""
        try:
            next(self.client.keys(key_of(os.path.dirname(path))), None)
        except OSError:
            return False
        return True

    def part_key(self, path: str, begin: int) -> str:
        """Return the key of the part of a file that begins at `begin`, or of an epoch of a lock."""
        return f"{key_of(path)}@{begin:0{_DIGITS}d}"

    def parts(self, path: str) -> Parts:
        """Return what a file consists of."""
        found = self._parts(path)
        # What is made while a list is read may be in it without what was made before. So a gap is
        # one that was there before, too; from another one on it is not known what there is. And
        # what is new behind a gap may know it as filled.
        return self._parts(path, found) if found.gaps else found

    def _parts(self, path: str, before: Parts | None = None) -> Parts:
        known = set(before.begins if before else ())
        begins: list[int] = []
        sizes: list[int] = []
        gaps: list[int] = []
        size = 0
        for key, length in self._list(path):
            begin = _split(key)[1]
            if begin is None or begin < size or (begin and not begins):
                break  # It has no name.
            if begin > size:
                if before is not None and size >= before.size:
                    break
                if sizes[-1] != len(_PLUG) and size not in gaps[-1:]:
                    gaps.append(size)
            if not length:
                return Parts(begins, sizes, begin, gaps, is_fenced=True)
            if gaps and before is not None and begin not in known:
                continue
            begins.append(begin)
            sizes.append(length)
            size = begin + length
        return Parts(begins, sizes, size, gaps, is_fenced=False)

    def keys_of(self, path: str) -> list[str]:
        """Return the keys of all objects of a file, in order."""
        return [key for key, _ in self._list(path)]

    def _list(self, path: str) -> list[tuple[str, int]]:
        """Return the keys and sizes of all parts of a file, in order."""
        prefix = key_of(path) + "@"

        def found() -> list[tuple[str, int]]:
            parts = []
            for key, size in self.client.keys(os.path.dirname(prefix), after=prefix):
                if key.startswith(prefix):
                    parts.append((key, size))
                elif key > prefix and key.split("/") > prefix.split("/"):
                    break  # In either order, of keys or of folders, it is behind them.
            return parts

        return self.call(found)

    def _remove_nameless(self, folder: str, path: str) -> None:
        """Remove what a removal left that was broken off; the folder is this process's by now.

        A replaced writer may still write, and what is made while a list is read may be in it
        without what was made before: a part has no name if a second list has none of it, either.
        """
        if found := self._nameless(folder, path):
            self._delete(sorted(found & self._nameless(folder, path)))

    def _nameless(self, folder: str, path: str) -> set[str]:
        prefix, lock = key_of(folder), key_of(path)
        found = self.call(lambda: list(self.client.keys(prefix)))
        parts = [(key, size, *_split(key)) for key, size in found]
        named = {name for _, _, name, begin in parts if begin == 0} | {lock}
        return {
            key
            for key, size, name, begin in parts
            if begin and name not in named and os.path.dirname(key) == prefix and size > len(_PLUG)
        }

    def _delete_from_end(self, keys: Sequence[str]) -> None:
        for key in reversed(keys):
            self._delete([key])

    def _delete(self, keys: Sequence[str]) -> None:
        for at in range(0, len(keys), _DELETED_AT_ONCE):
            self.call(partial(self.client.delete, keys[at : at + _DELETED_AT_ONCE]))


class Parts:
    """What a file consists of.

    Attributes:
        begins: Where its parts begin.
        sizes: Their bytes.
        size: Its bytes.
        gaps: Where a part ends and none begins, though there are some behind it; but not where
            a plug is.
        is_fenced: No one can write to it any more.
    """

    def __init__(
        self,
        begins: list[int],
        sizes: list[int],
        size: int,
        gaps: list[int],
        *,
        is_fenced: bool,
    ) -> None:
        self.begins = begins
        self.sizes = sizes
        self.size = size
        self.gaps = gaps
        self.is_fenced = is_fenced

    @property
    def made(self) -> int:
        """Up to where nothing is missing."""
        return self.gaps[0] if self.gaps else self.size


def key_of(path: str) -> str:
    """Return the key of a path, as far as it has one."""
    return path.lstrip("/")


def _split(key: str) -> tuple[str, int | None]:
    name, at, begin = key.rpartition("@")
    if at and len(begin) == _DIGITS and begin.isdecimal():
        return name, int(begin)
    return key, None


class ObjectAppendFile:
    """A file that is being written, in objects of some MiB. After a failure it takes no more.

    Writes may come from several threads, and be done in any order. `_lock` guards its size.
    """

    direct = False
    forces_writes = True
    preallocates = False

    def __init__(self, fs: ObjectFileSystem, path: str) -> None:
        self._fs = fs
        self._path = path
        self._lock = threading.Lock()
        self._size = 0
        self._is_broken = False

    def preallocate(self, size: int) -> None:
        """Do nothing."""

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        # What a slow store has not read yet does not change while it does.
        data = b"".join(buffers)
        if not data:
            return
        self.sync()
        try:
            self._make(offset, data)
        except BaseException as error:
            with self._lock:
                self._is_broken = True
            if not isinstance(error, FileExistsError) or not offset:
                raise
            text = "the log was taken over: another process has ended this segment"
            raise OSError(errno.ESTALE, text, self._fs.address(self._path)) from error
        with self._lock:
            self._size = max(self._size, offset + len(data))

    def _make(self, offset: int, data: bytes) -> None:
        """Make the parts of a write, at once; return or raise when none of them is under way."""
        view = memoryview(data)
        size = math.ceil(len(data) / max(1, round(len(data) / self._fs.part_bytes)))

        def make(begin: int) -> None:
            key = self._fs.part_key(self._path, offset + begin)
            self._fs.make(key, view[begin : begin + size])

        begins = range(0, len(data), size)
        if len(begins) == 1:
            make(0)
            return
        threads_wanted = min(self._fs.writes_at_once, len(begins))
        with ThreadPoolExecutor(threads_wanted, "penstock-object-writes") as threads:
            for done in [threads.submit(make, begin) for begin in begins]:
                done.result()

    def sync(self) -> None:
        """Do nothing but say what broke: `write` returns when its objects are stored."""
        with self._lock:
            if self._is_broken:
                text = "an earlier write failed"
                raise OSError(errno.EIO, text, self._fs.address(self._path))

    def truncate(self, size: int) -> None:
        if size != self._size:
            raise OSError(errno.EOPNOTSUPP, "it is not cut", self._fs.address(self._path))

    def close(self) -> None:
        """Do nothing."""


class ObjectReadFile:
    """A file that is being read; its size is that at the opening.

    Attributes:
        parts: What it consists of.
    """

    def __init__(self, fs: ObjectFileSystem, path: str, parts: Parts) -> None:
        self._fs = fs
        self._path = path
        self.parts = parts
        if not parts.begins:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), fs.address(path))

    @property
    def size(self) -> int:
        return self.parts.size

    def read(self, offset: int, length: int) -> bytes:
        return b"".join(self._read_all(offset, length))

    def view(self, offset: int, length: int) -> memoryview:
        """As `read`; what is in one part is not copied."""
        found = self._read_all(offset, length)
        return found[0] if len(found) == 1 else memoryview(b"".join(found))

    def _read_all(self, offset: int, length: int) -> list[memoryview]:
        end = min(offset + length, self.parts.size)
        if offset < 0 or end <= offset:
            return []
        begins, sizes = self.parts.begins, self.parts.sizes
        pieces = []
        for number in range(max(bisect_right(begins, offset) - 1, 0), len(begins)):
            begin, size = begins[number], sizes[number]
            if begin >= end:
                break
            if begin > offset:
                pieces.append((_LOST, offset, begin))
            if begin + size > offset:
                pieces.append((begin, max(offset - begin, 0), min(end - begin, size)))
                offset = min(begin + size, end)
        if offset < end:
            pieces.append((_LOST, offset, end))
        threads_wanted = min(self._fs.reads_at_once, len(pieces))
        if threads_wanted == 1:
            return list(map(self._read, pieces))
        with ThreadPoolExecutor(threads_wanted, "penstock-object-reads") as threads:
            return list(threads.map(self._read, pieces))

    def _read(self, piece: tuple[int, int, int]) -> memoryview:
        part, begin, end = piece
        if part == _LOST:
            # As on a disk: a reader finds no record in it, and says so.
            return memoryview(bytes(end - begin))
        key = self._fs.part_key(self._path, part)
        return self._fs.call(lambda: self._fs.client.get_range(key, begin, end))

    def read_into(self, offset: int, buffer: memoryview) -> int:
        at = 0
        for piece in self._read_all(offset, len(buffer)):
            buffer[at : at + len(piece)] = piece
            at += len(piece)
        return at

    def close(self) -> None:
        """Do nothing: nothing is held open."""


def _forked(address: str) -> OSError:
    return OSError(
        errno.EOPNOTSUPP,
        "this process was forked from one that has used object storage, whose client has threads "
        "that a fork does not copy; start it by spawn (multiprocessing) or subprocess",
        address,
    )


class _FileSystems:
    """The file systems of this process, one for each bucket. One lock guards them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[tuple[object, ...], ObjectFileSystem] = {}
        self._process = 0

    def get(self, authority: str) -> ObjectFileSystem:
        with self._lock:
            if self._process not in (0, os.getpid()):
                raise _forked(authority)
            key = (authority, *given_storage(os.environ).items())
            if key not in self._made:
                client = ObjectsClient.of_bucket(authority)
                patience_s = storage_settings(os.environ).storage_patience_s
                self._made[key] = ObjectFileSystem(client, authority, patience_s=patience_s)
                self._process = os.getpid()
            return self._made[key]

    @property
    def is_in_use(self) -> bool:
        """Whether one of them was made, in this process or in one that it was forked from."""
        return bool(self._made)

    def renew_lock(self) -> None:
        self._lock = threading.Lock()


_file_systems = _FileSystems()
os.register_at_fork(after_in_child=_file_systems.renew_lock)


def has_used_objects() -> bool:
    """Return whether this process has used object storage, so that those it forks cannot."""
    return _file_systems.is_in_use


def object_file_system(authority: str) -> ObjectFileSystem:
    """Return this process's file system of a bucket, which is given as ``s3://bucket``."""
    return _file_systems.get(authority)
