"""`GrowingFilesReceiver`, and one start of it; what must hold is in the door."""

from __future__ import annotations

import errno
import glob
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel

from penstock._arguments import refused
from penstock.blockstore.building.lines import line_column, line_ends
from penstock.receiver import (
    PositionChanges,
    ReceiverContext,
    ReceiverStoppedError,
    RecordTooLargeError,
)
from penstock.receiver.door import acknowledge_nothing
from penstock.receiver.forms.threaded import ThreadedReceiver
from penstock.sources.growing_files._content import (
    CompressedContent,
    Content,
    Key,
    open_content,
    read,
)
from penstock.sources.growing_files._file import FileTable, GrowingFile, name_in

_LOOK_S = 0.25
_DISCOVER_S = 1.0
_SHARE = 100
"""An idle look takes at most one part in that many of the time."""
_LEAST_BUFFER = 64 << 10
_TURN = 32
"""Buffers that are read of one file before others have their turn."""
_OPEN_FILES = 512
_PLACE_BYTES = 40 << 10
"""About the bytes of the places that go with one call, which takes 64 KB."""
_QUIET_S = 10.0
_BEGINS = "begins at the end"
"""A key of the position, until the places of all files that existed at first are durable."""
_START = 64 << 10
_T = TypeVar("_T")


@dataclass(slots=True)
class _Later:
    """A file that cannot be read yet, and when it is looked at again."""

    size: int
    changed_ns: int
    since_s: float
    look_s: float


class GrowingFilesReceiver(ThreadedReceiver):
    """Stores each line that is written to the files of some patterns, once.

    Files may be rotated: renamed, copied and truncated, compressed (``.gz``, ``.bz2``, ``.xz``,
    ``.zst``). Let the patterns also match the rotated names (``/var/log/app.log*``): then nothing
    is lost either when the receiver was away for several rotations. A file with a name that is not
    asked for is read to its end if it was asked for before.

    Each line is stored exactly once, also when receiver or driver are killed: the places of all
    files are the stream's position.

    Args:
        patterns: Paths of files, with ``*``, ``?``, ``[...]`` and ``**``; one or many.
        start: Where a new stream begins: ``"beginning"``, or ``"end"`` for what is added from then
            on to existing files. Files that come later are read from their beginning.
        columns: Whether lines are stored as columns: ``path``, ``offset`` (of the line's first byte
            in the file, unpacked) and ``value`` (its bytes without the end).
        text: Whether a line is a ``str``, else ``bytes``. Text ends with LF, CR LF or CR, and what
            is not UTF-8 comes out as U+FFFD; bytes end with LF.
        maxLine: A longer line is a dead letter.
        host: The host that has the files; None: any executor has them.
        storageLevel: Which copies of a block must exist.

    Raises:
        TypeError, ValueError: An argument is not accepted.
    """

    STOP_BOUND_S = 5.0
    _place_type = bool | tuple[Any, int, int, int, bytes, bytes, int]
    _position_type = dict[str, _place_type]
    _has_splits_alone = False

    def __init__(
        self,
        patterns: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        start: str = "beginning",
        columns: bool = False,
        text: bool = True,
        maxLine: int = 1 << 20,
        host: str | None = None,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(storageLevel)
        given = [patterns] if isinstance(patterns, (str, os.PathLike)) else patterns
        self.patterns = [os.fspath(each) for each in given]
        if not self.patterns or not all(map(os.path.isabs, self.patterns)):
            raise ValueError(refused("patterns", patterns, "absolute paths, at least one"))
        if start not in ("beginning", "end"):
            raise ValueError(refused("start", start, "'beginning' or 'end'"))
        if type(maxLine) is not int or maxLine < _LEAST_BUFFER:
            accepted = f"a number of bytes from {_LEAST_BUFFER} on"
            raise ValueError(refused("maxLine", maxLine, accepted))
        self.start = start
        self.columns = columns
        self.framing = "lines" if text else "newline"
        self.maxLine = maxLine
        self.host = host
        self.text = text
        if columns:
            value = pa.string() if text else pa.binary()
            columns_of = [("path", pa.string()), ("offset", pa.int64()), ("value", value)]
            self.schema = pa.schema(columns_of)

    def preferredLocation(self) -> str | None:
        """Return the host that has the files."""
        return self.host

    def splits(self) -> list[str]:
        """Return the patterns, for receivers that share the files."""
        return list(dict.fromkeys(self.patterns))

    def _splits_after(self, places: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]]:
        splits = self.splits()
        new = {name_in(split, _BEGINS) for split in splits} - places.keys()
        return splits, dict.fromkeys(new, not places and self.start == "end")

    def _receive(self, context: ReceiverContext) -> bool:
        _Reading(self, context.stopped).run()
        return False


class _Reading:
    """One start: looks at the files, and stores what they have. All of it is of one thread."""

    def __init__(self, receiver: GrowingFilesReceiver, stopping: threading.Event) -> None:
        self._receiver = receiver
        self._stopping = stopping
        place = receiver.lastPosition
        if place is None:
            place = {_BEGINS: receiver.start == "end"}
        self._splits = receiver.assignedSplits
        self._beginning = {
            split for split in self._splits or ("",) if place.pop(name_in(split, _BEGINS), False)
        }
        """Splits that begin at the end, until the places of their files are durable."""
        self._files = FileTable(place, self._open)
        self._patterns: dict[str, str] = {}
        self._paths: list[str] = []
        self._later: dict[Key, _Later] = {}
        self._told: set[str] = set()
        self._due: list[tuple[GrowingFile, os.stat_result]] = []
        self._inodes: dict[str, dict[int, str]] = {}
        self._is_paths_old = True
        self._opened: OrderedDict[str, GrowingFile] = OrderedDict()
        self._buffer = bytearray(receiver.maxLine + 1)  # with the end of the longest line
        self._size = len(self._buffer)
        self._filled = 0
        self._parts: list[tuple[GrowingFile, int, int, int]] = []
        self._place_bytes = 0

    # -- the loop --------------------------------------------------------------------------------

    def run(self) -> None:
        """Read until the receiver stops."""
        look_s = discover_s = 0.0
        try:
            while not self._stopping.is_set():
                began_s = time.monotonic()
                if began_s >= discover_s or self._is_paths_old:
                    self._discover()
                    discover_s = _next_s(began_s, _DISCOVER_S)
                    began_s = time.monotonic()
                if self._look():
                    continue
                look_s = _next_s(began_s, _LOOK_S)
                self._stopping.wait(look_s - time.monotonic())
        except ReceiverStoppedError:
            return  # what it had in hand is read again by the next start
        finally:
            for file in self._files.by_key.values():
                file.close()

    def _open(self, path: str) -> Content:
        return open_content(path, self._go_on)

    def _go_on(self) -> None:
        if self._stopping.is_set():
            raise ReceiverStoppedError("the receiver stops")

    def _discover(self) -> None:
        self._is_paths_old = False
        self._patterns = {}  # by path the first that matches it
        own = self._splits or self._receiver.patterns
        for pattern in self._receiver.patterns:
            paths = set(map(os.path.normpath, glob.iglob(pattern, recursive=True)))
            self._patterns = dict.fromkeys(paths, pattern) | self._patterns
            if pattern not in own:
                continue
            if not paths:
                self._tell(pattern, f"No file matches {pattern} yet; it is looked for each second")
            elif all(map(os.path.isdir, paths)):
                told = f"{pattern} matches folders only: to read files in them, add /* to it"
                self._tell(pattern, told)
        self._paths = sorted(path for path, first in self._patterns.items() if first in own)

    def _names(self) -> dict[Key, tuple[str, os.stat_result]]:
        """Look at each name, and return one of each file."""
        found: dict[Key, tuple[str, os.stat_result]] = {}
        self._inodes = {}
        for path in self._paths:
            try:
                status = os.stat(path)
            except FileNotFoundError:
                self._is_paths_old = True
                continue
            except OSError as error:
                self._tell(path, f"{path} cannot be looked at: {error}")
                continue
            if stat.S_ISREG(status.st_mode):
                found.setdefault((status.st_dev, status.st_ino), (path, status))
        return found

    def _look(self) -> bool:
        """Look at all files once, and read those that changed; return whether there was one."""
        found = self._names()
        files = self._files
        if any(key not in found and not self._aside(file) for key, file in files.by_key.items()):
            # Its new name may be in another folder that is asked for.
            self._discover()
            found = self._names()
        due = self._due = []
        for file in list(files.by_key.values()):
            assert file.key is not None
            is_asked_for = file.key in found
            where = found.get(file.key) or self._aside(file)
            # Under another name it may be another file, which was given the inode of a deleted one.
            is_it = where is not None and (
                where[0] == file.path
                or file.content is not None
                or self._tried(*where, partial(self._holds, file, where[0]))
            )
            if where is None or not is_it:
                if is_it is None:  # That cannot be known yet.
                    found.pop(file.key, None)
                else:
                    self._read_last(file)
                continue
            found.pop(file.key, None)
            path, status = where
            files.moved(file, path)
            if is_asked_for:
                file.missing_since_s = 0.0
            elif not file.missing_since_s or status.st_size != file.size:
                file.missing_since_s = time.monotonic()
            if not file.is_checked or (status.st_size, status.st_mtime_ns) != (
                file.size,
                file.changed_ns,
            ):
                self._find(file.path, status, partial(self._ready, file))
        for path, status in found.values():
            if status.st_size:
                self._find(path, status, partial(self._meet, path))
        self._store()
        if self._beginning:
            for file, status in due:
                if file.split in self._beginning:
                    self._tried(file.path, status, partial(self._pass_over, file))
            self._tell_begin()
        for file in files.old():
            self._drop(file)
        return bool(due)

    def _tell(self, path: str, message: str, error: BaseException | None = None) -> None:
        """Report a file once, until it can be read."""
        if path not in self._told:
            self._told.add(path)
            self._receiver.reportError(message, error)

    def _find(
        self,
        path: str,
        status: os.stat_result,
        step: Callable[[os.stat_result], GrowingFile | None],
    ) -> None:
        """Find out which file it is, and read it at once: the next may be a copy of it."""
        file = self._tried(path, status, step)
        if file is None:
            return
        self._due.append((file, status))
        if file.split in self._beginning:
            return
        if self._tried(file.path, status, partial(self._read, file)) is None:
            file.size = -1  # it is looked at again, though it does not change

    def _tried(
        self, path: str, status: os.stat_result, step: Callable[[os.stat_result], _T | None]
    ) -> _T | None:
        """Do something with a file; what fails is done again after a pause."""
        key = status.st_dev, status.st_ino
        later, began_s = self._later.get(key), time.monotonic()
        if later is not None and began_s < later.look_s:
            return None
        try:
            result = step(status)
            if result is not None:
                self._later.pop(key, None)
            return result
        except FileNotFoundError:
            self._is_paths_old = True
        except OSError as error:
            self._wait(path, status, began_s, error)
        return None

    # -- which file it is ------------------------------------------------------------------------

    def _ready(self, file: GrowingFile, status: os.stat_result) -> GrowingFile | None:
        """Return what is to be read of a file that changed; None: nothing."""
        if isinstance(file.content, CompressedContent):
            file.close()  # it was written again
        if not self._opens(file):
            return None
        content = file.content
        assert content is not None
        if (not file.is_checked and not file.check(content)) or content.length() < file.place:
            return self._files.renew(file)
        file.size, file.changed_ns = status.st_size, status.st_mtime_ns
        return file

    def _opens(self, file: GrowingFile) -> bool:
        """Open a file if it is not; return whether it is the one that was looked at."""
        if file.content is None:
            file.content = self._open(file.path)
            if file.content.key != file.key:
                self._is_paths_old = True
                file.close()
                return False
        self._opened[file.name] = file
        self._opened.move_to_end(file.name)
        while len(self._opened) > _OPEN_FILES:
            self._opened.popitem(last=False)[1].close()
        return True

    def _meet(self, path: str, status: os.stat_result) -> GrowingFile | None:
        began_s = time.monotonic()
        content = self._open(path)
        if content.key != (status.st_dev, status.st_ino):
            self._is_paths_old = True
            content.close()
            return None
        split = self._patterns[path] if self._splits else ""
        file = self._files.meet(path, content, split)
        if file is None:
            self._wait(path, status, began_s)
            return None
        self._opens(file)
        file.size, file.changed_ns = status.st_size, status.st_mtime_ns
        return file

    def _wait(
        self, path: str, status: os.stat_result, began_s: float, error: OSError | None = None
    ) -> None:
        """Look at a file again later: it is being written, or cannot be read."""
        now_s = time.monotonic()
        key = status.st_dev, status.st_ino
        later = self._later.get(key)
        now = status.st_size, status.st_mtime_ns
        if later is None or (later.size, later.changed_ns) != now:
            later = self._later[key] = _Later(*now, now_s, now_s)
        # Also of a large one that is compressed right now, and unpacked each time.
        later.look_s = now_s + max(_DISCOVER_S, 3 * (now_s - began_s))
        if error is not None and error.errno == errno.EBADMSG:
            if now_s >= later.since_s + _QUIET_S:
                self._tell(path, f"{path}: {error.strerror}; nothing of it is stored", error)
        elif error is not None:
            self._tell(path, f"{path} cannot be read: {error}", error)

    def _holds(self, file: GrowingFile, path: str, status: os.stat_result) -> bool:
        with closing(self._open(path)) as content:
            if content.key != file.key:
                raise FileNotFoundError(path)
            return file.check(content)

    def _aside(self, file: GrowingFile) -> tuple[str, os.stat_result] | None:
        """Look for a file whose name is not asked for any more, in its folder."""
        for path in (file.path, *self._same_inode(file)):
            with suppress(OSError):
                status = os.stat(path)
                if (status.st_dev, status.st_ino) == file.key:
                    return path, status
        return None

    def _same_inode(self, file: GrowingFile) -> Iterator[str]:
        assert file.key is not None
        folder = os.path.dirname(file.path)
        if folder not in self._inodes:
            self._inodes[folder] = {}
            with suppress(OSError), os.scandir(folder) as entries:
                self._inodes[folder] = {entry.inode(): entry.path for entry in entries}
        with suppress(KeyError):
            yield self._inodes[folder][file.key[1]]

    def _read_last(self, file: GrowingFile) -> None:
        """Read what is left of a file that has no name any more."""
        content = file.content
        # One that is compressed cannot be read any more, nor can it have grown.
        has_more = content is not None and not (content.is_final and file.place >= content.length())
        if has_more and file.is_checked:
            try:
                while self._read(file):
                    pass
            except OSError as error:
                self._tell(file.path, f"{file.path}, deleted, cannot be read: {error}", error)
            self._store()
            self._keep_rest(file)
        self._files.lost(file)

    def _keep_rest(self, file: GrowingFile) -> None:
        if file.content is not None:
            with suppress(OSError):
                file.rest = read(file.content, file.place, _START)

    def _drop(self, file: GrowingFile) -> None:
        if file.key is not None:
            self._keep_rest(file)
        file.close()
        if file.rest:
            self._discard_rest(file, file.rest, file.place)
        else:
            self._files.forget(file)

    def _pass_over(self, file: GrowingFile, status: os.stat_result | None = None) -> None:
        """Pass over what a file has, but for a line that is being written."""
        if not self._opens(file):
            return
        content = file.content
        assert content is not None
        end = content.length()
        begin = max(0, end - self._receiver.maxLine)
        cut = read(content, begin, end - begin).rfind(b"\n") + 1
        if cut:
            self._files.stand_at(file, content, begin + cut)

    def _tell_begin(self) -> None:
        """Store where all existing files stand; until that is durable it is done again."""
        begun = dict.fromkeys((name_in(split, _BEGINS) for split in self._beginning), True)
        self._beginning = set()
        while self._files.changed:
            place = self._place()
            self._receiver.store([], PositionChanges({**place, **begun}), acknowledge_nothing)
            self._is_told(place)
        # Of splits it stays: one without it is new.
        end = PositionChanges(dict.fromkeys(begun, False if self._splits else None))
        self._receiver.store([], end, acknowledge_nothing)

    # -- reading ---------------------------------------------------------------------------------

    def _read(self, file: GrowingFile, status: os.stat_result | None = None) -> bool:
        """Read a file up to its end, or for its turn; return whether there may be more."""
        if not self._opens(file):
            return False
        for _ in range(_TURN):
            self._go_on()
            content = file.content
            if content is None:
                break
            view = memoryview(self._buffer)[self._filled : self._size]
            before, count = content.read_into(file.place, view, len(file.tail))
            if before != file.tail:
                self._store()
                renewed = self._files.renew(file)
                # At once: the next may be a copy of it.
                return renewed is not None and self._read(renewed) and renewed is file
            if not self._take(file, content, count, len(view)):
                self._told.discard(file.path)
                return False
        file.size = -1
        return True

    def _take(self, file: GrowingFile, content: Content, count: int, room: int) -> bool:
        """Take the whole lines of what was read; return whether there may be more."""
        begin, end = self._filled, self._filled + count
        cut = self._buffer.rfind(b"\n", begin, end) + 1
        if cut:
            self._parts.append((file, file.place, begin, cut))
            self._filled = cut
            self._files.went_on(file, memoryview(self._buffer)[begin:cut])
            self._place_bytes += _place_bytes(file.name, file)
            if cut >= self._size // 2 or self._place_bytes > _PLACE_BYTES:
                self._store()
            return count == room or (content.is_final and cut < end)
        if count == room:
            if begin:
                self._store()
                return True
            return self._skip(file, content)
        if count and content.is_final:
            self._discard_rest(file, bytes(self._buffer[begin:end]), file.place + count)
        return False

    def _skip(self, file: GrowingFile, content: Content) -> bool:
        """Pass over a line that is too long; return whether its end was found."""
        at = max(file.skipped, file.place + self._size)
        while count := content.read_into(at, memoryview(self._buffer))[1]:
            self._go_on()
            cut = self._buffer.find(b"\n", 0, count) + 1
            if cut or (content.is_final and count < len(self._buffer)):
                end = at + (cut or count)
                start = read(content, file.place, _START)
                self._discard(
                    file,
                    start,
                    f"a line of {end - file.place} bytes of {file.path}, from {file.place} on, is "
                    f"longer than {self._size - 1} bytes (maxLine)",
                    end,
                )
                return True
            at += count
        file.skipped = at
        return False

    def _discard_rest(self, file: GrowingFile, rest: bytes, end: int) -> None:
        reason = f"the last line of {file.path}, from {file.place} on, never ended"
        self._discard(file, rest, reason, end)

    def _discard(self, file: GrowingFile, data: bytes, reason: str, end: int) -> None:
        """Make what is before a place a dead letter."""
        self._store()
        if file.content is not None:
            self._files.stand_at(file, file.content, end)
        else:
            self._files.forget(file)
        place = self._place()
        self._receiver.discard(data, reason, place)
        self._is_told(place)

    def _store(self) -> None:
        if not self._filled:
            return
        place = self._place()
        try:
            if self._receiver.columns:
                self._receiver.store(self._table(), place, acknowledge_nothing)
            else:
                lines = memoryview(self._buffer)[: self._filled]
                self._receiver.store(lines, place, acknowledge_nothing, self._receiver.framing)
            self._is_told(place)
        except RecordTooLargeError as error:
            # Together they fit into no block: fewer do.
            self._size = max(_LEAST_BUFFER, min(self._size * 7 // 8, error.limit))
            for file, before, _, _ in reversed(self._parts):
                self._opens(file)
                assert file.content is not None
                self._files.stand_at(file, file.content, before)
        self._filled = self._place_bytes = 0
        self._parts.clear()

    def _table(self) -> pa.Table:
        batches = []
        for file, place, begin, end in self._parts:
            data = bytes(self._buffer[begin:end])
            starts = np.concatenate(([0], line_ends(memoryview(data))[:-1] + 1)) + place
            path = os.fsencode(file.path).decode(errors="replace")
            columns = [pa.repeat(path, len(starts)), pa.array(starts), self._values(data)]
            batches.append(pa.RecordBatch.from_arrays(columns, schema=self._receiver.schema))
        return pa.Table.from_batches(batches)

    def _values(self, data: bytes) -> pa.Array:
        values = line_column(memoryview(data))
        if not self._receiver.text:
            return values
        try:
            values = values.cast(pa.string())
        except pa.ArrowInvalid:
            data = data.decode(errors="replace").encode()
            values = line_column(memoryview(data)).cast(pa.string())
        return pc.utf8_rtrim(values, "\r") if b"\r\n" in data else values

    def _place(self) -> PositionChanges:
        """Return where files stand that changed: all that are stored from, and some others."""
        changed, place = self._files.changed, PositionChanges()
        stored = {file.name for file, *_ in self._parts}
        size = self._place_bytes
        for name, file in list(changed.items()):
            if name not in stored:
                size += _place_bytes(name, file)
                if size > _PLACE_BYTES:
                    continue  # with the next records: until then it is as it was
            place[name] = file.as_position() if file is not None and file.place else None
        return place

    def _is_told(self, place: PositionChanges) -> None:
        for name in place:
            del self._files.changed[name]


def _place_bytes(name: str, file: GrowingFile | None) -> int:
    return len(name) + (20 if file is None else 120 + 2 * len(file.path))


def _next_s(began_s: float, least_s: float) -> float:
    """Return when to do again what has been done since `began_s`, at most a part of the time."""
    return began_s + max(least_s, _SHARE * (time.monotonic() - began_s))
