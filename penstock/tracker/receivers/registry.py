"""`Receivers`: the driver's table of receivers, and every change of it, under one lock."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.runtime.clock import Clock
from penstock.tracker.cluster import ExecutorLocation, HostLocation, TaskLocation
from penstock.tracker.receivers.receiver_tracking_info import ReceiverState, ReceiverTrackingInfo
from penstock.wire import Peer
from penstock.wire.messages import (
    CleanupOldBlocks,
    DeregisterReceiver,
    Message,
    RegisterReceiver,
    ReportAddresses,
    ReportDropped,
    ReportError,
    ReportFullLog,
    ReportRateStatus,
    RestartReceiver,
    SealBlock,
    StopReceiver,
    UpdateRateLimit,
)

MAXIMUM_BOUNCES = 3
"""Consecutive misplaced starts before any host is accepted."""

_REMEMBERED_CLEANUPS = 64
"""How many of the last clean-ups are sent again to a receiver that has reconnected."""


@dataclass(frozen=True)
class Rates:
    """The rates of a receiver, as they are sent to it.

    Attributes:
        records_per_second: None is no limit.
        bytes_per_second: None is no limit.
        version: Grows with each change, from 1.
        is_paused: Whether nothing is to pass at all.
        taken_over_version: Version of the last rates by which a pause of the receiver's own was
            taken over.
    """

    records_per_second: float | None
    bytes_per_second: float | None
    version: int
    is_paused: bool = False
    taken_over_version: int = 0


@dataclass
class _Entry:
    info: ReceiverTrackingInfo
    preferred: str | None
    peer: Peer | None = None
    rate: Rates | None = None
    is_paused: bool = False
    is_held: bool = False
    bounces: int = 0
    bounced: bool = False
    moves: bool = False
    permanent: bool = False
    job_over: bool = False
    ever_registered: bool = False
    cleanups: deque[CleanupOldBlocks] = field(
        default_factory=lambda: deque(maxlen=_REMEMBERED_CLEANUPS)
    )


@dataclass(frozen=True)
class Ended:
    """What the end of a receiver's job meant.

    Attributes:
        info: The receiver now.
        was_active: It had not deregistered.
        bounced: The tracker had refused this attempt because of its place.
        permanent: It must not be started again.
        registered: This attempt had registered.
        disconnected: Its connection is also gone, so nothing of it can arrive any more.
        moves: It was asked to end, to be started again at once.
    """

    info: ReceiverTrackingInfo
    was_active: bool
    bounced: bool
    permanent: bool
    registered: bool
    disconnected: bool
    moves: bool


class Receivers:
    """All receivers of an application, by stream. Safe to use from any thread; never blocks."""

    def __init__(
        self,
        receivers: Mapping[int, tuple[str, str | None]],
        clock: Clock,
        *,
        is_local: bool,
        first_rates: tuple[float | None, float | None] = (None, None),
    ) -> None:
        """Make the table.

        Args:
            receivers: Name of the stream and preferred location of each receiver.
            clock: Says when errors happened.
            is_local: All places are the same.
            first_rates: Records and bytes per second that a receiver has before it gets any.
        """
        self._clock = clock
        self._is_local = is_local
        self._first_rates = first_rates
        self._lock = threading.Lock()
        # Also those of attempts that were replaced: something may still arrive on them.
        self._connections: dict[Peer, tuple[int, str]] = {}
        self._entries = {
            stream_id: _Entry(
                # One name for one thing: that of the stream, where there is one.
                ReceiverTrackingInfo(stream_id, name=f"{name}-{stream_id}" if name else ""),
                preferred,
            )
            for stream_id, (name, preferred) in receivers.items()
        }

    # -- questions -----------------------------------------------------------------------------

    def infos(self) -> dict[int, ReceiverTrackingInfo]:
        """Return all receivers by stream."""
        with self._lock:
            return {stream_id: entry.info for stream_id, entry in self._entries.items()}

    def address(self, stream_id: int) -> tuple[str, int] | None:
        """Return where the receiver's connection comes from; None while there is none."""
        with self._lock:
            peer = self._entries[stream_id].peer
            return None if peer is None else peer.address

    def is_known(self, stream_id: int) -> bool:
        """Whether the stream has a receiver."""
        return stream_id in self._entries

    def preferred(self, stream_id: int) -> str | None:
        """Return the receiver's preferred location."""
        return self._entries[stream_id].preferred

    def active_peers(self) -> list[Peer]:
        """Return the connections of the receivers that registered and are connected."""
        with self._lock:
            return [entry.peer for entry in self._entries.values() if entry.peer is not None]

    def peer_on(self, host: str) -> Peer | None:
        """Return the connection of a living receiver on the host, if there is one."""
        with self._lock:
            for entry in self._entries.values():
                running = entry.info.running
                active = entry.info.state is ReceiverState.ACTIVE
                if active and entry.peer is not None and running and running.host == host:
                    return entry.peer
        return None

    def on_executors(self, executors: Collection[str]) -> list[ReceiverTrackingInfo]:
        """Return the receivers that run on some executors, and were not asked to move."""
        with self._lock:
            return [
                entry.info
                for entry in self._entries.values()
                if entry.info.state is ReceiverState.ACTIVE
                and not entry.moves
                and entry.info.running is not None
                and entry.info.running.executor_id in executors
            ]

    def hosts(self) -> frozenset[str]:
        """Return the hosts on which receivers run, or are about to."""
        found: set[str] = set()
        with self._lock:
            for entry in self._entries.values():
                info = entry.info
                if info.state is ReceiverState.SCHEDULED:
                    found.update(place.host for place in info.scheduled_locations[:1])
                elif info.running is not None and entry.peer is not None:
                    found.add(info.running.host)
        return frozenset(found)

    def unreachable(self, attempt: str) -> ReceiverTrackingInfo | None:
        """Return the receiver of an attempt that should be connected and is not."""
        with self._lock:
            for entry in self._entries.values():
                active = entry.info.state is ReceiverState.ACTIVE
                if entry.info.attempt == attempt and active and entry.peer is None:
                    return entry.info
        return None

    # -- launching -----------------------------------------------------------------------------

    def schedule(
        self, stream_id: int, attempt: str, locations: tuple[TaskLocation, ...]
    ) -> ReceiverTrackingInfo:
        """Take note that a job for a new attempt is about to be submitted."""
        with self._lock:
            entry = self._entries[stream_id]
            entry.info = entry.info.schedule(attempt, locations)
            entry.peer = None
            entry.bounced = entry.moves = False
            entry.job_over = False
            entry.ever_registered = False
            entry.cleanups.clear()
            return entry.info

    def job_ended(self, stream_id: int, attempt: str) -> Ended:
        """Take note that the attempt's job is over."""
        with self._lock:
            entry = self._entries[stream_id]
            was_active = entry.info.state is ReceiverState.ACTIVE
            entry.info = entry.info.job_ended()
            entry.job_over = True
            return Ended(
                entry.info,
                was_active,
                entry.bounced,
                entry.permanent,
                entry.ever_registered,
                (stream_id, attempt) not in self._connections.values(),
                entry.moves,
            )

    # -- messages ------------------------------------------------------------------------------

    def refusal(self, message: RegisterReceiver) -> str | None:
        """Return why this receiver may not register now, or None when it may."""
        with self._lock:
            entry = self._entries.get(message.stream_id)
            if entry is None:
                return f"stream {message.stream_id} has no receiver"
            info = entry.info
            if message.attempt != info.attempt:
                return replaced(message)
            misplaced = info.state is ReceiverState.SCHEDULED and not self._is_acceptable(
                info, message
            )
            if misplaced and entry.bounces < MAXIMUM_BOUNCES:
                entry.bounces += 1
                entry.bounced = True
                places = ", ".join(str(place) for place in info.scheduled_locations)
                return (
                    f"receiver {message.stream_id} runs on executor {message.executor_id} of "
                    f"{message.host}, but it should run on {places}"
                )
            return None

    def _is_acceptable(self, info: ReceiverTrackingInfo, message: RegisterReceiver) -> bool:
        if self._is_local or not info.scheduled_locations:
            return True
        return any(
            message.host == place.host
            if isinstance(place, HostLocation)
            # A worker that does not know its executor's id says "driver": then the host must do.
            else message.executor_id == place.executor_id
            or (message.executor_id == "driver" and message.host == place.host)
            for place in info.scheduled_locations
        )

    def register(
        self, peer: Peer, message: RegisterReceiver
    ) -> tuple[ReceiverTrackingInfo, bool, Rates | None] | None:
        """Make the receiver ACTIVE, with `peer` as its connection.

        Returns:
            The receiver, whether it is new (not a mere reconnect), and the rates in force; None
            when another attempt was launched since it was asked for a `refusal`, or none is to be.
        """
        with self._lock:
            entry = self._entries[message.stream_id]
            if entry.info.attempt != message.attempt:
                return None
            new = entry.info.state is not ReceiverState.ACTIVE
            name = entry.info.name or f"{message.receiver_type}-{message.stream_id}"
            running = ExecutorLocation(message.host, message.executor_id)
            entry.info = entry.info.register(name, running)
            entry.peer = peer
            self._connections[peer] = (message.stream_id, message.attempt)
            entry.bounces = 0
            entry.ever_registered = True
            # What was on its way when the connection broke may be lost. Cleaning twice is free.
            again = list(entry.cleanups) if not new else []
            rate = entry.rate
        for cleanup in again:
            peer.send(cleanup, can_wait=True)
        return entry.info, new, rate

    def report_error(self, message: ReportError) -> ReceiverTrackingInfo | None:
        """Keep a receiver's error; None when it is of an attempt of long ago."""
        with self._lock:
            entry = self._entries.get(message.stream_id)
            if entry is None or entry.info.attempt != message.attempt:
                return None
            entry.permanent = entry.permanent or message.permanent
            entry.info = entry.info.report_error(
                message.message, message.error, self._clock.time_ms()
            )
            return entry.info

    def listening(self, message: ReportAddresses) -> ReceiverTrackingInfo | None:
        """Keep where a receiver listens; None when it is not the active one, or it is no news."""
        with self._lock:
            entry = self._entries.get(message.stream_id)
            if (
                entry is None
                or entry.info.attempt != message.attempt
                or entry.info.state is not ReceiverState.ACTIVE
                or entry.info.addresses == message.addresses
            ):
                return None
            entry.info = replace(entry.info, addresses=message.addresses)
            return entry.info

    def dropped(self, message: ReportDropped) -> None:
        """Keep how many records an attempt has dropped, if it is the one that was launched last."""
        with self._lock:
            entry = self._entries.get(message.stream_id)
            if entry is not None and entry.info.attempt == message.attempt:
                entry.info = entry.info.report_dropped(message.records)

    def keep_error(self, stream_id: int, text: str, error: str) -> ReceiverTrackingInfo:
        """Keep an error that the driver itself has seen."""
        with self._lock:
            entry = self._entries[stream_id]
            entry.info = entry.info.report_error(text, error, self._clock.time_ms())
            return entry.info

    def deregister(self, message: DeregisterReceiver) -> ReceiverTrackingInfo | None:
        """Make the receiver INACTIVE; None when it is not the one that is active or scheduled."""
        with self._lock:
            entry = self._entries.get(message.stream_id)
            if (
                entry is None
                or entry.info.attempt != message.attempt
                or entry.info.state is ReceiverState.INACTIVE
            ):
                return None
            entry.info = entry.info.deregister(
                message.message, message.error, self._clock.time_ms()
            )
            return entry.info

    def disconnected(self, peer: Peer) -> tuple[str, bool] | None:
        """Take note that a connection is gone.

        Returns:
            The attempt it belonged to and whether its job is over too; None for other peers.
        """
        with self._lock:
            known = self._connections.pop(peer, None)
            if known is None:
                return None
            stream_id, attempt = known
            entry = self._entries[stream_id]
            if entry.peer is peer:
                entry.peer = None
            is_over = entry.info.attempt != attempt or entry.job_over
            return attempt, is_over and known not in self._connections.values()

    # -- to receivers --------------------------------------------------------------------------

    def update_rate(
        self,
        stream_id: int,
        records_per_second: float | None,
        bytes_per_second: float | None,
        *,
        is_paused: bool = False,
        takes_over: bool = False,
    ) -> int:
        """Remember rates for receivers that start later and send them to the running one.

        Args:
            stream_id: The stream.
            records_per_second: None is no limit.
            bytes_per_second: None is no limit.
            is_paused: Whether nothing is to pass at all.
            takes_over: Whether this pause is one of the receiver's own, which was heard of.

        Returns:
            The version of the rates; 0 when there is no such stream.
        """
        with self._lock:
            entry = self._entries.get(stream_id)
            if entry is None:
                return 0
            entry.is_paused = is_paused
            rates = records_per_second, bytes_per_second
            return self._set_rates(stream_id, entry, *rates, takes_over=takes_over)

    def hold(self, stream_id: int, is_held: bool) -> None:
        """Let nothing of a stream pass, whatever its rates are, or let it go on with them."""
        with self._lock:
            entry = self._entries.get(stream_id)
            if entry is None or entry.is_held == is_held:
                return
            entry.is_held = is_held
            known = entry.rate
            rates = (
                self._first_rates
                if known is None
                else (known.records_per_second, known.bytes_per_second)
            )
            self._set_rates(stream_id, entry, *rates)

    def _set_rates(
        self,
        stream_id: int,
        entry: _Entry,
        records: float | None,
        in_bytes: float | None,
        *,
        takes_over: bool = False,
    ) -> int:
        known = entry.rate
        version = 1 if known is None else known.version + 1
        taken_over = 0 if known is None else known.taken_over_version
        entry.rate = rates = Rates(
            records,
            in_bytes,
            version,
            entry.is_paused or entry.is_held,
            version if takes_over else taken_over,
        )
        if entry.peer is not None:
            # It does not wait for the network.
            entry.peer.send(
                UpdateRateLimit(
                    *(stream_id, records, in_bytes, version),
                    is_paused=rates.is_paused,
                    taken_over_version=rates.taken_over_version,
                )
            )
        return version

    def restart(self, stream_id: int, reason: str) -> bool:
        """Have a receiver stop and start again in its process; False when none is connected."""
        return self.send(stream_id, RestartReceiver(reason))

    def move(self, stream_id: int, timeout_s: float) -> bool:
        """Have an attempt end within a time, to be started again; False when none is connected."""
        with self._lock:
            entry = self._entries[stream_id]
            if entry.job_over:
                return False
            entry.moves = True
            peer = entry.peer
        if peer is None:
            return False
        peer.send(StopReceiver(timeout_s=timeout_s))
        return True

    def park(self, stream_id: int) -> bool:
        """Take nothing of a receiver's last attempt any more, if that does not run; else False.

        One that starts can register no more, and is started again when its job is over.
        """
        with self._lock:
            entry = self._entries[stream_id]
            if entry.info.state is ReceiverState.ACTIVE:
                return False
            entry.moves = True
            entry.info = replace(entry.info, attempt="")
            return True

    def connected(self) -> set[int]:
        """Return the streams with an attempt that has a connection."""
        with self._lock:
            return self._connected()

    def _connected(self) -> set[int]:
        return {stream_id for stream_id, _ in self._connections.values()}

    def starting(self) -> dict[int, str]:
        """Return by stream the attempts that have not registered, where no other is connected."""
        with self._lock:
            connected = self._connected()
            return {
                stream_id: entry.info.attempt
                for stream_id, entry in self._entries.items()
                if entry.info.state is ReceiverState.SCHEDULED and stream_id not in connected
            }

    def seal(self, stream_id: int) -> bool:
        """Have a receiver seal its open block; False when none is connected."""
        return self.send(stream_id, SealBlock())

    def send(self, stream_id: int, message: Message) -> bool:
        """Send a message to a stream's receiver; False when none is connected."""
        with self._lock:
            entry = self._entries.get(stream_id)
            peer = None if entry is None else entry.peer
        if peer is None:
            return False
        peer.send(message)
        return True

    def is_current(self, message: ReportRateStatus | ReportFullLog) -> bool:
        """Return whether a report comes from the attempt that was launched last."""
        with self._lock:
            entry = self._entries.get(message.stream_id)
            return entry is not None and entry.info.attempt == message.attempt

    def clean_up(
        self,
        stream_id: int,
        attempt: str,
        messages: Sequence[CleanupOldBlocks],
        *,
        is_kept: bool = True,
    ) -> None:
        """Send clean-ups to a living attempt.

        Args:
            stream_id: Its stream.
            attempt: The attempt; nothing is sent when another one lives.
            messages: What may go.
            is_kept: Whether they are sent later if it is not connected now.
        """
        with self._lock:
            entry = self._entries.get(stream_id)
            if entry is None or entry.info.attempt != attempt:
                return
            if is_kept:
                entry.cleanups.extend(messages)
            peer = entry.peer
        if peer is not None:
            for message in messages:
                peer.send(message, can_wait=True)

    def deactivate_all(self) -> list[ReceiverTrackingInfo]:
        """Make all receivers INACTIVE; return those that had not deregistered."""
        left = []
        with self._lock:
            for entry in self._entries.values():
                if entry.info.state is not ReceiverState.INACTIVE:
                    entry.info = entry.info.job_ended()
                    left.append(entry.info)
                entry.peer = None
        return left


def replaced(message: RegisterReceiver) -> str:
    """Say why an attempt that is not the receiver's own any more may not register."""
    return (
        f"attempt {message.attempt} is not the one that was launched last for stream "
        f"{message.stream_id}"
    )
