"""Stand-ins that several tests use: a listener, and the driver of a block server."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from penstock.streaming import StreamingListener
from penstock.wire import Peer, Reply
from penstock.wire.messages import (
    BlocksCopied,
    BlockServerAt,
    BlockServerRegistered,
    CopiesAt,
    FindBlockServer,
    FindCopies,
    LogsMissing,
    Message,
    Ok,
    RegisterBlockServer,
    SlowBlock,
)
from tests.bounds import HANG_S

WAIT_S = HANG_S


class Events(StreamingListener):
    """Keeps all events of receivers and batches, and lets a test wait for one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.seen: list[tuple[str, Any]] = []

    def onReceiverStarted(self, receiverStarted: Any) -> None:
        self._keep("started", receiverStarted.receiverInfo())

    def onReceiverError(self, receiverError: Any) -> None:
        self._keep("error", receiverError.receiverInfo())

    def onReceiverStopped(self, receiverStopped: Any) -> None:
        self._keep("stopped", receiverStopped.receiverInfo())

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        self._keep("batch", batchCompleted.batchInfo())

    def _keep(self, name: str, content: Any) -> None:
        with self._changed:
            self.seen.append((name, content))
            self._changed.notify_all()

    def of(self, name: str) -> list[Any]:
        with self._changed:
            return [content for found, content in self.seen if found == name]

    def wait_for(
        self, name: str, test: Callable[[Any], bool] = lambda _: True, count: int = 1
    ) -> Any:
        """Return the event with this number among those that fit; None for number 0."""

        def fitting() -> list[Any]:
            return [content for found, content in self.seen if found == name and test(content)]

        with self._changed:
            if not self._changed.wait_for(lambda: len(fitting()) >= count, WAIT_S):
                errors = [content.lastErrorMessage() for n, content in self.seen if n == "error"]
                names = [n for n, _ in self.seen if n != "batch"]
                raise AssertionError(f"no {name} ({count}) within {WAIT_S:g} s: {names}, {errors}")
            return fitting()[count - 1] if count else None


class BlockServerTracker:
    """Registers block servers, as the driver does."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.registered: list[tuple[Peer, RegisterBlockServer]] = []
        self.gone: list[Peer] = []
        self.answer: Message = BlockServerRegistered(60.0)
        self.found: Message = BlockServerAt(None, False)
        self.copies: Message = CopiesAt(())
        self.searched = 0
        self.slow: list[SlowBlock] = []
        self.copied: list[BlocksCopied] = []
        self.missing: list[LogsMissing] = []

    def on_message(self, peer: Peer, message: Message) -> Reply:
        if isinstance(message, FindBlockServer):
            with self.changed:
                self.searched += 1
                self.changed.notify_all()
                return self.found
        if isinstance(message, FindCopies):
            return self.copies
        if isinstance(message, SlowBlock):
            with self.changed:
                self.slow.append(message)
                self.changed.notify_all()
                return Ok()
        if isinstance(message, BlocksCopied):
            with self.changed:
                self.copied.append(message)
                self.changed.notify_all()
                return Ok()
        if isinstance(message, LogsMissing):
            with self.changed:
                self.missing.append(message)
                self.changed.notify_all()
                return Ok()
        assert isinstance(message, RegisterBlockServer)
        with self.changed:
            self.registered.append((peer, message))
            self.changed.notify_all()
        return self.answer

    def on_disconnect(self, peer: Peer) -> None:
        with self.changed:
            self.gone.append(peer)
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_S)

    def send(self, message: Message) -> None:
        self.registered[-1][0].send(message)


class UntoldError(Exception):
    """A program's mistake: its ``__str__`` returns no text, so that it cannot be shown."""

    def __str__(self) -> str:
        return 404  # type: ignore[return-value]  # that is the mistake
