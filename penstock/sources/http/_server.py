"""`HttpServer`: one start of an `HttpReceiver`; its event loop, and the thread that stores.

The loop reads requests, bounded in size, in time and in number of bytes at hand, and never waits
for storing. One thread, ``penstock-http-store-<streamId>``, stores what has come meanwhile in one
call; how long that call takes says whether the stream is held, and then requests are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import math
import queue
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

from aiohttp import ClientPayloadError, web
from aiohttp.http_exceptions import HttpProcessingError

from penstock.errors import text_of, typed_text
from penstock.receiver import ReceiverStoppedError, RecordTooLargeError, bound_socket
from penstock.runtime.threads import OwnedThread
from penstock.sources.http._bodies import (
    ENVELOPE,
    PROTOBUF,
    Content,
    codec_of,
    content_of,
    too_large,
    unpack,
)
from penstock.sources.http._keys import Keys, entry_of
from penstock.sources.http._signatures import Refusal
from penstock.wire.addresses import address_text

if TYPE_CHECKING:
    from penstock.sources.http import HttpReceiver

_GROUP_BYTES = 256 << 10
"""Bytes up to which requests are stored in one call."""
_HELD_S = 1.0
"""A call of `store` that takes longer shows that the gate or the queue holds the stream back."""
_IDLE_S = 75.0
"""How long a connection may be open without a whole head of a request."""
_LOOK_S = 1.0
_TELL_S = 60.0
_CONNECTING_S = 0.5
"""How long a stop waits for connections that were accepted, and are not made: for TLS, mostly."""
_SHUTDOWN_S = 2.0
_UNAVAILABLE = 503
_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    405: {"Allow": "GET, HEAD, POST, PUT"},
    _UNAVAILABLE: {"Retry-After": "2"},
}
"""Of refusals, by their status."""
_SMALL = 64 << 10
"""Bytes of a body that is cut into records on the loop itself."""
_SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})


def _held(reason: str, *, ends: bool = False) -> Refusal:
    return Refusal(_UNAVAILABLE, reason, ends=ends)


@dataclass(eq=False, slots=True)
class _Taken:
    """A request that is to be stored, and then is durable, or failed: `error`.

    Attributes:
        size: Bytes that it has in memory until then.
        waiting: Those who wait until then: its sender, and senders of the same again.
    """

    content: Content
    envelope: tuple[Any, ...]
    entry: bytes | None
    size: int
    is_settled: bool = False
    error: BaseException | None = None
    waiting: list[asyncio.Future[None]] = field(default_factory=list)


class _Noting(logging.Logger):
    """What the library logs of a request, which would be a traceback for each."""

    def __init__(self, note: Callable[[logging.LogRecord], None]) -> None:
        super().__init__("penstock.sources.http")
        self._note = note

    def handle(self, record: logging.LogRecord) -> None:
        self._note(record)


class HttpServer:
    """Serves until it is cancelled. Made on its event loop.

    Args:
        receiver: Its settings, and what to store to.
    """

    def __init__(self, receiver: HttpReceiver) -> None:
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._keys: Keys[_Taken] = Keys(receiver.keys, receiver.lastPosition)
        self._held_bytes = 0
        self._idle_since: dict[Any, float] = {}
        self._overdue_at_s: dict[asyncio.Future[None], float] = {}
        self._refused = 0
        self._last_refusal = ""
        self._last_error: BaseException | None = None
        self._tell_at_s = 0.0
        self._unpacking = asyncio.Lock()
        self._connecting: set[asyncio.Task[None]] = set()
        stream = receiver.streamId
        self._worker = ThreadPoolExecutor(1, thread_name_prefix=f"penstock-http-read-{stream}")
        self._come: list[_Taken] = []
        self._waiting: queue.SimpleQueue[list[_Taken] | None] = queue.SimpleQueue()
        self._storing_since_s: float | None = None
        self._storer = OwnedThread(self._store_all, f"http-store-{stream}")

    async def serve(self) -> None:
        """Listen, and answer.

        Raises:
            OSError: The port is taken, or a file of TLS cannot be read.
        """
        receiver = self._receiver
        context = receiver.tls.context()
        with bound_socket(receiver.host, receiver.port, share=receiver.share) as bound:
            server = web.Server(
                self._handle,
                auto_decompress=False,
                access_log=None,
                keepalive_timeout=_IDLE_S,
                logger=_Noting(self._note_record),
            )
            self._storer.start()
            bound.setblocking(False)
            self._listen(bound, server, context)
            try:
                where = address_text(receiver.host, bound.getsockname()[1])
                scheme = "http" if context is None else "https"
                receiver.listening(f"{scheme}://{where}{receiver.path}")
                while True:
                    await asyncio.sleep(min(_LOOK_S, receiver.storeTimeout))
                    self._let_overdue_go()
                    self._close_idle(server.connections)
                    self._tell_refusals()
            finally:
                self._loop.remove_reader(bound)
                bound.close()
                # What was accepted becomes a connection that the shutdown knows, or is closed.
                if self._connecting:
                    await asyncio.wait(self._connecting, timeout=_CONNECTING_S)
                for task in self._connecting:
                    task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await server.shutdown(_SHUTDOWN_S)
                self._waiting.put(None)
                self._worker.shutdown(wait=False)

    def _listen(
        self, bound: socket.socket, server: web.Server, context: ssl.SSLContext | None
    ) -> None:
        if bound.fileno() >= 0:
            self._loop.add_reader(bound, self._accept, bound, server, context)

    def _accept(
        self, bound: socket.socket, server: web.Server, context: ssl.SSLContext | None
    ) -> None:
        # By itself, and not by `create_server`: of what that has accepted and not yet made a
        # connection nothing is known when it is closed, and it would stay open.
        try:
            accepted, _ = bound.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:  # Such as too many open files: it is tried again after a while.
            self._note_refusal(f"no connection can be accepted: {text_of(error)}")
            self._loop.remove_reader(bound)
            self._loop.call_later(_LOOK_S, self._listen, bound, server, context)
            return
        task = asyncio.ensure_future(_connect(server, accepted, context))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def _close_idle(self, connections: Sequence[Any]) -> None:
        """Close connections that send no whole head: silent ones, and those of a byte a second."""
        now_s = time.monotonic()
        self._idle_since = {each: self._idle_since.get(each, now_s) for each in connections}
        for each, since_s in self._idle_since.items():
            if now_s - since_s > _IDLE_S:
                each.force_close()

    def _note_record(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno < logging.WARNING:
            return
        if isinstance(error, HttpProcessingError):
            # Its text has parts of the request, which may be secret.
            self._note_refusal(f"{error.code}: {type(error).__name__}")
        else:
            why = record.getMessage() if error is None else typed_text(error)
            self._note_refusal(f"500: {why}", error)

    def _note_refusal(self, why: str, error: BaseException | None = None) -> None:
        self._refused += 1
        self._last_refusal, self._last_error = why, error

    def _tell_refusals(self) -> None:
        if self._refused and time.monotonic() >= self._tell_at_s:
            self._tell_at_s = time.monotonic() + _TELL_S
            count, self._refused = self._refused, 0
            told = f"Requests were refused ({count}), the last: {self._last_refusal}"
            self._receiver.reportError(told, self._last_error)

    # -- requests --------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self._idle_since[request.protocol] = math.inf
        hand = _Hand(self)
        try:
            return await self._answer(request, hand)
        except Refusal as error:
            status, reason = error.status, text_of(error)
            if status != _UNAVAILABLE:
                self._note_refusal(f"{status}: {reason}")
            answer = web.json_response({"message": reason}, status=status)
            answer.headers.update(_HEADERS.get(status, {}))
            if error.ends:
                answer.force_close()
            # Its frames have the body, and a task that has the error: garbage that is not looked
            # for soon, as `collect_less` has it.
            gone: BaseException | None = error
            while gone is not None:
                gone.__traceback__ = None
                gone = gone.__cause__ or gone.__context__
            return answer
        finally:
            hand.release()
            self._idle_since[request.protocol] = time.monotonic()

    async def _answer(self, request: web.BaseRequest, hand: _Hand) -> web.StreamResponse:
        receiver = self._receiver
        base = receiver.path.rstrip("/")
        if request.path != base and not request.path.startswith(f"{base}/"):
            raise Refusal(404, f"requests are taken at {receiver.path}")
        if request.method in ("GET", "HEAD"):
            self._check_held()
            return web.json_response({"message": "requests are taken"})
        if request.method not in ("POST", "PUT"):
            raise Refusal(405, "the methods are POST and PUT")
        self._check_token(request.headers)
        self._check_held()
        codec = codec_of(request.headers.get("Content-Encoding", ""))
        if (request.content_length or 0) > receiver.maxBody:
            raise too_large(receiver.maxBody)
        body = await self._body(request, hand)
        if codec is not None:
            # One at a time, so that what is in memory is known.
            async with self._unpacking:
                work = partial(unpack, body, codec, receiver.maxBody)
                body = await self._loop.run_in_executor(self._worker, work)
                hand.add(len(body))
        key = request.headers.get(receiver.keyHeader, "")
        if receiver.signature is not None:
            key = receiver.signature.check(request.headers, body, time.time())
        entry = entry_of(request.path, key, body) if key else None
        cut = partial(content_of, body, receiver.body, request.content_type)
        is_small = len(body) <= _SMALL and not callable(receiver.body)
        content = cut() if is_small else await self._loop.run_in_executor(self._worker, cut)
        if not content.size and not content.records:
            return self._answer_of(request)
        # From here to `add` nothing is awaited, so that no other with the same key comes between.
        if entry is not None:
            if (known := self._keys.find(entry)) is not None:
                is_same, sooner = known
                await self._durable(sooner)
                if not is_same:
                    raise Refusal(422, "the key was used with another body")
                return self._answer_of(request)
            if self._keys.is_full:
                raise _held(f"{receiver.keys} requests with a key are being stored")
        envelope = _envelope(request, key) if receiver.messages.has_envelope else ()
        taken = _Taken(content, envelope, entry, hand.give())
        if entry is not None:
            self._keys.add(entry, taken)
        if not self._come:
            # One wake-up of the thread for all that this turn of the loop brings.
            self._loop.call_soon(self._hand_over)
        self._come.append(taken)
        await self._durable(taken)
        return self._answer_of(request)

    def _answer_of(self, request: web.BaseRequest) -> web.Response:
        # OTLP answers in the request's kind; without bytes it is an empty message.
        if self._receiver.body == "otlp-logs" and request.content_type == PROTOBUF:
            return web.Response(content_type=PROTOBUF)
        return web.Response(body=b"{}", content_type="application/json")

    async def _durable(self, taken: _Taken | None) -> None:
        """Wait until a request is durable."""
        if taken is None:
            return
        timeout_s = self._receiver.storeTimeout
        if not taken.is_settled:
            # One look at all that wait is cheaper than a timer for each.
            waiting = self._loop.create_future()
            taken.waiting.append(waiting)
            self._overdue_at_s[waiting] = time.monotonic() + timeout_s
            try:
                await waiting
            finally:
                del self._overdue_at_s[waiting]
        if not taken.is_settled:
            raise _held(f"it was not durable within {timeout_s:g} s; it may be stored later")
        error = taken.error
        if isinstance(error, ReceiverStoppedError):
            raise _held("the receiver stops") from error
        if isinstance(error, RecordTooLargeError):
            raise Refusal(413, text_of(error)) from error
        if error is not None:
            raise Refusal(500, "it could not be stored") from error

    def _settle(self, group: Sequence[_Taken], error: BaseException | None = None) -> None:
        """Requests are durable, or failed: their waiters go on."""
        for taken in group:
            if taken.is_settled:
                continue
            taken.is_settled, taken.error = True, error
            self._held_bytes -= taken.size
            if taken.entry is not None:
                self._keys.settled(taken.entry, error is None)
            for waiting in taken.waiting:
                _let_go(waiting)

    def _let_overdue_go(self) -> None:
        now_s = time.monotonic()
        for settled, at_s in self._overdue_at_s.items():
            if at_s > now_s:  # Those behind it came later.
                break
            _let_go(settled)

    async def _body(self, request: web.BaseRequest, hand: _Hand) -> bytes:
        try:
            if request.content.is_eof():  # It came with the head, as most do.
                body = request.content.read_nowait()
                if len(body) > self._receiver.maxBody:
                    raise too_large(self._receiver.maxBody)
                hand.add(len(body))
                return body
            return await asyncio.wait_for(self._read(request, hand), self._receiver.bodyTimeout)
        except asyncio.TimeoutError:
            reason = f"the body did not come in {self._receiver.bodyTimeout:g} s"
            raise Refusal(408, reason) from None
        except (ClientPayloadError, HttpProcessingError, OSError) as error:
            raise Refusal(400, f"the body is not whole: {text_of(error)}") from error

    async def _read(self, request: web.BaseRequest, hand: _Hand) -> bytes:
        chunks: list[bytes] = []
        size, limit = 0, self._receiver.maxBody
        if request.headers.get("Expect", "").lower() == "100-continue":
            # A sender waits for it, or for a refusal, before it sends a large body.
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > limit:
                raise too_large(limit)
            hand.add(len(chunk))
            chunks.append(chunk)
        return b"".join(chunks)

    def _check_token(self, headers: Mapping[str, str]) -> None:
        token = self._receiver.token
        if token is None:
            return
        kind, _, given = headers.get("Authorization", "").partition(" ")
        is_same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
        if kind.lower() != "bearer" or not is_same:
            raise Refusal(401, "no token, or a wrong one")

    def _check_held(self) -> None:
        since_s = self._storing_since_s
        if since_s is not None and time.monotonic() - since_s > _HELD_S:
            raise _held("the stream is held: it waits for its rate, or for batches")
        if self._held_bytes > self._receiver.maxWaiting:
            raise _held("too many bytes wait to be stored")

    def _hand_over(self) -> None:
        come, self._come = self._come, []
        self._waiting.put(come)

    # -- the thread that stores ------------------------------------------------------------------

    def _settle_soon(self, group: Sequence[_Taken], error: BaseException | None = None) -> None:
        """Settle requests on the loop; from any thread, also after its end."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, group, error)

    def _store_all(self) -> None:
        come: list[_Taken] | None = []
        while come is not None:
            come = self._waiting.get()
            found = come or []
            with contextlib.suppress(queue.Empty):
                while come is not None:
                    come = self._waiting.get_nowait()
                    found += come or ()
            for group in _groups(found):
                self._storing_since_s = time.monotonic()
                self._store(group)
                self._storing_since_s = None

    def _store(self, group: Sequence[_Taken]) -> None:
        receiver = self._receiver
        entries = [each.entry for each in group if each.entry is not None]
        # All records of a call with a position are in one block together with it.
        position = self._keys.changes_with(entries) if entries else None
        ack = partial(self._settle_soon, group)
        lines = [each.content.lines for each in group if each.content.lines is not None]
        try:
            if lines and receiver.schema is None:
                receiver.store(b"".join(lines), position, ack, "newline")
            else:
                payloads = [_payloads(each.content) for each in group]
                counts = [len(each) for each in payloads]
                envelope = _columns(group, counts) if receiver.messages.has_envelope else {}
                records = list(chain.from_iterable(payloads))
                receiver.messages.store(receiver, records, envelope, position, ack)
        except BaseException as error:  # noqa: BLE001  # each request is answered with it
            if len(group) > 1 and not isinstance(error, ReceiverStoppedError):
                for each in group:
                    self._store([each])
                return
            if not isinstance(error, (ReceiverStoppedError, RecordTooLargeError)):
                receiver.reportError(f"A request could not be stored: {text_of(error)}", error)
            self._settle_soon(group, error)
        else:
            if entries:
                self._keys.stored()
            receiver.seal()


def _groups(found: Sequence[_Taken]) -> Iterator[list[_Taken]]:
    """Cut requests into those that are stored in one call."""
    group: list[_Taken] = []
    size = 0
    for each in found:
        is_alike = not group or (each.content.lines is None) == (group[0].content.lines is None)
        if group and not (is_alike and size + each.content.size <= _GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(each)
        size += each.content.size
    if group:
        yield group


async def _connect(
    server: web.Server, accepted: socket.socket, context: ssl.SSLContext | None
) -> None:
    """Make a connection of what was accepted; a peer that is gone, or gives no TLS, is no news."""
    loop = asyncio.get_running_loop()
    accepted.setblocking(False)
    with contextlib.suppress(OSError, asyncio.TimeoutError):
        await loop.connect_accepted_socket(server, accepted, ssl=context)


class _Hand:
    """The bytes that one request has in memory."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._bytes = 0

    def add(self, size: int) -> None:
        """Take note of more.

        Raises:
            Refusal: That is too much, with what others have.
        """
        others = self._server._held_bytes - self._bytes
        self._bytes += size
        self._server._held_bytes += size
        if others > self._server._receiver.maxWaiting:
            raise _held("too many bytes wait to be stored", ends=True)

    def give(self) -> int:
        """Let another one give them back, and return how many they are."""
        size, self._bytes = self._bytes, 0
        return size

    def release(self) -> None:
        """Give them back."""
        self._server._held_bytes -= self._bytes
        self._bytes = 0


def _let_go(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


def _payloads(content: Content) -> Sequence[bytes]:
    return content.records if content.lines is None else content.lines.split(b"\n")[:-1]


def _envelope(request: web.BaseRequest, key: str) -> tuple[Any, ...]:
    headers: dict[str, str] = {}
    for given, value in request.headers.items():
        name = _text(given.lower())
        if name not in _SECRET_HEADERS:
            # A header that is sent in several lines is one with a list (RFC 9110, 5.3).
            headers[name] = f"{headers[name]}, {_text(value)}" if name in headers else _text(value)
    now = datetime.now(timezone.utc)
    return _text(request.path), list(headers.items()), now, _text(key) or None, request.remote


def _text(given: str) -> str:
    """Return what was sent; bytes that are no UTF-8 are replaced."""
    return given.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _columns(group: Sequence[_Taken], counts: Sequence[int]) -> dict[str, list[Any]]:
    return {
        name: list(
            chain.from_iterable(
                repeat(each.envelope[at], count) for each, count in zip(group, counts, strict=True)
            )
        )
        for at, name in enumerate(ENVELOPE.names)
    }
