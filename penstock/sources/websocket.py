"""`WebSocketReceiver`: the messages that a WebSocket's server sends.

What must hold
--------------

* A WebSocket acknowledges nothing. What the server sent and was not durable when the receiver was
  killed is lost, unless the server can begin after a place that its messages name: then that place
  becomes durable with the message, as the stream's position, and each message is stored once.
* The library hands out whole messages only: one that is cut is never stored.
* While the stream is held nothing is read: TCP slows the server down, and memory stays bounded.
  Then pings are not answered either, for they come behind the messages; a server that gives up
  for that is connected to again.
* A connection that is open and dead is noticed by a ping that no one answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import as_count, refused
from penstock.errors import typed_text
from penstock.receiver import RecordTooLargeError
from penstock.receiver.door import acknowledge_nothing
from penstock.sources._common import Messages, Reconnecting, as_records
from penstock.sources._on_loop import Batches, LoopReceiver
from penstock.sources._urls import check_tls_files, check_url, shown_url, trusting
from penstock.sources.formats import ValueFormat

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_OPEN_S = 30.0
_CLOSE_S = 1.0
_TOO_BIG = 1009
_FRAMES = 1024
"""How many frames of one reading are more than it is to have. The library has 16: so it stops
reading and begins again each time, for 6 % of a message's CPU. What bounds memory is `Batches`."""
_ENVELOPE = pa.schema([("kind", pa.string()), ("time", pa.timestamp("us", "UTC"))])


class _Message(NamedTuple):
    data: bytes
    records: Sequence[bytes] | None
    position: Any
    kind: str
    time: datetime
    error: str = ""


class WebSocketReceiver(LoopReceiver):
    """Connects to a WebSocket and stores its messages; text as UTF-8.

    Args:
        url: Where to connect, ``ws://`` or ``wss://``; or a function that returns it, called at
            each connection with the last position, None at first.
        subscribe: Messages (`str` or `bytes`) that are sent when it is connected, or a function of
            the last position that returns them.
        position: A function of a message's bytes that returns its place in the source, as a
            position of `Receiver.store`, or None for a message without one. With it the source goes
            on after the last one that is durable: `url` or `subscribe` must ask for that.
        records: A function of a message's bytes that returns the records in it; none for an
            application's own keep-alive. A message for which it or `position` raises is a dead
            letter. Both are called on the event loop, so they should be quick.
        headers: Sent with the request, such as ``Authorization``; never shown.
        columns: Whether ``kind`` (text or binary) and ``time`` are stored, as columns beside
            ``value``.
        values: Makes typed columns of the records, such as `JsonFormat`.
        maxMessage: Bytes of the largest message, also when it was compressed.
        pingTimeout: Seconds between pings, and in which each must be answered.
        authorities: The file of the authorities that sign the server's certificate (PEM), on the
            executor's host; None for the host's.
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: websockets is not installed.
        ValueError, TypeError: An argument is not accepted.
    """

    extra = "websocket"
    requires = ("websockets",)

    def __init__(
        self,
        url: str | Callable[[Any], str],
        *,
        subscribe: Sequence[str | bytes] | Callable[[Any], Sequence[str | bytes]] = (),
        position: Callable[[bytes], Any] | None = None,
        records: Callable[[bytes], Sequence[bytes]] | None = None,
        headers: Mapping[str, str] | None = None,
        columns: bool = False,
        values: ValueFormat | None = None,
        maxMessage: int = 16 << 20,
        pingTimeout: float = 20.0,
        authorities: str | None = None,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(storageLevel)
        if not callable(url):
            check_url(url, "ws", "wss")
            check_tls_files(url.startswith("wss:"), "wss", authorities=authorities)
        if not callable(subscribe):
            _check_asked(subscribe)
        if not pingTimeout > 0:
            raise ValueError(refused("pingTimeout", pingTimeout, "seconds above 0"))
        self.url, self.subscribe = url, subscribe
        self.position, self.records = position, records
        self.headers = dict(headers or {})
        self.maxMessage = as_count(maxMessage, "maxMessage", "bytes", least=1)
        self.pingTimeout, self.authorities = pingTimeout, authorities
        self.messages = Messages(_ENVELOPE, columns=columns, values=values)
        self.schema = self.messages.schema
        self._is_plain = records is None and position is None and not columns

    async def _main(self) -> None:
        from websockets.asyncio.client import connect
        from websockets.exceptions import ConnectionClosed, WebSocketException

        self._token = self.lastPosition
        server = "server of the WebSocket" if callable(self.url) else shown_url(self.url)
        reconnecting = Reconnecting(self.reportError, f"WebSocket at {server}")
        async with Batches(self._store, f"websocket-store-{self.streamId}") as batches:
            while True:
                url = self.url(self._token) if callable(self.url) else self.url
                check_url(url, "ws", "wss")
                try:
                    async with connect(
                        url,
                        additional_headers=self.headers,
                        ssl=trusting(self.authorities) if url.startswith("wss:") else None,
                        max_size=self.maxMessage,
                        max_queue=_FRAMES,
                        open_timeout=_OPEN_S,
                        close_timeout=_CLOSE_S,
                        ping_interval=None,
                        user_agent_header="penstock",
                    ) as connection:
                        await self._take(connection, batches, reconnecting)
                except ConnectionClosed as closed:
                    pause_s = reconnecting.failed(self._why(closed))
                except (OSError, WebSocketException, asyncio.TimeoutError) as error:
                    pause_s = reconnecting.failed(error)
                await asyncio.sleep(pause_s)

    async def _take(
        self,
        connection: ClientConnection,
        batches: Batches[_Message | bytes],
        reconnecting: Reconnecting,
    ) -> NoReturn:
        asked = self.subscribe(self._token) if callable(self.subscribe) else self.subscribe
        _check_asked(asked)
        for each in asked:
            await connection.send(each)
        reconnecting.connected()
        pinging = asyncio.ensure_future(self._ping(connection, batches))
        try:
            while True:
                data, kind = await connection.recv(), "binary"
                if isinstance(data, str):
                    data, kind = data.encode(), "text"
                if batches.add(data if self._is_plain else self._message(data, kind), len(data)):
                    connection.transport.pause_reading()
                    await batches.room()
                    connection.transport.resume_reading()
        finally:
            pinging.cancel()

    def _message(self, data: bytes, kind: str) -> _Message:
        now = datetime.now(timezone.utc)
        try:
            records = [data] if self.records is None else as_records(self.records(data))
            place = None if self.position is None else self.position(data)
        except Exception as error:  # noqa: BLE001  # of the user's function
            return _Message(data, None, None, kind, now, typed_text(error))
        self._token = self._token if place is None else place
        return _Message(data, records, place, kind, now)

    async def _ping(self, connection: ClientConnection, batches: Batches[_Message | bytes]) -> None:
        """End a connection on which nothing comes any more, unless that is our own doing."""
        from websockets.exceptions import ConnectionClosed

        with contextlib.suppress(ConnectionClosed):
            while True:
                await asyncio.sleep(self.pingTimeout)
                pong = asyncio.ensure_future(await connection.ping())
                await asyncio.wait([pong], timeout=self.pingTimeout)
                if not pong.done() and not batches.is_full:
                    connection.transport.abort()
                    return

    def _why(self, closed: Any) -> Exception:
        """Return why a connection ended, for people."""
        if closed.sent is not None and closed.sent.code == _TOO_BIG:
            return ValueError(f"it sent a message larger than maxMessage={self.maxMessage}")
        if closed.rcvd is not None:
            reason = f" {closed.rcvd.reason!r}" if closed.rcvd.reason else ""
            return ConnectionError(f"it closed the connection with {closed.rcvd.code}{reason}")
        return ConnectionError("the connection was lost, or a ping was not answered")

    # -- the thread that stores ------------------------------------------------------------------

    def _store(self, messages: list[_Message | bytes]) -> None:
        payloads: list[bytes] = []
        letters: list[tuple[bytes, str]] = []
        envelope: dict[str, list[Any]] = {name: [] for name in _ENVELOPE.names}
        position = None
        for each in messages:
            if isinstance(each, bytes):
                payloads.append(each)
                continue
            if each.records is None:
                letters.append((each.data, each.error))
                continue
            payloads += each.records
            envelope["kind"] += [each.kind] * len(each.records)
            envelope["time"] += [each.time] * len(each.records)
            position = position if each.position is None else each.position
        try:
            self.messages.store(self, payloads, envelope, position, acknowledge_nothing, letters)
        except RecordTooLargeError as error:
            # What has a position must be in one block with it.
            if len(messages) > 1:
                for each in messages:
                    self._store([each])
                return
            only = messages[0]
            self.discard(only if isinstance(only, bytes) else only.data, str(error), position)


def _check_asked(messages: object) -> None:
    if isinstance(messages, (str, bytes)):
        raise TypeError(refused("subscribe", messages, "a list of messages, or a function"))
