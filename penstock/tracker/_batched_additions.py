"""Group commit of block additions: many `AddBlock` messages share one record of the driver log.

While the log writes one record, further messages gather; the next record carries them all. So
the number of messages per second is not bound by the number of syncs per second, and a lone
message waits for one sync only.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.errors import IllegalStateError
from penstock.threads import OwnedThread
from penstock.tracker.received_block_tracker import ReceivedBlockTracker
from penstock.wire.messages import AddBlock, Failure, Message, Refused

_log = logging.getLogger("penstock.tracker")

Token = TypeVar("Token")

MAXIMUM_WAITING = 65_536
"""Messages that may wait for the log; more are answered with a `Failure` at once (I7)."""

_BLOCKS_PER_RECORD = 8192


class BatchedAdditions(Generic[Token]):
    """A thread that drains waiting messages into the ledger, one log record per drain.

    `_changed` guards everything below it. Answers are handed over once per drain.
    """

    def __init__(
        self,
        tracker: ReceivedBlockTracker,
        answer: Callable[[list[tuple[Token, Message]]], None],
        *,
        maximum_waiting: int = MAXIMUM_WAITING,
    ) -> None:
        """Make it; nothing runs before `start`.

        Args:
            tracker: The ledger.
            answer: Called on the thread with (token, answer) pairs, in the order of `submit`.
            maximum_waiting: How many messages may wait.
        """
        self._tracker = tracker
        self._answer = answer
        self._maximum_waiting = maximum_waiting
        self._changed = threading.Condition()
        self._waiting: list[tuple[Token, AddBlock]] = []
        self._idle = False
        self._stopping = False
        self._thread = OwnedThread(self._run, "tracker-additions", again=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def submit(self, token: Token, message: AddBlock) -> Message | None:
        """Queue a message; never blocks.

        Returns:
            None when it is queued: the answer comes through `answer`. Otherwise the answer.
        """
        with self._changed:
            if self._stopping:
                return Refused("the tracker is stopped")
            if len(self._waiting) >= self._maximum_waiting:
                return Failure(f"{len(self._waiting)} messages wait for the driver log already")
            self._waiting.append((token, message))
            if self._idle:
                self._changed.notify()
        return None

    def stop(self, timeout_s: float) -> None:
        """Take no more, write what waits, join the thread.

        Raises:
            IllegalStateError: When the thread does not end in time (the log's disk hangs).
        """
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.ident is None:
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise IllegalStateError(
                f"the thread {self._thread.name} did not end within {timeout_s:g} s: it waits for "
                f"the driver log"
            )

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._stopping:
                    self._idle = True
                    # Bounded only to be safe: every submit and stop notifies.
                    self._changed.wait(1.0)
                self._idle = False
                batch = self._take()
                if not batch:
                    return
            self._answer(self._add(batch))

    def _take(self) -> list[tuple[Token, AddBlock]]:
        """Return the messages of the next record; needs `_changed`."""
        waiting = self._waiting
        blocks = 0
        for count, (_, message) in enumerate(waiting, start=1):
            blocks += len(message.blocks)
            if blocks >= _BLOCKS_PER_RECORD:
                self._waiting = waiting[count:]
                return waiting[:count]
        self._waiting = []
        return waiting

    def _add(self, batch: list[tuple[Token, AddBlock]]) -> list[tuple[Token, Message]]:
        try:
            answers = self._tracker.add_many([message for _, message in batch])
        except Exception as error:  # noqa: BLE001 - a defect: the receivers are told, and try again
            _log.exception("adding blocks failed")
            failure = Failure(f"adding blocks failed: {error!r}")
            return [(token, failure) for token, _ in batch]
        return [(token, answer) for (token, _), answer in zip(batch, answers, strict=True)]
