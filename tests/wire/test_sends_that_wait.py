"""What many peers are told at one time: it holds up nobody's answer, keeps its order, arrives."""

from __future__ import annotations

import threading

from penstock.wire.messages import CleanupOldBlocks, Message, SealBlock
from tests.bounds import HANG_S

COUNT = 500


def note(number: int) -> Message:
    return CleanupOldBlocks((str(number),), ())


class Heard:
    """What a client was sent, until it has so many messages."""

    def __init__(self, count: int) -> None:
        self.messages: list[Message] = []
        self.all = threading.Event()
        self._count = count

    def hear(self, message: Message) -> None:
        self.messages.append(message)
        if len(self.messages) == self._count:
            self.all.set()


def test_what_cannot_wait_goes_before_what_can(make_server, make_client, recorder) -> None:
    server = make_server()
    heard = Heard(COUNT + 1)
    client = make_client(server.start(), on_message=heard.hear)
    client.connect()
    client.ask(SealBlock())
    peer = recorder.peers[0]
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert free.wait(HANG_S)

    server.call(hold)
    assert held.wait(HANG_S)
    for number in range(COUNT):
        peer.send(note(number), can_wait=True)
    peer.send(SealBlock())
    free.set()
    assert heard.all.wait(HANG_S)
    assert heard.messages.index(SealBlock()) < COUNT // 2
    heard.messages.remove(SealBlock())
    assert heard.messages == [note(number) for number in range(COUNT)]


def test_a_stop_sends_what_waits(make_server, make_client, recorder) -> None:
    server = make_server()
    heard = Heard(COUNT)
    client = make_client(server.start(), on_message=heard.hear)
    client.connect()
    client.ask(SealBlock())
    for number in range(COUNT):
        recorder.peers[0].send(note(number), can_wait=True)
    server.stop()
    assert heard.all.wait(HANG_S)
    assert heard.messages == [note(number) for number in range(COUNT)]
