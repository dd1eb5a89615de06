"""`SyslogReceiver`: syslog over UDP, TCP and TLS, parsed to columns.

What must hold
--------------

* A message is a row: RFC 5424, or RFC 3164 as far as it says anything. What has no priority
  is a dead letter with its reason; so is one that is too large, or was cut by the end of its
  connection.
* The protocol has no acknowledgement. What the sender had handed over and was not durable when the
  process was killed is lost: what the kernel held, and the last block interval.
* While `store` waits nothing is read: connections make their senders wait, and the kernel drops
  datagrams, which is counted and reported. What is held of a connection is one message.
* A stop stores what has come, and then closes.

=============  ===================================================================================
`_messages`    messages: cut out of a stream, and read
=============  ===================================================================================
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import time
from datetime import datetime, timezone
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import as_count, refused
from penstock.errors import text_of
from penstock.receiver import bound_socket, ports_of
from penstock.sources._selecting import (
    Datagrams,
    SelectingReceiver,
    ServerTls,
    sender_text,
    set_receive_buffer,
)
from penstock.sources.syslog._messages import Frame, Frames, read_message
from penstock.wire.addresses import address_text

_AT_ONCE = 1024
_CHUNK = 64 << 10
_TURN = 16
"""Pieces that are read of one connection before others have their turn."""
_STEP_S = 1.0
_LAST_S = 2.0
_HANDSHAKE_S = 30.0
_MOST_DATAGRAM = 65_535

_TEXTS = ("hostname", "app_name", "procid", "msgid", "structured_data", "message")
SYSLOG_SCHEMA = pa.schema(
    [
        pa.field("facility", pa.int32(), nullable=False),
        pa.field("severity", pa.int32(), nullable=False),
        pa.field("time", pa.timestamp("us", "UTC")),
        *(pa.field(name, pa.string()) for name in _TEXTS),
        pa.field("peer", pa.string(), nullable=False),
    ]
)
"""The columns of a message."""
_NAMES = tuple(SYSLOG_SCHEMA.names)


class _Connection:
    """A peer that sends a stream."""

    def __init__(self, connection: socket.socket, peer: str, frames: Frames) -> None:
        self.socket = connection
        self.peer = peer
        self.frames = frames
        self.is_ready = not isinstance(connection, ssl.SSLSocket)
        self.began_s = time.monotonic()


class SyslogReceiver(SelectingReceiver):
    """Stores messages of syslog, RFC 5424 and RFC 3164, as rows.

    The columns are ``facility`` and ``severity`` (numbers), ``time`` (UTC), ``hostname``,
    ``app_name``, ``procid``, ``msgid``, ``structured_data`` (as it came), ``message``, and ``peer``
    (its sender); what a message does not say is null. What is not UTF-8 comes out as U+FFFD. What
    has no priority is no message of syslog, and a dead letter.

    Over TCP and TLS messages may be framed by their length or by line ends (RFC 6587), whichever
    the sender does. The protocol has no acknowledgement: what had come within the last block
    interval when the process was killed is lost, and over UDP what the kernel dropped, which is
    counted and reported.

    Args:
        udp: The UDP port: 0 for any, or a range such as ``"5140-5149"``, of which the first is
            taken that is free; None: none.
        tcp: The TCP port, likewise.
        tls: The port for TLS, likewise; it needs `certificate`.
        host: The address of the executor's host; ``"0.0.0.0"`` for all of them.
        certificate: The file of the server's certificate chain (PEM). It and the others are on the
            executor's host.
        privateKey: The file of its key, if that is another one.
        clientAuthorities: The file of those that must have signed a client's certificate.
        timezone: The zone of times of RFC 3164, such as ``"Europe/Berlin"``.
        maxMessage: Bytes of a message; a larger one is a dead letter with its first bytes.
        maxConnections: How many senders may be connected.
        receiveBuffer: Bytes of datagrams that the kernel is asked to hold.
        share: Whether several receivers of a host listen at the same ports (``SO_REUSEPORT``).
        storageLevel: Which copies of a block must exist.

    Raises:
        ValueError, TypeError: An argument is not accepted.
    """

    def __init__(
        self,
        *,
        udp: int | str | None = None,
        tcp: int | str | None = None,
        tls: int | str | None = None,
        host: str = "0.0.0.0",
        certificate: str | None = None,
        privateKey: str | None = None,
        clientAuthorities: str | None = None,
        timezone: str = "UTC",
        maxMessage: int = 64 << 10,
        maxConnections: int = 1000,
        receiveBuffer: int = 8 << 20,
        share: bool = False,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(storageLevel)
        ports = {"udp": udp, "tcp": tcp, "tls": tls}
        self.ports = {name: port for name, port in ports.items() if port is not None}
        if not self.ports:
            raise ValueError("a receiver of syslog needs a port: udp=, tcp= or tls=")
        for port in self.ports.values():
            ports_of(port)
        if (tls is None) != (certificate is None):
            raise ValueError("tls= and certificate= belong together")
        self.host, self.share = host, share
        self.certificates = ServerTls(certificate, privateKey, clientAuthorities)
        try:
            self.timezone = ZoneInfo(timezone)
        except ZoneInfoNotFoundError:
            accepted = "a time zone such as 'Europe/Berlin'"
            raise ValueError(refused("timezone", timezone, accepted)) from None
        self.maxMessage = as_count(maxMessage, "maxMessage", "bytes", least=480)
        self.maxConnections = as_count(maxConnections, "maxConnections", "connections", least=1)
        self.receiveBuffer = as_count(receiveBuffer, "receiveBuffer", "bytes", least=1)
        self.schema = SYSLOG_SCHEMA

    def _listen(self, selector: selectors.BaseSelector) -> None:
        context = self.certificates.context()
        with contextlib.ExitStack() as opened:
            listening = _Listening(self, selector, context)
            opened.callback(listening.close)
            listening.open()
            while not self._stopped.is_set():
                listening.step(_STEP_S)
            end_s = time.monotonic() + _LAST_S
            listening.refuse()
            while listening.step(0) and time.monotonic() < end_s:
                pass

    def _store_message(self, data: bytes, peer: str) -> None:
        data = data.rstrip(b"\r\n\0")
        now = datetime.now(timezone.utc)
        try:
            message = read_message(data.decode(errors="replace"), self.timezone, now)
        except ValueError as error:
            self.discard(data, f"what {peer} sent is no message of syslog: {error}")
            return
        self.store(dict(zip(_NAMES, (*message, peer), strict=True)))

    def _store_frame(self, frame: Frame, peer: str) -> None:
        if frame.reason is None:
            self._store_message(frame.data, peer)
        else:
            self.discard(frame.data, f"what {peer} sent is no message of syslog: {frame.reason}")


class _Listening:
    """One start: the sockets, and the connections. All of it is of one thread."""

    def __init__(
        self,
        receiver: SyslogReceiver,
        selector: selectors.BaseSelector,
        context: ssl.SSLContext | None,
    ) -> None:
        self._receiver = receiver
        self._selector = selector
        self._context = context
        self._listeners: dict[socket.socket, ssl.SSLContext | None] = {}
        self._connections: set[_Connection] = set()
        self._again: set[_Connection] = set()
        self._bound: socket.socket | None = None
        self._datagrams: Datagrams | None = None

    def open(self) -> None:
        """Bind all ports."""
        receiver, names = self._receiver, []
        for kind, port in receiver.ports.items():
            is_udp = kind == "udp"
            of = socket.SOCK_DGRAM if is_udp else socket.SOCK_STREAM
            bound = bound_socket(receiver.host, port, of, share=receiver.share)
            name = f"{kind}://{address_text(*bound.getsockname()[:2])}"
            names.append(name)
            if is_udp:
                self._bound = bound
                set_receive_buffer(bound, receiver.receiveBuffer)
                self._datagrams = Datagrams(receiver, bound, name, _MOST_DATAGRAM)
            else:
                bound.setblocking(False)
                self._listeners[bound] = self._context if kind == "tls" else None
            self._selector.register(bound, selectors.EVENT_READ, bound)
        receiver.listening(*names)

    def step(self, wait_s: float) -> bool:
        """Store what has come, or comes within some seconds; return whether there was something."""
        ready = [key.data for key, _ in self._selector.select(0 if self._again else wait_s)]
        again, self._again = self._again, set()
        came = False
        for one in {*ready, *again}:
            if one is self._bound and self._datagrams is not None:
                for data, peer in self._datagrams.read(_AT_ONCE):
                    came = True
                    self._receiver._store_message(data, peer)
            elif isinstance(one, _Connection):
                came |= self._read(one)
            elif one is not None:
                self._accept(one)
        if self._datagrams is not None:
            self._datagrams.count_dropped()
        late_s = time.monotonic() - _HANDSHAKE_S
        for one in [each for each in self._connections if not each.is_ready]:
            if one.began_s < late_s:
                self._end(one, f"gave no TLS handshake within {_HANDSHAKE_S:g} s")
        return came

    def refuse(self) -> None:
        """Take no more connections."""
        for listener in self._listeners:
            self._selector.unregister(listener)
            listener.close()
        self._listeners.clear()

    def close(self) -> None:
        """Close all; what connections ended in is refused."""
        self.refuse()
        if self._bound is not None:
            self._bound.close()
        for one in list(self._connections):
            self._end(one)

    def _accept(self, listener: socket.socket) -> None:
        try:
            made, address = listener.accept()
        except OSError as error:
            if not isinstance(error, BlockingIOError):
                self._receiver._tell("accept", f"A sender could not connect: {text_of(error)}")
                time.sleep(0.1)
            return
        peer = sender_text(address)
        if len(self._connections) >= self._receiver.maxConnections:
            made.close()
            self._receiver._tell(
                "full",
                f"{peer} was refused: {self._receiver.maxConnections} senders are connected "
                "(maxConnections)",
            )
            return
        try:
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if (context := self._listeners[listener]) is not None:
                made = context.wrap_socket(made, server_side=True, do_handshake_on_connect=False)
        except OSError as error:  # it is gone already
            made.close()
            self._receiver._tell("connection", f"{peer} was disconnected: {text_of(error)}")
            return
        one = _Connection(made, peer, Frames(self._receiver.maxMessage))
        self._connections.add(one)
        self._selector.register(made, selectors.EVENT_READ, one)

    def _read(self, one: _Connection) -> bool:
        """Store what a connection has; return whether there was something."""
        came = False
        try:
            if not one.is_ready:
                assert isinstance(one.socket, ssl.SSLSocket)
                one.socket.do_handshake()
                one.is_ready = True
            for _ in range(_TURN):
                data = one.socket.recv(_CHUNK)
                if not data:
                    self._end(one)
                    return came
                came = True
                for frame in one.frames.feed(data):
                    self._receiver._store_frame(frame, one.peer)
        except (BlockingIOError, ssl.SSLWantReadError):
            return came
        except ssl.SSLWantWriteError:
            self._again.add(one)
            return came
        except OSError as error:
            self._end(one, f"was disconnected: {text_of(error)}")
            return came
        self._again.add(one)  # TLS may hold more than the selector sees
        return came

    def _end(self, one: _Connection, why: str | None = None) -> None:
        self._connections.discard(one)
        self._again.discard(one)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(one.socket)
        one.socket.close()
        if why is not None:
            self._receiver._tell("connection", f"{one.peer} {why}")
        if (rest := one.frames.rest()) is not None:
            self._receiver._store_frame(rest, one.peer)
