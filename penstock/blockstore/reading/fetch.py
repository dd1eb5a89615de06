"""Reading a block from another host: one connection, one request, the record's bytes.

After the handshake of `penstock.wire` (service ``blocks``), all little-endian:

- request: u32 length, then MessagePack of a `FetchRequest`, and its tag (`penstock.wire.Seal`);
- answer: u8 status, u64 length, and their tag; then that many bytes: the log record (header and
  payload) as it is in the slot or the segment, or for any other status a reason in UTF-8; and the
  tag of these. From a segment that is encrypted the record comes encrypted.

The tag of a record is that of its SHA-256, which the server computes while it sends. It is left out
where `FetchRequest.sealed` says so: with TLS, and between processes of one host, where it would
cost more than the copy (`BlockConnection.seals_blocks`).

A connection may carry several requests, one after the other; they may all be sent before the first
answer has come. It is kept for the next ones (`KeptConnections`).
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence

import msgspec

from penstock.runtime.checksum import crc32c
from penstock.runtime.reused_memory import ReusedMemory
from penstock.wal import RECORD_HEADER_SIZE, TAG_SIZE, CorruptRecordError, LogCipher, parse_record
from penstock.wire import (
    TAG_BYTES,
    ClientHandshake,
    ConnectionLostError,
    ProtocolError,
    Seals,
    WireError,
)
from penstock.wire.addresses import address_text, is_within_host
from penstock.wire.messages import MemoryPlace, ReceivedBlockInfo, SegmentPlace

SERVICE = "blocks"
REQUEST = struct.Struct("<I")
ANSWER = struct.Struct("<BQ")
MAX_REQUEST_BYTES = 64 << 10
_MAX_ANSWER_BYTES = 64 << 10
_STEP_BYTES = 1 << 20
_CONNECT_TRY_S = 3.0
_ALIGNMENT = 64
_SILENCE_S = 10.0
"""Silence after which the connection is replaced by a new one: it may be half open."""

_MOST_KEPT = 8
_KEPT_S = 15.0
"""How long a connection is kept: the block server ends it after twice as long."""

_memory = ReusedMemory()


class KeptConnections:
    """Connections to block servers that are used again, so that a block costs no handshake.

    One is for one thread at a time: it is taken, and given back when all that was asked for on it
    has come. A process that is forked begins with none: what its parent has is the parent's. Any
    thread may come: a lock guards them.
    """

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._in_child)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._kept: list[tuple[Hashable, float, BlockConnection]] = []

    def _in_child(self) -> None:
        kept = self._kept
        self._begin()
        for _, _, connection in kept:
            connection.leave()

    def take(self, key: Hashable) -> BlockConnection | None:
        """Return a connection for the key, if there is one that its server has not ended."""
        with self._lock:
            found = self._pop_old()
            for at in reversed(range(len(self._kept))):
                if self._kept[at][0] == key:
                    connection = self._kept.pop(at)[2]
                    if connection.is_quiet():
                        break
                    found.append(connection)
            else:
                connection = None
        for over in found:
            over.close()
        return connection

    def give(self, key: Hashable, connection: BlockConnection) -> None:
        """Keep one on which nothing is to come."""
        with self._lock:
            self._kept.append((key, time.monotonic(), connection))
            found = self._pop_old()
        for over in found:
            over.close()

    def _pop_old(self) -> list[BlockConnection]:
        """Take out those that are too many or too old; needs `_lock`."""
        oldest_s = time.monotonic() - _KEPT_S
        young = [one for one in self._kept if one[1] >= oldest_s][-_MOST_KEPT:]
        old = [one[2] for one in self._kept if one not in young]
        self._kept = young
        return old


_connections = KeptConnections()


class FetchStatus(enum.IntEnum):
    """What an answer holds."""

    REFUSED = 0
    """The request is not allowed, or cannot be understood."""
    RECORD = 1
    """The record follows."""
    NOT_FOUND = 2
    """The block is no longer in any of its places."""
    BUSY = 3
    """Too many others are being served; the same request may succeed later."""
    KEPT = 4
    """A copy was written (`penstock.blockstore.server.replica_service`); its place follows."""
    NOT_KEPT = 5
    """A copy arrived and could not be written."""


class FetchRequest(msgspec.Struct, frozen=True, array_like=True, tag="fetch"):
    """Which record is wanted: the places of a `ReceivedBlockInfo`, and what they must have."""

    sequence: int
    memory: MemoryPlace | None
    segment: SegmentPlace | None
    sealed: bool
    """Whether a tag is to follow the record."""


class BlockNotServedError(WireError):
    """The block server did not give the block.

    Attributes:
        block_id: The block.
        status: What it answered.
    """

    def __init__(self, peer: str, block_id: str, status: FetchStatus, reason: str) -> None:
        super().__init__(
            peer,
            f"the block server {peer} did not give block {block_id} "
            f"({status.name.lower().replace('_', ' ')}): {reason}",
        )
        self.block_id = block_id
        self.status = status


def fetch(
    address: tuple[str, int],
    secret: bytes,
    info: ReceivedBlockInfo,
    timeout_s: float = 30.0,
    *,
    connect_s: float | None = None,
    ssl_context: ssl.SSLContext | None = None,
    cipher: LogCipher | None = None,
    others: Sequence[ReceivedBlockInfo] = (),
    found: Callable[[ReceivedBlockInfo, memoryview], object] | None = None,
) -> memoryview:
    """Fetch a block's payload from a block server, and check it.

    Args:
        address: Host and port of the block server.
        secret: The application's secret.
        info: The block.
        timeout_s: Bound of the whole, in seconds.
        connect_s: Bound of connecting, where it is worth less; None for `timeout_s`.
        ssl_context: Makes it a TLS connection, below the authentication.
        cipher: Decrypts the record if it comes from the segment: the server has no key.
        others: Blocks of that server that are asked for in the same breath. The cipher is also
            theirs.
        found: Is given the payload of each of the others that came.

    Returns:
        The record's payload; its sequence, length and CRC-32C are as expected. It and the others'
        share memory that is used again when no one looks into it any more.

    Raises:
        AuthenticationError: The two ends do not share the secret.
        BlockNotServedError: The server no longer has it, or refuses.
        ConnectionLostError: The server cannot be reached, broke off, took too long, or was silent
            for ten seconds.
        ProtocolError: What answered is no block server.
        TamperedError: What came is not what the block server sent.
        CorruptRecordError: What came is not the block.
    """
    peer = address_text(*address)
    deadline_s = time.monotonic() + timeout_s
    key = (address, secret, ssl_context is None)
    wanted = (info, *others)
    overhead = 0 if cipher is None else TAG_SIZE
    memory = _memory.take(sum(room_for(one, overhead) for one in wanted))
    try:
        records = None
        if (kept := _connections.take(key)) is not None:
            kept.extend(timeout_s)
            # The server may end it at any time, and may have been replaced.
            with contextlib.suppress(OSError, EOFError):
                records = _received(kept, key, wanted, memory, overhead)
        if records is None:
            left_s = deadline_s - time.monotonic()
            connection = BlockConnection(address, peer, left_s, ssl_context, connect_s)
            with connection.closed_if_it_fails():
                connection.authenticate(secret)
            records = _received(connection, key, wanted, memory, overhead)
    except (OSError, EOFError) as error:
        reason = str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            reason = f"no answer, or not all of it, within {min(timeout_s, _SILENCE_S):g} s"
        raise ConnectionLostError(
            peer, f"block {info.block_id} could not be fetched from {peer}: {reason}"
        ) from error
    payload = _payload_of(info, records[0], cipher)
    for other, record in zip(others, records[1:], strict=False):
        # Whatever is wrong with one is reported when it is asked for by itself.
        if found is not None:
            with contextlib.suppress(BlockNotServedError, CorruptRecordError):
                found(other, _payload_of(other, record, cipher))
    return payload


_Record = tuple[memoryview, int]
"""A record, and the checksum of its payload."""


def _received(
    connection: BlockConnection,
    key: Hashable,
    wanted: Sequence[ReceivedBlockInfo],
    memory: memoryview,
    overhead: int,
) -> list[_Record | BlockNotServedError]:
    """Return what came of each that was wanted, at least a record of the first."""
    records: list[_Record | BlockNotServedError] = []
    with connection.closed_if_it_fails():
        try:
            for found in connection.request(wanted, memory, overhead):
                if not records and isinstance(found, BlockNotServedError):
                    raise found
                records.append(found)
        except (OSError, EOFError, WireError):
            if not records:
                raise
            connection.close()
            return records
    _connections.give(key, connection)
    return records


def _payload_of(
    info: ReceivedBlockInfo, found: _Record | BlockNotServedError, cipher: LogCipher | None
) -> memoryview:
    if isinstance(found, BlockNotServedError):
        raise found
    record, checksum = found
    # The server holds lengths against the request's, so that this one shows the place.
    from_memory = len(record) == RECORD_HEADER_SIZE + info.num_bytes
    return parse_record(
        record,
        expected_sequence=info.sequence,
        cipher=None if from_memory else cipher,
        checksum=checksum,
    )


def room_for(info: ReceivedBlockInfo, overhead: int) -> int:
    """Return how many bytes a record takes, to the next place where Arrow would have one begin."""
    return -(-(RECORD_HEADER_SIZE + info.num_bytes + overhead) // _ALIGNMENT) * _ALIGNMENT


class BlockConnection:
    """A blocking connection to a block server, with one deadline for all it does.

    Args:
        address: The block server's.
        peer: How errors name it.
        timeout_s: Bound of all until `extend`.
        ssl_context: Makes it a TLS connection.
        connect_s: Bound of connecting; None for `timeout_s`.

    Attributes:
        seals_blocks: The bytes of blocks also get tags, as all else does: nothing else proves them,
            and they leave this host.

    Raises:
        OSError: It cannot be made.
    """

    _seals: Seals

    def __init__(
        self,
        address: tuple[str, int],
        peer: str,
        timeout_s: float,
        ssl_context: ssl.SSLContext | None,
        connect_s: float | None = None,
    ) -> None:
        self._peer = peer
        self._deadline_s = time.monotonic() + timeout_s
        self._socket = self._connect(address, timeout_s if connect_s is None else connect_s)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.seals_blocks = ssl_context is None and not is_within_host(self._socket)
            if ssl_context is not None:
                self._bound()
                self._socket = ssl_context.wrap_socket(self._socket)
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> BlockConnection:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextlib.contextmanager
    def closed_if_it_fails(self) -> Iterator[None]:
        """Close it when what is done raises."""
        try:
            yield
        except BaseException:
            self.close()
            raise

    def is_quiet(self) -> bool:
        """Return whether nothing has come, not even the end of the connection."""
        return not select.select([self._socket], [], [], 0)[0]

    def leave(self) -> None:
        """Let it be another process's."""
        self._socket.close()

    def close(self) -> None:
        """Close it; anyone who waits for it in another thread gets an error."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def extend(self, timeout_s: float) -> None:
        """Let the deadline be `timeout_s` seconds from now."""
        self._deadline_s = time.monotonic() + timeout_s

    def _connect(self, address: tuple[str, int], within_s: float) -> socket.socket:
        """Connect; a try that gets no answer is given up soon, for the kernel's pauses grow."""
        end_s = min(self._deadline_s, time.monotonic() + within_s)
        while True:
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("it takes no connection")
            with contextlib.suppress(TimeoutError):
                return socket.create_connection(address, min(left_s, _CONNECT_TRY_S))

    def authenticate(self, secret: bytes) -> None:
        """Prove the secret, and have it proved.

        Raises:
            AuthenticationError: The two ends do not share it.
            OSError, EOFError: The connection broke.
        """
        handshake = ClientHandshake(secret, SERVICE, self._peer)
        while handshake.expects:
            self.send(handshake.receive(self.receive(handshake.expects)))
        self._seals = handshake.seals()

    def request(
        self, infos: Sequence[ReceivedBlockInfo], memory: memoryview, overhead: int
    ) -> Iterator[_Record | BlockNotServedError]:
        """Ask for blocks; yield each one's record and the checksum of its payload, or why not.

        The length of one is as `infos` has it, or longer by `overhead`. They are put into `memory`.
        """
        sealed = self.seals_blocks
        asks = [FetchRequest(one.sequence, one.memory, one.segment, sealed) for one in infos]
        self.send(b"".join(map(self._sealed_request, asks)))
        place = 0
        for info in infos:
            status, length = self.answer()
            if status is not FetchStatus.RECORD:
                reason = self.text(length).decode(errors="replace")
                yield BlockNotServedError(self._peer, info.block_id, status, reason)
                continue
            expected = RECORD_HEADER_SIZE + info.num_bytes
            if length not in (expected, expected + overhead):
                raise ProtocolError(
                    self._peer, f"block {info.block_id} has {expected} bytes, it announced {length}"
                )
            record = memory[place : place + length]
            place += room_for(info, overhead)
            checksum, come, digest = 0, 0, hashlib.sha256()
            for piece in self._pieces(record):
                # While it is in the processor's cache.
                checksum = crc32c(piece[max(0, RECORD_HEADER_SIZE - come) :], checksum)
                if sealed:
                    digest.update(piece)
                come += len(piece)
            if sealed:
                self._seals.incoming.check(self._peer, self.receive(TAG_BYTES), digest.digest())
            yield record, checksum

    def ask(self, request: msgspec.Struct) -> None:
        """Send a request."""
        self.send(self._sealed_request(request))

    def _sealed_request(self, request: msgspec.Struct) -> bytes:
        text = msgspec.msgpack.encode(request)
        data = REQUEST.pack(len(text)) + text
        return data + self._seals.outgoing.tag(data)

    def answer(self) -> tuple[FetchStatus, int]:
        """Receive the head of an answer: its status and the length of what follows.

        Raises:
            ProtocolError: It is none.
            TamperedError: The block server did not send it.
            OSError, EOFError: The connection broke.
        """
        code, length = ANSWER.unpack(self._receive_sealed(ANSWER.size))
        try:
            return FetchStatus(code), length
        except ValueError:
            raise ProtocolError(self._peer, f"an answer of unknown status {code}") from None

    def text(self, length: int) -> bytes:
        """Receive what follows the head of an answer that is no record.

        Raises:
            ProtocolError: It is too long.
            TamperedError: The block server did not send it.
            OSError, EOFError: The connection broke.
        """
        if length > _MAX_ANSWER_BYTES:
            raise ProtocolError(self._peer, f"an answer of {length} bytes")
        return self._receive_sealed(length)

    def send_seal(self, digest: bytes) -> None:
        """Send the tag of what was sent by `send`, by its SHA-256."""
        self.send(self._seals.outgoing.tag(digest))

    def _receive_sealed(self, count: int) -> bytes:
        data = self.receive(count + TAG_BYTES)
        self._seals.incoming.check(self._peer, data[count:], data[:count])
        return data[:count]

    def send(self, data: bytes | memoryview) -> None:
        """Send a piece of at most some megabytes: all of it has to go out within ten seconds."""
        if data:
            self._bound()
            self._socket.sendall(data)

    def receive(self, count: int) -> bytes:
        """Receive exactly that many bytes."""
        return b"".join(self._pieces(memoryview(bytearray(count))))

    def _pieces(self, view: memoryview) -> Iterator[memoryview]:
        """Fill it; yield what has come."""
        missing = len(view)
        while missing:
            self._bound()
            rest = view[-missing:]
            received = self._socket.recv_into(rest[:_STEP_BYTES])
            if not received:
                raise EOFError(f"it closed the connection, {missing} of {len(view)} bytes missing")
            yield rest[:received]
            missing -= received

    def _bound(self) -> None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the time is over")
        self._socket.settimeout(min(left_s, _SILENCE_S))
