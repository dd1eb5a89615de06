"""`TrackerEndpoint`: what arrives from receivers and block servers, and what deals with it.

On the server's event loop only two things happen: an `AddBlock` is queued for the next log record
(`BatchedAdditions`), everything else for the thread ``penstock-tracker-control``, which may wait
for the disk and calls the user's listeners, or, about places, for the thread ``penstock-places``.
So messages of one kind keep their order, and nothing blocks the loop. These threads are no
executor's: those end as soon as the interpreter begins to exit, and a program that ends without a
stop is stopped only then.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Generic, TypeVar

import msgspec

from penstock.dead_letters import SENT_BEFORE, LetterName
from penstock.errors import IllegalStateError, PenstockError
from penstock.runtime.event_loop import EventLoop
from penstock.runtime.threads import OwnedThread
from penstock.tracker._control import Control
from penstock.tracker.consumers.continuous_streams import CONTINUOUS_MESSAGES, ContinuousStreams
from penstock.tracker.consumers.place_service import PLACE_MESSAGES, PlaceService
from penstock.tracker.ledger.received_block_tracker import ReceivedBlockTracker
from penstock.wal import Company
from penstock.wire import ApplicationLink, Peer, PendingReply, Reply, Server, WireOptions
from penstock.wire.messages import (
    AddBlock,
    Failure,
    LettersSent,
    Message,
    Ok,
    Refused,
    RegisterReceiver,
    ReportRateStatus,
    SendLetters,
    ShownBlock,
)

# Group commit of block additions: many `AddBlock` messages share one record of the driver log.
#
# While the log writes one record, further messages gather; the next record carries them all. So
# the number of messages per second is not bound by the number of syncs per second, and a lone
# message waits for one sync only.

Token = TypeVar("Token")

MAXIMUM_WAITING = 65_536
"""Messages that may wait for the log; more are answered with a `Failure` at once (I7)."""

_BLOCKS_PER_RECORD = 8192

_REGISTRATIONS_PER_RECORD = 256


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
        company: Company | None = None,
    ) -> None:
        """Make it; nothing runs before `start`.

        Args:
            tracker: The ledger.
            answer: Called on the thread with (token, answer) pairs, in the order of `submit`.
            maximum_waiting: How many messages may wait.
            company: Whose messages come at about the same time; None: no one is waited for.
        """
        self._company = company
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
            if self._company is not None:
                self._company.came(message.attempt)
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
                if self._company is not None:
                    self._idle = True
                    self._company.wait_for(self._changed, lambda: self._stopping)
                self._idle = False
                batch = self._take()
                if not batch:
                    return
            answers = self._add(batch)
            if self._company is not None:
                for _, message in batch:
                    self._company.served(message.attempt)
            self._answer(answers)

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
        except Exception as error:  # noqa: BLE001 - a defect: the receivers get it, and try again
            _log.exception("adding blocks failed")
            failure = Failure(f"adding blocks failed: {error!r}")
            return [(token, failure) for token, _ in batch]
        return [(token, answer) for (token, _), answer in zip(batch, answers, strict=True)]


_log = logging.getLogger("penstock.tracker")

_STOP_TIMEOUT_S = 10.0


class TrackerEndpoint:
    """The tracker's server. Its owner sets `handler`, calls `start` once, and `stop`.

    Attributes:
        handler: Deals with everything but `AddBlock`, on the control thread, one at a time. Without
            one, all else is refused.
        places: Deals with what is about places; None where no stream is read by places.
        continuous: Deals with tasks of continuous streams; None where there are none.
    """

    def __init__(
        self,
        link: ApplicationLink,
        ledger: ReceivedBlockTracker,
        *,
        host: str,
        port: int,
        port_retries: int = 0,
        options: WireOptions,
        on_died: Callable[[BaseException], object] = lambda _: None,
        company: Company | None = None,
    ) -> None:
        self.handler: Control | None = None
        self.places: PlaceService | None = None
        self.continuous: ContinuousStreams | None = None
        self._server = Server(
            link,
            self,
            host=host,
            port=port,
            port_retries=port_retries,
            name="tracker-server",
            options=options,
            on_died=on_died,
        )
        self._additions: BatchedAdditions[PendingReply] = BatchedAdditions(
            ledger, self._added, company=company
        )
        self._registering: deque[tuple[Peer, RegisterReceiver, PendingReply]] = deque()
        self._control = EventLoop("tracker-control", _failed)
        self._readers = EventLoop("places", _failed)

    def start(self) -> tuple[str, int]:
        """Listen; return the address that was bound.

        Raises:
            WireError: The address cannot be bound.
        """
        self._additions.start()
        self._control.start()
        if self.places is not None:
            self._readers.start()
        try:
            return self._server.start()
        except BaseException:
            self._additions.stop(_STOP_TIMEOUT_S)
            self._end_loops()
            raise

    def stop(self) -> None:
        """Write and answer what has arrived, then close all connections and join all threads."""
        self._additions.stop(_STOP_TIMEOUT_S)
        self._server.stop()
        self._end_loops()

    def _end_loops(self) -> None:
        for loop in (self._control, self._readers):
            if not loop.stop(_STOP_TIMEOUT_S):
                _log.error("%s has not ended after %g s", loop.thread.name, _STOP_TIMEOUT_S)

    def later(
        self, delay_s: float, function: Callable[[], None], loop: EventLoop | None = None
    ) -> None:
        """Run `function` on a thread after a while; not at all when stopped before.

        Args:
            delay_s: The while.
            function: The function.
            loop: The thread's; None: that of the control thread.
        """
        post = (loop or self._control).post

        def schedule() -> None:
            asyncio.get_running_loop().call_later(delay_s, post, function)

        self._server.call(schedule)

    # -- called on the server's thread ---------------------------------------------------------

    def on_message(self, peer: Peer, message: Message) -> Reply:
        """Queue a message for the thread that deals with it (`penstock.wire.Handler`)."""
        pending = PendingReply()
        if isinstance(message, AddBlock):
            return self._additions.submit(pending, message) or pending
        places = self.places
        if places is not None and isinstance(message, PLACE_MESSAGES):
            self._readers.post(lambda: self._answer(places.answer, peer, message, pending))
            return pending
        continuous = self.continuous
        if continuous is not None and isinstance(message, ShownBlock):
            # At once, on this thread: nothing but a lock is waited for.
            continuous.show(message)
            return Ok()
        if continuous is not None and isinstance(message, CONTINUOUS_MESSAGES):
            continuous.take(peer, message, lambda reply: self._server.resolve([(pending, reply)]))
            return pending
        handler = self.handler
        if handler is None:
            return Refused(f"{type(message).__name__} is not taken here")
        if isinstance(message, ReportRateStatus):
            # Many of them come, and no one waits for an answer.
            self._control.post(lambda: handler.on_control(peer, message))
            return Ok()
        if isinstance(message, RegisterReceiver):
            # Those that wait are registered together: at a start, all.
            self._registering.append((peer, message, pending))
            self._control.post(lambda: self._register(handler))
            return pending
        self._control.post(lambda: self._answer(handler.on_control, peer, message, pending))
        return pending

    def on_disconnect(self, peer: Peer) -> None:
        """Queue the end of a connection behind the messages that came from it."""
        handler = self.handler
        if handler is not None:
            self._control.post(lambda: handler.on_peer_gone(peer))
        places = self.places
        if places is not None:
            self._readers.post(lambda: places.disconnected(peer))
        if self.continuous is not None:
            self.continuous.disconnected(peer)

    # -- called on the thread of additions -----------------------------------------------------

    def _added(self, answers: list[tuple[PendingReply, Message]]) -> None:
        if self.continuous is not None:
            self.continuous.blocks_added()
        self._server.resolve(answers)
        if self.places is not None:
            self.places.backlogs.check()

    # -- called on the control thread ----------------------------------------------------------

    def _register(self, handler: Control) -> None:
        count = min(len(self._registering), _REGISTRATIONS_PER_RECORD)
        waiting = [self._registering.popleft() for _ in range(count)]
        if not waiting:
            return  # An earlier call took them.
        answers: list[Message]
        try:
            answers = handler.register([(peer, message) for peer, message, _ in waiting])
        except Exception as error:  # noqa: BLE001 - becomes the answer, and a log line
            _log.exception("the tracker failed to register %d receivers", count)
            answers = [Failure(f"{type(error).__name__}: {error}")] * count
        self._server.resolve(
            [(pending, answer) for (_, _, pending), answer in zip(waiting, answers, strict=True)]
        )

    # -- called on the control thread, or on that of places ----------------------------------------

    def _answer(
        self,
        handle: Callable[[Peer, Message], Message],
        peer: Peer,
        message: Message,
        pending: PendingReply,
    ) -> None:
        try:
            answer = handle(peer, message)
        except Exception as error:  # noqa: BLE001 - becomes the answer, and a log line
            _log.exception("the tracker failed to deal with %s", type(message).__name__)
            answer = Failure(f"{type(error).__name__}: {error}")
        # An answer to what was only sent goes nowhere.
        self._server.resolve([(pending, answer)])


def _failed(error: BaseException) -> None:
    # A defect must not end the thread; it is logged.
    _log.error("the tracker failed to deal with something that came from a peer", exc_info=error)


class LetterSends:
    """What is asked of receivers and not answered yet. Safe to use from any thread.

    Args:
        send: Sends a message to a stream's receiver; False when none is connected.
        sent: Returns a stream's newest attempt, and which of some letters were sent, by their keys.
    """

    def __init__(
        self,
        send: Callable[[int, Message], bool],
        sent: Callable[[int, Iterable[bytes]], tuple[str, Container[bytes]]],
    ) -> None:
        self._send = send
        self._sent = sent
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[LettersSent]] = {}

    def ask(
        self,
        stream_id: int,
        letters: Sequence[tuple[LetterName, bytes]],
        *,
        even_sent: bool,
        timeout_s: float,
    ) -> LettersSent:
        """Have a stream's receiver store letters, and return what became of it.

        Args:
            stream_id: The stream.
            letters: Each one's name and key.
            even_sent: Also those that were sent before.
            timeout_s: How long to wait for the receiver.

        Raises:
            PenstockError: None is connected; it does not say within the time what became of it; or
                it could not.
        """
        attempt, sent = self._sent(stream_id, () if even_sent else [key for _, key in letters])
        names = tuple(name for name, key in letters if key not in sent)
        before = tuple((name, SENT_BEFORE) for name, key in letters if key in sent)
        if not names:
            return LettersSent(stream_id, attempt, 0, 0, before)
        future: Future[LettersSent] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = future
        try:
            if not self._send(stream_id, SendLetters(number, attempt, names, even_sent)):
                raise _not_sent(stream_id, "its receiver does not run now")
            found = future.result(timeout_s)
        except FutureTimeoutError:
            raise _not_sent(
                stream_id,
                f"its receiver has not stored them within {timeout_s:g} s (it may be paused, or "
                "wait for the batches); it may still do so: look at `penstock dead-letters list`",
            ) from None
        finally:
            with self._lock:
                self._waiting.pop(number, None)
        if found.error:
            raise _not_sent(stream_id, found.error)
        return msgspec.structs.replace(found, left=(*before, *found.left))

    def answered(self, message: LettersSent) -> None:
        """Take a receiver's answer; one for which no one waits any more is dropped."""
        with self._lock:
            future = self._waiting.pop(message.request, None)
        if future is not None:
            future.set_result(message)


def _not_sent(stream_id: int, reason: str) -> PenstockError:
    return PenstockError(f"stream {stream_id} was not sent its dead letters: {reason}")
