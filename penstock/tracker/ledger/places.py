"""`Places`: the ledger's streams as logs that are read by places, each consumer at its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from penstock.runtime.clock import Clock
from penstock.tracker.errors import LedgerError, LedgerWriteError
from penstock.tracker.ledger._kept_blocks import KeptBlocks, Retention
from penstock.tracker.ledger._ledger_state import AttemptRelease, LedgerState
from penstock.tracker.ledger.events import (
    Consumer,
    ConsumerEvent,
    ConsumerRemovalEvent,
    EpochEvent,
    Event,
    LoggedEpoch,
    PlaceReleaseEvent,
)
from penstock.wire.messages import ReceivedBlockInfo

__all__ = ["CONTINUOUS", "ConsumerStatus", "KeptStream", "LoggedEpoch", "Places", "Retention"]

CONTINUOUS = "continuous"
"""The consumer of a stream whose blocks are given to a function as they come."""

_log = logging.getLogger("penstock.tracker")


@dataclass(frozen=True)
class ConsumerStatus:
    """A consumer at one moment.

    Attributes:
        consumer: Its id.
        place: It needs the blocks from here on.
        records_behind: Records of the stream from there to the end.
        is_committed: A batch of it was asked for, or done.
        at_ms: When it was last seen, to ten minutes, ms since the epoch.
    """

    consumer: str
    place: int
    records_behind: int
    is_committed: bool
    at_ms: int


@dataclass(frozen=True)
class KeptStream:
    """A stream that is read by places, at one moment.

    Attributes:
        stream_id: The stream.
        epoch: Names this stream of this ledger: places of another one are other blocks.
        first: The place of the first block that is kept.
        next: The place that the next block will have.
        records: Records of the stream before that, since it began.
        size_bytes: Bytes of the blocks that are kept.
        consumers: Its readers.
        released_ms: When the last block that is gone was added, ms since the epoch; -1: none is.
    """

    stream_id: int
    epoch: str
    first: int
    next: int
    records: int
    size_bytes: int
    consumers: tuple[ConsumerStatus, ...]
    released_ms: int = -1


class Places:
    """What consumers ask of the ledger, and report to it. Safe to use from any thread.

    As everywhere in the ledger, a change is in the driver log before it is in memory, and in memory
    before anyone hears of it (I1, I4).
    """

    def __init__(
        self,
        state: Callable[[], LedgerState],
        commit: Callable[[str, Sequence[Event]], Sequence[ReceivedBlockInfo]],
        check: Callable[[str], None],
        commit_lock: threading.Lock,
        state_lock: threading.Lock,
        clock: Clock,
    ) -> None:
        """Only `ReceivedBlockTracker` makes one, whose locks it shares."""
        self._state = state
        self._commit = commit
        self._check = check
        self._commit_lock = commit_lock
        self._state_lock = state_lock
        self._clock = clock

    # -- questions -----------------------------------------------------------------------------

    def check_more_can_come(self) -> None:
        """Check that blocks can be added.

        Raises:
            LedgerLostError: The driver log was removed or taken over: none will be in this run.
        """
        self._check("more blocks")

    def stream(self, stream_id: int) -> KeptStream:
        """Return what is kept of a stream.

        Raises:
            LedgerError: It is not read by places.
        """
        with self._state_lock:
            kept = self._state().kept(stream_id)
            records = kept.records_before(kept.next)
            return KeptStream(
                stream_id,
                kept.epoch,
                kept.first,
                kept.next,
                records,
                kept.size_bytes,
                tuple(
                    _status(name, consumer, kept, records)
                    for name, consumer in kept.consumers.items()
                ),
                kept.released_ms,
            )

    def between(
        self, stream_id: int, start: int, end: int
    ) -> tuple[int, tuple[ReceivedBlockInfo, ...], tuple[int, ...]]:
        """Return the blocks from `start` up to `end`, as far as they are kept.

        Returns:
            The place of the first of them, at or after `start` (I15: this shows a caller that what
            it asked for was released); the blocks; when each was added, ms since the epoch.

        Raises:
            LedgerError: The stream is not read by places.
        """
        with self._state_lock:
            kept = self._state().kept(stream_id)
            return (
                min(max(start, kept.first), kept.next),
                tuple(kept.between(start, end)),
                tuple(kept.times_between(start, end)),
            )

    def records_before(self, stream_id: int, place: int) -> int:
        """Return how many records the stream has before a place that is kept, or is next."""
        with self._state_lock:
            return self._state().kept(stream_id).records_before(place)

    def next(self, stream_id: int) -> int:
        """Return the place that the next block of a stream will have."""
        with self._state_lock:
            return self._state().kept(stream_id).next

    def columns(self, stream_id: int) -> tuple[str, bytes | None]:
        """Return kind and schema of the newest block with records, also of one that is gone.

        Raises:
            LedgerError: The stream is not read by places.
        """
        with self._state_lock:
            kept = self._state().kept(stream_id)
            return kept.kind, kept.schema

    def place_at(self, stream_id: int, time_ms: int) -> int:
        """Return the place of the first block that was added at a time or later."""
        with self._state_lock:
            return self._state().kept(stream_id).place_at(time_ms)

    def end_of(
        self,
        stream_id: int,
        start: int,
        until: int | None,
        max_records: int | None,
        max_bytes: int | None,
    ) -> int:
        """Return how far from `start` one may go; see `KeptBlocks.end_of`."""
        with self._state_lock:
            kept = self._state().kept(stream_id)
            last = kept.next if until is None else until
            return kept.end_of(start, last, max_records, max_bytes)

    def unread(self, stream_id: int, reached: Mapping[str, int]) -> tuple[int, str]:
        """Return the bytes that one has not read yet, and the consumer; see `KeptBlocks.unread`."""
        with self._state_lock:
            return self._state().kept(stream_id).unread(reached)

    # -- consumers -----------------------------------------------------------------------------

    def hold(self, stream_id: int, consumer: str, place: int) -> bool:
        """Keep the blocks from a place on for a consumer, unless it is known already.

        Returns:
            Whether it was not.

        Raises:
            LedgerError: The stream is not read by places.
            LedgerWriteError: The driver log did not take it; nothing was changed.
        """
        with self._commit_lock:
            if consumer in self._state().kept(stream_id).consumers:
                return False
            self._note(stream_id, consumer, place, is_committed=False)
            return True

    def commit(self, stream_id: int, consumer: str, place: int) -> None:
        """Note that a consumer has processed all before a place; a lower one changes nothing.

        Raises:
            LedgerError: The stream is not read by places, or there is no such place yet.
            LedgerWriteError: The driver log did not take it; nothing was changed.
        """
        with self._commit_lock:
            kept = self._state().kept(stream_id)
            if place > kept.next:
                raise LedgerError(
                    f"consumer {consumer} of stream {stream_id} commits place {place}, and the "
                    f"next one is only {kept.next}"
                )
            known = kept.consumers.get(consumer)
            if known is None or not known.is_committed or known.place < place:
                self._note(stream_id, consumer, place, is_committed=True)

    def epoch(self, stream_id: int, consumer: str) -> tuple[int, LoggedEpoch] | None:
        """Return where the last logged epoch of a consumer begins, and the epoch; or None.

        It begins at its end when it is known to be where it belongs.

        Raises:
            LedgerError: The stream is not read by places.
        """
        with self._state_lock:
            known = self._state().kept(stream_id).consumers.get(consumer)
            return None if known is None or known.epoch is None else (known.place, known.epoch)

    def sources(self) -> frozenset[str]:
        """Return what names the epochs of all consumers that have logged one."""
        with self._state_lock:
            kept = [stream.kept for stream in self._state().streams.values()]
            each = [found.consumers.values() for found in kept if found is not None]
            epochs = [consumer.epoch for consumers in each for consumer in consumers]
            return frozenset(epoch.source for epoch in epochs if epoch is not None)

    def log_epoch(self, stream_id: int, consumer: str, start: int, epoch: LoggedEpoch) -> None:
        """Log a consumer's next epoch, which has the blocks from `start` on.

        All epochs before it are where they belong: their blocks may go.

        Raises:
            LedgerError: The stream is not read by places.
            LedgerWriteError: The driver log did not take it; nothing was changed. It may be on the
                disk all the same, so log this one, as it is, before any other.
        """
        with self._commit_lock:
            self._state().kept(stream_id)
            self._commit(
                f"epoch {epoch.number} of stream {stream_id}",
                [EpochEvent(stream_id, consumer, start, epoch, self._clock.time_ms())],
            )

    def confirm(self, stream_id: int, consumer: str, place: int) -> None:
        """Note that a batch of a consumer was asked for: it is real, and stays where it is.

        Args:
            stream_id: The stream.
            consumer: The consumer.
            place: Where its batch begins; from there on one that is not known is held.

        Raises:
            LedgerError: The stream is not read by places.
            LedgerWriteError: The driver log did not take it; nothing was changed.
        """
        with self._commit_lock:
            known = self._state().kept(stream_id).consumers.get(consumer)
            if known is None or not known.is_committed:
                at = place if known is None else known.place
                self._note(stream_id, consumer, at, is_committed=True)

    def note_seen(self, stream_id: int, consumers: Collection[str]) -> None:
        """Note that consumers are there now; those that are not known are passed over.

        Raises:
            LedgerError: The stream is not read by places.
            LedgerWriteError: The driver log did not take one; those before it are noted.
        """
        with self._commit_lock:
            kept = self._state().kept(stream_id)
            for consumer in consumers:
                known = kept.consumers.get(consumer)
                if known is not None:
                    self._note(stream_id, consumer, known.place, is_committed=known.is_committed)

    def drop(self, stream_id: int, consumers: Collection[str]) -> None:
        """Forget consumers: what only they need may go.

        Raises:
            LedgerError: The stream is not read by places.
            LedgerWriteError: The driver log did not take it; nothing was changed.
        """
        with self._commit_lock:
            kept = self._state().kept(stream_id)
            known = tuple(consumer for consumer in consumers if consumer in kept.consumers)
            if known:
                self._commit(
                    f"the end of {len(known)} consumers of stream {stream_id}",
                    [ConsumerRemovalEvent(stream_id, known)],
                )

    def _note(self, stream_id: int, consumer: str, place: int, *, is_committed: bool) -> None:
        self._commit(
            f"place {place} of consumer {consumer} of stream {stream_id}",
            [ConsumerEvent(stream_id, consumer, place, is_committed, self._clock.time_ms())],
        )

    # -- release -------------------------------------------------------------------------------

    def release(self, retentions: Mapping[int, Retention]) -> list[AttemptRelease]:
        """Let go what all consumers have passed and whose retention is over.

        Nothing is released before it is in the driver log (I4); when the log does not take it,
        nothing goes and the next call tries again.

        Args:
            retentions: The streams, each with its retention.

        Returns:
            What may be deleted now.
        """
        now_ms = self._clock.time_ms()
        with self._commit_lock:
            state = self._state()
            events = []
            for stream_id, retention in retentions.items():
                kept = state.kept(stream_id)
                before = kept.releasable(now_ms, retention)
                if before > kept.first:
                    events.append(PlaceReleaseEvent(stream_id, before))
            blocks: Sequence[ReceivedBlockInfo] = ()
            if events:
                try:
                    blocks = self._commit(f"the release of places of {len(events)} streams", events)
                except LedgerWriteError as error:
                    _log.error("%s; it is tried again", error)
            with self._state_lock:
                return state.releases(blocks)


def _status(name: str, consumer: Consumer, kept: KeptBlocks, records: int) -> ConsumerStatus:
    return ConsumerStatus(
        name,
        consumer.place,
        records - kept.records_before(consumer.place),
        consumer.is_committed,
        consumer.at_ms,
    )
