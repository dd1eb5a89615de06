"""Serving blocks over TCP: what a block server does for readers on other hosts.

One event loop serves all connections. Bytes go from the mapped segment or memory file to the
socket (faster than ``sendfile``, which goes page by page), a few megabytes at a time, so that a
reader that stops reading is noticed and a large block does not hold up the others. While a slot is
sent its range is locked against reuse, as by any reader. The number of connections, of those that
have proved nothing, and of records on their way at one time are bounded. Copies of other hosts'
blocks come on the same connections (`_keeping`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import mmap
import os
import socket
import ssl
import traceback
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from penstock.blockstore._fetch import (
    ANSWER,
    MAX_REQUEST_BYTES,
    REQUEST,
    SERVICE,
    FetchRequest,
    FetchStatus,
)
from penstock.blockstore._files import ApplicationFiles, PathRefusedError
from penstock.blockstore._keeping import BlockKeeper, CopyNotKeptError, KeepRequest, Upload
from penstock.blockstore.memory import lock_shared
from penstock.wal import RECORD_HEADER_SIZE, WalError, parse_record
from penstock.wire import HandshakeState, ServerHandshake
from penstock.wire.messages import MemoryPlace, SegmentPlace
from penstock.wire.ports import listen_in_range

__all__ = ["BlockService", "ServingLimits"]

_logger = logging.getLogger("penstock.blockstore")

_STEP_BYTES = 4 << 20
_TLS_STEP_BYTES = 256 << 10
_LINGER_S = 1.0
_CANCEL_STEP_S = 0.1
_Request = FetchRequest | KeepRequest
_decoder: msgspec.msgpack.Decoder[_Request] = msgspec.msgpack.Decoder(FetchRequest | KeepRequest)


@dataclass(frozen=True)
class ServingLimits:
    """What readers may cost.

    Attributes:
        max_connections: Connections at one time; more are answered `BUSY`.
        max_unauthenticated: Of which have proved nothing yet; then the oldest is dropped.
        max_transfers: Records on their way at one time; others wait.
        max_senders: Connections at one time that may send copies; more are answered `BUSY`.
        authentication_timeout_s: Bound of the handshake.
        idle_timeout_s: A connection without a request is closed after this.
        step_timeout_s: A reader must take four megabytes within this.
    """

    max_connections: int = 1024
    max_unauthenticated: int = 128
    max_transfers: int = 16
    max_senders: int = 64
    authentication_timeout_s: float = 5.0
    idle_timeout_s: float = 30.0
    step_timeout_s: float = 20.0


class BlockService:
    """Answers `FetchRequest`s. All methods are called on one event loop.

    Args:
        secret: The application's secret.
        files: What may be served.
        limits: What readers may cost.
        ssl_context: Makes each connection a TLS connection, below the authentication.
        keeper: Takes copies of blocks; without one they are refused.
    """

    def __init__(
        self,
        secret: bytes,
        files: ApplicationFiles,
        limits: ServingLimits | None = None,
        ssl_context: ssl.SSLContext | None = None,
        keeper: BlockKeeper | None = None,
    ) -> None:
        self._secret = secret
        self._files = files
        self._limits = limits or ServingLimits()
        self._ssl_context = ssl_context
        self._keeper = keeper
        self._uploads: dict[asyncio.StreamWriter, Upload] = {}
        self._step_bytes = _STEP_BYTES if ssl_context is None else _TLS_STEP_BYTES
        self._transfers = asyncio.Semaphore(self._limits.max_transfers)
        self._listeners: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._closing: set[asyncio.Future[None]] = set()
        self._unauthenticated: OrderedDict[asyncio.StreamWriter, None] = OrderedDict()

    async def start(self, host: str, port: int = 0, port_retries: int = 0) -> tuple[str, int]:
        """Listen at `host` and return the address.

        Args:
            host: The address.
            port: The port, or 0 for any free one.
            port_retries: How many ports after it are tried while one is taken.

        Raises:
            OSError: The address cannot be bound.
        """
        sockets = listen_in_range(host, port, port_retries)
        for listening in sockets:
            self._listeners.append(
                await asyncio.start_server(
                    self._serve,
                    sock=listening,
                    limit=MAX_REQUEST_BYTES,
                    ssl=self._ssl_context,
                    backlog=1024,
                    ssl_handshake_timeout=self._limits.authentication_timeout_s
                    if self._ssl_context
                    else None,
                )
            )
        address = sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        for listener in self._listeners:
            listener.close()
        while self._connections:
            # Again and again: before Python 3.12 `wait_for` may swallow it when what it waits for
            # is done at the same moment.
            for task in self._connections:
                task.cancel()
            await asyncio.wait(set(self._connections), timeout=_CANCEL_STEP_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its beginning to its end."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if await self._authenticate(reader, writer):
                if len(self._connections) > self._limits.max_connections:
                    await self._say(writer, FetchStatus.BUSY, "too many connections")
                    return
                while await self._answer_next(reader, writer):
                    pass
        except (OSError, EOFError, asyncio.TimeoutError) as error:
            # Also IncompleteReadError, which is an EOFError: the reader went away.
            _logger.debug("a reader's connection ended: %r", error)
            _forget_frames(error)
        except asyncio.CancelledError as error:
            _logger.debug("a reader's connection was ended by the stop")
            _forget_frames(error)
        finally:
            self._connections.discard(task)
            self._unauthenticated.pop(writer, None)
            self._uploads.pop(writer, None)
            transport = writer.transport
            if not transport.is_closing() and transport.get_write_buffer_size():
                # A reader that takes nothing must not keep the connection.
                asyncio.get_running_loop().call_later(_LINGER_S, transport.abort)
            writer.close()
            closing = asyncio.ensure_future(writer.wait_closed())
            self._closing.add(closing)
            closing.add_done_callback(self._closed)

    def _closed(self, closing: asyncio.Future[None]) -> None:
        """Forget how a connection broke.

        The stream keeps the error, whose frames hold the stream, its TLS and what was to be sent:
        megabytes that would wait for the garbage collector.
        """
        self._closing.discard(closing)
        error = None if closing.cancelled() else closing.exception()
        if error is not None:
            error.with_traceback(None)

    async def _authenticate(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        self._unauthenticated[writer] = None
        if len(self._unauthenticated) > self._limits.max_unauthenticated:
            oldest, _ = self._unauthenticated.popitem(last=False)
            oldest.transport.abort()
        handshake = ServerHandshake(self._secret, SERVICE)
        writer.write(handshake.opening())
        hello = await asyncio.wait_for(
            reader.readexactly(handshake.expects), self._limits.authentication_timeout_s
        )
        writer.write(handshake.receive(hello))
        self._unauthenticated.pop(writer, None)
        return handshake.state is HandshakeState.ACCEPTED

    async def _answer_next(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; False when the connection is to end."""
        timeout_s = self._limits.idle_timeout_s
        head = await asyncio.wait_for(reader.readexactly(REQUEST.size), timeout_s)
        (length,) = REQUEST.unpack(head)
        if length > MAX_REQUEST_BYTES:
            await self._say(writer, FetchStatus.REFUSED, f"a request of {length} bytes")
            return False
        text = await asyncio.wait_for(reader.readexactly(length), timeout_s)
        try:
            request = _decoder.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            await self._say(writer, FetchStatus.REFUSED, f"a request that cannot be read: {error}")
            return False
        if isinstance(request, KeepRequest):
            return await self._keep(reader, writer, request)
        async with self._transfers:
            await self._answer(writer, request)
        return True

    async def _keep(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: KeepRequest
    ) -> bool:
        """Take a copy; False when the connection is to end."""
        refusal = "no copies are taken here"
        if self._keeper is not None:
            refusal = self._keeper.refusal(request) or ""
        if self._keeper is None or refusal:
            _logger.warning("refused a copy: %s", refusal)
            await self._say(writer, FetchStatus.REFUSED, refusal)
            return False
        if writer not in self._uploads and len(self._uploads) >= self._limits.max_senders:
            await self._say(writer, FetchStatus.BUSY, "too many send copies here")
            return False
        upload = self._uploads.setdefault(writer, Upload())
        try:
            kept = await self._keeper.keep(reader, request, upload)
        except CopyNotKeptError as error:
            _logger.warning("a copy of stream %d was not kept: %s", request.stream_id, error)
            await self._say(writer, FetchStatus.NOT_KEPT, str(error))
            return True
        writer.write(ANSWER.pack(FetchStatus.KEPT, len(kept)) + kept)
        await asyncio.wait_for(writer.drain(), self._limits.step_timeout_s)
        return True

    async def _answer(self, writer: asyncio.StreamWriter, request: FetchRequest) -> None:
        status = FetchStatus.NOT_FOUND
        tried = []
        for place in (request.memory, request.segment):
            if place is None:
                continue
            try:
                with self._open_record(place, request.sequence) as record:
                    await self._send(writer, record)
                    return
            except _NotThereError as error:
                tried.append(str(error))
            except PathRefusedError as error:
                _logger.warning("refused a request: %s", error)
                status = FetchStatus.REFUSED
                tried.append(str(error))
        await self._say(writer, status, "; ".join(tried) or "the request names no place")

    @contextlib.contextmanager
    def _open_record(
        self, place: MemoryPlace | SegmentPlace, sequence: int
    ) -> Iterator[memoryview]:
        """Map a record, make sure that it is the one, and keep it so.

        Raises:
            PathRefusedError: The path is none of the application's.
            _NotThereError: The record is not there.
        """
        with contextlib.ExitStack() as stack:
            try:
                if isinstance(place, MemoryPlace):
                    fd = self._files.open_memory(place)
                else:
                    fd = self._files.open_segment(place)
                stack.enter_context(open(fd, "rb", buffering=0))
                if isinstance(place, MemoryPlace) and not lock_shared(
                    fd, place.offset, place.length
                ):
                    raise _NotThereError("the slot was given to another block")
                record = _mapped(fd, place, sequence)
            except (OSError, WalError, ValueError, OverflowError) as error:
                raise _NotThereError(_describe(place, error)) from error
            yield record

    async def _send(self, writer: asyncio.StreamWriter, record: memoryview) -> None:
        head = memoryview(ANSWER.pack(FetchStatus.RECORD, len(record)))
        pieces = [head] + [
            record[place : place + self._step_bytes]
            for place in range(0, len(record), self._step_bytes)
        ]
        if self._ssl_context is not None:
            for piece in pieces:
                writer.write(bytes(piece))
                await asyncio.wait_for(writer.drain(), self._limits.step_timeout_s)
            return
        loop = asyncio.get_running_loop()
        # The writer would copy what the socket does not take at once. All that went through it
        # before was answered, so nothing is left in it.
        with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as direct:
            direct.setblocking(False)
            for piece in pieces:
                sending = loop.sock_sendall(direct, piece)
                await asyncio.wait_for(sending, self._limits.step_timeout_s)

    async def _say(self, writer: asyncio.StreamWriter, status: FetchStatus, reason: str) -> None:
        text = reason.encode(errors="replace")[:2000]
        writer.write(ANSWER.pack(status, len(text)) + text)
        await asyncio.wait_for(writer.drain(), self._limits.step_timeout_s)


def _forget_frames(error: BaseException | None) -> None:
    """Let go of what an error's frames refer to.

    `wait_for` leaves the error and its frames in a circle, and with them the mapping of a file, or
    the memory in which a copy arrived.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class _NotThereError(Exception):
    """A place does not hold the record (any more)."""


def _describe(place: MemoryPlace | SegmentPlace, error: Exception) -> str:
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    if isinstance(place, MemoryPlace):
        return f"memory {place.path}: {text}"
    return f"segment {place.segment} of {place.folder}: {text}"


def _mapped(fd: int, place: MemoryPlace | SegmentPlace, sequence: int) -> memoryview:
    """Map the record with `sequence` at `place`; its payload is not touched.

    Raises:
        CorruptRecordError: Something else lies there.
        OSError, ValueError: The place is not within the file.
    """
    size = os.fstat(fd).st_size
    if place.offset < 0 or place.length < RECORD_HEADER_SIZE or place.offset + place.length > size:
        raise OSError(errno.ENXIO, f"the file has {size} bytes and ends before the record")
    shift = place.offset % mmap.ALLOCATIONGRANULARITY
    # Not closed by hand: the last view of it does that.
    mapped = mmap.mmap(fd, place.length + shift, prot=mmap.PROT_READ, offset=place.offset - shift)
    record = memoryview(mapped)[shift : shift + place.length]
    payload = parse_record(record, expected_sequence=sequence, verify=False)
    if len(payload) != place.length - RECORD_HEADER_SIZE:
        raise OSError(errno.ENXIO, f"the record there has {len(payload)} bytes of payload")
    return record
