"""Which file is which: files that grow, are renamed, copied, truncated, compressed, trimmed.

A file is known by its device and inode, and by what has been read of it: a digest of its first
bytes, and a checksum of the last before the place up to which it was read. So a file that was
renamed is the same, an inode that holds something else is another, and a copy or a compressed file
whose beginning has been read elsewhere is gone on with where that reading ended.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from penstock.sources.growing_files._content import COMPRESSED, Content, Key, read

_HEADS = (256, 64, 16, 4, 1)
"""How many first bytes the digest covers: the most of these that have been read."""
TAIL = 1024
"""How many bytes before the place are compared."""
_MARK = 16
"""The last of these, which are looked for in a file whose first lines were cut off."""
_ALIKE = 64 << 10
_HOLD_S = 10.0
"""How long a file that begins like an existing one is taken for a copy that is being made."""
GONE_S = 600.0
"""How long it is remembered up to where a file was read that is gone, or was renamed to a name that
is not asked for: for a copy of it, and for what is still written to it."""
_CANDIDATES = 16

_Kind = tuple[str, str, bytes]
"""Folder, name without what rotation adds, digest of the first bytes."""


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8).digest()


def _stem(path: str) -> tuple[str, str]:
    """Return folder and name without what rotation adds: a number, a date, an ending."""
    folder, name = os.path.split(path)
    while name.endswith(COMPRESSED):
        name = os.path.splitext(name)[0]
    return folder, re.sub(r"[-._]\d+(?=[-._]|$)", "", name)


def name_in(split: str, name: str) -> str:
    """Return the key of a position for something of a split."""
    return f"{split}\0{name}" if split else name


def _head_length(place: int) -> int:
    return next((length for length in _HEADS if length <= place), 0)


@dataclass(eq=False, slots=True)
class GrowingFile:
    """One file, and up to where it was read.

    Attributes:
        name: In positions; a split and NUL, and a number.
        path: Where it was seen last.
        key: Which file it is; None: it is gone.
        place: Up to where it was read, the end of a line.
        head: Digest of its first bytes, as many of `_HEADS` as have been read.
        tail: The last bytes before the place; shorter after a start, see `check`.
        sum: Their checksum.
        size: Its size when it was read last.
        changed_ns: When it was changed before that.
        missing_since_s: Since when no name that is asked for leads to it; 0: one does.
        skipped: Up to where a line that is too long has been passed over, without its end.
        content: It, while it is open.
        is_checked: Whether it holds what was read of it; not known yet after a start.
        rest: The beginning of its last line, which had not ended when it was gone.
    """

    name: str
    path: str
    key: Key | None
    place: int = 0
    head: bytes = b""
    tail: bytes = b""
    sum: int = 0
    size: int = -1
    changed_ns: int = 0
    missing_since_s: float = 0.0
    skipped: int = 0
    content: Content | None = None
    is_checked: bool = True
    rest: bytes = b""

    @property
    def split(self) -> str:
        """The split that it is of; empty where its receiver has none."""
        return self.name.rpartition("\0")[0]

    def head_length(self) -> int:
        """Return how many first bytes the digest covers."""
        return _head_length(self.place)

    def is_begun_by(self, content: Content) -> bool:
        """Return whether what was read of it is what another file begins with."""
        size = min(TAIL, self.place)
        if not size or content.length() < self.place:
            return False
        tail = read(content, self.place - size, size)
        return len(tail) == size and zlib.crc32(tail) == self.sum

    def check(self, content: Content) -> bool:
        """Return whether a file is still this one, by content; remembers its last bytes."""
        if not self.place:
            return True
        if not self.is_begun_by(content) or _digest(read(content, 0, self.head_length())) != (
            self.head
        ):
            return False
        size = min(TAIL, self.place)
        self.tail = read(content, self.place - size, size)
        self.is_checked = True
        return True

    def cut_place(self, content: Content) -> int:
        """Return the place in a file that lost its first lines; -1: it is none."""
        size = min(TAIL, self.place)
        if size < _MARK:
            return -1
        found = -1
        for place in content.ends_of(self.tail[-_MARK:]):
            if size <= place < self.place and (
                zlib.crc32(read(content, place - size, size)) == self.sum
            ):
                if found >= 0:
                    return -1  # it repeats itself: none of them is known to be the place
                found = place
        return found

    def close(self) -> None:
        """Close it."""
        if self.content is not None:
            self.content.close()
        self.content = None

    def as_position(self) -> list[Any]:
        """Return what finds it again."""
        device, inode = self.key or (0, 0)
        path: str | bytes = self.path
        if not self.path.isprintable():
            path = os.fsencode(self.path)
        return [path, device, inode, self.place, self.head, self.tail[-_MARK:], self.sum]


def _of_position(name: str, kept: list[Any]) -> GrowingFile:
    path, device, inode, place, head, mark, checksum = kept
    key = (device, inode) if inode else None
    file = GrowingFile(name, os.fsdecode(path), key, place, head, mark, checksum)
    file.is_checked = False
    return file


class FileTable:
    """All files that have been read from, by what they are. For one thread.

    Args:
        position: Where they stood at the end of the last start, or None.
        opener: Opens a file.
        now_s: Monotonic time.

    Attributes:
        by_key: Those that exist.
        gone: Those whose inode is gone, or holds something else, by name.
        changed: Those whose position is to go with the next records; None: it is forgotten.
    """

    def __init__(
        self,
        position: dict[str, Any] | None,
        opener: Callable[[str], Content],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.by_key: dict[Key, GrowingFile] = {}
        self.gone: dict[str, GrowingFile] = {}
        self.changed: dict[str, GrowingFile | None] = {}
        self._opener = opener
        self._now_s = now_s
        self._numbers = 0
        self._held: dict[Key, tuple[float, int]] = {}
        self._gone_from: dict[str, GrowingFile] = {}
        self._by_head: dict[_Kind, dict[str, GrowingFile]] = {}
        for name, kept in (position or {}).items():
            file = _of_position(name, kept)
            self._numbers = max(self._numbers, int(name.rpartition("\0")[2]))
            self._index(file)
            if file.key is None:
                self._note_gone(file)
            else:
                self.by_key[file.key] = file

    def _index(self, file: GrowingFile) -> None:
        if file.head:
            self._by_head.setdefault((*_stem(file.path), file.head), {})[file.name] = file

    def _leave_index(self, file: GrowingFile) -> None:
        kind = (*_stem(file.path), file.head)
        same = self._by_head.get(kind, {})
        same.pop(file.name, None)
        if not same:
            self._by_head.pop(kind, None)

    def _note_gone(self, file: GrowingFile) -> None:
        file.missing_since_s = self._now_s()
        self.gone[file.name] = file
        self._gone_from[file.path] = file

    def moved(self, file: GrowingFile, path: str) -> None:
        """Take note of a file's name."""
        if path != file.path:
            self._leave_index(file)
            file.path = path
            self._index(file)

    def went_on(self, file: GrowingFile, data: memoryview) -> None:
        """A file was read on, by `data`."""
        before, first = file.head_length(), file.tail + data[: _HEADS[0]]
        file.place += len(data)
        file.tail = (file.tail + data[-TAIL:])[-TAIL:]
        file.sum = zlib.crc32(file.tail)
        self.changed[file.name] = file
        if file.head_length() != before:
            # Not read from the file: it may have been truncated since.
            self._leave_index(file)
            file.head = _digest(first[: file.head_length()])
            self._index(file)

    def forget(self, file: GrowingFile) -> None:
        """Drop a file: it is not read any more."""
        file.close()
        self.gone.pop(file.name, None)
        if self._gone_from.get(file.path) is file:
            del self._gone_from[file.path]
        if file.key is not None and self.by_key.get(file.key) is file:
            del self.by_key[file.key]
        self._leave_index(file)
        self.changed[file.name] = None

    def lost(self, file: GrowingFile) -> None:
        """Its inode is gone, or holds something else: only a copy of it may go on."""
        if file.key is not None and self.by_key.get(file.key) is file:
            del self.by_key[file.key]
        file.close()
        file.key = None
        self._note_gone(file)
        self.changed[file.name] = file

    def old(self) -> list[GrowingFile]:
        """Return those that have been gone, or without a name that is asked for, for long."""
        end_s = self._now_s() - GONE_S
        return [
            file
            for file in (*self.gone.values(), *self.by_key.values())
            if 0.0 < file.missing_since_s < end_s
        ]

    def renew(self, file: GrowingFile) -> GrowingFile | None:
        """An inode holds something else than was read of it: return what is to be read of it."""
        content = file.content
        assert content is not None
        place = file.cut_place(content)
        if place >= 0:
            self.stand_at(file, content, place)
            return file
        file.content = None
        self.lost(file)
        return self.meet(file.path, content, file.split)

    def meet(self, path: str, content: Content, split: str = "") -> GrowingFile | None:
        """A file is seen that is not known.

        Args:
            path: Its name.
            content: It, open; it is closed if it is not returned.
            split: The split that it is of, where its receiver has some.

        Returns:
            What is to be read of it; None: it may be a copy that is being made.

        Raises:
            OSError: It cannot be read; it is closed.
        """
        try:
            return self._meet(path, content, split)
        except OSError:
            content.close()
            raise

    def _meet(self, path: str, content: Content, split: str) -> GrowingFile | None:
        length = content.length()
        known = self._known(path, content, length)
        for file in known:
            if file.key is None and file.is_begun_by(content):
                self._take_over(file, content, path, file.place)
                return file
        before = self._gone_from.get(path)
        if before is not None and (place := before.cut_place(content)) >= 0:
            self._take_over(before, content, path, place)
            return before
        if any(self._is_being_copied(file, content, length) for file in known):
            now_s = self._now_s()
            since_s, seen = self._held.get(content.key, (now_s, length))
            self._held[content.key] = since_s if seen == length else now_s, length
            if now_s < since_s + _HOLD_S or seen != length:
                content.close()
                return None
        self._held.pop(content.key, None)
        self._numbers += 1
        name = name_in(split, str(self._numbers))
        file = GrowingFile(name, path, content.key, content=content)
        self.by_key[content.key] = file
        return file

    def _known(self, path: str, content: Content, length: int) -> list[GrowingFile]:
        """Return files that begin as another one does, and are named like it."""
        stem = _stem(path)
        found: list[GrowingFile] = []
        for size in _HEADS:
            if size <= length:
                kind = (*stem, _digest(read(content, 0, size)))
                same = self._by_head.get(kind, {}).values()
                found += itertools.islice(reversed(same), _CANDIDATES)
        return found

    def _is_being_copied(self, file: GrowingFile, content: Content, length: int) -> bool:
        """Return whether a file is the beginning of another, which exists, or did just now."""
        if file.key is None:
            return False
        if file.content is None:
            with suppress(OSError):
                file.content = self._opener(file.path)
        original = file.content
        if original is not None and original.key != file.key:
            file.close()
            original = None
        if original is None or not file.is_begun_by(original):
            return True  # it has changed since it was looked at: the next look says what it is
        if original.is_final:
            return False
        size = min(_ALIKE, length)
        return read(content, length - size, size) == read(original, length - size, size)

    def _take_over(self, file: GrowingFile, content: Content, path: str, place: int) -> None:
        self.stand_at(file, content, place)
        self._held.pop(content.key, None)
        self.gone.pop(file.name, None)
        if self._gone_from.get(file.path) is file:
            del self._gone_from[file.path]
        file.key = content.key
        file.missing_since_s = 0.0
        self.by_key[content.key] = file
        self.moved(file, path)

    def stand_at(self, file: GrowingFile, content: Content, place: int) -> None:
        """Let a file be read from a place on; if its content cannot be read, it is as it was."""
        head = _digest(read(content, 0, _head_length(place)))
        size = min(TAIL, place)
        tail = read(content, place - size, size)
        self._leave_index(file)
        file.content = content
        file.place, file.head, file.tail, file.sum = place, head, tail, zlib.crc32(tail)
        file.size = -1
        file.skipped = 0
        file.is_checked = True
        self._index(file)
        self.changed[file.name] = file
