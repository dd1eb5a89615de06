"""Deleting blocks that nobody needs any more: who has the bytes is told (I4: last of all)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.tracker._block_servers import BlockServers
from penstock.tracker._receivers import Receivers
from penstock.tracker._shared_logs import SharedLogs
from penstock.tracker.received_block_tracker import AttemptRelease, ReceivedBlockTracker
from penstock.wal import is_on_hdfs
from penstock.wire.messages import CleanupOldBlocks, ReceivedBlockInfo

__all__ = ["BlockDeletion"]

_IDS_PER_MESSAGE = 10_000


class BlockDeletion:
    """Tells receivers and block servers what to delete. Safe to use from any thread.

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
        is_on_hdfs: bool,
    ) -> None:
        """Make it.

        Args:
            receivers: The receivers, for what living attempts have.
            block_servers: The block servers, for what ended ones left, and for copies.
            shared_logs: The logs that this process deletes itself.
            with_copies: The streams whose blocks have copies on other hosts.
            is_on_hdfs: Whether receivers make their logs on HDFS.
        """
        self._receivers = receivers
        self._block_servers = block_servers
        self._shared_logs = shared_logs
        self._with_copies = with_copies
        self._is_on_hdfs = is_on_hdfs

    def release_memory(self, batch: Mapping[int, tuple[ReceivedBlockInfo, ...]]) -> None:
        """Let the memory copies of a batch's blocks go, where the log has the blocks, too."""
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
            ledger: Forgets the attempts of which nothing is left.
            releases: What it returned.
        """
        attempts: dict[str, list[str]] = {}
        segments: dict[str, list[tuple[str, int]]] = {}
        for release in releases:
            self._release_copies(release)
            if release.memory:
                self._block_servers.release_memory(release.host, release.attempt)
            if release.ended:
                self._shared_logs.remove(release)
                segments.setdefault(release.host, []).extend(
                    place for place in release.segments if not is_on_hdfs(place[0])
                )
                if release.whole:
                    attempts.setdefault(release.host, []).append(release.attempt)
                continue
            self._receivers.clean_up(
                release.stream_id,
                release.attempt,
                _cleanups(release.block_ids, release.segments),
            )
        for host in {*attempts, *segments}:
            gone = attempts.get(host, [])
            sent = self._block_servers.release(host, gone, segments.get(host, []))
            # The memory of a host that is gone went with it; the logs are deleted from here.
            if gone and (sent or self._is_on_hdfs):
                ledger.forget_attempts(gone)

    def _release_copies(self, release: AttemptRelease) -> None:
        segments: dict[str, list[tuple[str, int]]] = {}
        for host, folder, number in release.replicas:
            segments.setdefault(host, []).append((folder, number))
        for host, places in segments.items():
            self._block_servers.release_copies(host, (), places)
        if release.is_first and release.stream_id in self._with_copies:
            # Also where there is a copy of which nobody was told.
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
