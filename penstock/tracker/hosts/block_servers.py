"""`BlockServers`: which block server serves which host's blocks, and what it is to delete."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.runtime.clock import Clock
from penstock.wire import Peer
from penstock.wire.messages import Message, RegisterBlockServer, ReleaseBlocks, StopBlockServer

_NAMES_PER_MESSAGE = 10_000
_GONE_S = 24 * 3600.0
"""A host without a server for so long is gone for good: what it had left to delete is given up."""


@dataclass
class _Host:
    address: tuple[str, int] | None = None
    peer: Peer | None = None
    lost_at_s: float = 0.0
    # Segments that no one was there to delete; attempts are named again by each clean-up, but not
    # those that only have copies here.
    is_named: bool = False
    segments: list[tuple[str, int]] = field(default_factory=list)
    attempts: list[str] = field(default_factory=list)
    memory: list[str] = field(default_factory=list)


class BlockServers:
    """The block servers by host. Safe to use from any thread; never blocks.

    Attributes:
        lease_s: What they are promised.
    """

    def __init__(self, lease_s: float, clock: Clock) -> None:
        self.lease_s = lease_s
        self._clock = clock
        self._lock = threading.Lock()
        self._hosts: dict[str, _Host] = {}
        self._ever: set[str] = set()

    def register(self, peer: Peer, message: RegisterBlockServer) -> None:
        """Take a server for its host's; it replaces the one before."""
        with self._lock:
            host = self._host(message.host)
            if len(self._ever) < 2:
                self._ever.add(message.host)
            host.address = message.address
            host.peer = peer
            host.is_named = False
            segments, host.segments = host.segments, []
            attempts, host.attempts = host.attempts, []
            memory, host.memory = host.memory, []
        _send(peer, attempts, segments, memory)

    def _host(self, name: str) -> _Host:
        return self._hosts.setdefault(name, _Host(lost_at_s=self._clock.monotonic_s()))

    def send(self, host: str, message: Message) -> bool:
        """Send a message to the host's server; return whether one is connected."""
        with self._lock:
            known = self._hosts.get(host)
            peer = None if known is None else known.peer
        if peer is not None:
            peer.send(message)
        return peer is not None

    def gone(self) -> list[str]:
        """Return hosts whose lease is over, and where nothing is to be deleted, or for too long."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            return [
                name
                for name, host in self._hosts.items()
                if host.peer is None
                and now_s - host.lost_at_s >= (_GONE_S if _is_left(host) else self.lease_s)
            ]

    def with_leftovers(self) -> list[str]:
        """Return hosts without a server where something is to be deleted."""
        with self._lock:
            return [
                name for name, host in self._hosts.items() if host.peer is None and _is_left(host)
            ]

    def owed(self) -> set[str]:
        """Return the attempts whose copies are to be deleted on hosts without a server."""
        with self._lock:
            return {name for host in self._hosts.values() for name in host.attempts}

    def forget(self, host: str) -> None:
        """Forget a host, unless a server is there again."""
        with self._lock:
            if host in self._hosts and self._hosts[host].peer is None:
                del self._hosts[host]

    def disconnected(self, peer: Peer) -> str | None:
        """Take note that a connection is gone; return the host that it served, if any."""
        with self._lock:
            for name, host in self._hosts.items():
                if host.peer is peer:
                    host.peer = None
                    host.lost_at_s = self._clock.monotonic_s()
                    return name
        return None

    def is_served(self, host: str) -> bool:
        """Whether a block server of the host is connected."""
        with self._lock:
            return host in self._hosts and self._hosts[host].peer is not None

    def is_lost(self, host: str) -> bool:
        """Whether the host had a block server and has none now."""
        with self._lock:
            known = self._hosts.get(host)
            return known is not None and known.address is not None and known.peer is None

    def address(self, host: str) -> tuple[str, int] | None:
        """Return the address of the host's server if it is connected."""
        with self._lock:
            known = self._hosts.get(host)
            return known.address if known is not None and known.peer is not None else None

    def served(self) -> dict[str, tuple[str, int]]:
        """Return the address of each host's server that is connected now."""
        with self._lock:
            return {
                name: host.address
                for name, host in self._hosts.items()
                if host.address is not None and host.peer is not None
            }

    def ever(self) -> frozenset[str]:
        """Return hosts that had a server once: two if there were more, so that none is alone."""
        with self._lock:
            return frozenset(self._ever)

    def addresses(self) -> dict[str, tuple[str, int]]:
        """Return the address of each host's server, also of one that is gone but has its lease."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            return {
                name: host.address
                for name, host in self._hosts.items()
                if host.address is not None
                and (host.peer is not None or now_s - host.lost_at_s < self.lease_s)
            }

    def release(
        self, host: str, attempts: Iterable[str], segments: Iterable[tuple[str, int]]
    ) -> bool:
        """Have what ended attempts left deleted; segments also later, when no one is there now.

        Returns:
            Whether it was sent.
        """
        names = tuple(attempts)
        with self._lock:
            known = self._host(host)
            peer = known.peer
            if peer is None:
                known.segments.extend(segments)
                known.is_named |= bool(names)
                return False
        _send(peer, names, segments)
        return True

    def release_memory(self, host: str, attempt: str) -> None:
        """Have the memory file of an ended attempt deleted, also later if no one is there now."""
        with self._lock:
            known = self._host(host)
            peer = known.peer
            if peer is None:
                known.memory.append(attempt)
                return
        _send(peer, (), (), (attempt,))

    def release_copies(
        self, host: str, attempts: Iterable[str], segments: Iterable[tuple[str, int]]
    ) -> None:
        """Have copies of other hosts' blocks deleted, also later when no one is there now."""
        wanted = tuple(attempts)
        if not self.release(host, wanted, segments):
            with self._lock:
                self._host(host).attempts.extend(wanted)

    def release_everywhere(self, attempts: Iterable[str]) -> None:
        """Have what these attempts left deleted, on whichever host that is."""
        with self._lock:
            peers = [host.peer for host in self._hosts.values() if host.peer is not None]
        names = tuple(attempts)
        for peer in peers:
            _send(peer, names, ())

    def stop(self, remove_files: bool) -> None:
        """Notify all servers that the application ends."""
        with self._lock:
            peers = [host.peer for host in self._hosts.values() if host.peer is not None]
        for peer in peers:
            peer.send(StopBlockServer(remove_files=remove_files))


def _is_left(host: _Host) -> bool:
    return bool(host.is_named or host.segments or host.attempts or host.memory)


def _send(
    peer: Peer,
    attempts: Iterable[str],
    segments: Iterable[tuple[str, int]],
    memory: Sequence[str] = (),
) -> None:
    if memory:
        peer.send(ReleaseBlocks((), (), tuple(memory)))
    names, places = tuple(attempts), tuple(segments)
    while names or places:
        peer.send(ReleaseBlocks(names[:_NAMES_PER_MESSAGE], places[:_NAMES_PER_MESSAGE]))
        names, places = names[_NAMES_PER_MESSAGE:], places[_NAMES_PER_MESSAGE:]
