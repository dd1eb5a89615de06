"""One connection, as both ends use it: first the handshake, then sealed frames until it ends.

It lives on one event loop and all its methods are called on it. Frames that are queued during one
turn of the loop go out in one write, and all frames that arrived together are handed over one after
the other, so that the cost per message is that of decoding it.

A connection ends exactly once, and says so exactly once (`ConnectionOwner.connection_closed`),
with the reason if there is one. Nothing that a peer does to its own connection reaches another.
"""

from __future__ import annotations

import asyncio
import enum
from typing import Any, Protocol, cast

import msgspec

from penstock.wire._authentication import ClientHandshake, HandshakeState, Seal, ServerHandshake
from penstock.wire._frames import HEARTBEAT_FRAME, FrameBuffer, Kind
from penstock.wire.addresses import address_text
from penstock.wire.errors import (
    AuthenticationError,
    ConnectionLostError,
    ProtocolError,
    WireError,
)
from penstock.wire.link import WireOptions
from penstock.wire.messages import Heartbeat, Message

_LEAST_BYTES_PER_S = 256 << 10
"""The slowest that a frame may arrive, beyond the time that silence is allowed anyway."""

_LINGER_S = 2.0
"""How long a connection that is being closed may take to send what is queued."""

_message_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(
    cast("type[Message]", Message)
)


def peer_text(address: object) -> str:
    """Return ``host:port`` of a socket address, for messages to people."""
    if isinstance(address, tuple) and len(address) >= 2:
        return address_text(str(address[0]), int(address[1]))
    return str(address) or "an unnamed peer"


class ConnectionState(enum.Enum):
    """The life of a connection; it only moves forward."""

    NEW = 0
    AUTHENTICATING = 1
    OPEN = 2
    CLOSING = 3
    CLOSED = 4


class ConnectionOwner(Protocol):
    """Notified of what happens on a connection (on the loop's thread)."""

    def connection_made(self, connection: Connection) -> None:
        """The transport stands; nothing is proved yet."""

    def connection_authenticated(self, connection: Connection) -> None:
        """Both ends know the secret; frames may be queued."""

    def frame_received(
        self, connection: Connection, ask_id: int, kind: Kind, message: Message
    ) -> None:
        """A whole message arrived (never a heartbeat)."""

    def connection_closed(self, connection: Connection, error: WireError | None) -> None:
        """It is over. `error` is None when this end closed it on purpose."""


class Connection(asyncio.BufferedProtocol):
    """A connection of either end."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        handshake: ClientHandshake | ServerHandshake,
        owner: ConnectionOwner,
        options: WireOptions,
        write_limit_bytes: int | None,
    ) -> None:
        """Make the protocol of one transport.

        Args:
            loop: The loop that everything here runs on.
            handshake: This end's half of the mutual challenge, unused.
            owner: Is notified what happens.
            options: The limits.
            write_limit_bytes: End the connection when more than this waits to be read by the
                peer; None when the owner bounds it in another way.
        """
        self.state = ConnectionState.NEW
        self.peer = "an unnamed peer"
        self.address: tuple[str, int] = ("", 0)
        self.pending_asks = 0
        """Asks of the peer that have no answer yet; kept by the owner."""
        self.context: Any = None
        """What the owner knows of this connection."""
        self._loop = loop
        self._handshake = handshake
        self._owner = owner
        self._options = options
        self._write_limit_bytes = write_limit_bytes
        self._transport: asyncio.Transport | None = None
        self._error: WireError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._frames = FrameBuffer(_message_decoder, options.max_frame_bytes, self.peer)
        self._seal: Seal | None = None
        self._queued: list[bytes] = []
        self._flush_scheduled = False
        self._reading_paused = False
        self._last_received_s = 0.0
        self._last_sent_s = 0.0
        # When the part of a frame that is here began to come; None while there is none.
        self._frame_began_s: float | None = None

    # -- called by the transport ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        self.peer = peer_text(name)
        if isinstance(name, tuple) and len(name) >= 2:
            self.address = (str(name[0]), int(name[1]))
        self._frames = FrameBuffer(_message_decoder, self._options.max_frame_bytes, self.peer)
        self.state = ConnectionState.AUTHENTICATING
        self._timer = self._loop.call_later(
            self._options.authentication_timeout_s, self._authentication_timed_out
        )
        opening = self._handshake.opening()
        if opening:
            self._transport.write(opening)
        self._owner.connection_made(self)

    def get_buffer(self, sizehint: int) -> bytearray:
        at_most = None
        if self.state is ConnectionState.AUTHENTICATING:
            at_most = self._handshake.expects - len(self._frames)
        # asyncio takes any writable buffer; the stub knows only bytearray.
        return cast("bytearray", self._frames.room(at_most))

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.filled(nbytes)
        if self.state is ConnectionState.OPEN:
            self._last_received_s = self._loop.time()
            self._hand_over_frames()
        elif (
            self.state is ConnectionState.AUTHENTICATING
            and len(self._frames) == self._handshake.expects
        ):
            self._continue_handshake()

    def eof_received(self) -> bool:
        # Half-open connections have no use here: let the transport close.
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self.state is ConnectionState.CLOSED:
            return
        unexpected = self.state is not ConnectionState.CLOSING
        self.state = ConnectionState.CLOSED
        if self._timer is not None:
            self._timer.cancel()
        self._queued.clear()
        error = self._error
        # With TLS the transport holds this, and the frames of an error hold both. Their buffers
        # would wait for the garbage collector.
        self._transport = self._error = None
        if unexpected and error is None:
            reason = f"broke ({exc})" if exc is not None else "was closed by the other end"
            error = ConnectionLostError(self.peer, f"the connection to {self.peer} {reason}")
            error.__cause__ = exc
        self._owner.connection_closed(self, error)

    # -- called by the owner -------------------------------------------------------------------

    def queue(self, frame: bytes) -> None:
        """Send a frame at the end of this turn of the loop. Without effect when not open."""
        if self.state is not ConnectionState.OPEN:
            return
        assert self._seal is not None
        self._queued.append(frame)
        self._queued.append(self._seal.tag(frame))
        if not self._flush_scheduled:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def unread_bytes(self) -> int:
        """Return how much is to be sent yet because the peer does not read it."""
        waiting = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return waiting + sum(map(len, self._queued))

    def close(self) -> None:
        """End it on purpose; what is queued still goes out if the peer takes it."""
        if self.state in (ConnectionState.CLOSING, ConnectionState.CLOSED):
            return
        self._flush()
        # The flush may have ended it: a slow reader.
        if self._transport is not None and self._error is None:
            self.state = ConnectionState.CLOSING
            self._transport.close()
            self._linger()

    def fail(self, error: WireError) -> None:
        """End it at once because of `error`."""
        if self.state is ConnectionState.CLOSED:
            return
        if self._error is None:
            self._error = error
        self.state = ConnectionState.CLOSING
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Take no more frames from the peer until `resume_reading`."""
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on, first with what was received before."""
        if not self._reading_paused or self.state is not ConnectionState.OPEN:
            return
        self._reading_paused = False
        # A pause is this end's doing, so the peer's silence is counted from now.
        self._last_received_s = self._loop.time()
        self._frame_began_s = None
        self._loop.call_soon(self._resume)

    # -- inside --------------------------------------------------------------------------------

    def _resume(self) -> None:
        if self.state is not ConnectionState.OPEN or self._reading_paused:
            return
        self._hand_over_frames()
        if self._transport is not None and not self._reading_paused:
            self._transport.resume_reading()

    def _continue_handshake(self) -> None:
        data = self._frames.take(self._handshake.expects)
        try:
            answer = self._handshake.receive(data)
        except AuthenticationError as error:
            self.fail(error)
            return
        if answer and self._transport is not None:
            self._transport.write(answer)
        if self._handshake.state is HandshakeState.REFUSED:
            self._error = AuthenticationError(self.peer, self._handshake.reason)
            self.state = ConnectionState.CLOSING
            if self._transport is not None:
                # Not abort: the peer should get the refusal.
                self._transport.close()
                self._linger()
        elif self._handshake.state is HandshakeState.ACCEPTED:
            self.state = ConnectionState.OPEN
            seals = self._handshake.seals()
            self._seal = seals.outgoing
            self._frames.opened_by(seals.incoming)
            self._last_received_s = self._last_sent_s = self._loop.time()
            self._schedule_beat()
            self._owner.connection_authenticated(self)

    def _linger(self) -> None:
        """Bound how long a closed connection waits for its peer to take the rest."""
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._timer = self._loop.call_later(_LINGER_S, self._transport.abort)

    def _authentication_timed_out(self) -> None:
        seconds = self._options.authentication_timeout_s
        self.fail(
            ConnectionLostError(
                self.peer, f"{self.peer} did not finish the authentication within {seconds:g} s"
            )
        )

    def _hand_over_frames(self) -> None:
        frames = self._frames
        owner = self._owner
        try:
            while self.state is ConnectionState.OPEN and not self._reading_paused:
                frame = frames.next_frame()
                if frame is None:
                    if not len(frames):
                        self._frame_began_s = None
                    elif self._frame_began_s is None:
                        self._frame_began_s = self._loop.time()
                    return
                self._frame_began_s = None
                ask_id, kind, message = frame
                if type(message) is not Heartbeat:
                    owner.frame_received(self, ask_id, kind, message)
        except WireError as error:
            self.fail(error)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if not self._queued or self._transport is None:
            return
        if self.state is not ConnectionState.OPEN:
            self._queued.clear()
            return
        self._transport.write(b"".join(self._queued))
        self._queued.clear()
        self._last_sent_s = self._loop.time()
        limit = self._write_limit_bytes
        if limit is not None and (waiting := self._transport.get_write_buffer_size()) > limit:
            self.fail(ProtocolError(self.peer, f"it leaves {waiting} bytes unread (limit {limit})"))

    def _schedule_beat(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        now, interval_s = self._loop.time(), self._options.heartbeat_interval_s
        due_s = self._last_sent_s + interval_s
        # One that is due now goes out at the end of this turn.
        self._timer = self._loop.call_at(due_s if due_s > now else now + interval_s, self._beat)

    def _beat(self) -> None:
        if self.state is not ConnectionState.OPEN:
            return
        now = self._loop.time()
        silent_s = now - self._last_received_s
        if silent_s > self._options.dead_after_s and not self._reading_paused:
            self.fail(
                ConnectionLostError(
                    self.peer, f"nothing came from {self.peer} for {silent_s:.1f} s"
                )
            )
            return
        if self._frame_began_s is not None and not self._reading_paused:
            # Its length is proved with the rest of it only. One that was forged would swallow all
            # that follows, heartbeats included, for as long as it says.
            length = self._frames.announced
            begun_s = now - self._frame_began_s
            if begun_s > self._options.dead_after_s + length / _LEAST_BYTES_PER_S:
                self.fail(
                    ConnectionLostError(
                        self.peer,
                        f"a frame of {length} bytes from {self.peer} was not whole after "
                        f"{begun_s:.1f} s",
                    )
                )
                return
        if now >= self._last_sent_s + self._options.heartbeat_interval_s:
            self.queue(HEARTBEAT_FRAME)
        self._schedule_beat()
