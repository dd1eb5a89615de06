"""`PlaceService`: what the tracker answers to those who read streams by places.

It has a thread of its own, ``penstock-places``, because an answer may hold many blocks, or wait for
the driver log, while receivers register.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import msgspec

from penstock.clock import Clock
from penstock.tracker._backlog import Backlogs, Bound
from penstock.tracker.errors import LedgerError, LedgerWriteError
from penstock.tracker.places import ConsumerStatus, Places, Retention
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

PLACE_MESSAGES = (FindStream, FindEnd, ListBlocks, CommitPlace)

_BLOCKS_PER_ANSWER = 1000
_BYTES_PER_ANSWER = 1 << 20
"""Approximate size of an answer, well below the limit of a frame."""

_UNCOMMITTED_S = 600.0
"""After so long without a connection a consumer that has asked for no batch is told of. Whether
Spark has logged its first batch nobody here can know, so it is kept as every other."""

_SEEN_S = 600.0
"""How often the ledger notes that a consumer is there, even if it commits nothing."""

_RETURN_S = 86_400.0
"""How long a restarted host waits for consumers that expired while it was down."""

_log = logging.getLogger("penstock.tracker")


@dataclass(frozen=True)
class KeptStreamSettings:
    """A stream that is read by places, as the program has it.

    Attributes:
        name: Its name.
        retention: How long its blocks stay that all consumers have passed.
        consumer_timeout_s: After so long without a commit or a connection a consumer is forgotten;
            None: never.
        schema: The serialised Arrow schema that its receiver declares, or None.
        max_backlog_bytes: With so many unread bytes its receiver waits; None: it does not.
    """

    name: str
    retention: Retention
    consumer_timeout_s: float | None = None
    schema: bytes | None = None
    max_backlog_bytes: int | None = None


class PlaceService:
    """Answers, and knows which consumers are connected.

    Calls come on the thread of the endpoint, one at a time, except `sweep`; `_lock` guards who is
    connected.

    Attributes:
        backlogs: Has receivers wait whose streams nobody reads quickly enough.
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
        self._connected: dict[Peer, set[tuple[int, str]]] = {}
        self._last_seen_s: dict[tuple[int, str], float] = {}
        self._started_s = clock.monotonic_s()
        self._failures: dict[int, str] = {}
        # Only the thread that sweeps has this.
        self._told: set[tuple[int, str]] = set()

    def answer(self, peer: Peer | None, message: Message) -> Message:
        """Return the answer to one of `PLACE_MESSAGES`.

        Args:
            peer: Who asks; None: somebody in this process.
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

    def fail(self, stream_id: int, reason: str) -> None:
        """Refuse who asks for more of a stream than is there: its receiver was given up."""
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
                # By the ledger, so that hosts that are started again and again forget, too.
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
        """Return the place before which no connected consumer reads again; None: none is there."""
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
            # Before the rest, which then tells what was released until now.
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
            # What lies before it was processed; but where Spark logs progress asynchronously, it
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
