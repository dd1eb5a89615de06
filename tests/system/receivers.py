"""Receivers that are used in more than one test; executors import them from here."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from functools import partial
from typing import Any

from pyspark import StorageLevel

from penstock.receiver import Receiver
from tests.bounds import HANG_S


class NumberedLines(Receiver):
    """Takes lines from a `Feeder`, and acknowledges them when they are durable (I1).

    Args:
        address: The feeder's.
        positions: Whether a line's number is stored as its position, and asked for again.
        level: The storage level.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        positions: bool = False,
        level: StorageLevel = StorageLevel.MEMORY_AND_DISK_2,
    ) -> None:
        super().__init__(level)
        self.address = address
        self.positions = positions
        self._connection: socket.socket | None = None

    def onStart(self) -> None:
        self._thread = threading.Thread(target=self._receive, name="lines", daemon=True)
        self._thread.start()

    def onStop(self) -> None:
        connection = self._connection
        if connection is not None:
            # Only reading ends: acknowledgements of what is being stored still go out.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        self._thread.join(HANG_S)

    def _receive(self) -> None:
        try:
            connection = socket.create_connection(self.address, 20)
            connection.settimeout(None)
            # An acknowledgement that is held back to be sent with the next one is lost when the
            # process ends with bytes that it has not read: then the kernel resets the connection.
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connection = connection
            start = self.lastPosition if self.positions else None
            connection.sendall(
                b"hello %d %s\n"
                % (os.getpid(), str(start or 0 if self.positions else "-").encode())
            )
            self._lines(connection)
        except OSError as error:
            self.restart("the feeder is gone", error)
        else:
            self.restart("the feeder closed the connection")

    def _lines(self, connection: socket.socket) -> None:
        rest = b""
        while (data := connection.recv(64 << 10)) and not self.isStopped():
            *lines, rest = (rest + data).split(b"\n")
            if lines:
                end = int(lines[-1]) + 1
                position = end if self.positions else None
                self.store(lines, position=position, ack=partial(_acknowledge, connection, end))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_connection": None}


def _acknowledge(connection: socket.socket, end: int) -> None:
    try:
        connection.sendall(b"%d\n" % end)
    except OSError:
        # It was not acknowledged, so it comes again.
        return


class Numbers(Receiver):
    """Stores numbers from its last position on, a few at a time, with the next one as position.

    Args:
        first: The first number.
    """

    def __init__(self, first: int = 0) -> None:
        super().__init__()
        self.first = first

    def onStart(self) -> None:
        self._thread = threading.Thread(target=self._count, name="numbers", daemon=True)
        self._thread.start()

    def onStop(self) -> None:
        self._thread.join(HANG_S)

    def _count(self) -> None:
        number = self.lastPosition or self.first
        pause = threading.Event()
        while not self.isStopped():
            self.store(list(range(number, number + 10)), position=number + 10)
            number += 10
            pause.wait(0.4)
