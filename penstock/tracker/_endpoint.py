"""`TrackerEndpoint`: what arrives from receivers and block servers, and who deals with it.

On the server's event loop only two things happen: an `AddBlock` is queued for the next log record
(`BatchedAdditions`), everything else for the thread ``penstock-tracker-control``, which may wait
for the disk and calls the user's listeners, or, about places, for the thread ``penstock-places``.
So messages of one kind keep their order, and nothing blocks the loop. These threads are no
executor's: those end as soon as the interpreter begins to exit, and a program that ends without a
stop is stopped only then.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable

from penstock.event_loop import EventLoop
from penstock.tracker._batched_additions import BatchedAdditions
from penstock.tracker._control import Control
from penstock.tracker._place_service import PLACE_MESSAGES, PlaceService
from penstock.tracker.received_block_tracker import ReceivedBlockTracker
from penstock.wire import Peer, PendingReply, Reply, Server, WireOptions
from penstock.wire.messages import AddBlock, Failure, Message, Refused

_log = logging.getLogger("penstock.tracker")

_STOP_TIMEOUT_S = 10.0


class TrackerEndpoint:
    """The tracker's server. Its owner sets `handler`, calls `start` once, and `stop`.

    Attributes:
        handler: Deals with everything but `AddBlock`, on the control thread, one at a time. Without
            one, all else is refused.
        places: Deals with what is about places; None where no stream is read by places.
    """

    def __init__(
        self,
        secret: bytes,
        ledger: ReceivedBlockTracker,
        *,
        host: str,
        port: int,
        port_retries: int = 0,
        options: WireOptions,
        ssl_context: ssl.SSLContext | None = None,
        on_died: Callable[[BaseException], object] = lambda _: None,
    ) -> None:
        self.handler: Control | None = None
        self.places: PlaceService | None = None
        self._server = Server(
            secret,
            self,
            host=host,
            port=port,
            port_retries=port_retries,
            name="tracker-server",
            options=options,
            ssl_context=ssl_context,
            on_died=on_died,
        )
        self._additions: BatchedAdditions[PendingReply] = BatchedAdditions(ledger, self._added)
        self._control = EventLoop("tracker-control", _failed)
        self._readers = EventLoop("places", _failed)

    def start(self) -> tuple[str, int]:
        """Listen; return the address that was bound.

        Raises:
            ServerStartError: The address cannot be bound.
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

    def later(self, delay_s: float, function: Callable[[], None]) -> None:
        """Run `function` on the control thread after a while; not at all when stopped before."""

        def schedule() -> None:
            asyncio.get_running_loop().call_later(delay_s, self._control.post, function)

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
        handler = self.handler
        if handler is None:
            return Refused(f"{type(message).__name__} is not taken here")
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

    # -- called on the thread of additions -----------------------------------------------------

    def _added(self, answers: list[tuple[PendingReply, Message]]) -> None:
        self._server.resolve(answers)
        if self.places is not None:
            self.places.backlogs.check()

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
