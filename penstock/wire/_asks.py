"""The asks of a client that have no answer yet."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

from penstock.wire.messages import Message

__all__ = ["Ask", "UnansweredAsks"]


class Ask:
    """One ask: its frame, to be sent again if need be, and the future of its answer."""

    __slots__ = ("ask_id", "deadline_s", "frame", "future", "message", "timeout_s")

    def __init__(
        self, ask_id: int, message: Message, frame: bytes, timeout_s: float, deadline_s: float
    ) -> None:
        self.ask_id = ask_id
        self.message = message
        self.frame = frame
        self.timeout_s = timeout_s
        self.deadline_s = deadline_s
        self.future: Future[Message] = Future()
        self.future.set_running_or_notify_cancel()


class UnansweredAsks:
    """Asks in the order in which they were made, each with a deadline. Belongs to one thread."""

    def __init__(self) -> None:
        self._asks: dict[int, Ask] = {}

    def __len__(self) -> int:
        return len(self._asks)

    def __iter__(self) -> Iterator[Ask]:
        return iter(self._asks.values())

    def add(self, ask: Ask) -> None:
        """Add the newest."""
        self._asks[ask.ask_id] = ask

    def pop(self, ask_id: int) -> Ask | None:
        """Take the one that is answered now; None when there is none."""
        return self._asks.pop(ask_id, None)

    def expire(self, now_s: float) -> list[Ask]:
        """Take those whose deadline has come."""
        late = [ask for ask in self._asks.values() if ask.deadline_s <= now_s]
        for ask in late:
            del self._asks[ask.ask_id]
        return late

    def next_deadline_s(self) -> float | None:
        """Return the earliest deadline, None when there is no ask."""
        return min((ask.deadline_s for ask in self._asks.values()), default=None)

    def clear(self) -> list[Ask]:
        """Take all."""
        asks = list(self._asks.values())
        self._asks.clear()
        return asks
