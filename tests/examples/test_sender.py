"""The demo's source sends again what was not acknowledged, and nothing else."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable

from tests.bounds import HANG_S
from tests.examples.running import ROOT, Run

BOUND_S = HANG_S
LINES = 20_000


class Connection:
    """What a receiver does, by hand."""

    def __init__(self, port: int, after: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)
        self._lines = self._socket.makefile("rb")
        self._socket.sendall(b"after %d\n" % after)

    def number(self) -> int:
        """Return the number of the next line."""
        number, text = self._lines.readline().split(b" ", 1)
        assert text.strip()
        return int(number)

    def acknowledge(self, number: int) -> None:
        self._socket.sendall(b"ack %d\n" % number)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def test_lines_are_sent_until_they_are_acknowledged(run: Callable[..., Run]) -> None:
    sender = run(str(ROOT / "examples" / "sender.py"), f"--rate={LINES}", "--seconds=1")
    port = json.loads(sender.wait_for_line(lambda line: "listening" in line, BOUND_S))["port"]

    first = Connection(port, after=0)
    assert [first.number() for _ in range(1000)] == list(range(1, 1001))
    first.acknowledge(400)
    sender.wait_for_line(lambda line: json.loads(line).get("acknowledged") == 400, BOUND_S)
    first.close()

    # More is durable than was acknowledged before the crash: the answer was lost on its way.
    second = Connection(port, after=500)
    assert [second.number() for _ in range(LINES - 500)] == list(range(501, LINES + 1))
    second.close()

    third = Connection(port, after=LINES - 1)
    assert third.number() == LINES
    third.acknowledge(LINES)
    state = json.loads(sender.wait_for_line(lambda line: '"done": true' in line, BOUND_S))
    assert state["sent"] == state["acknowledged"] == LINES
