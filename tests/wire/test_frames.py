"""Frames as bytes: any cut of the stream gives the same messages, any garbage a named error."""

from __future__ import annotations

import struct

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import IllegalStateError
from penstock.wire import FrameTooLargeError, ProtocolError, Seal, TamperedError, WireError
from penstock.wire._connection import _message_decoder
from penstock.wire._frames import FrameBuffer, Kind, encode_frame
from penstock.wire.messages import AddBlock, Failure, Message, Ok, ReceivedBlockInfo

LIMIT = 1 << 20
KEY = bytes(range(32))
texts = st.text(max_size=300) | st.integers(1, 3000).map(lambda n: "x" * 100 * n)
blocks = st.builds(
    ReceivedBlockInfo,
    *(st.integers(0, 2**32), st.text(max_size=30)),
    *(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
    *(st.text(max_size=32), st.text(max_size=10), st.integers(0, 2**64 - 1)),
    *(st.none(), st.none(), st.none() | st.binary(max_size=50)),
)
messages = st.one_of(
    st.just(Ok()),
    st.builds(Failure, texts),
    st.builds(AddBlock, st.integers(0, 9), texts, st.lists(blocks, max_size=3).map(tuple)),
)
frames = st.lists(
    st.tuples(messages, st.sampled_from(Kind), st.integers(0, 2**64 - 1)), max_size=12
)


def feed(buffer: FrameBuffer, data: bytes) -> None:
    while data:
        room = buffer.room()
        count = min(len(room), len(data))
        assert count > 0
        room[:count] = data[:count]
        buffer.filled(count)
        data = data[count:]


def drain(buffer: FrameBuffer) -> list[tuple[int, Kind, Message]]:
    found = []
    while (frame := buffer.next_frame()) is not None:
        found.append(frame)
    return found


def drain_or_fail(
    buffer: FrameBuffer,
) -> tuple[list[tuple[int, Kind, Message]], WireError | None]:
    """What can be read, and the named error that ended it; any other error fails the test."""
    found = []
    try:
        while (frame := buffer.next_frame()) is not None:
            found.append(frame)
    except (FrameTooLargeError, ProtocolError, TamperedError) as error:
        return found, error
    return found, None


def new_buffer(limit_bytes: int = LIMIT) -> FrameBuffer:
    buffer = FrameBuffer(_message_decoder, limit_bytes, "1.2.3.4:5")
    buffer.opened_by(Seal(KEY))
    return buffer


def sealed(*frames: bytes) -> bytes:
    """Return frames as the other end of a new buffer sends them."""
    seal = Seal(KEY)
    return b"".join(frame + seal.tag(frame) for frame in frames)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(frames, st.lists(st.integers(1, 200_000), min_size=1, max_size=20))
def test_any_cut_of_the_stream_gives_the_same_messages(sent, cuts):
    stream = sealed(
        *(encode_frame(message, kind, ask_id, limit_bytes=LIMIT) for message, kind, ask_id in sent)
    )
    buffer = new_buffer()
    found = []
    position = 0
    for turn in range(len(stream) + 1):
        if position >= len(stream):
            break
        size = cuts[turn % len(cuts)]
        feed(buffer, stream[position : position + size])
        position += size
        found += drain(buffer)
    assert found == [(ask_id, kind, message) for message, kind, ask_id in sent]
    assert len(buffer) == 0


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=400))
def test_garbage_is_a_named_error_or_an_incomplete_frame(garbage):
    buffer = new_buffer(limit_bytes=200)
    feed(buffer, garbage)
    found, error = drain_or_fail(buffer)
    assert all(isinstance(message, msgspec.Struct) for _, _, message in found)
    assert error is None or "1.2.3.4:5" in str(error)


@settings(max_examples=150, deadline=None)
@given(st.lists(messages, min_size=1, max_size=4), st.data())
def test_nothing_is_read_of_a_frame_that_was_changed_nor_of_what_follows_it(sent, data):
    whole = [encode_frame(message, Kind.ASK, 1, limit_bytes=LIMIT) for message in sent]
    stream = bytearray(sealed(*whole))
    place = data.draw(st.integers(0, len(stream) - 1))
    stream[place] ^= data.draw(st.integers(1, 255))
    buffer = new_buffer()
    feed(buffer, bytes(stream))
    found, error = drain_or_fail(buffer)
    before = 0
    while len(sealed(*whole[: before + 1])) <= place:
        before += 1
    assert [message for _, _, message in found] == sent[:before]
    # A length may have become one that waits for more; that ends with the silence that it causes.
    assert error is None or error.peer == "1.2.3.4:5"
    is_of_length = place - len(sealed(*whole[:before])) < 4
    assert is_of_length or isinstance(error, TamperedError)


@settings(max_examples=150, deadline=None)
@given(st.lists(messages, min_size=1, max_size=5), st.data())
def test_frames_are_read_in_the_places_in_which_they_were_sent_only(sent, data):
    """Of frames that were left out, repeated or moved, those before are read and no other."""
    seal = Seal(KEY)
    frames = [encode_frame(message, Kind.ASK, 1, limit_bytes=LIMIT) for message in sent]
    frames = [frame + seal.tag(frame) for frame in frames]
    places = data.draw(st.lists(st.integers(0, len(sent) - 1), min_size=1, max_size=6))
    buffer = new_buffer()
    feed(buffer, b"".join(frames[place] for place in places))
    found, error = drain_or_fail(buffer)
    good = 0
    while good < len(places) and places[good] == good:
        good += 1
    assert [message for _, _, message in found] == sent[:good]
    assert isinstance(error, TamperedError) is (good < len(places))


def test_a_connection_reads_no_frame_before_the_handshake_gave_it_keys():
    buffer = FrameBuffer(_message_decoder, LIMIT, "1.2.3.4:5")
    feed(buffer, encode_frame(Ok(), Kind.SEND, limit_bytes=LIMIT) + bytes(16))
    with pytest.raises(IllegalStateError):
        buffer.next_frame()


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
    | st.dictionaries(
        st.sampled_from(["type", "stream_id", "attempt", "blocks", "reason"]),
        st.sampled_from(["AddBlock", "Refused", "Ok"]) | st.integers() | st.lists(st.text()),
    ).filter(lambda d: all(not isinstance(v, int) or -(2**63) <= v < 2**64 for v in d.values()))
)
def test_any_messagepack_that_is_no_message_is_a_named_error(value):
    payload = msgspec.msgpack.encode(value)
    buffer = new_buffer()
    feed(buffer, sealed(struct.pack("<IQB", 9 + len(payload), 1, 1) + payload))
    _, error = drain_or_fail(buffer)
    assert error is None or "cannot be read" in str(error)


@pytest.mark.parametrize("announced", [1 << 20, 1 << 30])
def test_memory_follows_what_came_and_not_what_was_announced(announced):
    buffer = new_buffer(limit_bytes=1 << 30)
    feed(buffer, struct.pack("<IQB", announced, 1, 1) + bytes(200_000))
    assert buffer.next_frame() is None
    assert len(buffer._buffer) <= 2 * 300_000


def test_memory_is_given_back_after_a_large_frame():
    buffer = new_buffer(limit_bytes=64 << 20)
    frame = encode_frame(Failure("x" * (8 << 20)), Kind.SEND, limit_bytes=64 << 20)
    feed(buffer, sealed(frame))
    assert len(drain(buffer)) == 1
    buffer.room()
    assert len(buffer._buffer) <= 1 << 20
