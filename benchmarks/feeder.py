"""The feeder: a TCP server that pushes records to whoever connects, as fast as is of use.

Run as a process of its own: ``python -m benchmarks.feeder OPTIONS``, OPTIONS being JSON with the
fields of `FeederOptions`. It prints its port, then four times a second how much it has sent. It
reads from standard input, after each batch, how many records were processed in all and how long the
batch took, and ends when that is closed.

Bulk feeding is `sendall` of slices of a buffer that was built before; TCP slows it down when the
receiver does not read. It also waits when more records are on the way than `in_flight_batches`
batches hold at the best rate of the last few, so that a receiver which is faster than its batches
does not drown them. Both sides are fed by the same rule.
"""

from __future__ import annotations

import json
import os
import random
import socket
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["WORDS_PER_LINE", "FeederOptions", "lines_of_words", "numbered_lines"]

WORDS_PER_LINE = 16

_SLICE = 256 << 10
_BUFFER = 4 << 20
_NO_BOUND = 1 << 62
_STAMPED_TICK_S = 0.002
_REPORT_INTERVAL_S = 0.25
_VOCABULARY = 4000
_RATES = 3


@dataclass(frozen=True)
class FeederOptions:
    """What is sent.

    Attributes:
        content: ``numbers`` or ``words``.
        record_bytes: Bytes of each line, its newline included.
        batch_s: Seconds of a batch.
        in_flight_batches: How many batches' worth of records may be unprocessed; 0 for no bound.
        stamped_per_s: If not 0: lines that begin with the time at which they were sent
            (nanoseconds since the epoch), this many per second.
        least_in_flight_bytes: So much may be unprocessed in any case, also at the beginning.
        most_bytes: Stop after so many bytes; 0 for no end.
        words_per_line: Of ``words``.
    """

    content: str = "numbers"
    record_bytes: int = 100
    batch_s: float = 1.0
    in_flight_batches: float = 2.5
    stamped_per_s: int = 0
    least_in_flight_bytes: int = 32 << 20
    most_bytes: int = 0
    words_per_line: int = WORDS_PER_LINE

    def as_dict(self) -> dict[str, Any]:
        """Return them as JSON wants them."""
        return asdict(self)


def numbered_lines(record_bytes: int, size: int) -> bytes:
    """Return lines of one length, numbered, at most `size` bytes in all."""
    count = size // record_bytes
    return b"".join(
        (b"%012d " % number).ljust(record_bytes - 1, b"x") + b"\n" for number in range(count)
    )


def lines_of_words(record_bytes: int, size: int, words_per_line: int = WORDS_PER_LINE) -> bytes:
    """Return lines of so many words that differ in frequency as in natural text."""
    chance = random.Random(17)
    words = sorted(
        {
            "".join(chance.choices("etaoinshrdlucmfwyp", k=chance.choice((2, 3, 4, 5, 5, 6, 7, 9))))
            for _ in range(_VOCABULARY)
        }
    )
    chance.shuffle(words)
    weights = [1 / (rank + 1) for rank in range(len(words))]
    by_length: dict[int, list[str]] = {}
    for word in words:
        by_length.setdefault(len(word), []).append(word)
    lines: list[str] = []
    target = min(size // record_bytes, 10_000)
    while len(lines) < target:
        line = chance.choices(words, weights, k=words_per_line - 1)
        rest = record_bytes - 1 - sum(map(len, line)) - len(line)
        if rest in by_length:
            lines.append(" ".join([*line, chance.choice(by_length[rest])]))
    return ("\n".join(lines) + "\n").encode()


class Feeder:
    """Serves one connection at a time; after a break the next one goes on where it was."""

    def __init__(self, options: FeederOptions) -> None:
        self._options = options
        self._changed = threading.Condition()
        # Guarded by _changed:
        self._sent = 0
        self._processed = 0
        self._allowed = options.least_in_flight_bytes if options.in_flight_batches else _NO_BOUND

    def run(self) -> None:
        """Listen, and serve until standard input is closed."""
        given = self._options
        if given.content == "words":
            lines = lines_of_words(given.record_bytes, _BUFFER, given.words_per_line)
        else:
            lines = numbered_lines(given.record_bytes, _BUFFER)
        buffer = memoryview(lines)
        server = socket.create_server(("127.0.0.1", 0))
        print(json.dumps({"port": server.getsockname()[1]}), flush=True)
        threading.Thread(target=self._hear, name="feeder-hear", daemon=True).start()
        threading.Thread(target=self._report, name="feeder-report", daemon=True).start()
        while True:
            connection, _ = server.accept()
            with connection:
                try:
                    if self._options.stamped_per_s:
                        self._send_stamped(connection)
                    else:
                        self._send_bulk(connection, buffer)
                except OSError:
                    continue  # The receiver is gone; another one may come.

    def _send_bulk(self, connection: socket.socket, buffer: memoryview) -> None:
        place = 0
        while True:
            with self._changed:
                while self._sent - self._processed > self._allowed or self._is_over():
                    self._changed.wait(1.0)
            part = buffer[place : place + _SLICE]
            connection.sendall(part)
            place = (place + len(part)) % len(buffer)
            with self._changed:
                self._sent += len(part)

    def _is_over(self) -> bool:
        return 0 < self._options.most_bytes <= self._sent

    def _send_stamped(self, connection: socket.socket) -> None:
        per_s, size = self._options.stamped_per_s, self._options.record_bytes
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begun = time.monotonic()
        count = 0
        while True:
            due = int((time.monotonic() - begun) * per_s)
            if due > count:
                stamp = b"%020d " % time.time_ns()
                lines = [
                    (stamp + b"%012d " % number).ljust(size - 1, b"x")
                    for number in range(count, due)
                ]
                connection.sendall(b"\n".join(lines) + b"\n")
                with self._changed:
                    self._sent += (due - count) * size
                count = due
            time.sleep(_STAMPED_TICK_S)

    def _hear(self) -> None:
        given = self._options
        before, rates = 0, [0.0] * _RATES
        for line in sys.stdin:
            batch = json.loads(line)
            processed = batch["processed"] * given.record_bytes
            # Not since the batch before: where all waits in one batch, others are empty.
            rates = [*rates[1:], (processed - before) / max(batch["seconds"], given.batch_s)]
            before = processed
            with self._changed:
                self._processed = processed
                if given.in_flight_batches:
                    bound = given.in_flight_batches * max(rates) * given.batch_s
                    self._allowed = max(given.least_in_flight_bytes, int(bound))
                self._changed.notify()
        os._exit(0)

    def _report(self) -> None:
        while True:
            with self._changed:
                sent = self._sent
            print(
                json.dumps({"at": time.monotonic(), "sent": sent // self._options.record_bytes}),
                flush=True,
            )
            time.sleep(_REPORT_INTERVAL_S)


if __name__ == "__main__":
    Feeder(FeederOptions(**json.loads(sys.argv[1]))).run()
