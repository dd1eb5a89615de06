"""Frames: how a message is laid out on a connection, and how a stream of bytes is cut into them.

A frame is, little-endian: u32 length of what follows | u64 id | u8 kind | MessagePack of the
message. Its tag follows (`Seal`), which the length does not count. An *ask* has an id that its
sender never used before on this connection; the *reply* carries the same; a *send* has id 0.

`FrameBuffer` holds what was received and not yet used. Its memory follows what really came: a
peer that announces a large frame and stalls costs no more than twice what it sent.
"""

from __future__ import annotations

import enum
import struct
from typing import Any

import msgspec

from penstock.errors import IllegalStateError
from penstock.wire._authentication import TAG_BYTES, Seal
from penstock.wire.errors import FrameTooLargeError, ProtocolError
from penstock.wire.messages import Heartbeat


class Kind(enum.IntEnum):
    """What a frame is for."""

    SEND = 0
    ASK = 1
    REPLY = 2


_HEADER = struct.Struct("<IQB")
_LENGTH_FIELD = 4
_ENVELOPE = _HEADER.size - _LENGTH_FIELD
_KINDS = tuple(Kind)
_SMALL_BUFFER = 128
"""Size of the buffer during the handshake."""

_BUFFER = 64 << 10
"""Size of the buffer after it, except while a frame is longer."""


_encoder = msgspec.msgpack.Encoder()


def encode_frame(
    message: msgspec.Struct,
    kind: Kind,
    ask_id: int = 0,
    *,
    limit_bytes: int,
    peer: str = "the peer",
) -> bytes:
    """Return the bytes of one frame. May be called from any thread.

    Raises:
        FrameTooLargeError: The frame would be larger than `limit_bytes`.
    """
    frame = bytearray(_HEADER.size)
    _encoder.encode_into(message, frame, _HEADER.size)
    length = len(frame) - _LENGTH_FIELD
    if length > limit_bytes:
        raise FrameTooLargeError(peer, length, limit_bytes)
    _HEADER.pack_into(frame, 0, length, ask_id, kind)
    return bytes(frame)


HEARTBEAT_FRAME = encode_frame(Heartbeat(), Kind.SEND, limit_bytes=64)


class FrameBuffer:
    """What one connection has received: filled by the socket, emptied frame by frame.

    It belongs to one thread. `room` may be limited to that many bytes, so that during the handshake
    not one byte beyond it is even read.
    """

    def __init__(self, decoder: msgspec.msgpack.Decoder[Any], limit_bytes: int, peer: str) -> None:
        self._decoder = decoder
        self._limit_bytes = limit_bytes
        self._peer = peer
        self._seal: Seal | None = None
        self._buffer = bytearray(_SMALL_BUFFER)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0

    def __len__(self) -> int:
        return self._end - self._start

    @property
    def announced(self) -> int:
        """How long the frame that has begun to come says it is; 0 when that is not known yet."""
        if len(self) < _LENGTH_FIELD:
            return 0
        return int.from_bytes(self._view[self._start : self._start + _LENGTH_FIELD], "little")

    def opened_by(self, seal: Seal) -> None:
        """Say what the frames are checked with; before that there are none."""
        self._seal = seal

    def room(self, at_most: int | None = None) -> memoryview:
        """Return writable memory for the next bytes; at least one byte, at most `at_most`."""
        if self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > 16 * _BUFFER:
                self._become(_BUFFER)
        if at_most is not None:
            # A handshake message fits the small buffer.
            return self._view[self._end : self._end + at_most]
        if len(self._buffer) < _BUFFER:
            self._become(_BUFFER)
        if len(self._buffer) - self._end < len(self._buffer) // 4:
            used = self._end - self._start
            if used > len(self._buffer) // 2:
                self._become(2 * len(self._buffer))
            elif self._start:
                used = self._end - self._start
                self._view[:used] = self._view[self._start : self._end]
                self._start, self._end = 0, used
        return self._view[self._end :]

    def filled(self, count: int) -> None:
        """Say that the first `count` bytes of `room` now hold data."""
        self._end += count

    def take(self, count: int) -> bytes:
        """Take exactly `count` bytes, which must have arrived."""
        data = bytes(self._view[self._start : self._start + count])
        self._start += count
        return data

    def next_frame(self) -> tuple[int, Kind, Any] | None:
        """Take the next whole frame: its id, kind and message; None when none is complete.

        Raises:
            FrameTooLargeError: Its length is over the limit (known from the first four bytes).
            ProtocolError: It cannot be decoded.
            TamperedError: It is not what the peer sent.
        """
        seal = self._seal
        if seal is None:
            raise IllegalStateError("no frame is read before the peer has proved itself")
        start = self._start
        available = self._end - start
        if available < _HEADER.size:
            if available >= _LENGTH_FIELD:
                self._checked_length(self.announced)
            return None
        length, ask_id, kind = _HEADER.unpack_from(self._buffer, start)
        self._checked_length(length)
        if available < _LENGTH_FIELD + length + TAG_BYTES:
            return None
        end = start + _LENGTH_FIELD + length
        seal.check(self._peer, self._view[end : end + TAG_BYTES], self._view[start:end])
        if kind >= len(_KINDS):
            raise ProtocolError(self._peer, f"a frame of unknown kind {kind}")
        try:
            message = self._decoder.decode(self._view[start + _HEADER.size : end])
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ProtocolError(self._peer, f"a message that cannot be read ({error})") from error
        self._start = end + TAG_BYTES
        return ask_id, _KINDS[kind], message

    def _checked_length(self, length: int) -> None:
        if length > self._limit_bytes:
            raise FrameTooLargeError(self._peer, length, self._limit_bytes)
        if length <= _ENVELOPE:
            raise ProtocolError(self._peer, f"a frame of {length} bytes, too short for a message")

    def _become(self, size: int) -> None:
        """Move what is left to the front of memory of another size."""
        used = self._end - self._start
        buffer = bytearray(max(size, used + 1))
        buffer[:used] = self._view[self._start : self._end]
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start = 0
        self._end = used
