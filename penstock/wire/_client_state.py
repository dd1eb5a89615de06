"""The life of a client, and what it tells of itself."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from penstock.errors import IllegalStateError

__all__ = ["ClientState", "ClientStatistics"]


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
