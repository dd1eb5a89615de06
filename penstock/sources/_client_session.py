"""`ClientSession`: one start of a receiver whose client wants a thread of its own.

What must hold
--------------

* The client's thread never waits in `store`: heart-beats go on, and acknowledgements are sent,
  while a full queue holds the records back.
* Messages are stored in the order in which the client gave them, by one thread; so when the
  acknowledgement of a message is due, all that came before it is also durable.
* What waits between both threads is bounded by what the client takes without acknowledging it.
* A stop ends both; acknowledgements that are due are sent before the connection is closed.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar
from urllib.parse import SplitResult, urlsplit

from penstock._arguments import refused
from penstock.errors import typed_text
from penstock.receiver import Receiver, ReceiverContext, ReceiverStoppedError
from penstock.runtime.threads import OwnedThread
from penstock.sources._common import (
    Reconnecting,
    ServerError,
    SourceReceiver,
    in_halves,
)

T = TypeVar("T")

_STEP_S = 1.0
_STOP_S = 4.0
_MOST_AT_ONCE = 10_000
_SEALED_PART = 1 / 8
"""Of the window: what is stored then can become durable before the server has given the rest."""
_MOMENT_S = 0.01
"""Messages of that time are stored together: it costs less than a call for each."""


class ClientSession(ABC, Generic[T]):
    """Runs a client in one thread, and stores what it gives in another.

    Args:
        receiver: What is started.
        server: Names the server for people, without secrets.
        window: How many messages the server gives without an acknowledgement.
    """

    def __init__(self, receiver: Receiver, server: str, window: int) -> None:
        self.receiver = receiver
        self.server = server
        self.ended = threading.Event()
        self._window = window
        self._given = 0
        self._reconnecting = Reconnecting(receiver.reportError, server)
        self._inbox: SimpleQueue[T | None] = SimpleQueue()
        name = f"store-{type(receiver).__name__}-{receiver.streamId}"
        self._storing = OwnedThread(self._store, name, on_error=self._fail)

    # -- what a source has of its own ------------------------------------------------------------

    @abstractmethod
    def serve(self) -> None:
        """Connect, and take messages until `ended` is set, or the connection fails."""

    @abstractmethod
    def wake(self) -> None:
        """Have `serve` look at `ended`; from any thread."""

    @abstractmethod
    def store(self, messages: list[T]) -> None:
        """Store messages, with an acknowledgement."""

    # -- life ------------------------------------------------------------------------------------

    def run(self) -> None:
        """Connect again and again, until it is to end."""
        self._storing.start()
        try:
            errors = (ServerError, OSError)
            self._reconnecting.run(self.serve, self.ended, errors)
        finally:
            self.ended.set()
            self._inbox.put(None)
            self._storing.join(_STOP_S)

    def end(self) -> None:
        """Have it end soon; a client that hangs in a connection attempt is left to its time-out."""
        self.ended.set()
        self._inbox.put(None)
        self.wake()

    def connected(self) -> None:
        """Take note that the server does what it is asked for."""
        self._reconnecting.connected()

    def hand_over(self, message: T) -> None:
        """Give a message to the thread that stores."""
        self._inbox.put(message)

    def forget(self) -> None:
        """Drop what the thread that stores has not taken yet."""
        with suppress(Empty):
            while True:
                self._inbox.get_nowait()

    def _store(self) -> None:
        with suppress(ReceiverStoppedError):
            while not self.ended.is_set():
                messages = self._taken()
                if messages:
                    in_halves(self.store, messages)
                    self._given += len(messages)
                    if self._given >= self._window * _SEALED_PART:
                        # The server would wait for the end of the block interval.
                        self._given = 0
                        self.receiver.seal()

    def _taken(self) -> list[T]:
        """Wait for a message, and return it with all that come within a moment."""
        taken: list[T] = []
        with suppress(Empty):
            message = self._inbox.get(timeout=_STEP_S)
            self.ended.wait(_MOMENT_S)
            while message is not None:
                taken.append(message)
                if len(taken) == _MOST_AT_ONCE:
                    break
                message = self._inbox.get_nowait()
        return taken

    def _fail(self, error: BaseException) -> None:
        if not self.ended.is_set():
            self.receiver.restart(f"Error in {self.receiver!r}: {typed_text(error)}", error)


class ClientReceiver(SourceReceiver, ABC):
    """A receiver that is a `ClientSession` while it runs."""

    @abstractmethod
    def _begin(self) -> ClientSession[Any]:
        """Return a session, not started."""

    def _receive(self, context: ReceiverContext) -> bool:
        session = self._begin()
        self._interrupt_with(session.end)
        if context.stopped.is_set():
            session.end()
        session.run()
        return False


def address_of(url: Any, ports: dict[str, int]) -> tuple[SplitResult, int]:
    """Return the parts of a server's address, and the port; `ports` has that of each scheme.

    Raises:
        ValueError: It is none of these, or has a user's name or password in it.
    """
    schemes = " or ".join(f"{scheme}://host:port" for scheme in ports)
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is not None and (parts.username is not None or parts.password is not None):
        raise ValueError("a url with a password is not accepted: give username= and password=")
    try:
        if parts is None or parts.scheme not in ports or not parts.hostname:
            raise ValueError
        return parts, parts.port or ports[parts.scheme]
    except ValueError:
        raise ValueError(refused("url", url, schemes)) from None
