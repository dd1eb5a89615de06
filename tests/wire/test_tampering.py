"""Who passes the handshake on and then speaks itself is not heard, by neither end.

The proxy knows no secret. In each test it does one thing to the first connection; that one ends
with a warning, the client makes another, and all that was asked is answered.
"""

from __future__ import annotations

import hmac
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from penstock.errors import IllegalStateError
from penstock.wire import (
    AuthenticationError,
    Client,
    ClientHandshake,
    HandshakeState,
    Peer,
    Seal,
    Server,
    ServerHandshake,
    TamperedError,
    WireOptions,
)
from penstock.wire._frames import Kind, encode_frame
from penstock.wire.messages import (
    AddBlock,
    DeregisterReceiver,
    Message,
    Ok,
    ReceivedBlockInfo,
    StopReceiver,
    UpdateRateLimit,
)
from tests.wire.between import WAIT_S, Between, Line, Way
from tests.wire.conftest import Recorder

SECRET = bytes(range(32))
OPTIONS = WireOptions(heartbeat_interval_s=0.2)
FORGED = {
    "to_server": AddBlock(0, "a", (ReceivedBlockInfo(0, "b", 9, 9, "a", "h", 0, None, None),)),
    "to_client": StopReceiver(),
}


def forged(message: Message, kind: Kind, ask_id: int = 0) -> bytes:
    return encode_frame(message, kind, ask_id, limit_bytes=1 << 20) + os.urandom(16)


def put_in(between: Between, line: Line) -> None:
    line.give(line.take_frame())
    direction = "to_server" if line is between.lines[0][0] else "to_client"
    kind = Kind.ASK if direction == "to_server" else Kind.SEND
    line.give(forged(FORGED[direction], kind, 7 if kind is Kind.ASK else 0))


def flipped(place: int) -> Way:
    def flip(between: Between, line: Line) -> None:
        line.give(line.take_frame())
        frame = bytearray(line.take_frame())
        frame[place] ^= 1
        line.give(bytes(frame))

    return flip


def lengthened(between: Between, line: Line) -> None:
    line.give(line.take_frame())
    frame = bytearray(line.take_frame())
    frame[2] ^= 2
    line.give(bytes(frame))


def repeated(between: Between, line: Line) -> None:
    frame = line.take_frame()
    line.give(frame + frame)


def left_out(between: Between, line: Line) -> None:
    line.give(line.take_frame())
    line.take_frame()


def exchanged(between: Between, line: Line) -> None:
    first, second = line.take_frame(), line.take_frame()
    line.give(second + first)


def sent_back(between: Between, line: Line) -> None:
    frame = line.take_frame()
    up, down = between.lines[0]
    (down if line is up else up).give(frame)
    line.give(frame)


WAYS = {
    "put in": put_in,
    "id changed": flipped(4),
    "kind changed": flipped(12),
    "message changed": flipped(20),
    "tag changed": flipped(-1),
    "repeated": repeated,
    "left out": left_out,
    "exchanged": exchanged,
    "sent back": sent_back,
}


@pytest.fixture
def talkative(recorder: Recorder) -> Recorder:
    """Answers an ask and sends something besides."""

    def answer(peer: Peer, message: Message) -> Message:
        assert isinstance(message, DeregisterReceiver)
        peer.send(UpdateRateLimit(message.stream_id, 1.0))
        return Ok()

    recorder.answer = answer
    return recorder


@pytest.fixture
def between() -> Iterator[Callable[..., Between]]:
    made: list[Between] = []

    def make(address: tuple[str, int], **ways: Way) -> Between:
        made.append(Between(address, **ways))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_what_somebody_in_between_does_to_a_connection_ends_it_unheard_and_another_goes_on(
    make_server: Callable[..., Server],
    make_client: Callable[..., Client],
    between: Callable[..., Between],
    talkative: Recorder,
    caplog: pytest.LogCaptureFixture,
    direction: str,
    way: str,
) -> None:
    caplog.set_level(logging.WARNING, "penstock.wire")
    middle = between(make_server(options=OPTIONS).start(), **{direction: WAYS[way]})
    heard: list[Message] = []
    client = make_client(middle.address, on_message=heard.append, options=OPTIONS)
    client.connect()
    asked = [DeregisterReceiver(number, "attempt", "", "") for number in range(5)]
    answers = [client.ask_async(ask) for ask in asked]
    assert [answer.result(WAIT_S) for answer in answers] == [Ok()] * 5
    # A frame that is left out is missed at the next.
    end_s = time.monotonic() + WAIT_S
    while client.connections < 2 and time.monotonic() < end_s:
        assert client.ask(asked[0]) == Ok()
        threading.Event().wait(0.02)
    assert client.connections == 2
    assert set(talkative.messages()) == set(asked)
    assert set(heard) <= {UpdateRateLimit(number, 1.0) for number in range(5)}
    told = [r for r in caplog.records if "is not what it sent" in r.getMessage()]
    assert told
    assert {record.levelname for record in told} == {"WARNING"}


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_a_frame_whose_length_was_changed_does_not_swallow_all_that_follows(
    make_server: Callable[..., Server],
    make_client: Callable[..., Client],
    between: Callable[..., Between],
    talkative: Recorder,
    caplog: pytest.LogCaptureFixture,
    direction: str,
) -> None:
    caplog.set_level(logging.INFO, "penstock.wire")
    options = WireOptions(heartbeat_interval_s=0.1, dead_after_s=0.5)
    middle = between(make_server(options=options).start(), **{direction: lengthened})
    client = make_client(middle.address, options=options)
    client.connect()
    asked = [DeregisterReceiver(number, "attempt", "", "") for number in range(5)]
    answers = [client.ask_async(ask) for ask in asked]
    assert [answer.result(WAIT_S) for answer in answers] == [Ok()] * 5
    assert client.connections == 2
    assert set(talkative.messages()) == set(asked)
    assert "was not whole after" in caplog.text


def test_what_was_recorded_on_one_connection_is_nothing_on_another(
    make_server: Callable[..., Server],
    make_client: Callable[..., Client],
    between: Callable[..., Between],
    talkative: Recorder,
) -> None:
    address = make_server(options=OPTIONS).start()
    recorded: list[bytes] = []

    def record(_: Between, line: Line) -> None:
        recorded.append(line.take_frame())
        line.give(recorded[0])

    def play_again(_: Between, line: Line) -> None:
        line.give(recorded[0])

    one = DeregisterReceiver(1, "attempt", "", "")
    client = make_client(between(address, to_server=record).address)
    client.connect()
    assert client.ask(one) == Ok()
    client.close()
    middle = between(address, to_server=play_again)
    other = make_client(middle.address)
    other.connect()
    assert other.ask(DeregisterReceiver(2, "attempt", "", "")) == Ok()
    assert talkative.messages().count(one) == 1
    assert middle.connections == 2


# -- the handshake -----------------------------------------------------------------------------


def test_who_knows_the_secret_and_gives_the_servers_own_nonce_is_refused() -> None:
    """A server's own challenge that comes back may be an answer that it was talked into itself."""
    server, client = ServerHandshake(SECRET, "t"), ClientHandshake(SECRET, "t", "s")
    greeting = server.opening()
    client._nonce = greeting[10:]
    assert server.receive(client.receive(greeting)) == bytes(33)
    assert server.state is HandshakeState.REFUSED


def test_the_two_ends_prove_different_things_and_seal_with_different_keys() -> None:
    server, client = ServerHandshake(SECRET, "t"), ClientHandshake(SECRET, "t", "s")
    hello = client.receive(server.opening())
    verdict = server.receive(hello)
    client.receive(verdict)
    assert hello[42:] != verdict[1:]
    tags = [
        seal.tag(b"x")
        for seals in (server.seals(), client.seals())
        for seal in (seals.outgoing, seals.incoming)
    ]
    assert tags[0] == tags[3]
    assert tags[1] == tags[2]
    assert tags[0] != tags[1]


def test_each_service_each_secret_and_each_connection_has_keys_of_its_own() -> None:
    tags = set()
    for secret, service in ((SECRET, "t"), (SECRET, "t"), (SECRET, "u"), (SECRET[::-1], "t")):
        server, client = ServerHandshake(secret, service), ClientHandshake(secret, service, "s")
        # The same nonces but for the second.
        server._nonce, client._nonce = b"s" * 32, bytes([len(tags) == 1]) * 32
        client.receive(server.receive(client.receive(server.opening())))
        tags.add(client.seals().outgoing.tag(b"x"))
    assert len(tags) == 4


def test_there_are_no_keys_before_the_other_end_has_proved_itself() -> None:
    server, client = ServerHandshake(SECRET, "t"), ClientHandshake(SECRET, "t", "s")
    verdict = server.receive(client.receive(server.opening()))
    with pytest.raises(IllegalStateError):
        client.seals()
    with pytest.raises(AuthenticationError):
        client.receive(verdict[:-1] + bytes([verdict[-1] ^ 1]))
    with pytest.raises(IllegalStateError):
        client.seals()
    with pytest.raises(IllegalStateError):
        ServerHandshake(SECRET, "t").seals()


@pytest.mark.slow
def test_proofs_and_tags_are_judged_by_the_comparison_in_constant_time_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one that takes all for equal everything is accepted: no other comparison is made."""
    server, client = ServerHandshake(SECRET, "t"), ClientHandshake(SECRET[::-1], "t", "s")
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: True)
    client.receive(server.receive(client.receive(server.opening())))
    assert server.state is client.state is HandshakeState.ACCEPTED
    Seal(SECRET).check("peer", bytes(16), b"anything")
    monkeypatch.setattr(hmac, "compare_digest", lambda one, other: False)
    server, client = ServerHandshake(SECRET, "t"), ClientHandshake(SECRET, "t", "s")
    verdict = server.receive(client.receive(server.opening()))
    assert server.state is HandshakeState.REFUSED
    with pytest.raises(AuthenticationError):
        client.receive(b"\x01" + verdict[1:])
    with pytest.raises(TamperedError):
        Seal(SECRET).check("peer", Seal(SECRET).tag(b"x"), b"x")
