"""A file system in memory that loses what it may lose.

It keeps apart what the operating system shows (volatile) and what a power loss leaves (durable):

- a write that was not forced survives in part, torn at sectors of 512 bytes, in any order;
- a file's length and a folder's names survive unforced in any subset of their changes;
- a sync that fails, by whatever descriptor, drops what it should have forced: the system goes on
  showing it, counts it as forced, and no later sync brings it to the disk, only another write;
- calls fail on request, the disk can be full, and the process can die at the nth call.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from penstock.wal import LocalFileSystem, ReadFile
from penstock.wal._filesystem import read_once

SECTOR = 512
PAGE = 4096


class SimulatedCrashError(BaseException):
    """The process is dead: nothing that it calls any more has an effect."""


class _File:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.unsynced: list[tuple[int, bytes] | int] = []

    def write(self, offset: int, data: bytes) -> None:
        _overlay(self.data, offset, data)
        self.unsynced.append((offset, data))

    def resize(self, size: int) -> None:
        _resize(self.data, size)
        self.unsynced.append(size)

    def sync(self) -> None:
        """Force what was written since the last sync, that one having failed or not."""
        for change in self.unsynced:
            if isinstance(change, int):
                _resize(self.durable, change)
            else:
                _overlay(self.durable, *change)
        self.unsynced = []

    def lose(self, chance: random.Random) -> None:
        """Carry some of what is not forced over to what is durable, and forget the rest."""
        share = chance.choice((0.0, 0.1, 0.5, 0.9, 1.0))
        for change in self.unsynced:
            if isinstance(change, int):
                if chance.random() < share:
                    _resize(self.durable, change)
                continue
            offset, data = change
            at = 0
            while at < len(data):
                end = min(len(data), at + SECTOR - (offset + at) % SECTOR)
                if chance.random() < share:
                    _overlay(self.durable, offset + at, data[at:end])
                at = end
        self.unsynced = []


class _Folder:
    def __init__(self) -> None:
        self.names: dict[str, _File | _Folder] = {}
        self.durable: dict[str, _File | _Folder] = {}
        self.unsynced: list[dict[str, _File | _Folder | None]] = []

    def change(self, changes: dict[str, _File | _Folder | None]) -> None:
        _apply(self.names, changes)
        self.unsynced.append(changes)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.unsynced = []

    def lose(self, chance: random.Random) -> None:
        share = chance.choice((0.0, 0.5, 1.0))
        for changes in self.unsynced:
            if chance.random() < share:
                _apply(self.durable, changes)
        self.unsynced = []
        self.names = dict(self.durable)


def _apply(names: dict[str, _File | _Folder], changes: dict[str, _File | _Folder | None]) -> None:
    for name, node in changes.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _overlay(target: bytearray, offset: int, data: bytes) -> None:
    if len(target) < offset + len(data):
        _resize(target, offset + len(data))
    target[offset : offset + len(data)] = data


def _resize(target: bytearray, size: int) -> None:
    if size <= len(target):
        del target[size:]
    else:
        target.extend(bytes(size - len(target)))


class FaultyFileSystem:
    """See the module. One lock guards everything; faults are set between calls.

    Args:
        seed: Of what it does by chance.
        direct: It offers direct I/O.
        is_hdfs: It does as HDFS does: what is written and named is forced, a file is written at its
            end only, and nothing is cut, reserved or written over. But all can be read at any time.
    """

    begins_at_once = False
    has_folders = True
    writes_at_once = 1

    def __init__(self, seed: int = 0, *, direct: bool = False, is_hdfs: bool = False) -> None:
        self.chance = random.Random(seed)
        self.capacity: int | None = None
        self.calls: Counter[str] = Counter()
        self.bytes_read = 0
        self._direct = direct
        self._is_hdfs = is_hdfs
        self._lock = threading.RLock()
        self._root = _Folder()
        self._locks: dict[str, str] = {}
        self._failures: list[tuple[str, int]] = []
        self._crash_after: int | None = None
        self._dead = False

    # What a test does to it

    def fail_next(self, call: str, number: int = errno.EIO) -> None:
        """Make the next call of this name fail with this errno."""
        self._failures.append((call, number))

    def heal(self) -> None:
        """Take back all faults that have not happened yet, and give space again."""
        self._failures = []
        self.capacity = None
        self._crash_after = None

    def crash_after(self, calls: int) -> None:
        """Let the process die at the call after `calls` more."""
        self._crash_after = calls

    @property
    def dead(self) -> bool:
        return self._dead

    @property
    def crash_pending(self) -> bool:
        return self._crash_after is not None and not self._dead

    def die(self) -> None:
        """Let the process die now."""
        self._dead = True

    def restart(self, *, power_loss: bool) -> None:
        """Begin a new process; after a power loss what was not forced is lost in part."""
        with self._lock:
            if power_loss:
                self._lose(self._root)
            self._locks = {}
            self._dead = False
            self.heal()

    def damage(self, path: str, offset: int, data: bytes) -> None:
        """Change bytes on the disk behind everybody's back."""
        file = self._file(path)
        _overlay(file.data, offset, data)
        _overlay(file.durable, offset, data)

    def content(self, path: str) -> bytes:
        return bytes(self._file(path).data)

    def used(self) -> int:
        return self._used(self._root)

    # FileSystem

    def create(self, path: str, *, direct: bool) -> _FaultyAppendFile:
        with self._call("create"):
            folder, name = self._parent(path)
            if name in folder.names:
                raise FileExistsError(errno.EEXIST, "exists", path)
            file = _File()
            self._change(folder, {name: file})
            return _FaultyAppendFile(self, file, direct and self._direct)

    def reopen(self, path: str, *, direct: bool) -> _FaultyAppendFile:
        with self._call("reopen"):
            self._refuse_on_hdfs(path)
            return _FaultyAppendFile(self, self._file(path), direct and self._direct)

    def read_range(self, path: str, offset: int, length: int) -> memoryview:
        return read_once(self, path, offset, length)

    def open(self, path: str) -> _FaultyReadFile:
        with self._call("open"):
            return _FaultyReadFile(self, self._file(path))

    def truncate(self, path: str, size: int, *, is_settled: bool = False) -> None:
        with self._lock:
            file = self._file(path)
            try:
                with self._call("truncate"):
                    if len(file.data) > size:
                        self._refuse_on_hdfs(path)
                    file.resize(size)
                    file.sync()
            except OSError:
                if not self._is_hdfs and self.chance.random() < 0.5:
                    # It was the sync of the cut that failed.
                    file.resize(size)
                    file.lose(self.chance)
                raise

    def sync_file(self, path: str) -> None:
        with self._lock:
            file = self._file(path)
            try:
                with self._call("sync_file"):
                    file.sync()
            except OSError:
                file.lose(self.chance)
                raise

    def write_again(self, path: str, begin: int, end: int) -> None:
        with self._lock:
            file = self._file(path)
            try:
                with self._call("write_again"):
                    file.write(begin, bytes(file.data[begin:end]))
                    file.sync()
            except OSError:
                file.lose(self.chance)
                raise

    def address(self, path: str) -> str:
        return path

    def settle(self, paths: Sequence[str]) -> None:
        del paths

    def rename(self, source: str, target: str, *, replace: bool = False) -> None:
        with self._call("rename"):
            folder, name = self._parent(source)
            _, new_name = self._parent(target)
            assert replace or new_name not in folder.names, "a name is used twice"
            if name not in folder.names:
                raise FileNotFoundError(errno.ENOENT, "not there", source)
            self._change(folder, {name: None, new_name: folder.names[name]})

    def remove(self, path: str) -> None:
        with self._call("remove"):
            self._file(path)
            folder, name = self._parent(path)
            self._change(folder, {name: None})

    def list_folder(self, folder: str) -> list[str]:
        with self._call("list_folder"):
            return list(self._folder(folder).names)

    def sync_folder(self, folder: str) -> None:
        with self._call("sync_folder"):
            self._folder(folder).sync()

    def make_folder(self, folder: str) -> None:
        with self._call("make_folder"):
            parent, name = self._parent(folder)
            if name in parent.names:
                raise FileExistsError(errno.EEXIST, "exists", folder)
            self._change(parent, {name: _Folder()})

    def remove_folder(self, folder: str) -> None:
        with self._call("remove_folder"):
            parent, name = self._parent(folder)
            if self._folder(folder).names:
                raise OSError(errno.ENOTEMPTY, "not empty", folder)
            self._change(parent, {name: None})

    def is_folder(self, folder: str) -> bool:
        with self._call("is_folder"):
            return isinstance(self._find(folder), _Folder)

    def free_bytes(self, folder: str) -> int:
        with self._lock:
            return -1 if self.capacity is None else max(0, self.capacity - self.used())

    def lock(self, path: str, owner: str) -> _FaultyLock:
        with self._call("lock"):
            if path in self._locks:
                raise BlockingIOError(errno.EWOULDBLOCK, self._locks[path], path)
            self._locks[path] = owner
            return _FaultyLock(self, path)

    # Inside

    def _call(self, name: str) -> threading.RLock:
        """Count a call and let it fail if it is to. Returns the lock, to be held during it."""
        with self._lock:
            if self._dead:
                raise SimulatedCrashError
            if self._crash_after is not None:
                if self._crash_after == 0:
                    self._dead = True
                    raise SimulatedCrashError
                self._crash_after -= 1
            self.calls[name] += 1
            for failure in self._failures:
                if failure[0] == name:
                    self._failures.remove(failure)
                    raise OSError(failure[1], os.strerror(failure[1]))
        return self._lock

    def _change(self, folder: _Folder, changes: dict[str, _File | _Folder | None]) -> None:
        folder.change(changes)
        if self._is_hdfs:
            folder.sync()

    def _refuse_on_hdfs(self, path: str) -> None:
        if self._is_hdfs:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), path)

    def _reserve(self, file: _File, size: int) -> None:
        if self.capacity is not None:
            used = self.used() - len(file.data) + max(len(file.data), size)
            if used > self.capacity:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _used(self, folder: _Folder) -> int:
        return sum(
            self._used(node) if isinstance(node, _Folder) else len(node.data)
            for node in folder.names.values()
        )

    def _lose(self, folder: _Folder) -> None:
        folder.lose(self.chance)
        for node in folder.names.values():
            if isinstance(node, _Folder):
                self._lose(node)
            else:
                node.lose(self.chance)
                node.data = bytearray(node.durable)

    def _find(self, path: str) -> _File | _Folder | None:
        node: _File | _Folder | None = self._root
        for part in path.strip("/").split("/"):
            if not part:
                continue
            if not isinstance(node, _Folder):
                return None
            node = node.names.get(part)
        return node

    def _file(self, path: str) -> _File:
        node = self._find(path)
        if not isinstance(node, _File):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return node

    def _folder(self, path: str) -> _Folder:
        node = self._find(path)
        if not isinstance(node, _Folder):
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        return node

    def _parent(self, path: str) -> tuple[_Folder, str]:
        parent, name = os.path.split(path)
        return self._folder(parent), name


class _FaultyAppendFile:
    def __init__(self, fs: FaultyFileSystem, file: _File, direct: bool) -> None:
        self._fs = fs
        self._file = file
        self._direct = direct and not fs._is_hdfs
        self._is_broken = False
        self._closed = False

    @property
    def direct(self) -> bool:
        return self._direct

    @property
    def forces_writes(self) -> bool:
        return self._fs._is_hdfs

    @property
    def preallocates(self) -> bool:
        return not self._fs._is_hdfs

    def preallocate(self, size: int) -> None:
        if not self.preallocates:
            return
        with self._fs._call("preallocate"):
            self._fs._reserve(self._file, size)
            if size > len(self._file.data):
                self._file.resize(size)

    def write(self, offset: int, buffers: Sequence[Any], *, sync: bool) -> None:
        assert not self._closed, "a write to a closed file"
        if self._direct:
            sizes = [memoryview(buffer).nbytes for buffer in buffers]
            assert all(size % PAGE == 0 for size in [offset, *sizes]), "direct I/O needs pages"
        data = b"".join(memoryview(buffer).cast("B") for buffer in buffers)
        if self._fs._is_hdfs and (self._is_broken or offset != len(self._file.data)):
            raise OSError(errno.ESPIPE, os.strerror(errno.ESPIPE))
        try:
            with self._fs._call("write"):
                self._fs._reserve(self._file, offset + len(data))
        except (OSError, SimulatedCrashError):
            # What fails half-way has done a part of it.
            self._file.write(offset, data[: self._fs.chance.randint(0, len(data))])
            self._is_broken = True
            if self._fs._is_hdfs:
                self._file.sync()
            raise
        self._file.write(offset, data)
        if sync or self._fs._is_hdfs:
            self._force()

    def sync(self) -> None:
        assert not self._closed, "a sync of a closed file"
        if not self._fs._is_hdfs:
            self._force()
        elif self._is_broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _force(self) -> None:
        try:
            with self._fs._call("sync"):
                self._file.sync()
        except OSError:
            self._is_broken = True
            if self._fs._is_hdfs:
                # The DataNodes have it, but the answer was lost.
                self._file.sync()
            else:
                # The pages count as clean from now on, whether they reached the disk or not.
                self._file.lose(self._fs.chance)
            raise

    def truncate(self, size: int) -> None:
        with self._fs._call("cut"):
            if size != len(self._file.data):
                self._fs._refuse_on_hdfs("")
            self._file.resize(size)

    def close(self) -> None:
        self._closed = True


class _FaultyReadFile:
    def __init__(self, fs: FaultyFileSystem, file: _File) -> None:
        self._fs = fs
        self._file = file

    @property
    def size(self) -> int:
        return len(self._file.data)

    def read(self, offset: int, length: int) -> bytes:
        with self._fs._call("read"):
            data = bytes(self._file.data[offset : offset + length])
            self._fs.bytes_read += len(data)
            return data

    def read_into(self, offset: int, buffer: memoryview) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        pass


class _FaultyLock:
    def __init__(self, fs: FaultyFileSystem, path: str) -> None:
        self._fs = fs
        self._path = path

    def check(self) -> None:
        pass

    def release(self) -> None:
        with self._fs._lock:
            if not self._fs._dead:
                self._fs._locks.pop(self._path, None)


class MeanwhileFileSystem(LocalFileSystem):
    """The local disk; as its n-th reader looks, counted from 0, somebody else does something."""

    def __init__(self, n: int, something: Callable[[], None]) -> None:
        self._left = n
        self._something = something

    @property
    def is_done(self) -> bool:
        return self._left < 0

    def _call(self) -> None:
        self._left -= 1
        if self._left == -1:
            self._something()

    def list_folder(self, path: str) -> list[str]:
        found = super().list_folder(path)
        self._call()
        return found

    def open(self, path: str) -> ReadFile:
        self._call()
        return super().open(path)
