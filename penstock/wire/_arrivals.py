"""Accepting connections, and the bound of those that have proved nothing.

A peer that proves nothing costs a descriptor and some memory from the moment when it is accepted,
so that is where it is counted: before TLS, which asks more of it than the challenge does. When
there are too many, one has to go: the oldest of the host that has most of them. A peer of the
application needs a few milliseconds, or a second when its host is busy, and tries again; a crowd of
strangers must not keep it out until a time-out, nor cut it short.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterable

from penstock.errors import typed_text
from penstock.runtime.clock import SystemClock
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.wire._connection import peer_text

_logger = logging.getLogger("penstock.wire")

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 0.2
"""Pause in accepting when the process has no file descriptors left."""


class Arrival:
    """A connection that has proved nothing yet.

    Attributes:
        peer: Its address, for messages.
        host: The host of it.
        turn_away: Ends it; is given why. Anyone who takes the connection over replaces it.
        is_over: It was turned away.
    """

    __slots__ = ("_timer", "host", "is_over", "peer", "turn_away")

    def __init__(self, peer: str, host: str, turn_away: Callable[[str], None]) -> None:
        self.peer = peer
        self.host = host
        self.turn_away = turn_away
        self.is_over = False
        self._timer: asyncio.TimerHandle | None = None


class Arrivals:
    """Accepts connections of listening sockets; belongs to the thread of one event loop.

    Args:
        protocol: Makes the protocol of a connection, when the TLS of it stands if there is one. It
            has to call `remove` when the connection has proved itself, or is over.
        most: That many may prove themselves at one time.
        timeout_s: How long one may take, TLS included.
        refused: Is notified of a connection that ended before it had a protocol, and why.
        ssl_context: Makes each connection a TLS connection.
    """

    def __init__(
        self,
        protocol: Callable[[Arrival], asyncio.BaseProtocol],
        *,
        most: int,
        timeout_s: float,
        refused: Callable[[str, str], None],
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._protocol = protocol
        self._most = most
        self._timeout_s = timeout_s
        self._refused = refused
        self._ssl_context = ssl_context
        self._limited_log = RateLimitedLog(_logger, SystemClock())
        self._waiting: dict[Arrival, None] = {}  # the oldest first
        self._listeners: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def listen(self, listeners: Iterable[socket.socket]) -> None:
        """Accept connections of these sockets until `stop`, which closes them."""
        for listener in listeners:
            listener.setblocking(False)
            self._listeners.append(listener)
            self._start(asyncio.ensure_future(self._accept(listener)))

    async def stop(self) -> None:
        """Accept no more, and end those that have no protocol yet."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        for listener in self._listeners:
            listener.close()

    def remove(self, arrival: Arrival) -> None:
        """Say that it has proved itself or is over. May be called twice."""
        self._waiting.pop(arrival, None)
        if arrival._timer is not None:
            arrival._timer.cancel()
            arrival._timer = None

    def _start(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listener)
            except OSError as error:
                self._limited_log.log(f"a connection could not be accepted: {error.strerror}")
                # At least one turn of the loop for those already connected.
                await asyncio.sleep(_PAUSE_S if error.errno in _EXHAUSTED else 0)
                continue
            try:
                self._arrived(accepted, address)
            except Exception as error:  # noqa: BLE001  # the next one is accepted all the same
                accepted.close()
                self._refused(peer_text(address), typed_text(error))
            # A crowd that comes at once must not hold up those already connected.
            await asyncio.sleep(0)

    def _arrived(self, accepted: socket.socket, address: tuple[str, int]) -> None:
        loop = asyncio.get_running_loop()
        peer = peer_text(address)
        task: asyncio.Task[None]
        reasons: list[str] = []

        def turn_away(reason: str) -> None:
            reasons.append(reason)
            task.cancel()

        def over(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is None and not task.cancelled():
                return
            # No one has it: the transport, if it was made, has let go of it.
            accepted.close()
            self.remove(arrival)
            if error is not None:
                reasons.append(f"{type(error).__name__}: {error}")
                # Its frames hold the connection's buffers.
                error.with_traceback(None)
            if reasons:
                self._refused(peer, reasons[0])

        arrival = Arrival(peer, address[0], turn_away)
        if len(self._waiting) >= self._most:
            # Before it counts: any thread may look, and never finds more than there may be.
            self._make_room(arrival.host)
        task = asyncio.ensure_future(self._connect(arrival, accepted))
        task.add_done_callback(over)
        self._start(task)
        self._waiting[arrival] = None
        arrival._timer = loop.call_later(
            self._timeout_s,
            self._turn_away,
            arrival,
            f"{peer} did not finish the authentication within {self._timeout_s:g} s",
        )

    def _make_room(self, newcomer: str) -> None:
        counts = Counter(arrival.host for arrival in self._waiting)
        counts[newcomer] += 1
        # Among hosts with as many the one that has waited longest: it comes first in the counter.
        crowd = max(counts, key=counts.__getitem__)
        oldest = next(arrival for arrival in self._waiting if arrival.host == crowd)
        self._turn_away(oldest, f"{oldest.peer} made way for newer connections")

    def _turn_away(self, arrival: Arrival, reason: str) -> None:
        self.remove(arrival)
        arrival.is_over = True
        arrival.turn_away(reason)

    async def _connect(self, arrival: Arrival, accepted: socket.socket) -> None:
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: self._protocol(arrival),
            accepted,
            ssl=self._ssl_context,
            # Until it is turned away.
            ssl_handshake_timeout=2 * self._timeout_s if self._ssl_context else None,
        )
