"""What is thrown at a port: strategies of Hypothesis, over bytes and over what was recorded."""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from hypothesis import strategies as st

from tests.system.fuzz.recording import frames

TRACKER, BLOCKS = "tracker", "blocks"
_ENVELOPES = {TRACKER: 13, BLOCKS: 4}
"""Bytes of a frame before its MessagePack."""


class Proof(enum.Enum):
    """How an attacker begins."""

    NONE = "no handshake"
    WRONG = "wrong secret"
    OTHER_SERVICE = "proof for the other port"
    RIGHT = "right secret"
    UNSEALED = "right secret, and no tags after that"
    REPLAYED = "recorded handshake"
    NO_TLS = "no TLS where there should be"


class Ending(enum.Enum):
    """How an attacker ends."""

    CLOSE = "close"
    RESET = "reset"
    HALF_OPEN = "half-open"
    READ = "read to the end"
    HOLD = "held open, nothing read"


@dataclass(frozen=True)
class Attack:
    """One connection.

    Attributes:
        port: ``tracker`` or ``blocks``.
        tls: Whether it goes to the application with TLS.
        proof: How it begins.
        way: What the bytes were made by.
        pieces: What is written, piece by piece.
        slow: A little time passes between the pieces.
        ending: How it ends.
    """

    port: str
    tls: bool
    proof: Proof
    way: str
    pieces: tuple[bytes, ...]
    slow: bool
    ending: Ending


_EXTREMES = (
    0,
    1,
    -1,
    127,
    128,
    255,
    2**31 - 1,
    2**31,
    2**32,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
)
_LENGTHS = (0, 1, 8, 9, 10, 13, 65_535, 65_536, 65_537, 8 << 20, (8 << 20) + 1, 2**31, 2**32 - 1)

_numbers = st.sampled_from(_EXTREMES) | st.integers(-(2**63), 2**64 - 1)
_leaves = st.one_of(
    st.none(),
    st.booleans(),
    _numbers,
    st.floats(),
    st.text(max_size=40),
    st.binary(max_size=40),
    st.sampled_from(("\0", "../..", "/etc/passwd", "x" * 5000, "/" * 4095, b"\xff" * 5000, "")),
)
_values = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def attacks(
    conversations: dict[bool, dict[str, list[bytes]]],
) -> st.SearchStrategy[Attack]:
    """Return the strategy of all attacks.

    Args:
        conversations: What was recorded: by TLS, by port.
    """

    @st.composite
    def attack(draw: Callable[..., Any]) -> Attack:
        tls = draw(st.booleans())
        port = draw(st.sampled_from((TRACKER, BLOCKS)))
        # Most of what can go wrong is behind the proof.
        proof = draw(st.sampled_from((*Proof, *[Proof.RIGHT] * 8)))
        way = draw(st.sampled_from(tuple(_WAYS)))
        data = _WAYS[way](draw, port, conversations[tls][port])
        pieces = draw(st.sampled_from((1, 1, 1, 2, 7)))
        size = max(1, -(-len(data) // pieces))
        return Attack(
            port,
            tls,
            proof,
            way,
            tuple(data[at : at + size] for at in range(0, len(data), size)),
            slow=pieces > 1 and draw(st.booleans()),
            ending=draw(st.sampled_from(Ending)),
        )

    return attack()


def _random_bytes(draw: Callable[..., Any], port: str, recorded: Sequence[bytes]) -> bytes:
    return draw(st.binary(max_size=2000))


def _as_recorded(draw: Callable[..., Any], port: str, recorded: Sequence[bytes]) -> bytes:
    return draw(st.sampled_from(recorded))


def _many_times(draw: Callable[..., Any], port: str, recorded: Sequence[bytes]) -> bytes:
    """Say one thing very often, and do not wait for answers."""
    frame = draw(st.sampled_from(_all_frames(recorded)))
    return frame * draw(st.integers(1, 200))


def _truncated(draw: Callable[..., Any], port: str, recorded: Sequence[bytes]) -> bytes:
    data = draw(st.sampled_from(recorded))
    return data[: draw(st.integers(0, len(data)))]


def _changed_bytes(draw: Callable[..., Any], port: str, recorded: Sequence[bytes]) -> bytes:
    """Flip bits, and leave out, double or put in bytes, anywhere."""
    data = bytearray(draw(st.sampled_from(recorded)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(("flip", "drop", "double", "put", "byte")))
        if kind == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "byte" and data:
            data[at] = draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xC0, 0xC1, 0xDD, 0xDF, 0xFF)))
        elif kind == "drop":
            del data[at : at + draw(st.integers(1, 40))]
        elif kind == "double":
            data[at:at] = data[at : at + draw(st.integers(1, 40))]
        else:
            data[at:at] = draw(st.binary(min_size=1, max_size=40))
    return bytes(data)


def _wrong_length(draw: Callable[..., Any], port: str, recorded: Sequence[bytes]) -> bytes:
    found = _all_frames(recorded)
    frame = draw(st.sampled_from(found))
    length = draw(st.sampled_from(_LENGTHS) | st.integers(0, 2**32 - 1))
    return draw(st.sampled_from((b"", found[0]))) + struct.pack("<I", length) + frame[4:]


def _other_order(draw: Callable[..., Any], port: str, recorded: Sequence[bytes]) -> bytes:
    found = _all_frames(recorded)
    return b"".join(draw(st.lists(st.sampled_from(found), min_size=1, max_size=12)))


def _other_envelope(draw: Callable[..., Any], port: str, recorded: Sequence[bytes]) -> bytes:
    """Another id and kind before a good message."""
    frame = bytearray(draw(st.sampled_from(_all_frames(recorded))))
    if port == TRACKER:
        struct.pack_into(
            "<QB", frame, 4, draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 255))
        )
    return bytes(frame) * draw(st.integers(1, 3))


def _changed_values(draw: Callable[..., Any], port: str, recorded: Sequence[bytes]) -> bytes:
    """Well-formed MessagePack with other values at some places."""
    found = _all_frames(recorded)
    head = _ENVELOPES[port]
    frame = draw(st.sampled_from(found))
    message = msgspec.msgpack.decode(frame[head:])
    for _ in range(draw(st.integers(1, 3))):
        message = _with_other_value(draw, message)
    body = msgspec.msgpack.encode(message)
    changed = struct.pack("<I", head - 4 + len(body)) + frame[4:head] + body
    # A conversation begins with who speaks.
    return draw(st.sampled_from((b"", found[0]))) + changed


def _with_other_value(draw: Callable[..., Any], message: Any) -> Any:
    places: list[tuple[Any, Any]] = []

    def walk(value: Any) -> None:
        if isinstance(value, (dict, list)):
            keys = value if isinstance(value, dict) else range(len(value))
            for key in keys:
                places.append((value, key))
                walk(value[key])

    walk(message)
    if not places:
        return draw(_values)
    inside, key = draw(st.sampled_from(places))
    old = inside[key]
    alike = _numbers if isinstance(old, int) else st.text(max_size=60)
    inside[key] = draw(alike | _values)
    return message


def _all_frames(recorded: Sequence[bytes]) -> list[bytes]:
    return [frame for conversation in recorded for frame in frames(conversation)]


_WAYS: dict[str, Callable[..., bytes]] = {
    "random bytes": _random_bytes,
    "as recorded": _as_recorded,
    "one thing many times": _many_times,
    "truncated": _truncated,
    "changed bytes": _changed_bytes,
    "wrong length": _wrong_length,
    "other order": _other_order,
    "other envelope": _other_envelope,
    "changed values": _changed_values,
}
