"""Deleting blocks that no one needs any more: those that have the bytes hear of it last (I4).

*What is retained goes, oldest first, when the disk of the receivers' logs runs short*
(`DiskRoom`). Receivers report about once a second how much is free where their log is, and one that
cannot begin its log reports that. What is retained is promised to no one, so no one is asked: a
program that runs never waits for it.

*What ended receiver attempts left on HDFS* (`SharedLogs`). On its own disk a host's block server
does that. What is on HDFS is no host's, and a host that is gone for good is just when it matters:
so the driver does it. A thread of its own, because a NameNode may take its time; what cannot be
deleted is one line of the log and stays.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from penstock.files.addresses import is_shared
from penstock.receiver import log_folder
from penstock.runtime.clock import Clock
from penstock.runtime.event_loop import EventLoop
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.tracker.hosts.block_servers import BlockServers
from penstock.tracker.ledger.received_block_tracker import AttemptRelease, ReceivedBlockTracker
from penstock.tracker.receivers.registry import Receivers
from penstock.wal import HdfsFileSystem, ObjectFileSystem, WalError, locate, segment_path
from penstock.wire.messages import (
    CleanupOldBlocks,
    ReceivedBlockInfo,
    ReportFullLog,
    ReportRateStatus,
)

_IDS_PER_MESSAGE = 10_000

_log = logging.getLogger("penstock.tracker")

_SEGMENTS = 4
"""How many segments of each receiver a disk should have room for: they are allocated in advance."""

_SETTLE_S = 2.0
"""How long it may take until released segments have left the disk."""


class BlockDeletion:
    """Has receivers and block servers delete blocks. Safe to use from any thread.

    A living attempt deletes its own; what an ended one left, its host's block server does, or this
    process where it is on HDFS. Copies are deleted by the block servers that made them.
    """

    def __init__(
        self,
        receivers: Receivers,
        block_servers: BlockServers,
        shared_logs: SharedLogs,
        *,
        with_copies: frozenset[int],
        is_shared: bool,
    ) -> None:
        """Make it.

        Args:
            receivers: The receivers, for what living attempts have.
            block_servers: The block servers, for what ended ones left, and for copies.
            shared_logs: The logs that this process deletes itself.
            with_copies: The streams whose blocks have copies on other hosts.
            is_shared: Whether receivers make their logs where all hosts share them.
        """
        self._receivers = receivers
        self._block_servers = block_servers
        self._shared_logs = shared_logs
        self._with_copies = with_copies
        self._is_shared = is_shared

    def release_memory(self, batch: Mapping[int, tuple[ReceivedBlockInfo, ...]]) -> None:
        """Let the memory copies of a batch's blocks go, where the log also has the blocks."""
        for stream_id, blocks in batch.items():
            of_attempts: dict[str, list[str]] = {}
            for block in blocks:
                if block.memory is not None and block.segment is not None:
                    of_attempts.setdefault(block.attempt, []).append(block.block_id)
            for attempt, block_ids in of_attempts.items():
                # Not kept: the clean-up of the batch says it again.
                messages = _cleanups(tuple(block_ids), ())
                self._receivers.clean_up(stream_id, attempt, messages, is_kept=False)

    def delete(self, ledger: ReceivedBlockTracker, releases: Iterable[AttemptRelease]) -> None:
        """Have deleted what the ledger has let go, which is in the driver log by now (I4).

        Args:
            ledger: Forgets the attempts that have nothing left.
            releases: What it returned.
        """
        attempts: dict[str, list[str]] = {}
        segments: dict[str, list[tuple[str, int]]] = {}
        named_before: set[str] = set()
        for release in releases:
            self._release_copies(release)
            if release.whole and not release.is_first:
                named_before.add(release.attempt)
            if release.memory:
                self._block_servers.release_memory(release.host, release.attempt)
            if release.ended and release.log and not release.log_is_over:
                # Its writer knows what others have in its segments.
                places = release.segments
                if release.whole:
                    places += ((log_folder(release.log, release.stream_id, release.attempt), -1),)
                if release.mate is not None and places:
                    self._receivers.clean_up(*release.mate, _cleanups((), places))
            elif release.ended:
                self._shared_logs.remove(release)
                # What is on a disk goes by the server of its host; a log of several whole.
                places = ((release.log, -1),) if release.log else release.segments
                segments.setdefault(release.host, []).extend(
                    place for place in places if not is_shared(place[0])
                )
            if release.ended:
                if release.whole:
                    attempts.setdefault(release.host, []).append(release.attempt)
                continue
            self._receivers.clean_up(
                release.stream_id,
                release.attempt,
                _cleanups(release.block_ids, release.segments),
            )
        # Those with copies on a host that is away stay in the ledger: after a crash of this process
        # nothing else knows that they are to go. They are named on their own host once.
        owed = self._block_servers.owed()
        waiting = owed & named_before
        for host in {*attempts, *segments}:
            named = [one for one in attempts.get(host, ()) if one not in waiting]
            sent = self._block_servers.release(host, named, segments.get(host, []))
            gone = [one for one in named if one not in owed]
            # The memory of a host that is gone went with it; the logs are deleted from here.
            if gone and (sent or self._is_shared):
                # Only then: a driver that is killed in between leaves them to the next one.
                self._shared_logs.then(partial(ledger.forget_attempts, gone))

    def _release_copies(self, release: AttemptRelease) -> None:
        segments: dict[str, list[tuple[str, int]]] = {}
        for host, folder, number in release.replicas:
            segments.setdefault(host, []).append((folder, number))
        for host, places in segments.items():
            self._block_servers.release_copies(host, (), places)
        if release.is_first and release.stream_id in self._with_copies:
            # Also where there is a copy that was reported to no one.
            self._block_servers.release_everywhere((release.attempt,))
        if release.is_first:
            for host in release.replica_hosts:
                self._block_servers.release_copies(host, (release.attempt,), ())


def _cleanups(
    block_ids: tuple[str, ...], segments: tuple[tuple[str, int], ...]
) -> Sequence[CleanupOldBlocks]:
    """Return messages that fit into frames."""
    found = [
        CleanupOldBlocks(block_ids[start : start + _IDS_PER_MESSAGE], ())
        for start in range(0, len(block_ids), _IDS_PER_MESSAGE)
    ]
    if segments:
        found.append(CleanupOldBlocks((), segments))
    return found


class DiskRoom:
    """Lets go of what is retained when the disk of the receivers' logs runs short.

    All calls come on the tracker's control thread.
    """

    def __init__(
        self,
        ledger: ReceivedBlockTracker,
        deletion: BlockDeletion,
        clock: Clock,
        *,
        segment_bytes: int,
        is_shared: bool,
    ) -> None:
        """Make it.

        Args:
            ledger: Knows what is retained.
            deletion: Has it deleted.
            clock: Time.
            segment_bytes: The size of a segment.
            is_shared: The logs of all hosts are on one file system.
        """
        self._ledger = ledger
        self._deletion = deletion
        self._clock = clock
        self._least_bytes = _SEGMENTS * segment_bytes
        self._is_shared = is_shared
        self._limited_log = RateLimitedLog(_log, clock)
        # By host: when something was let go on it.
        self._last_s: dict[str | None, float] = {}

    def take(self, report: ReportRateStatus) -> None:
        """Look at what a receiver reports, and let go what is in the way."""
        log = None if report.pipe is None else report.pipe.log
        if log is not None and 0 <= log.free_bytes < self._least_bytes:
            host = self._ledger.host_of(report.attempt)
            if host is not None:
                self._make_room(report.stream_id, host, log.free_bytes)

    def take_full(self, report: ReportFullLog) -> None:
        """Let go what is in the way of a receiver that cannot begin its log.

        Whatever is said to be free: a quota may leave less.
        """
        self._make_room(report.stream_id, report.host, report.free_bytes)

    def _make_room(self, stream_id: int, log_host: str, free_bytes: int) -> None:
        host = None if self._is_shared else log_host
        now_s = self._clock.monotonic_s()
        if now_s - self._last_s.get(host, -_SETTLE_S) < _SETTLE_S:
            return
        releases, segments, size_bytes = self._ledger.release_retained(
            host, max(self._least_bytes, 2 * self._least_bytes - free_bytes)
        )
        if not segments:
            return
        recent = {one: at_s for one, at_s in self._last_s.items() if now_s - at_s < _SETTLE_S}
        self._last_s = {**recent, host: now_s}
        free = f"{free_bytes >> 20} MiB are free" if free_bytes >= 0 else "it is full"
        self._limited_log.log(
            f"The disk of the log of stream {stream_id} runs short ({free}): {segments} segments "
            f"with {size_bytes >> 20} MiB of retained blocks go before their time, the oldest "
            "first; give the disk more room, or retain less (spark.penstock.wal.retention, "
            "spark.penstock.wal.retentionSize)"
        )
        self._deletion.delete(self._ledger, releases)


class SharedLogs:
    """The block logs of all hosts where they share them; does nothing where each has its own.

    Its thread ``penstock-shared-logs`` is started by the first deletion and ended by `close`.
    `_lock` guards whether it was.

    Args:
        root: Folder below which receivers make their logs.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._lock = threading.Lock()
        self._loop = EventLoop("shared-logs", self._failed)
        self._is_started = False

    def remove(self, release: AttemptRelease) -> None:
        """Have what may go of an ended attempt deleted; returns at once."""
        places = [place for place in release.segments if is_shared(place[0])]
        if release.log:
            # No segment of it before the last attempt: see `LedgerState.releases`.
            if is_shared(release.log):
                self._remove(release.log)
        elif release.whole and release.is_first:
            if is_shared(self._root):
                self._remove(log_folder(self._root, release.stream_id, release.attempt))
            for folder in {folder for folder, _ in places}:
                self._remove(folder)
        elif not release.whole:
            for folder, number in places:
                self._remove(segment_path(folder, number))

    def then(self, call: Callable[[], None]) -> None:
        """Call something when all that was to be removed is, here if that is now."""
        with self._lock:
            is_idle = not self._is_started
        if is_idle:
            call()
        else:
            self._loop.post(call)

    def _remove(self, address: str) -> None:
        with self._lock:
            if not self._is_started:
                self._is_started = True
                self._loop.start()
        self._loop.post(partial(_remove_tree, address))

    def close(self, timeout_s: float) -> None:
        """Delete what is wanted, as far as that is done in time, and end the thread."""
        if not self._loop.stop(timeout_s):
            _log.warning("It is slow: what ended receivers left in %s may stay", self._root)

    def _failed(self, error: BaseException) -> None:
        _log.error("Some of what ended receivers left in %s stays", self._root, exc_info=error)


def _remove_tree(address: str) -> None:
    try:
        fs, path = locate(address)
        assert isinstance(fs, (HdfsFileSystem, ObjectFileSystem))
        fs.remove_tree(path)
    except (OSError, WalError) as error:
        _log.warning("%s stays: %s", address, error)
