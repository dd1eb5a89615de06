"""A client's state: its life, what it tells of itself, and the asks that have no answer yet."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

from penstock.errors import IllegalStateError
from penstock.wire.messages import Message


class ClientState(enum.Enum):
    """Where a client stands."""

    NEW = "not connected yet"
    CONNECTING = "not connected, trying"
    GREETING = "connected, saying hello again"
    READY = "connected"
    CLOSED = "closed"

    def to(self, state: ClientState) -> ClientState:
        """Return `state` if it may follow this one; a closed client may be closed again.

        Raises:
            IllegalStateError: It may not.
        """
        if state not in _NEXT[self]:
            raise IllegalStateError(f"a client cannot go from {self} to {state}")
        return state


_NEXT = {
    ClientState.NEW: {ClientState.CONNECTING, ClientState.CLOSED},
    ClientState.CONNECTING: {ClientState.GREETING, ClientState.READY, ClientState.CLOSED},
    ClientState.GREETING: {ClientState.READY, ClientState.CONNECTING, ClientState.CLOSED},
    ClientState.READY: {ClientState.CONNECTING, ClientState.CLOSED},
    ClientState.CLOSED: {ClientState.CLOSED},
}


@dataclass(frozen=True)
class ClientStatistics:
    """How a client does.

    Attributes:
        state: Where it stands.
        connections: How often it was connected and authenticated.
        unanswered: Asks that wait for their answer now.
    """

    state: ClientState
    connections: int
    unanswered: int


class Ask:
    """One ask: its frame, to be sent again if need be, and the future of its answer."""

    __slots__ = ("ask_id", "deadline_s", "frame", "future", "message", "timeout_s")

    def __init__(
        self, ask_id: int, message: Message, frame: bytes, timeout_s: float, deadline_s: float
    ) -> None:
        self.ask_id = ask_id
        self.message = message
        self.frame = frame
        self.timeout_s = timeout_s
        self.deadline_s = deadline_s
        self.future: Future[Message] = Future()
        self.future.set_running_or_notify_cancel()


class UnansweredAsks:
    """Asks in the order in which they were made, each with a deadline. Belongs to one thread."""

    def __init__(self) -> None:
        self._asks: dict[int, Ask] = {}

    def __len__(self) -> int:
        return len(self._asks)

    def __iter__(self) -> Iterator[Ask]:
        return iter(self._asks.values())

    def add(self, ask: Ask) -> None:
        """Add the newest."""
        self._asks[ask.ask_id] = ask

    def pop(self, ask_id: int) -> Ask | None:
        """Take the one that is answered now; None when there is none."""
        return self._asks.pop(ask_id, None)

    def expire(self, now_s: float) -> list[Ask]:
        """Take those whose deadline has come."""
        late = [ask for ask in self._asks.values() if ask.deadline_s <= now_s]
        for ask in late:
            del self._asks[ask.ask_id]
        return late

    def next_deadline_s(self) -> float | None:
        """Return the earliest deadline, None when there is no ask."""
        return min((ask.deadline_s for ask in self._asks.values()), default=None)

    def clear(self) -> list[Ask]:
        """Take all."""
        asks = list(self._asks.values())
        self._asks.clear()
        return asks
