"""A receiver of numbered lines that acknowledges to its source: exactly once, across crashes.

The source listens. The receiver connects, says ``after 41`` (it has every line up to 41), takes
lines such as ``42 some text``, and answers ``ack 42`` when all of them up to 42 are durable. When
the connection broke, it connects again, and the source goes on after what the receiver then says.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from penstock.receiver import ReceiverContext


class LineReceiver:
    def __init__(self, host: str, port: int) -> None:
        self.address = host, port

    def run(self, ctx: ReceiverContext) -> None:
        with socket.create_connection(self.address) as self.source:
            self.source.sendall(b"after %d\n" % (ctx.last_position or 0))
            rest = b""
            while not ctx.stopped.is_set() and (data := self.source.recv(1 << 16)):
                lines, _, rest = (rest + data).rpartition(b"\n")
                if lines:
                    number = int(lines[lines.rfind(b"\n") + 1 :].split(b" ", 1)[0])
                    ctx.store(lines, number, lambda n=number: self.acknowledge(n), framing="lines")
        if not ctx.stopped.is_set():
            raise ConnectionError("the source closed the connection")  # `run` is called again

    def acknowledge(self, number: int) -> None:
        with suppress(OSError):  # `run` notices a broken connection
            self.source.sendall(b"ack %d\n" % number)

    def stop(self) -> None:
        with suppress(AttributeError, OSError):  # there is no connection yet, or no more
            self.source.shutdown(socket.SHUT_RD)  # ends the wait in `recv`
