"""A server of numbered messages, for tests of what holds for every source.

It keeps messages and what was acknowledged of them in its folder, so that it may be killed. A
client says ``SECRET FIRST``, which acknowledges all before that number, and gets messages from the
first on that is not acknowledged: each is ``NUMBER LENGTH`` in a line, and its bytes. It answers
``ack NUMBER`` for all up to that one, and is given so many that are not acknowledged, and no more.

Run as a program: ``python frames.py FOLDER PORT SECRET``.
"""

from __future__ import annotations

import contextlib
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

START_S = 300.0
MOST_UNACKNOWLEDGED = 20
_LOOK_S = 0.01


class FrameServer:
    """Such a server on a free port; the port stays when it is started again."""

    def __init__(self, folder: Path, secret: str) -> None:
        self._folder = folder
        self._secret = secret
        self._process: subprocess.Popen[bytes] | None = None
        self._sent = 0
        from tests.services.ports import (
            free_ports,  # not to be had by the program that this is, too
        )

        (self.port,) = free_ports(1)

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        command = [sys.executable, __file__, str(self._folder), str(self.port), self._secret]
        self._process = subprocess.Popen(command)
        end_s = time.monotonic() + START_S
        while True:
            with contextlib.suppress(OSError):
                return socket.create_connection(("127.0.0.1", self.port)).close()
            assert self._process.poll() is None, "the server ended"
            assert time.monotonic() < end_s, "the server does not come up"
            time.sleep(_LOOK_S)

    def kill(self) -> None:
        """Kill it with SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(START_S)
            self._process = None

    def send(self, payloads: Sequence[bytes]) -> None:
        """Give it messages."""
        for payload in payloads:
            self._sent += 1
            written = self._folder / f"{self._sent}.new"
            written.write_bytes(payload)
            written.rename(self._folder / f"{self._sent}.message")

    def unacknowledged(self) -> int:
        """Return how many messages it has given to a client that are not acknowledged."""
        return _number(self._folder / "given") - _number(self._folder / "acknowledged")


def _number(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError, ValueError):
        return int(path.read_text())
    return 0


def _write_number(path: Path, number: int) -> None:
    written = path.with_suffix(f".{threading.get_ident()}")
    written.write_text(str(number))
    written.rename(path)


def _serve(folder: Path, port: int, secret: str) -> None:
    acknowledged, given = folder / "acknowledged", folder / "given"

    class Client(socketserver.StreamRequestHandler):
        is_gone = False

        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.give()
            self.is_gone = True

        def give(self) -> None:
            said = self.rfile.readline().split()
            if len(said) != 2 or said[0].decode() != secret:
                self.wfile.write(b"refused\n")
                return
            self.wfile.write(b"welcome\n")
            number = max(int(said[1]), _number(acknowledged) + 1)
            _write_number(acknowledged, number - 1)
            taking = threading.Thread(target=self.take, daemon=True)
            taking.start()
            while not self.is_gone:
                message = folder / f"{number}.message"
                is_room = number - _number(acknowledged) <= MOST_UNACKNOWLEDGED
                if not is_room or not message.exists():
                    time.sleep(_LOOK_S)
                    continue
                payload = message.read_bytes()
                _write_number(given, number)
                self.wfile.write(b"%d %d\n" % (number, len(payload)) + payload)
                number += 1

        def take(self) -> None:
            with contextlib.suppress(OSError, ValueError):
                while line := self.rfile.readline():
                    word, number = line.split()
                    assert word == b"ack"
                    _write_number(acknowledged, max(_number(acknowledged), int(number)))
            self.is_gone = True

    socketserver.ThreadingTCPServer.allow_reuse_address = True
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.0.1", port), Client) as server:
        threading.Thread(target=_end_with_parent, daemon=True).start()
        server.serve_forever()


def _end_with_parent() -> None:
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
