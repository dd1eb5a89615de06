"""`LetterSends`: asks receivers to store dead letters again, and waits for what became of it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError

from penstock.tracker.errors import LettersNotSentError
from penstock.wire.messages import LettersSent, Message, SendLetters


class LetterSends:
    """What is asked of receivers and not answered yet. Safe to use from any thread.

    Args:
        send: Sends a message to a stream's receiver; False when none is connected.
    """

    def __init__(self, send: Callable[[int, Message], bool]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[LettersSent]] = {}

    def ask(
        self,
        stream_id: int,
        letters: Sequence[tuple[str, int]],
        *,
        even_sent: bool,
        timeout_s: float,
    ) -> LettersSent:
        """Have a stream's receiver store letters, and return what became of it.

        Args:
            stream_id: The stream.
            letters: The folder of each one's log, and its number there.
            even_sent: Also those that were sent before, or may have been.
            timeout_s: How long to wait for the receiver.

        Raises:
            LettersNotSentError: None is connected; it does not say within the time what became of
                it; or it could not.
        """
        future: Future[LettersSent] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = future
        try:
            if not self._send(stream_id, SendLetters(number, tuple(letters), even_sent)):
                raise LettersNotSentError(stream_id, "its receiver does not run now")
            found = future.result(timeout_s)
        except FutureTimeoutError:
            raise LettersNotSentError(
                stream_id,
                f"its receiver has not stored them within {timeout_s:g} s (it may be paused, or "
                "wait for the batches); it may still do so: look at `penstock dead-letters list`",
            ) from None
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if found.error:
            raise LettersNotSentError(stream_id, found.error)
        return found

    def answered(self, message: LettersSent) -> None:
        """Take a receiver's answer; one for which nobody waits any more is dropped."""
        with self._lock:
            future = self._waiting.pop(message.request, None)
        if future is not None:
            future.set_result(message)
