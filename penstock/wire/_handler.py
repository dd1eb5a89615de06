"""What a server's owner writes, the handler, and what it is given: peers and promised answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from penstock.wire._connection import Connection, ConnectionState
from penstock.wire._frames import Kind, encode_frame
from penstock.wire.messages import Message

__all__ = ["Handler", "Peer", "PendingReply", "Reply"]


class PendingReply:
    """The promise of an answer: a handler returns it, `Server.resolve` keeps it, from any thread.

    It is far cheaper than a coroutine: many of them are resolved by one wake-up of the loop.
    """

    __slots__ = ("_ask_id", "_connection")

    def __init__(self) -> None:
        # Both are set on the loop's thread right after the handler returned, and read there.
        self._connection: Connection | None = None
        self._ask_id = 0


Reply = Message | PendingReply | Awaitable[Message | None] | None
"""What a handler may return. None and what it awaits to None: only for a send."""


class Handler(Protocol):
    """What a server does with messages. All methods are called on the server's thread."""

    def on_message(self, peer: Peer, message: Message) -> Reply:
        """Act on one message; must not block. Messages of one peer come in their order.

        May be an ``async def``. An ask must be answered with a message; whatever is raised
        becomes a `Failure` reply and a log line with its traceback, and the server lives on.
        """

    def on_disconnect(self, peer: Peer) -> None:
        """The peer is gone; called once for each peer from which a message may have come."""


class Peer:
    """An authenticated connection, as a handler sees it. Compared by identity."""

    def __init__(
        self,
        connection: Connection,
        call: Callable[[Callable[[], None]], None],
        max_frame_bytes: int,
    ) -> None:
        self._connection = connection
        self._call = call
        self._max_frame_bytes = max_frame_bytes

    @property
    def address(self) -> tuple[str, int]:
        """The other end's host and port."""
        return self._connection.address

    @property
    def is_connected(self) -> bool:
        """False once it has gone (or is about to)."""
        return self._connection.state is ConnectionState.OPEN

    def send(self, message: Message) -> None:
        """Send a message that is not answered. From any thread; in order; never blocks.

        It is lost without an error when the peer is gone or goes before it read it; the handler
        hears of that by `Handler.on_disconnect`.

        Raises:
            FrameTooLargeError: It is larger than a frame may be.
        """
        frame = encode_frame(
            message,
            Kind.SEND,
            limit_bytes=self._max_frame_bytes,
            peer=self._connection.peer,
        )
        connection = self._connection
        self._call(lambda: connection.queue(frame))

    def close(self) -> None:
        """End the connection once what was sent has gone out (bounded). From any thread."""
        self._call(self._connection.close)

    def __repr__(self) -> str:
        return f"<Peer {self._connection.peer}>"
