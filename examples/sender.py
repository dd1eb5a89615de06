"""A source of numbered lines over TCP that sends again what was not acknowledged.

The protocol stands in `line_receiver`. The text is real: the Python documentation that ships with
the interpreter, then the source text of its standard library, then both again.

On standard output it says, as one JSON object per line, on which port it listens, when a receiver
connected and where that goes on, and how many lines were sent and acknowledged.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TICK_S = 0.01
REPORT_S = 0.1
LINES_AT_ONCE = 5_000
IN_FLIGHT = 1_000_000
"""Lines that may wait for their acknowledgement; then nothing is sent until some are."""


def texts() -> Iterator[bytes]:
    """Yield the lines of this machine's text that are not blank, for ever."""
    library = Path(os.__file__).parent
    paths = sorted(
        path
        for path in library.rglob("*.py")
        if not {"site-packages", "dist-packages", "test", "tests"} & set(path.parts)
    )
    while True:
        yield from lines_of(documentation())
        for path in paths:
            yield from lines_of(path.read_bytes().decode("utf-8", "replace"))


def documentation() -> str:
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:  # some distributions leave it out
        return ""
    return "\n".join(topics.values())


def lines_of(text: str) -> Iterator[bytes]:
    return (line.strip().encode() for line in text.splitlines() if line.strip())


class NumberedLines:
    """Numbers lines and keeps them until they are acknowledged. `lock` guards all of it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent = 0
        """The highest number that was ever sent."""
        self.acknowledged = 0
        self._texts = texts()
        self._again: deque[tuple[int, bytes]] = deque()
        self._in_flight: deque[tuple[int, bytes]] = deque()

    def take(self, count: int) -> bytes:
        """Return up to `count` lines to send: first those that are to be sent again."""
        with self.lock:
            count = min(count, IN_FLIGHT - len(self._in_flight))
            taken: list[tuple[int, bytes]] = []
            while len(taken) < count and self._again:
                taken.append(self._again.popleft())
            while len(taken) < count:
                self.sent += 1
                taken.append((self.sent, b"%d %s\n" % (self.sent, next(self._texts))))
            self._in_flight.extend(taken)
            return b"".join([line for _, line in taken])

    def waiting(self) -> int:
        """Return how many lines are to be sent again."""
        with self.lock:
            return len(self._again)

    def acknowledge(self, number: int) -> None:
        """Forget the lines up to `number`."""
        with self.lock:
            self.acknowledged = max(self.acknowledged, number)
            while self._in_flight and self._in_flight[0][0] <= number:
                self._in_flight.popleft()

    def resume(self, after: int) -> None:
        """Go on after line `after`, for a receiver that has all lines up to it."""
        self.acknowledge(after)
        with self.lock:
            self._in_flight.extend(self._again)
            self._again = self._in_flight
            self._in_flight = deque()
            while self._again and self._again[0][0] <= after:
                self._again.popleft()


class Sender:
    """Serves one receiver at a time.

    Args:
        rate: Lines per second; 0 sends as fast as they are taken.
        seconds: So long new lines are made, from the first connection on.
    """

    def __init__(self, listener: socket.socket, rate: float, seconds: float) -> None:
        self.listener = listener
        self.rate = rate
        self.seconds = seconds
        self.lines = NumberedLines()
        self.began: float | None = None
        self.next_report = 0.0

    def run(self) -> None:
        while True:
            self.report()
            try:
                connection, _ = self.listener.accept()
            except TimeoutError:
                continue
            with connection:
                try:
                    self.serve(connection)
                except OSError as error:
                    say(event="disconnected", reason=str(error))

    def serve(self, connection: socket.socket) -> None:
        connection.settimeout(None)
        answers = connection.makefile("rb")
        word, number = answers.readline().split()
        if word != b"after":
            raise OSError(f"the receiver said {word!r} first")
        self.lines.resume(int(number))
        say(event="connected", after=int(number))
        gone = threading.Event()

        def hear() -> None:
            try:
                for answer in answers:
                    self.lines.acknowledge(int(answer.split()[1]))
            except OSError:
                pass
            finally:
                gone.set()

        listening = threading.Thread(target=hear, name="acknowledgements", daemon=True)
        listening.start()
        if self.began is None:
            self.began = time.monotonic()
        try:
            while not gone.is_set():
                self.report()
                if data := self.lines.take(self.due()):
                    connection.sendall(data)
                else:
                    gone.wait(TICK_S)
            raise ConnectionError("the receiver went away")
        finally:
            with suppress(OSError):  # the receiver may have broken it already
                connection.shutdown(socket.SHUT_RDWR)
            listening.join(1)

    def due(self) -> int:
        """Return how many lines are to be sent now."""
        assert self.began is not None
        elapsed = time.monotonic() - self.began
        again = self.lines.waiting()
        if self.rate:
            fresh = int(self.rate * min(elapsed, self.seconds)) - self.lines.sent
        else:
            fresh = LINES_AT_ONCE if elapsed < self.seconds else 0
        return min(LINES_AT_ONCE, again + fresh)

    def report(self) -> None:
        now = time.monotonic()
        if now < self.next_report:
            return
        self.next_report = now + REPORT_S
        lines = self.lines
        over = self.began is not None and now - self.began > self.seconds and not self.due()
        say(
            event="state",
            sent=lines.sent,
            acknowledged=lines.acknowledged,
            done=over and lines.acknowledged >= lines.sent,
        )


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Serve numbered lines over TCP, and send again what was not acknowledged."
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: a free one, which is printed")
    parser.add_argument("--rate", type=float, default=50_000, help="lines/s; 0: no limit")
    parser.add_argument("--seconds", type=float, default=30, help="how long to make new lines")
    parser.add_argument(
        "--end-with-stdin", action="store_true", help="end when standard input is closed"
    )
    options = parser.parse_args()
    if options.end_with_stdin:
        threading.Thread(target=end_with_stdin, name="stdin", daemon=True).start()
    with socket.create_server((options.host, options.port)) as listener:
        listener.settimeout(REPORT_S)
        say(event="listening", port=listener.getsockname()[1])
        Sender(listener, options.rate, options.seconds).run()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
