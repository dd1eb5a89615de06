"""Serving blocks over TCP: what a block server does for readers on other hosts.

One event loop serves all connections. Bytes go from the mapped memory file, or from a segment by
way of a buffer, to the socket (faster than ``sendfile``, which goes page by page), a few megabytes
at a time, so that a reader that stops reading is noticed and a large block does not hold up the
others. While a slot is sent its range is locked against reuse, as by any reader. A segment is
never mapped: it may be released meanwhile, and its file cut when it is used again; to look at a
mapping beyond the end of its file ends a process (SIGBUS). The number of connections, of those that
have proved nothing, and of records on their way at one time are bounded. Copies of other hosts'
blocks come on the same connections (`replica_service`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import logging
import mmap
import os
import socket
import ssl
import traceback
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import msgspec

from penstock.blockstore.building.memory import lock_shared
from penstock.blockstore.reading.fetch import (
    ANSWER,
    MAX_REQUEST_BYTES,
    REQUEST,
    SERVICE,
    FetchRequest,
    FetchStatus,
)
from penstock.blockstore.server._files import ApplicationFiles
from penstock.blockstore.server.replica_service import ReplicaRequest, ReplicaService, Upload
from penstock.runtime.clock import SystemClock
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.wal import RECORD_HEADER_SIZE, Answer, WalError, answer_of, record_length
from penstock.wire import (
    TAG_BYTES,
    Arrival,
    Arrivals,
    HandshakeState,
    Seals,
    ServerHandshake,
    TamperedError,
)
from penstock.wire.addresses import listen_in_range
from penstock.wire.messages import MemoryPlace, SegmentPlace

_logger = logging.getLogger("penstock.blockstore")

_STEP_BYTES = 4 << 20
_TLS_STEP_BYTES = 256 << 10
_MAX_REASON_BYTES = 2000
_HASHERS = 2
_LINGER_S = 1.0
_CANCEL_STEP_S = 0.1
_Request = FetchRequest | ReplicaRequest
_decoder: msgspec.msgpack.Decoder[_Request] = msgspec.msgpack.Decoder(FetchRequest | ReplicaRequest)


@dataclass(frozen=True)
class ServingLimits:
    """What readers may cost.

    Attributes:
        max_connections: Connections at one time that have proved themselves; more are answered
            `BUSY`.
        max_unauthenticated: Connections beside these that have proved nothing yet, those in the
            handshake of TLS included; then one is dropped (see `Arrivals`).
        max_transfers: Records on their way at one time; others wait.
        max_senders: Connections at one time that may send copies; more are answered `BUSY`.
        authentication_timeout_s: Bound of the handshake, that of TLS included.
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


@dataclass(frozen=True)
class _Peer:
    """A connection that has proved itself."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    seals: Seals
    name: str

    def sealed(self, data: bytes) -> bytes:
        """Return it with its tag, to be sent next."""
        return data + self.seals.outgoing.tag(data)


class BlockService:
    """Answers `FetchRequest`s. All methods are called on one event loop.

    Args:
        secret: The application's secret.
        files: What may be served.
        limits: What readers may cost.
        ssl_context: Makes each connection a TLS connection, below the authentication.
        replicas: Takes copies of blocks; without one they are refused.
    """

    def __init__(
        self,
        secret: bytes,
        files: ApplicationFiles,
        limits: ServingLimits | None = None,
        ssl_context: ssl.SSLContext | None = None,
        replicas: ReplicaService | None = None,
    ) -> None:
        self._secret = secret
        self._files = files
        self._limits = limits or ServingLimits()
        self._ssl_context = ssl_context
        self._replicas = replicas
        self._uploads: dict[asyncio.StreamWriter, Upload] = {}
        self._step_bytes = _STEP_BYTES if ssl_context is None else _TLS_STEP_BYTES
        self._transfers = asyncio.Semaphore(self._limits.max_transfers)
        self._arrivals: Arrivals | None = None
        self._hashers = ThreadPoolExecutor(_HASHERS, "penstock-block-hashes")
        self._limited_log = RateLimitedLog(_logger, SystemClock())
        self._connections: set[asyncio.Task[None]] = set()
        self._peers = 0
        self._closing: set[asyncio.Future[None]] = set()

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
        self._arrivals = Arrivals(
            self._protocol,
            most=self._limits.max_unauthenticated,
            timeout_s=self._limits.authentication_timeout_s,
            refused=self._refused,
            ssl_context=self._ssl_context,
        )
        self._arrivals.listen(sockets)
        address = sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        if self._arrivals is not None:
            await self._arrivals.stop()
        while self._connections:
            # Again and again: before Python 3.12 `wait_for` may swallow it when what it waits for
            # is done at the same moment.
            for task in self._connections:
                task.cancel()
            await asyncio.wait(set(self._connections), timeout=_CANCEL_STEP_S)
        self._hashers.shutdown()

    def _protocol(self, arrival: Arrival) -> asyncio.BaseProtocol:
        loop = asyncio.get_running_loop()
        return asyncio.StreamReaderProtocol(
            asyncio.StreamReader(limit=MAX_REQUEST_BYTES, loop=loop),
            lambda reader, writer: self._serve(reader, writer, arrival),
            loop=loop,
        )

    def _refused(self, peer: str, reason: str) -> None:
        self._limited_log.log(f"refused a connection from {peer}: {reason}", like="")

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, arrival: Arrival
    ) -> None:
        """One connection, from its beginning to its end."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            seals = await self._authenticate(reader, writer, arrival)
            if seals is not None:
                await self._answer_all(_Peer(reader, writer, seals, arrival.peer))
        except TamperedError as error:
            self._limited_log.log(str(error), like="")
            _forget_frames(error)
        except (OSError, EOFError, asyncio.TimeoutError) as error:
            # Also IncompleteReadError, which is an EOFError: the reader went away.
            _logger.debug("a reader's connection ended: %r", error)
            _forget_frames(error)
        except asyncio.CancelledError as error:
            _logger.debug("a reader's connection was ended by the stop")
            _forget_frames(error)
        finally:
            self._connections.discard(task)
            self._proved_or_over(arrival)
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

    def _proved_or_over(self, arrival: Arrival) -> None:
        if self._arrivals is not None:
            self._arrivals.remove(arrival)

    async def _authenticate(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, arrival: Arrival
    ) -> Seals | None:
        """Return what proves all that follows, or None for a stranger."""

        def turn_away(reason: str) -> None:
            self._refused(arrival.peer, reason)
            writer.transport.abort()

        if arrival.is_over:  # It was turned away before this task began.
            writer.transport.abort()
            return None
        arrival.turn_away = turn_away
        handshake = ServerHandshake(self._secret, SERVICE)
        writer.write(handshake.opening())
        hello = await reader.readexactly(handshake.expects)
        writer.write(handshake.receive(hello))
        self._proved_or_over(arrival)
        if handshake.state is not HandshakeState.ACCEPTED:
            self._refused(arrival.peer, handshake.reason)
            return None
        return handshake.seals()

    async def _answer_all(self, peer: _Peer) -> None:
        # Strangers are not counted: a crowd of them must not keep the application's own out.
        if self._peers >= self._limits.max_connections:
            await self._say(peer, FetchStatus.BUSY, "too many connections")
            return
        self._peers += 1
        try:
            while await self._answer_next(peer):
                pass
        finally:
            self._peers -= 1

    async def _answer_next(self, peer: _Peer) -> bool:
        """Answer one request; False when the connection is to end."""
        timeout_s = self._limits.idle_timeout_s
        reader = peer.reader
        head = await asyncio.wait_for(reader.readexactly(REQUEST.size), timeout_s)
        (length,) = REQUEST.unpack(head)
        if length > MAX_REQUEST_BYTES:
            await self._say(peer, FetchStatus.REFUSED, f"a request of {length} bytes")
            return False
        data = await asyncio.wait_for(reader.readexactly(length + TAG_BYTES), timeout_s)
        text, tag = data[:length], data[length:]
        peer.seals.incoming.check(peer.name, tag, head, text)
        try:
            request = _decoder.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            await self._say(peer, FetchStatus.REFUSED, f"a request that cannot be read: {error}")
            return False
        if isinstance(request, ReplicaRequest):
            return await self._take_copy(peer, request)
        async with self._transfers:
            await self._answer(peer, request)
        return True

    async def _take_copy(self, peer: _Peer, request: ReplicaRequest) -> bool:
        """Take a copy; False when the connection is to end."""
        refusal = "no copies are taken here"
        if self._replicas is not None:
            refusal = self._replicas.refusal(request) or ""
        if self._replicas is None or refusal:
            _logger.warning("refused a copy: %s", refusal)
            await self._say(peer, FetchStatus.REFUSED, refusal)
            return False
        if peer.writer not in self._uploads and len(self._uploads) >= self._limits.max_senders:
            await self._say(peer, FetchStatus.BUSY, "too many send copies here")
            return False
        upload = self._uploads.setdefault(peer.writer, Upload())

        def check(tag: bytes, digest: bytes) -> None:
            peer.seals.incoming.check(peer.name, tag, digest)

        try:
            kept = await self._replicas.receive(peer.reader, request, upload, check)
        except WalError as error:
            _logger.warning("a copy of stream %d was not kept: %s", request.stream_id, error)
            await self._say(peer, FetchStatus.NOT_KEPT, str(error))
            return True
        await self._reply(peer, FetchStatus.KEPT, kept)
        return True

    async def _answer(self, peer: _Peer, request: FetchRequest) -> None:
        status = FetchStatus.NOT_FOUND
        tried = []
        for place in (request.memory, request.segment):
            if place is None:
                continue
            try:
                with open_record(self._files, place, request.sequence) as record:
                    await self._send(peer, record, request.sealed)
                    return
            except NotThereError as error:
                tried.append(str(error))
                if error.status is FetchStatus.REFUSED:
                    _logger.warning("refused a request: %s", error)
                if status is FetchStatus.NOT_FOUND:
                    status = error.status
        await self._say(peer, status, "; ".join(tried) or "the request names no place")

    async def _send(self, peer: _Peer, record: Record, sealed: bool) -> None:
        loop = asyncio.get_running_loop()
        digest = hashlib.sha256()
        with self._sending(peer.writer) as send:
            head = peer.sealed(ANSWER.pack(FetchStatus.RECORD, record.length))
            for piece in record.pieces(self._step_bytes):
                if not sealed:
                    await send(head, piece)
                else:
                    hashing = loop.run_in_executor(self._hashers, digest.update, piece)
                    await send(head, piece)
                    await hashing
                head = b""
            if sealed:
                await send(b"", peer.seals.outgoing.tag(digest.digest()))

    @contextlib.contextmanager
    def _sending(
        self, writer: asyncio.StreamWriter
    ) -> Iterator[Callable[[bytes, bytes | memoryview], Awaitable[None]]]:
        """Yield what sends a head and a piece, with one copy of it less where that can be."""
        step_s = self._limits.step_timeout_s
        if self._ssl_context is not None:

            async def write(head: bytes, piece: bytes | memoryview) -> None:
                writer.write(b"".join((head, piece)))
                await asyncio.wait_for(writer.drain(), step_s)

            yield write
            return
        loop = asyncio.get_running_loop()
        # The writer would copy what the socket does not take at once. All that went through it
        # before was answered, so nothing is left in it.
        with socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno())) as direct:
            direct.setblocking(False)

            async def send(head: bytes, piece: bytes | memoryview) -> None:
                try:
                    sent = direct.sendmsg((head, piece))
                except BlockingIOError:
                    sent = 0
                if sent < len(head):
                    await asyncio.wait_for(loop.sock_sendall(direct, head[sent:]), step_s)
                rest = memoryview(piece)[max(0, sent - len(head)) :]
                if rest:
                    await asyncio.wait_for(loop.sock_sendall(direct, rest), step_s)

            yield send

    async def _say(self, peer: _Peer, status: FetchStatus, reason: str) -> None:
        await self._reply(peer, status, reason.encode(errors="replace")[:_MAX_REASON_BYTES])

    async def _reply(self, peer: _Peer, status: FetchStatus, text: bytes) -> None:
        peer.writer.write(peer.sealed(ANSWER.pack(status, len(text))) + peer.sealed(text))
        await asyncio.wait_for(peer.writer.drain(), self._limits.step_timeout_s)


def _forget_frames(error: BaseException | None) -> None:
    """Let go of what an error's frames refer to.

    `wait_for` leaves the error and its frames in a circle, and with them the mapping of a file, or
    the memory in which a copy arrived.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


class NotThereError(Exception):
    """A place does not hold the record (any more), or cannot be looked into."""

    def __init__(self, reason: str, status: FetchStatus = FetchStatus.NOT_FOUND) -> None:
        super().__init__(reason)
        self.status = status


@contextlib.contextmanager
def open_record(
    files: ApplicationFiles, place: MemoryPlace | SegmentPlace, sequence: int
) -> Iterator[Record]:
    """Open a record, make sure that it is the one, and keep a slot so.

    Raises:
        NotThereError: The record is gone, or its path is none of the application's.
    """
    with contextlib.ExitStack() as stack:
        try:
            if isinstance(place, MemoryPlace):
                fd = files.open_memory(place)
            else:
                fd = files.open_segment(place)
            stack.enter_context(open(fd, "rb", buffering=0))
            if isinstance(place, MemoryPlace) and not lock_shared(fd, place.offset, place.length):
                raise NotThereError("the slot was given to another block")
            record = _opened(fd, place, sequence)
        except (OSError, WalError, ValueError, OverflowError) as error:
            raise NotThereError(_describe(place, error), _status_of(error)) from error
        yield record


def _status_of(error: Exception) -> FetchStatus:
    # What this process lacks, such as descriptors, is not taken for a block that is gone.
    answer = answer_of(error)
    if answer is Answer.REFUSED:
        return FetchStatus.REFUSED
    return FetchStatus.BUSY if answer is Answer.AWAY else FetchStatus.NOT_FOUND


def _describe(place: MemoryPlace | SegmentPlace, error: Exception) -> str:
    text = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    if isinstance(place, MemoryPlace):
        return f"memory {place.path}: {text}"
    return f"segment {place.segment} of {place.folder}: {text}"


class Record(Protocol):
    """A record that can be sent."""

    @property
    def length(self) -> int:
        """Its bytes, with its header."""
        ...

    def pieces(self, size: int) -> Iterator[memoryview]:
        """Yield its bytes, at most `size` at a time.

        Raises:
            OSError: They are not there any more.
        """
        ...


@dataclass(frozen=True)
class _MappedRecord:
    view: memoryview

    @property
    def length(self) -> int:
        return len(self.view)

    def pieces(self, size: int) -> Iterator[memoryview]:
        for begin in range(0, self.length, size):
            yield self.view[begin : begin + size]


@dataclass(frozen=True)
class _RecordInFile:
    fd: int
    offset: int
    length: int

    def pieces(self, size: int) -> Iterator[memoryview]:
        end = self.offset + self.length
        for begin in range(self.offset, end, size):
            yield memoryview(_read(self.fd, begin, min(size, end - begin)))


def _opened(fd: int, place: MemoryPlace | SegmentPlace, sequence: int) -> Record:
    """Return the record with `sequence` at `place`; its payload is not touched.

    Raises:
        CorruptRecordError: It has something else.
        OSError, ValueError: The place is not within the file.
    """
    size = os.fstat(fd).st_size
    if place.offset < 0 or place.length < RECORD_HEADER_SIZE or place.offset + place.length > size:
        raise OSError(errno.ENXIO, f"the file has {size} bytes and ends before the record")
    if isinstance(place, SegmentPlace):
        header = memoryview(_read(fd, place.offset, RECORD_HEADER_SIZE))
        _check(record_length(header, expected_sequence=sequence), place)
        return _RecordInFile(fd, place.offset, place.length)
    shift = place.offset % mmap.ALLOCATIONGRANULARITY
    # Not closed by hand: the last view of it does that.
    mapped = mmap.mmap(
        fd,
        place.length + shift,
        # All of it is going to be read: one call instead of thousands of faults.
        flags=mmap.MAP_SHARED | mmap.MAP_POPULATE,
        prot=mmap.PROT_READ,
        offset=place.offset - shift,
    )
    record = memoryview(mapped)[shift : shift + place.length]
    _check(record_length(record, expected_sequence=sequence), place)
    return _MappedRecord(record)


def _check(length: int, place: MemoryPlace | SegmentPlace) -> None:
    if length != place.length:
        raise OSError(errno.ENXIO, f"the record there has {length} bytes")


def _read(fd: int, offset: int, length: int) -> bytes:
    data = os.pread(fd, length, offset)
    while len(data) < length:
        more = os.pread(fd, length - len(data), offset + len(data))
        if not more:
            raise OSError(errno.ENXIO, "the segment was cut while it was sent")
        data += more
    return data
