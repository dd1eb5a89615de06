"""`Control`: what the tracker does with the messages of receivers and block servers."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence

from penstock.files.addresses import is_shared
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.tracker.errors import LedgerError, LedgerLostError
from penstock.tracker.hosts.block_deletion import DiskRoom
from penstock.tracker.hosts.rereplication import LOOK_S, Rereplication
from penstock.tracker.ledger.received_block_tracker import AttemptRegistration, ReceivedBlockTracker
from penstock.tracker.receivers.receiver_tracking_info import Listeners, ReceiverState
from penstock.tracker.receivers.registry import Receivers, replaced
from penstock.tracker.receivers.slots import ReceiverSlot
from penstock.wire import Peer
from penstock.wire.addresses import address_text
from penstock.wire.messages import (
    AttemptEnded,
    BlocksCopied,
    BlockServerAt,
    BlockServerRegistered,
    CopiesAt,
    DeregisterReceiver,
    EnsureBlockServer,
    Failure,
    FindBlockServer,
    FindCopies,
    FindReplicaHost,
    LettersSent,
    LogsMissing,
    Message,
    Ok,
    ReceivedBlockInfo,
    Refused,
    RegisterBlockServer,
    Registered,
    RegisterReceiver,
    RegisterSlot,
    ReportAddresses,
    ReportDropped,
    ReportError,
    ReportFullLog,
    ReportRateStatus,
    SkippedBlock,
    SlowBlock,
    StopReceiver,
)

_log = logging.getLogger("penstock.tracker")

_SERVER_GRACE_S = 1.0
"""How long a block server may be away before another is started."""
_RECEIVER_GRACE_S = 1.0
"""How long a receiver may be away before it is logged: mostly its job has also ended."""

_SERVER_LOOK_S = 30.0
"""How long a receiver may take to start another, until it is asked again: one that was only stopped
may be killed later."""

_LOST_HOST_S = 5.0
"""How often a lost host is checked for new executors."""

_LATE_START_S = 20.0
_MOST_LATE_START_S = 600.0
"""How long after its start a receiver that has not registered is logged; the longest time until it
is logged again."""

_SKIPPED_REMEMBERED = 10_000
"""Blocks left out of batches that are remembered by id, so that each is counted once."""

_SLOW_REMEMBERED = 100
"""Slow blocks that are kept until they are fetched; beyond that, the oldest are dropped."""

_BATCHES_NAMED = 8
"""How many batches with missing blocks are named: the last ones; earlier ones may be complete."""


class Control:
    """Deals with everything but `AddBlock`; all calls come on the endpoint's control thread.

    Attributes:
        skipped_blocks: Blocks that batches left out because no host has them.
    """

    def __init__(
        self,
        ledger: ReceivedBlockTracker,
        receivers: Receivers,
        listeners: Listeners,
        *,
        is_started: Callable[[], bool],
        later: Callable[[float, Callable[[], None]], None],
        disk_room: DiskRoom,
        on_letters_sent: Callable[[LettersSent], None],
        slots: Mapping[int, ReceiverSlot],
        rereplication: Rereplication,
    ) -> None:
        """Make it.

        Args:
            ledger: The ledger.
            receivers: The table of receivers.
            listeners: Are notified of receivers.
            is_started: Whether the tracker runs and does not stop yet.
            later: Runs something on the control thread after some seconds.
            disk_room: Is notified of logs that run short of room.
            on_letters_sent: Is notified what became of letters that a receiver was to store again.
            slots: The slots that receivers share.
            rereplication: Has copies that were lost made again, on hosts that it names.
        """
        self._rereplication = rereplication
        self._ledger = ledger
        self._receivers = receivers
        self._replica_hosts = rereplication.replica_hosts
        self._block_servers = self._replica_hosts.servers
        self._listeners = listeners
        self._is_started = is_started
        self._later = later
        self._disk_room = disk_room
        self._on_letters_sent = on_letters_sent
        self._slots = slots
        self._limited_log = RateLimitedLog(_log)
        # Attempts already reported as out of reach.
        self._out_of_reach: set[str] = set()
        self._skipped: deque[str] = deque(maxlen=_SKIPPED_REMEMBERED)
        self.skipped_blocks = 0
        self.slow_blocks: deque[SlowBlock] = deque(maxlen=_SLOW_REMEMBERED)

    def on_control(self, peer: Peer, message: Message) -> Message:
        """Deal with a message and return the answer; on the control thread."""
        if isinstance(message, ReportRateStatus):
            if self._receivers.is_current(message):
                self._disk_room.take(message)
                self._listeners.rate_status(message)
            return Ok()
        if isinstance(message, ReportFullLog):
            if self._receivers.is_current(message):
                self._disk_room.take_full(message)
            return Ok()
        if isinstance(message, LettersSent):
            self._on_letters_sent(message)
            return Ok()
        if isinstance(message, ReportError):
            self._report_error(message)
            return Ok()
        if isinstance(message, ReportAddresses):
            self._listening(message)
            return Ok()
        if isinstance(message, ReportDropped):
            self._receivers.dropped(message)
            return Ok()
        if isinstance(message, DeregisterReceiver):
            self._deregister(message)
            return Ok()
        if isinstance(message, (RegisterSlot, AttemptEnded)):
            slot = self._slots.get(message.slot)
            if slot is None:
                return Refused(f"there is no slot {message.slot}")
            if isinstance(message, RegisterSlot):
                return slot.registered(peer, message)
            return slot.ended(message)
        if isinstance(message, RegisterBlockServer):
            # Its connection before may not be known to be gone: nothing comes of what went there.
            self._rereplication.gone(message.host)
            self._block_servers.register(peer, message)
            self._rereplication.registered(message.host)
            _log.info("block server of %s: %s", message.host, address_text(*message.address))
            return BlockServerRegistered(self._block_servers.lease_s)
        if isinstance(message, BlocksCopied):
            self._rereplication.copied(message)
            return Ok()
        if isinstance(message, LogsMissing):
            self._rereplication.missing(message)
            return Ok()
        if isinstance(message, FindBlockServer):
            address = self._block_servers.address(message.host)
            is_expected = self._receivers.peer_on(message.host) is not None
            return BlockServerAt(
                address, is_expected or self._replica_hosts.is_expected(message.host)
            )
        if isinstance(message, FindCopies):
            block = self._ledger.find_block(message.stream_id, message.block_id)
            return CopiesAt(() if block is None else block.replicas)
        if isinstance(message, FindReplicaHost):
            self._rereplication.look_soon()
            return self._replica_hosts.find(message)
        if isinstance(message, SkippedBlock):
            return self._skip(message)
        if isinstance(message, SlowBlock):
            return self._slow(message)
        return Refused(f"{type(message).__name__} is not for the tracker")

    def register(self, receivers: Sequence[tuple[Peer, RegisterReceiver]]) -> list[Message]:
        """Register receivers, with one record of the driver log; the answer of each, in order."""
        answers: list[Message | None] = [self._refused(message) for _, message in receivers]
        wanted = [
            message
            for (_, message), answer in zip(receivers, answers, strict=True)
            if answer is None
        ]
        found = iter(
            self._ledger.register_attempts(
                [(one.stream_id, one.attempt, one.host, one.log) for one in wanted]
            )
        )
        return [
            self._registered(peer, message, next(found)) if answer is None else answer
            for (peer, message), answer in zip(receivers, answers, strict=True)
        ]

    def _refused(self, message: RegisterReceiver) -> Refused | None:
        refusal = self._refusal(message)
        if refusal is None:
            return None
        # One that comes during a stop is no news.
        level = logging.WARNING if self._is_started() else logging.INFO
        _log.log(level, "refused a receiver: %s", refusal)
        return Refused(refusal)

    def _registered(
        self,
        peer: Peer,
        message: RegisterReceiver,
        registration: AttemptRegistration | LedgerError,
    ) -> Message:
        if isinstance(registration, LedgerLostError):
            return Refused(str(registration))
        if isinstance(registration, LedgerError):
            # A log that is full now may have space later.
            return Failure(str(registration))
        registered = self._receivers.register(peer, message)
        if registered is None:
            return Refused(replaced(message))
        info, new, rates = registered
        if not self._is_started():
            # It came just when the receivers were asked to stop, and would never hear of it.
            peer.send(StopReceiver())
        elif self._block_servers.is_lost(message.host) or not (
            new or self._block_servers.is_served(message.host)
        ):
            # It died while no receiver was there to start another, and may be forgotten since.
            peer.send(EnsureBlockServer())
        if message.attempt in self._out_of_reach:
            self._out_of_reach.discard(message.attempt)
            _log.warning("receiver %d is connected again", message.stream_id)
        if new:
            _log.info("Registered receiver %d from %s", message.stream_id, message.host)
            self._listeners.started(info)
            self._replica_hosts.look()
        first, position = registration.first_block_number, registration.last_position
        if rates is None:
            return Registered(first, position, None, splits=registration.splits)
        return Registered(
            first,
            position,
            rates.records_per_second,
            rates.bytes_per_second,
            rates.version,
            rates.is_paused,
            rates.taken_over_version,
            registration.splits,
        )

    def _refusal(self, message: RegisterReceiver) -> str | None:
        if not self._is_started():
            return f"the tracker stops, so receiver {message.stream_id} may not start"
        return self._receivers.refusal(message)

    def _deregister(self, message: DeregisterReceiver) -> None:
        told = self._receivers.infos().get(message.stream_id)
        info = self._receivers.deregister(message)
        if info is None:
            return
        is_told = told is not None and message.error and told.last_error == message.error
        if message.expected or is_told or not self._is_started():
            _log.info("Receiver %d stopped: %s", message.stream_id, message.message)
        else:
            self._limited_log.log(
                f"Receiver {message.stream_id} stopped: {message.message}",
                about=message.stream_id,
                trace=message.error,
            )
        self._listeners.stopped(info)

    def _listening(self, message: ReportAddresses) -> None:
        info = self._receivers.listening(message)
        if info is not None:
            where = ", ".join(info.addresses) or "no address any more"
            _log.info("Receiver %s listens at %s", info.name, where)

    def _report_error(self, message: ReportError) -> None:
        info = self._receivers.report_error(message)
        if info is None:
            return
        if not message.permanent:
            self._limited_log.log(
                f"Receiver {message.stream_id}: {message.message}",
                about=message.stream_id,
                trace=_trace_of(message),
            )
        self._listeners.error(info)
        if message.permanent:
            self._listeners.gave_up(message.stream_id, message.message, message.error)

    def _skip(self, message: SkippedBlock) -> Message:
        if not self._receivers.is_known(message.stream_id):
            return Refused(f"stream {message.stream_id} has no receiver")
        # A batch may read its blocks several times.
        if message.block_id not in self._skipped:
            self._skipped.append(message.block_id)
            self.skipped_blocks += 1
            text = f"A batch goes on without block {message.block_id}, which is lost"
            _log.warning("%s: %s", text, message.reason)
            self._listeners.error(
                self._receivers.keep_error(message.stream_id, text, message.reason)
            )
        return Ok()

    def _slow(self, message: SlowBlock) -> Message:
        if not self._receivers.is_known(message.stream_id):
            return Refused(f"stream {message.stream_id} has no receiver")
        self.slow_blocks.append(message)
        if message.is_waiting:
            text = (
                f"A task on {message.host} waits for block {message.block_id}, whose host is away, "
                f"for {message.seconds:.1f} s now ({message.tried})"
            )
        else:
            text = (
                f"A task on {message.host} took {message.seconds:.1f} s to read block "
                f"{message.block_id}"
            )
        self._limited_log.log(text, like="block waited for" if message.is_waiting else "slow block")
        return Ok()

    def on_peer_gone(self, peer: Peer) -> None:
        """Deal with the end of a connection; on the control thread."""
        gone = self._receivers.disconnected(peer)
        if gone is not None:
            attempt, is_over = gone
            if is_over:
                self._ledger.end_attempt(attempt)
            elif self._is_started():
                self._later(_RECEIVER_GRACE_S, lambda: self._tell_of_silence(attempt))
            return
        if any(slot.disconnected(peer) for slot in self._slots.values()):
            return
        host = self._block_servers.disconnected(peer)
        if host is not None:
            self._rereplication.gone(host)
        if host is not None and self._is_started():
            # It may only have lost its connection; give it a moment to come back.
            self._later(_SERVER_GRACE_S, lambda: self._replace_block_server(host))

    def _replace_block_server(self, host: str, asked: int = 0) -> None:
        if self._block_servers.is_served(host) or not self._is_started():
            return
        peer = self._receivers.peer_on(host)
        if peer is None:
            _log.warning(
                "the block server of %s is gone; no receiver there can start one%s",
                host,
                what_is_there(self._ledger.blocks_on(host), self._block_servers.served()),
            )
            self._serve_again(host)
            return
        if not asked:
            _log.warning("the block server of %s is gone; a receiver there starts another", host)
        elif asked == 1:
            _log.warning(
                "the block server of %s has not come back for %g s, and there is no other: is its "
                "process stopped? What only that host has is read on others once it goes on, or "
                "is killed",
                host,
                _SERVER_LOOK_S,
            )
        peer.send(EnsureBlockServer())
        self._later(_SERVER_LOOK_S, lambda: self._replace_block_server(host, asked + 1))

    def _serve_again(self, host: str) -> None:
        """Have a task start a block server on a host with neither one nor a receiver, once it can.

        The logs of a host that was cut off are still there when it is back. So executors on it are
        looked for again and again, until it alone has nothing that a batch may need.
        """
        if self._block_servers.is_served(host) or not self._is_started():
            return
        self._replica_hosts.look(host)
        served = self._block_servers.served()
        there = self._ledger.blocks_on(host).values()
        if not all(_is_readable(block, served) for blocks in there for block in blocks):
            self._later(_LOST_HOST_S, lambda: self._serve_again(host))

    def watch_hosts(self) -> None:
        """Forget hosts, and have copies made again, regularly from now on."""
        self._later(LOOK_S, self._look_at_hosts)

    def _look_at_hosts(self) -> None:
        if self._is_started():
            try:
                self._rereplication.look()
            finally:
                self.watch_hosts()

    def watch_starts(
        self, before: frozenset[tuple[int, str]] = frozenset(), pause_s: float = 0.0
    ) -> None:
        """Log receivers that do not start: of their records nothing else is to be seen.

        Args:
            before: Streams and attempts that had not started when it was looked last.
            pause_s: How long ago that was.
        """
        if not self._is_started():
            return
        infos = self._receivers.infos()
        waiting = frozenset(
            (stream_id, info.attempt)
            for stream_id, info in infos.items()
            if info.state is ReceiverState.SCHEDULED
        )
        late = sorted(stream_id for stream_id, _ in waiting & before)
        if late:
            _log.warning(
                "%d of %d receivers have waited for more than %g s to start (streams %s): each "
                "needs a free core of Spark, and a Python that has imported what it needs",
                len(late),
                len(infos),
                pause_s,
                ", ".join(map(str, late)),
            )
        pause_s = min(2 * pause_s, _MOST_LATE_START_S) if late else _LATE_START_S
        self._later(pause_s, lambda: self.watch_starts(waiting, pause_s))

    def _tell_of_silence(self, attempt: str) -> None:
        info = self._receivers.unreachable(attempt)
        if info is None or not self._is_started():
            return
        # Attempts on hosts that are gone for good never come back.
        self._out_of_reach &= {one.attempt for one in self._receivers.infos().values()}
        self._out_of_reach.add(attempt)
        where = info.running.host if info.running is not None else "an unknown host"
        _log.warning(
            "receiver %d on %s is out of reach: what it stores is not acknowledged until it "
            "connects again; if Spark gives up its executor, it is started elsewhere",
            info.stream_id,
            where,
        )


def what_is_there(
    blocks: Mapping[int | None, Sequence[ReceivedBlockInfo]], served: Container[str] = ()
) -> str:
    """Describe the blocks of batches that cannot be read from other hosts.

    Those can be read that are on HDFS, or also on a host that is served.

    Args:
        blocks: What is on the host that is gone, by batch.
        served: Hosts whose block servers are connected.
    """
    parts = []
    for batch, found in sorted(blocks.items(), key=lambda item: (item[0] is None, item[0] or 0)):
        where = "waiting for a batch" if batch is None else f"of the batch of {batch} ms"
        ids = [block.block_id for block in found if not _is_readable(block, served)]
        if not ids:
            continue
        named = ids[0] if len(ids) == 1 else f"{ids[0]} to {ids[-1]}"
        parts.append(f"{len(ids)} {where} ({named})")
    if not parts:
        return ""
    more = f" and {len(parts) - _BATCHES_NAMED} batches more" if len(parts) > _BATCHES_NAMED else ""
    return (
        ". Until it is back, other hosts cannot read its blocks: "
        + ", ".join(parts[-_BATCHES_NAMED:])
        + more
    )


def _is_readable(block: ReceivedBlockInfo, served: Container[str]) -> bool:
    is_everywhere = block.segment is not None and is_shared(block.segment.folder)
    return is_everywhere or any(host in served for host in block.hosts)


def _trace_of(message: ReportError) -> str:
    """Return the error's text, empty where it has no stack and the message says all of it."""
    kind, _, says = message.error.strip().partition(": ")
    has_stack = kind.startswith("Traceback")
    return message.error if has_stack or not says or says not in message.message else ""
