"""`FileInputDStream`: the files that appear in a folder, each in one batch.

A file belongs to the batch of time `t` when

* its name passes the filter,
* it was modified at `t` or before, and after both `ignore_before_ms` and the time of the last look
  minus the time to look back,
* no batch of that time has taken it already.

So a file must appear whole, by a rename within one file system: one that grows is read as it is
when its batch runs. A file that is modified after the time to look back is taken again.

The rule of Spark's `FileInputDStream` looks back from `t`. A batch interval of a minute leaves it
no time to look back: what was modified just before the last look, and appeared just after, is
passed over. Files bear wall time, and batch times may be ahead of it after the clock was set back
(I14), so the time of a look is the earlier of the two. A file that appears with an older time than
all that is not taken, and a warning names it; so it does, on a local file system, where the time of
a rename is known, with one that came while the program did not run.
"""

from __future__ import annotations

import glob
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import RDD

from penstock.errors import StreamGraphError
from penstock.files.addresses import is_on_hdfs, is_on_objects
from penstock.listeners.input_info import BatchInput
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.streaming.dstream.inputs.input_streams import InputDStream
from penstock.streaming.kernels.deferred import no_partitions
from penstock.wal import HdfsFileSystem, UnsupportedAddressError, locate, normal_address

if TYPE_CHECKING:
    from penstock.streaming.dstream.graph import DStreamGraph

_log = logging.getLogger("penstock.streaming.files")
_limited_log = RateLimitedLog(_log)

_GLOB_SIGNS = re.compile(r"([\\*?\[\]{}^])")
_BRACES = re.compile(r"\{([^{}]*)\}")
_MS_NS = 1_000_000


def is_visible(path: str) -> bool:
    """Return whether the name of a file does not begin with a dot or an underscore.

    Spark looks at the dot only, and fails a batch with an underscore: Hadoop's input formats read
    neither.
    """
    return not os.path.basename(path).startswith((".", "_"))


@dataclass(frozen=True)
class FileSelection:
    """Which files a stream takes.

    Attributes:
        directory: The folder, on HDFS or on a local file system that every executor has at the
            same place; a glob stands for all folders that fit it.
        accepts: Whether a file's path is wanted.
        ignore_before_ms: Files modified at this time or before are not taken.
        min_remember_ms: How long to look back at least.
    """

    directory: str
    accepts: Callable[[str], bool]
    ignore_before_ms: int
    min_remember_ms: int


class _ListedFile(NamedTuple):
    """A file of the folders.

    Attributes:
        path: Its address.
        modified_ms: When what it holds was modified.
        changed_ms: When anything of it was, also its name; 0 where that is not known.
    """

    path: str
    modified_ms: int
    changed_ms: int


class FileInputDStream(InputDStream):
    """The records of the files that appear in a folder; a batch's RDD has all its files.

    Args:
        graph: The graph.
        selection: Which files.
        read: Makes an RDD of Hadoop paths with commas between them.

    Raises:
        StreamGraphError: The folder is neither on a local file system nor on HDFS.
    """

    transient = ("_empty",)

    _MANY = 5
    """How many files a warning names."""

    def __init__(
        self, graph: DStreamGraph, selection: FileSelection, read: Callable[[str], RDD[Any]]
    ) -> None:
        self._directory = _address(selection.directory)
        super().__init__(graph)
        self._selection = selection
        self._read = read
        self._window_ms = -(-selection.min_remember_ms // self.slide_ms) * self.slide_ms
        self._selected: dict[int, tuple[str, ...]] = {}
        # By path: when the file was modified that a batch took, and the batch.
        self._recent: dict[str, tuple[int, int]] = {}
        self._looked_ms: int | None = None
        self._oldest_ms = 0
        self._highest_oldest_ms = 0
        # What the last look saw, and when it was modified; None at the first one of a run.
        self._seen: dict[str, int] | None = None
        self._is_seen_whole = True
        self._refused: set[str] = set()
        self._is_missing = False
        self._empty: RDD[Any] | None = None

    def compute(self, time_ms: int) -> RDD[Any] | None:
        files = self._selected.get(time_ms)
        if files is None:
            files = self._select(time_ms)
        if files:
            return self._read(",".join(_hadoop_path(path) for path in files))
        if self._empty is None:
            self._empty = no_partitions(self.graph.spark_context)
        return self._empty

    def must_be_saved_before(self, time_ms: int) -> bool:
        """A batch that is made again must have these files, or none: a folder may show others."""
        return time_ms in self._selected

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if self._oldest_ms >= self._highest_oldest_ms:
            # Only while the clock is behind does this say which files are new.
            state["_seen"] = None
        return state

    def clear_metadata(self, time_ms: int, unpersist: bool) -> None:
        """Forget old RDDs, and the files that are too old to be taken again unchanged."""
        super().clear_metadata(time_ms, unpersist)
        assert self.remember_ms is not None
        # What batches had stays known for as long as a recovery may make them again.
        kept_ms = time_ms - max(self._window_ms, self.remember_ms)
        if self.needed_ms is not None:
            kept_ms = min(kept_ms, self.needed_ms)
        for old_ms in [ms for ms in self._selected if ms < kept_ms]:
            del self._selected[old_ms]
        self._recent = {
            path: (modified_ms, taken_ms)
            for path, (modified_ms, taken_ms) in self._recent.items()
            if taken_ms >= time_ms - self._window_ms or modified_ms > self._oldest_ms
        }

    def _select(self, time_ms: int) -> tuple[str, ...]:
        """Find the files of a batch, remember them, and report them to the listeners."""
        begin_s = time.monotonic()
        now_ms = self.graph.runtime.clock.time_ms()
        reached_ms = min(time_ms, now_ms)
        since_ms = reached_ms
        if self._looked_ms is not None:
            since_ms = min(since_ms, self._looked_ms)
        self._oldest_ms = max(self._selection.ignore_before_ms, since_ms - self._window_ms)
        self._is_seen_whole = True
        seen = self._seen or {}
        listed = [file for file in self._listed() if self._selection.accepts(file.path)]
        there = [(file.modified_ms, file.path) for file in listed]
        found = sorted(
            (modified_ms, path)
            for modified_ms, path in there
            if self._oldest_ms < modified_ms <= time_ms
            and path not in self._recent
            # Taken and forgotten, before the clock was set back: it seems to be new again.
            and not (modified_ms <= self._highest_oldest_ms and seen.get(path) == modified_ms)
            and self._is_readable(path)
        )
        if self._seen is None:
            self._warn(
                [path for modified_ms, path in found if modified_ms <= self._highest_oldest_ms],
                "may be read for the second time: the clock was set back while the program did "
                "not run",
            )
            self._tell_of_passed(listed)
        self._tell_of_others(there, max(time_ms, now_ms))
        if self._is_seen_whole:
            self._looked_ms = reached_ms
        self._highest_oldest_ms = max(self._highest_oldest_ms, self._oldest_ms)
        taken_ms = round((time.monotonic() - begin_s) * 1000)
        if taken_ms > self.slide_ms:
            _limited_log.log(
                f"Looking for new files in {self._directory} took {taken_ms} ms, longer than the "
                f"batch interval of {self.slide_ms} ms; move files that are done out of the folder",
                like=(self._directory, "slow"),
            )
        files = tuple(path for _, path in found)
        self._selected[time_ms] = files
        self._recent.update((path, (modified_ms, time_ms)) for modified_ms, path in found)
        # What the files hold is known only once they are read; Spark also reports 0 records.
        metadata = {"files": list(files), "Description": "\n".join(files)}
        info = BatchInput(self.stream_id, 0, metadata)
        self.graph.runtime.input_info.report_info(time_ms, info)
        return files

    def _tell_of_others(self, there: list[tuple[int, str]], latest_ms: int) -> None:
        """Name files that have appeared and are not taken: too old, or of a time to come."""
        seen, self._seen = self._seen, {path: modified_ms for modified_ms, path in there}
        if seen is not None:
            new = [(ms, path) for ms, path in there if path not in seen]
            self._warn(
                [path for ms, path in new if ms <= self._oldest_ms and path not in self._recent],
                "have appeared with a time of modification longer ago than "
                "spark.streaming.fileStream.minRememberDuration and are NOT read; touch them",
            )
            self._warn(
                [path for ms, path in new if ms > latest_ms + self._window_ms],
                "have a time of modification that is still to come, and are read by then",
            )
            if not self._is_seen_whole:
                self._seen = {**seen, **self._seen}

    def _tell_of_passed(self, there: list[_ListedFile]) -> None:
        """Name files that came, too old, between the last look of an earlier run and this one."""
        looked_ms = self._looked_ms
        if looked_ms is not None:
            self._warn(
                [
                    file.path
                    for file in there
                    if file.modified_ms <= self._oldest_ms
                    and file.path not in self._recent
                    and file.changed_ms > looked_ms
                ],
                "came or were changed while the program did not run, with a time of modification "
                "longer ago than spark.streaming.fileStream.minRememberDuration, and are NOT read; "
                "touch those that are new",
            )

    def _warn(self, paths: list[str], what: str) -> None:
        if paths:
            named = ", ".join(sorted(paths)[: self._MANY])
            more = f" and {len(paths) - self._MANY} more" if len(paths) > self._MANY else ""
            _log.warning("Files %s%s %s", named, more, what)

    def _listed(self) -> Iterator[_ListedFile]:
        if is_on_hdfs(self._directory):
            yield from self._listed_on_hdfs()
            return
        folders = [path for path in _expand(self._directory) if os.path.isdir(path)]
        self._tell_of_missing(not folders)
        for folder in folders:
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        file = self._file(entry)
                        if file is not None:
                            yield file
            except OSError as error:
                self._is_seen_whole = False
                # Its files are found in a later batch, as long as they are not too old.
                _limited_log.log(f"Cannot look for new files in {folder}: {error}", like=folder)

    def _file(self, entry: os.DirEntry[str]) -> _ListedFile | None:
        """Return a regular file; None for other things, and for what is gone or not to be seen."""
        try:
            if entry.is_file():
                status = entry.stat()
                return _ListedFile(entry.path, status.st_mtime_ns // _MS_NS, _changed_ms(status))
        except FileNotFoundError:
            pass
        except OSError as error:
            # A link in a circle, say. What else is in the folder is read.
            _limited_log.log(f"{entry.path} is left out: {error}", like=entry.path)
        return None

    def _listed_on_hdfs(self) -> Iterator[_ListedFile]:
        try:
            fs, pattern = locate(self._directory)
            assert isinstance(fs, HdfsFileSystem)
            root, _ = _split(self._directory)
            folders = fs.folders(pattern)
            self._tell_of_missing(not folders)
            for folder in folders:
                for file in fs.files(folder):
                    yield _ListedFile(root + file.path, file.modified_ms, 0)
        except OSError as error:
            self._is_seen_whole = False
            _limited_log.log(
                f"Cannot look for new files in {self._directory}: {error}", like=self._directory
            )

    def _tell_of_missing(self, is_missing: bool) -> None:
        if is_missing and not self._is_missing:
            _log.warning("There is no folder %s; its file stream is empty", self._directory)
        self._is_missing = is_missing
        self._is_seen_whole = self._is_seen_whole and not is_missing

    def _is_readable(self, path: str) -> bool:
        """Return whether Hadoop can read a path with these signs; say so once when it cannot."""
        if not set(_split(path)[1]) & {",", ":"}:
            return True
        if path not in self._refused:
            self._refused.add(path)
            _log.error(
                "%s is left out: Hadoop does not read paths with a comma or a colon; rename it",
                path,
            )
        return False


def _changed_ms(status: os.stat_result) -> int:
    return status.st_ctime_ns // _MS_NS


def _address(directory: str) -> str:
    try:
        if is_on_objects(directory):
            raise UnsupportedAddressError(directory)
        return normal_address(directory)
    except UnsupportedAddressError as error:
        raise StreamGraphError(
            f"a file stream reads folders on a local file system or on HDFS, not {directory!r}; "
            "give a path or a file:// address that every executor has, such as a mounted share, "
            "or one of the form hdfs://host:port/path"
        ) from error


def _split(address: str) -> tuple[str, str]:
    """Return what stands before the path in Hadoop's address of a file, and the path."""
    if is_on_hdfs(address):
        end = address.index("/", len("hdfs://"))
        return address[:end], address[end:]
    return "file:", address


def _hadoop_path(address: str) -> str:
    root, path = _split(address)
    return root + _GLOB_SIGNS.sub(r"\\\1", path)


def _expand(pattern: str) -> list[str]:
    """Return the paths that fit a glob with Hadoop's signs: ``* ? [a-z] [^a-z] {x,y}``."""
    braces = _BRACES.search(pattern)
    if braces is None:
        return sorted(glob.glob(pattern.replace("[^", "[!")))
    head, tail = pattern[: braces.start()], pattern[braces.end() :]
    found = {path for part in braces[1].split(",") for path in _expand(head + part + tail)}
    return sorted(found)
