"""`Rereplication`: has copies of blocks made again where a host that had them is gone, or will go.

What must hold:

- *A host is lost* when its block server has been away for the lease, and *will go* when Spark says
  so of its executors. A block that is then on fewer other hosts than its storage level asks for is
  copied from one that has it to one that lacks it, by their block servers (`CopyBlocks`).
- *Log before act.* A new place is in the driver log before anyone hears of it. It takes the place
  of a copy on a lost host; the receiver's own place stays, for that is where what the receiver left
  is deleted when the host is back. A copy that is not needed any more when it is there goes.
- *A host that is back has what it says*. Its block server is asked whether the logs are there that
  the ledger knows on it (`CheckLogs`); blocks of others are not on it any more.
- *Bounded.* A round looks at `_LOOKED_AT` blocks and has `_ROUND` of them copied, the oldest first;
  each host copies some at a time (`_BLOCKS`, `_BYTES`), and has `_ASK_S` for it. What failed is
  tried `_TRIES` times, a host that took none is passed over for `_PASSED_OVER_S`, and after
  `_ROUNDS` rounds in vain it waits until the hosts change, or a receiver looks for one.
- *Hosts that are gone are forgotten*: when the ledger no longer names them, and nothing is to be
  deleted on them; what is to be deleted is given up after a day.

All of it is done on the tracker's control thread. Blocks of streams whose level asks for one copy,
and logs that all hosts share, need none of it.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from penstock.blockstore.process_log import log_of
from penstock.runtime.clock import Clock
from penstock.tracker.errors import LedgerWriteError
from penstock.tracker.hosts.replica_hosts import ReplicaHosts
from penstock.tracker.ledger.received_block_tracker import ReceivedBlockTracker
from penstock.wire.messages import (
    BlocksCopied,
    CheckLogs,
    CopyBlocks,
    FindReplicaHost,
    LogsMissing,
    ReceivedBlockInfo,
    ReplicaPlace,
)

_log = logging.getLogger("penstock.tracker")

LOOK_S = 2.0
"""How often `Rereplication.look` is to be called."""

_LOOKED_AT = 50_000
_ROUND = 1024
_BLOCKS = 64
_BYTES = 32 << 20
_TRIES = 3
_ROUNDS = 3
_PASSED_OVER_S = 60.0
_ASK_S = 180.0
"""A block server answers after a minute and one block more, if its disk does."""
_LOOK_AGAIN_S = 10.0
"""How often hosts without a block server are looked at for executors."""


@dataclass(frozen=True)
class _Ask:
    """What a host was asked to copy, and where to."""

    number: int
    host: str
    blocks: tuple[ReceivedBlockInfo, ...]
    end_s: float


def _own_log(block: ReceivedBlockInfo) -> str:
    """Return the log in which the receiver's host has a block; empty: it is in memory only."""
    return "" if block.segment is None else log_of(block.segment.folder)


def _places(block: ReceivedBlockInfo) -> Iterator[tuple[str, str]]:
    """Yield each host of a block with the log that has it there."""
    yield block.host, _own_log(block)
    for copy in block.replicas:
        yield copy.host, log_of(copy.segment.folder)


class Rereplication:
    """For the control thread.

    Args:
        ledger: The ledger.
        replica_hosts: Names hosts for copies.
        levels: Of the streams whose blocks have copies: on how many hosts each is to be.
        is_encrypted: Whether receivers' logs are: then what is in memory, in clear, goes nowhere.
        clock: Time.
    """

    def __init__(
        self,
        ledger: ReceivedBlockTracker,
        replica_hosts: ReplicaHosts,
        *,
        levels: Mapping[int, int],
        is_encrypted: bool,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self.replica_hosts = replica_hosts
        self._servers = replica_hosts.servers
        self._levels = levels
        self._is_encrypted = is_encrypted
        self._clock = clock
        self._numbers = itertools.count(1)
        # Hosts of the ledger without a server, and since when.
        self._away: dict[str, float] = {}
        self._look_s = -math.inf
        self._leftovers_s = -math.inf
        self._served: frozenset[str] = frozenset()
        self._lost: frozenset[str] = frozenset()
        self._unfit: frozenset[str] = frozenset()
        # What hosts should have and do not.
        self._missing: dict[str, frozenset[str]] = {}
        # Of all blocks those that were not looked at yet, while that is under way.
        self._unseen: Iterator[ReceivedBlockInfo] | None = None
        self._found = 0
        self._failed = 0
        # By the host that copies them.
        self._waiting: dict[str, deque[ReceivedBlockInfo]] = {}
        self._asks: dict[str, _Ask] = {}
        self._tries: Counter[str] = Counter()
        self._passed_over: dict[str, float] = {}
        self._next_s = math.inf
        self._last_s = -math.inf
        self._vain_rounds = 0
        self._made_in_round = 0
        self._made: Counter[str] = Counter()
        self._reason = "no other host takes copies"

    def look(self) -> None:
        """See which hosts are up, and begin a round if it is time for one."""
        self._forget_hosts()
        now_s = self._clock.monotonic_s()
        self._serve_leftovers(now_s)
        if not self._levels:
            return
        self._see_hosts(now_s)
        self._end_late(now_s)
        if now_s >= self._next_s and not self._asks and len(self._served) > 1:
            self._begin(now_s)

    def look_soon(self) -> None:
        """Begin a round in a while: a receiver looks for a host, and has stored without a copy."""
        self._tries.clear()
        self._last_s = self._clock.monotonic_s() + _PASSED_OVER_S
        self._next_s = min(self._next_s, self._last_s)

    def _forget_hosts(self) -> None:
        gone = self._servers.gone()
        if not gone:
            return
        named = self._ledger.hosts()
        for host in gone:
            if host not in named:
                self._servers.forget(host)
                self._ledger.forget_host(host)

    def _serve_leftovers(self, now_s: float) -> None:
        """Have servers started where something is to be deleted: a host that is back may need none.

        Without one what released blocks have left there would stay.
        """
        if now_s >= self._leftovers_s:
            self._leftovers_s = now_s + _LOOK_AGAIN_S
            for host in self._servers.with_leftovers():
                self.replica_hosts.look(host)

    def _see_hosts(self, now_s: float) -> None:
        served = frozenset(self._servers.served())
        away = self._ledger.hosts() - served
        if away and now_s >= self._look_s:
            # One of a run before may have none in this one, but executors; one may be back.
            self._look_s = now_s + _LOOK_AGAIN_S
            for host in away:
                self.replica_hosts.look(host)
        self._away = {host: self._away.get(host, now_s) for host in away}
        lease_s = self._servers.lease_s
        self._lost = frozenset(host for host, at_s in self._away.items() if now_s - at_s >= lease_s)
        unfit = self._lost | self.replica_hosts.leaving
        if (served, unfit) != (self._served, self._unfit):
            self._served, self._unfit = served, unfit
            self._look_at_all(now_s)

    def _look_at_all(self, now_s: float) -> None:
        self._tries.clear()
        self._passed_over.clear()
        self._vain_rounds = 0
        self._unseen = None
        # Once more later: of what was stored meanwhile some may have found no host.
        self._next_s, self._last_s = now_s, now_s + _PASSED_OVER_S

    def registered(self, host: str) -> None:
        """Ask a host that has a block server (again) whether it has what the ledger says."""
        if folders := self._logs_on(host):
            self._servers.send(host, CheckLogs(tuple(sorted(folders))))
        else:
            self._missing.pop(host, None)

    def _logs_on(self, host: str) -> set[str]:
        return set(map(log_of, self._ledger.logs_on(host))) if self._levels else set()

    def missing(self, answer: LogsMissing) -> None:
        """Take note of what a host should have and does not; it is copied from others."""
        before = self._missing.pop(answer.host, frozenset())
        # Others were released since, and removed.
        if missing := self._logs_on(answer.host) & {*answer.folders}:
            _log.warning(
                "%s is back without %d of its logs: their blocks are copied again, from others",
                answer.host,
                len(missing),
            )
            self._missing[answer.host] = frozenset(missing)
        if before != missing:
            self._look_at_all(self._clock.monotonic_s())

    def _hosts_of(self, block: ReceivedBlockInfo) -> frozenset[str]:
        """Return the hosts that have the block, as far as they say so themselves."""
        missing = self._missing
        return frozenset(at for at, log in _places(block) if log not in missing.get(at, ()))

    def _end_late(self, now_s: float) -> None:
        """Wait no longer for a host that does not say what it has copied."""
        for source, ask in [*self._asks.items()]:
            if now_s >= ask.end_s:
                self._reason = f"{source} has not said in {_ASK_S:g} s what it has copied"
                self._tries.update(block.block_id for block in ask.blocks)
                self.gone(source)

    def _sources(self, block: ReceivedBlockInfo) -> list[str]:
        """Return the hosts that may copy a block; none, if it needs no copy."""
        hosts = self._hosts_of(block)
        if len(hosts - self._unfit) >= self._levels[block.stream_id]:
            return []
        return sorted(hosts & self._served)

    def _begin(self, now_s: float) -> None:
        """Begin a round: find blocks that are on too few hosts, and have them copied."""
        # Whatever becomes of this one.
        self._next_s = now_s + _PASSED_OVER_S
        self._waiting.clear()
        if self._unseen is None:
            self._unseen = iter(self._ledger.blocks(self._levels))
            self._found = self._failed = 0
        found = 0
        for looked_at, block in enumerate(self._unseen, start=1):
            sources = self._sources(block)
            # Since it was listed it may have been released.
            now = self._ledger.find_block(block.stream_id, block.block_id) if sources else None
            tries = self._tries[block.block_id]
            if now is not None and tries >= _TRIES:
                self._failed += 1
            elif now is not None and (sources := self._sources(now)):
                source = sources[(found + tries) % len(sources)]
                self._waiting.setdefault(source, deque()).append(now)
                found += 1
            if found == _ROUND or looked_at == _LOOKED_AT:
                break
        else:
            self._unseen = None
        self._found += found
        if found:
            if not self._made and not self._vain_rounds:
                lost = ", ".join(sorted(self._unfit)) or "no host"
                _log.info("blocks are copied again, %d or more; %s is gone or will go", found, lost)
            self._made_in_round = 0
            for source in [*self._waiting]:
                self._ask(source)
            self._end_if_over()
            return
        if self._unseen is not None or self._found:
            self._next_s = now_s
            return
        self._next_s = self._at_last(now_s)
        if self._made:
            _log.warning(
                "%d blocks have another copy again, on %s",
                sum(self._made.values()),
                ", ".join(sorted(self._made)),
            )
            self._made.clear()
        if self._failed:
            what = "blocks stay on fewer hosts than asked for"
            _log.warning("%d %s: %s", self._failed, what, self._reason)

    def _ask(self, source: str) -> None:
        """Have a host copy the next of its blocks."""
        waiting = self._waiting.get(source, deque())
        now_s = self._clock.monotonic_s()
        passed_over = [host for host, end_s in self._passed_over.items() if end_s > now_s]
        while waiting:
            first = waiting.popleft()
            unwanted = (*self._hosts_of(first), *self._unfit, *passed_over)
            found = self.replica_hosts.find(
                FindReplicaHost(first.stream_id, first.attempt, source, unwanted)
            )
            if found.host is None or found.address is None:
                continue
            blocks, size = [first], first.num_bytes
            while waiting and len(blocks) < _BLOCKS and size < _BYTES:
                if found.host in self._hosts_of(waiting[0]):
                    break
                blocks.append(waiting.popleft())
                size += blocks[-1].num_bytes
            ask = _Ask(next(self._numbers), found.host, tuple(blocks), now_s + _ASK_S)
            self._asks[source] = ask
            self._hold()
            there = tuple(self._as_on(source, block) for block in blocks)
            message = CopyBlocks(ask.number, found.host, found.address, there)
            if self._servers.send(source, message):
                return
            del self._asks[source]
            self._hold()
            break
        self._waiting.pop(source, None)

    def _as_on(self, host: str, block: ReceivedBlockInfo) -> ReceivedBlockInfo:
        replace = msgspec.structs.replace
        plain = replace(block, position=None, schema=None, replicas=())
        missing = self._missing.get(host, ())
        if host == block.host and _own_log(block) not in missing:
            return replace(plain, memory=None) if self._is_encrypted else plain
        copies = (one for one in block.replicas if one.host == host)
        copy = next(one for one in copies if log_of(one.segment.folder) not in missing)
        return replace(plain, host=host, sequence=copy.sequence, memory=None, segment=copy.segment)

    def _hold(self) -> None:
        asks = self._asks.values()
        self._ledger.hold_copies({(one.attempt, ask.host) for ask in asks for one in ask.blocks})

    def copied(self, answer: BlocksCopied) -> None:
        """Take what became of an ask; of one that is not known any more nothing is taken.

        (Its copies go with the attempt, like all that was reported to no one.)
        """
        found = [one for one in self._asks.items() if one[1].number == answer.request]
        if not found:
            return
        ((source, ask),) = found
        tried = [*zip(ask.blocks, answer.places, strict=False)]
        made = [(block, place) for block, place in tried if place is not None]
        self._tries.update(block.block_id for block, place in tried if place is None)
        if answer.reason:
            self._reason = answer.reason
        if answer.is_refused:
            self._passed_over[ask.host] = self._clock.monotonic_s() + _PASSED_OVER_S
        by_lost: dict[frozenset[str], list[tuple[ReceivedBlockInfo, ReplicaPlace]]] = {}
        for block, place in made:
            lost = self._lost | ({*block.hosts} - self._hosts_of(block))
            by_lost.setdefault(lost, []).append((block, place))
        try:
            for lost, copies in by_lost.items():
                for host, attempt in self._ledger.add_copies(copies, lost):
                    self._servers.release_copies(host, (attempt,), ())
            self._made_in_round += len(made)
            self._made[ask.host] += len(made)
        except LedgerWriteError as error:
            self._reason = str(error)
            self._tries.update(block.block_id for block, _ in made)
        self._over(source)

    def gone(self, host: str) -> None:
        """Take note that a host's server, or its connection, is gone, with what it was asked."""
        self._waiting.pop(host, None)
        if host in self._asks:
            self._over(host)

    def _over(self, source: str) -> None:
        del self._asks[source]
        self._hold()
        self._ask(source)
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._asks:
            return
        self._vain_rounds = 0 if self._made_in_round else self._vain_rounds + 1
        if self._made_in_round:
            _log.info("%d blocks have another copy again so far", sum(self._made.values()))
            self._next_s = self._clock.monotonic_s()
        elif self._vain_rounds < _ROUNDS:
            # At once with other hosts, then in a while with the same.
            pause_s = 0.0 if self._vain_rounds == 1 else _PASSED_OVER_S
            self._next_s = self._clock.monotonic_s() + pause_s
        else:
            self._next_s = self._at_last(self._clock.monotonic_s())
            # What is released meanwhile is not to stay in memory.
            self._unseen = None
            if self._vain_rounds == _ROUNDS:
                _log.warning("blocks stay on fewer hosts than asked for: %s", self._reason)

    def _at_last(self, now_s: float) -> float:
        """Return when it is looked once more although nothing comes of it now."""
        return self._last_s if self._last_s > now_s else math.inf
