"""`PlaceService`: what the tracker answers to readers of streams by places.

It has a thread of its own, ``penstock-places``, because an answer may hold many blocks, or wait for
the driver log, while receivers register.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from penstock.continuous import ContinuousOperation
from penstock.runtime.clock import Clock
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.tracker.errors import LedgerError, LedgerWriteError
from penstock.tracker.ledger.places import CONTINUOUS, ConsumerStatus, Places, Retention
from penstock.wire import Peer
from penstock.wire.messages import (
    BlocksAt,
    CommitPlace,
    EndAt,
    Failure,
    FindEnd,
    FindStream,
    ListBlocks,
    Message,
    Ok,
    Refused,
    StreamAt,
)

# `Backlogs`: streams whose queries do not keep up let nothing pass until one has.
#
# What no query has read yet is in the logs, and would fill the disk. So a stream may have a
# bound: once that many bytes are unread, its receiver is paused, as by hand, and `store` waits. It
# goes on when a quarter of them is read, is released, or is needed by no one any more.
#
# What must hold:
#
# - *Nothing goes because of it.* It only keeps more from coming.
# - *It ends.* Spark commits a batch when it begins the next one, and there is none while nothing
#   comes. So a consumer has read all before the place at which it asks for more, though what it has
#   not committed yet stays for it.
# - *A late consumer holds no one up.* What was stored before it does not count for it.
# - What was on its way when the bound was reached is still taken, so the bound is passed by as much
#   as a receiver has in hand.

_GOES_ON = 0.75
"""The part of the bound below which a stream goes on, so that it does not stop and go with each
block."""


@dataclass(frozen=True)
class Bound:
    """What a stream may have unread.

    Attributes:
        name: Its name.
        size_bytes: With this much its receiver waits.
        retention: Its retention.
    """

    name: str
    size_bytes: int
    retention: Retention

    @property
    def is_retention_enough(self) -> bool:
        """Whether the retention bounds what is kept while no one reads it."""
        return self.retention.size_bytes is not None and self.retention.time_ms != 0


class Backlogs:
    """Compares what is unread of streams with their bounds. Safe to use from any thread.

    `_lock` guards what is known here, and orders the calls of `hold`.

    Args:
        places: The ledger's.
        bounds: The streams that have one, by number.
        hold: Lets nothing of a stream pass, or lets it go on; must not block.
        clock: Time.
    """

    def __init__(
        self,
        places: Places,
        bounds: Mapping[int, Bound],
        hold: Callable[[int, bool], None],
        clock: Clock,
    ) -> None:
        self._places = places
        self._bounds = dict(bounds)
        self._hold = hold
        self._lock = threading.Lock()
        self._reached: dict[int, dict[str, int]] = {stream_id: {} for stream_id in bounds}
        self._held: set[int] = set()
        self._limited_log = RateLimitedLog(_log, clock)

    def reached(self, stream_id: int, consumer: str, place: int) -> None:
        """Take note that what is before a place counts for a consumer no more.

        It has read that and asks for more, or that was stored before it came.
        """
        if stream_id not in self._bounds:
            return
        with self._lock:
            known = self._reached[stream_id]
            known[consumer] = max(place, known.get(consumer, 0))
        self.check(stream_id)

    def is_held(self, stream_id: int) -> bool:
        """Whether a stream waits for its consumers."""
        with self._lock:
            return stream_id in self._held

    def check(self, stream_id: int | None = None) -> None:
        """Stop streams that are at their bounds, and let those go on that no longer are.

        Args:
            stream_id: One of them; None: all.
        """
        for found in self._bounds:
            if stream_id is None or found == stream_id:
                with self._lock:
                    self._check(found)

    def _check(self, stream_id: int) -> None:
        bound = self._bounds[stream_id]
        size, slowest = self._places.unread(stream_id, self._reached[stream_id])
        if not slowest and bound.is_retention_enough:
            size = 0
        is_held = stream_id in self._held
        if not is_held and size >= bound.size_bytes:
            self._held.add(stream_id)
            self._hold(stream_id, True)
            who = (
                "its continuous function or sink does not keep up, or is no part of this program "
                "(dropConsumer forgets it)"
                if slowest == CONTINUOUS
                else f"consumer {slowest} does not keep up (start its query, or forget it with "
                "dropConsumer)"
                if slowest
                else "no query reads it"
            )
            self._limited_log.log(
                f"stream {bound.name} has {size} unread bytes, and its maxBacklog is "
                f"{bound.size_bytes}: its receiver waits until some of them are read; {who}",
                about=stream_id,
            )
        elif is_held and size <= bound.size_bytes * _GOES_ON:
            self._held.discard(stream_id)
            self._hold(stream_id, False)
            self._limited_log.log(
                f"stream {bound.name} goes on: {size} bytes of it are unread",
                about=stream_id,
                level=logging.INFO,
            )

    def forget_all_but(self, stream_id: int, consumers: set[str]) -> None:
        """Forget how far consumers that are gone came."""
        with self._lock:
            known = self._reached.get(stream_id, {})
            for consumer in known.keys() - consumers:
                del known[consumer]


PLACE_MESSAGES = (FindStream, FindEnd, ListBlocks, CommitPlace)

_BLOCKS_PER_ANSWER = 1000
_BYTES_PER_ANSWER = 1 << 20
"""Approximate size of an answer, well below the limit of a frame."""

_UNCOMMITTED_S = 600.0
"""After this long without a connection a consumer that has asked for no batch is reported. No one
here can know whether Spark has logged its first batch, so it is kept like any other."""

_SEEN_S = 600.0
"""How often the ledger notes that a consumer is connected, even if it commits nothing."""

_RETURN_S = 86_400.0
"""How long a restarted host waits for consumers that expired while it was down."""

_log = logging.getLogger("penstock.tracker")


@dataclass(frozen=True)
class KeptStreamSettings:
    """A stream that is read by places, as the program has it.

    Attributes:
        name: Its name.
        retention: How long its blocks stay that all consumers have passed.
        consumer_timeout_s: After this long without a commit or a connection a consumer is
            forgotten; None: never.
        schema: The serialised Arrow schema that its receiver declares, or None.
        max_backlog_bytes: With that many unread bytes its receiver waits; None: it does not.
        continuous: What its blocks are given to as they come, if anything is.
    """

    name: str
    retention: Retention
    consumer_timeout_s: float | None = None
    schema: bytes | None = None
    max_backlog_bytes: int | None = None
    continuous: ContinuousOperation | None = None


class PlaceService:
    """Answers, and knows which consumers are connected.

    Calls come on the thread of the endpoint, one at a time, except `sweep`; `_lock` guards who is
    connected.

    Attributes:
        backlogs: Has receivers wait whose streams are not read quickly enough.
    """

    def __init__(
        self,
        places: Places,
        streams: Mapping[int, KeptStreamSettings],
        *,
        clock: Clock,
        servers: Callable[[], Mapping[str, tuple[str, int]]],
        parallelism: Callable[[], int],
        hold: Callable[[int, bool], None] = lambda stream_id, is_held: None,
    ) -> None:
        """Make it.

        Args:
            places: The ledger's.
            streams: The streams by number.
            clock: Time.
            servers: Returns the addresses of the block servers by host.
            parallelism: Returns how many tasks run at a time beside the receivers.
            hold: Lets nothing of a stream pass, or lets it go on; must not block.
        """
        self._places = places
        self.backlogs = Backlogs(
            places,
            {
                stream_id: Bound(found.name, found.max_backlog_bytes, found.retention)
                for stream_id, found in streams.items()
                if found.max_backlog_bytes is not None
            },
            hold,
            clock,
        )
        self._streams = dict(streams)
        self._clock = clock
        self._servers = servers
        self._parallelism = parallelism
        self._lock = threading.Lock()
        self._connected: dict[Peer | None, set[tuple[int, str]]] = {}
        self._last_seen_s: dict[tuple[int, str], float] = {}
        self._started_s = clock.monotonic_s()
        self._failures: dict[int, str] = {}
        # Only the thread that sweeps has this.
        self._told: set[tuple[int, str]] = set()

    def answer(self, peer: Peer | None, message: Message) -> Message:
        """Return the answer to one of `PLACE_MESSAGES`.

        Args:
            peer: The asker; None: a part of this process.
            message: The question.
        """
        try:
            if isinstance(message, FindStream):
                return self._find_stream(message)
            if not isinstance(message, (FindEnd, ListBlocks, CommitPlace)):
                return Refused(f"{type(message).__name__} is not about places")
            epoch = self._places.stream(message.stream_id).epoch
            if epoch != message.epoch:
                return Refused(
                    f"stream {message.stream_id} of this ledger is {epoch}, and {message.epoch} "
                    "is asked for: that one was in another folder, or was removed"
                )
            self._note(peer, message.stream_id, message.consumer)
            if isinstance(message, FindEnd):
                return self._find_end(message)
            if isinstance(message, ListBlocks):
                return self._list_blocks(message)
            if not message.consumer:
                return Refused("a place is committed for a consumer, and none is named")
            self._places.commit(message.stream_id, message.consumer, message.place)
            return Ok()
        except LedgerWriteError as error:
            return Failure(str(error))
        except LedgerError as error:
            return Refused(str(error))

    def attach(self, consumer: str, stream_ids: Iterable[int]) -> None:
        """Take a consumer that is part of this program as connected to its end.

        What is kept of a stream stays for it from now on, but counts for no bound.

        Raises:
            LedgerWriteError: The driver log did not take it.
        """
        for stream_id in stream_ids:
            stream = self._places.stream(stream_id)
            if self._places.hold(stream_id, consumer, stream.first):
                self.backlogs.reached(stream_id, consumer, stream.next)
            with self._lock:
                self._connected.setdefault(None, set()).add((stream_id, consumer))

    def fail(self, stream_id: int, reason: str) -> None:
        """Refuse requests for more of a stream than is kept: its receiver was given up."""
        with self._lock:
            self._failures[stream_id] = reason

    def disconnected(self, peer: Peer) -> None:
        """Take note that a connection is gone."""
        with self._lock:
            gone = self._connected.pop(peer, set())
            now_s = self._clock.monotonic_s()
            self._last_seen_s.update(dict.fromkeys(gone, now_s))

    def sweep(self) -> None:
        """Forget consumers that never came back.

        Raises:
            LedgerWriteError: The driver log did not take it; it is tried again.
        """
        now_s = self._clock.monotonic_s()
        for stream_id, settings in self._streams.items():
            seen: list[str] = []
            forgotten: list[tuple[ConsumerStatus, float]] = []
            consumers = self._places.stream(stream_id).consumers
            names = {found.consumer for found in consumers}
            self._forget_all_but(stream_id, names)
            self.backlogs.forget_all_but(stream_id, names)
            patience_s = settings.consumer_timeout_s
            for found in consumers:
                is_connected, seen_s = self._seen((stream_id, found.consumer), now_s)
                silent_s = now_s - (self._started_s if seen_s is None else seen_s)
                idle_s = (self._clock.time_ms() - found.at_ms) / 1000
                if seen_s is not None and idle_s - silent_s >= _SEEN_S:
                    seen.append(found.consumer)
                    continue
                if is_connected:
                    continue
                if not found.is_committed and silent_s >= _UNCOMMITTED_S:
                    self._tell_of_one_without_a_batch(stream_id, settings, found)
                if patience_s is None or silent_s < min(patience_s, _RETURN_S):
                    continue
                # By the ledger, so that hosts that are started again and again also forget.
                if idle_s < patience_s:
                    continue
                forgotten.append((found, max(silent_s, idle_s)))
            self._places.note_seen(stream_id, seen)
            self._places.drop(stream_id, [found.consumer for found, _ in forgotten])
            for found, silent_s in forgotten:
                _log.warning(
                    "consumer %s of stream %s, at place %d and %d records behind, is forgotten: "
                    "nothing was heard of it for %.0f s",
                    found.consumer,
                    settings.name,
                    found.place,
                    found.records_behind,
                    silent_s,
                )

    def read_before(self, stream_id: int) -> int | None:
        """Return the place before which no connected consumer reads again; None: there is none."""
        with self._lock:
            connected = {key for found in self._connected.values() for key in found}
        return min(
            (
                found.place
                for found in self._places.stream(stream_id).consumers
                if (stream_id, found.consumer) in connected
            ),
            default=None,
        )

    def retentions(self) -> dict[int, Retention]:
        """Return the retention of each stream."""
        return {stream_id: found.retention for stream_id, found in self._streams.items()}

    def _tell_of_one_without_a_batch(
        self, stream_id: int, settings: KeptStreamSettings, found: ConsumerStatus
    ) -> None:
        if (stream_id, found.consumer) in self._told:
            return
        self._told.add((stream_id, found.consumer))
        _log.warning(
            "consumer %s of stream %s has begun at place %d, and has asked for no batch: its query "
            "may have ended at its start. What comes from there on is kept for it until it is "
            "dropped (host.dropConsumer) or forgotten (consumerTimeout)",
            found.consumer,
            settings.name,
            found.place,
        )

    def _forget_all_but(self, stream_id: int, consumers: Collection[str]) -> None:
        self._told = {key for key in self._told if key[0] != stream_id or key[1] in consumers}
        with self._lock:
            for key in list(self._last_seen_s):
                if key[0] == stream_id and key[1] not in consumers:
                    del self._last_seen_s[key]

    def _seen(self, key: tuple[int, str], now_s: float) -> tuple[bool, float | None]:
        """Return whether a consumer is connected, and when it last was; None: not in this run."""
        with self._lock:
            if any(key in found for found in self._connected.values()):
                return True, now_s
            return False, self._last_seen_s.get(key)

    def _note(self, peer: Peer | None, stream_id: int, consumer: str) -> None:
        if not consumer:
            return
        with self._lock:
            self._last_seen_s[stream_id, consumer] = self._clock.monotonic_s()
            if peer is not None and peer.is_connected:
                self._connected.setdefault(peer, set()).add((stream_id, consumer))

    def _find_stream(self, message: FindStream) -> Message:
        numbers = {found.name: number for number, found in self._streams.items()}
        stream_id = numbers.get(message.name)
        if stream_id is None:
            names = ", ".join(sorted(found.name for found in self._streams.values()))
            return Refused(f"there is no stream {message.name!r}; the host has {names}")
        settings = self._streams[stream_id]
        place = None
        if message.from_ms is not None:
            # Before the rest, which then says what was released until now.
            place = self._places.place_at(stream_id, message.from_ms)
        found = self._places.stream(stream_id)
        kind, schema = "arrow", settings.schema
        if schema is None:
            kind, schema = self._places.columns(stream_id)
        with self._lock:
            failure = self._failures.get(stream_id)
        if not kind and failure is not None:
            # Without that `load()` would wait for a first record, and ask for a schema.
            return Refused(f"nothing of stream {message.name!r} will come: {failure}")
        return StreamAt(
            stream_id,
            found.epoch,
            found.first,
            found.next,
            kind,
            schema,
            self._parallelism(),
            place,
            found.released_ms,
        )

    def _find_end(self, message: FindEnd) -> Message:
        places, stream_id = self._places, message.stream_id
        if message.consumer and message.start <= places.stream(stream_id).next:
            # Also if there is nothing yet: Spark logs a first batch without rows, and what comes
            # until the next question must not go with those who are quicker. Before the rest is
            # looked at, so that what is answered stays.
            is_new = places.hold(stream_id, message.consumer, message.start)
            counts_from = places.stream(stream_id).next if is_new else message.start
            self.backlogs.reached(stream_id, message.consumer, counts_from)
        end = places.end_of(
            stream_id, message.start, message.until, message.max_records, message.max_bytes
        )
        found = places.stream(stream_id)
        with self._lock:
            failure = self._failures.get(stream_id)
        if message.consumer and end <= message.start:
            if failure is not None:
                name = self._streams[stream_id].name
                return Refused(f"nothing more of stream {name!r} will come: {failure}")
            # Without that a query would wait for ever for blocks that the ledger refuses.
            places.check_more_can_come()
        return EndAt(
            max(end, message.start),
            places.records_before(stream_id, max(end, message.start)),
            found.first,
            found.next,
            places.records_before(stream_id, found.first),
            found.records,
            places.records_before(stream_id, message.start)
            if found.first <= message.start <= found.next
            else None,
        )

    def _list_blocks(self, message: ListBlocks) -> Message:
        if message.phantom:
            self._places.drop(message.stream_id, [message.phantom])
        stream = self._places.stream(message.stream_id)
        batch = message.start if message.batch is None else message.batch
        if message.consumer:
            # What is before it was processed; but where Spark logs progress asynchronously, it
            # may come back to an earlier place. It says itself when it will not.
            self._places.confirm(message.stream_id, message.consumer, min(batch, stream.next))
        start = max(message.start, stream.first)
        end = min(message.end, start + _BLOCKS_PER_ANSWER)
        first, blocks, times = self._places.between(message.stream_id, start, end)
        size, count = 0, 0
        for block in blocks:
            count += 1
            size += len(msgspec.msgpack.encode(block))
            if size >= _BYTES_PER_ANSWER:
                break
        return BlocksAt(first, blocks[:count], times[:count], dict(self._servers()))
