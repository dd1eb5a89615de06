"""The listening end: a thread with its own event loop that answers authenticated peers.

What a server's owner writes is a `Handler`, which is given `Peer` and `PendingReply`. The thread is
named ``penstock-<name>``; `Server.start` makes it, `Server.stop` joins it. The handler is called on
it and must not block it; what takes time returns a `PendingReply` or an awaitable.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Protocol

import msgspec

from penstock.errors import IllegalStateError
from penstock.runtime.clock import Clock, SystemClock
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.runtime.threads import OwnedThread
from penstock.wire._arrivals import Arrival, Arrivals
from penstock.wire._authentication import TRACKER, ServerHandshake
from penstock.wire._connection import Connection, ConnectionState
from penstock.wire._frames import Kind, encode_frame
from penstock.wire._mailbox import Mailbox
from penstock.wire.addresses import address_text, listen_in_range
from penstock.wire.errors import AuthenticationError, ConnectionLostError, WireError
from penstock.wire.link import ApplicationLink, WireOptions
from penstock.wire.messages import Failure, Message

_logger = logging.getLogger("penstock.wire")
_STOP_TIMEOUT_S = 15.0

_FRAMES_PER_TURN = 16
"""How many frames that can wait go out in one turn of the loop, which then takes a millisecond."""

_TURNS = 32

_OFFERED_BYTES = 1 << 20
"""A peer that leaves more than this unread is offered nothing."""


class PendingReply:
    """The promise of an answer: a handler returns it, `Server.resolve` keeps it, from any thread.

    It is far cheaper than a coroutine: many of them are resolved by one wake-up of the loop.
    """

    __slots__ = ("_ask_id", "_connection")

    def __init__(self) -> None:
        # Both are set on the loop's thread right after the handler returned, and read on it.
        self._connection: Connection | None = None
        self._ask_id = 0


Reply = Message | PendingReply | Awaitable[Message | None] | None
"""What a handler may return. None and what it awaits to None: only for a send."""


class Handler(Protocol):
    """What a server does with messages. All methods are called on the server's thread."""

    def on_message(self, peer: Peer, message: Message) -> Reply:
        """Act on one message; must not block. Messages of one peer come in their order.

        May be an ``async def``. An ask must be answered with a message; whatever is raised
        becomes a `Failure` reply and a log line with its traceback, and the server lives on.
        """

    def on_disconnect(self, peer: Peer) -> None:
        """The peer is gone; called once for each peer from which a message may have come."""


class Peer:
    """An authenticated connection, as a handler sees it. Compared by identity."""

    def __init__(
        self,
        connection: Connection,
        call: Callable[[Callable[[], None]], None],
        queue: Callable[[tuple[Connection, bytes]], object],
        max_frame_bytes: int,
    ) -> None:
        self._connection = connection
        self._call = call
        self._queue = queue
        self._max_frame_bytes = max_frame_bytes

    @property
    def address(self) -> tuple[str, int]:
        """The other end's host and port."""
        return self._connection.address

    @property
    def is_connected(self) -> bool:
        """False once it has gone (or is about to)."""
        return self._connection.state is ConnectionState.OPEN

    def send(self, message: Message, *, can_wait: bool = False) -> None:
        """Send a message that is not answered. From any thread; in order; never blocks.

        It is lost without an error when the peer is gone or goes before it read it; the handler
        hears of that by `Handler.on_disconnect`.

        Args:
            message: The message.
            can_wait: Answers, and what cannot wait, go before it: for what many peers get at one
                time. Those that can wait keep their order among themselves.

        Raises:
            FrameTooLargeError: It is larger than a frame may be.
        """
        frame, connection = self._frame(message), self._connection
        if can_wait:
            self._queue((connection, frame))
        else:
            self._call(lambda: connection.queue(frame))

    def offer(self, message: Message) -> None:
        """Send a message like `send`, but not to a peer that leaves more than 1 MiB unread.

        So that what a peer can do without never makes it the slow reader that is dropped.
        """
        frame, connection = self._frame(message), self._connection

        def queue() -> None:
            if connection.unread_bytes() <= _OFFERED_BYTES:
                connection.queue(frame)

        self._call(queue)

    def _frame(self, message: Message) -> bytes:
        limit_bytes, peer = self._max_frame_bytes, self._connection.peer
        return encode_frame(message, Kind.SEND, limit_bytes=limit_bytes, peer=peer)

    def close(self) -> None:
        """End the connection once what was sent has gone out (bounded). From any thread."""
        self._call(self._connection.close)

    def __repr__(self) -> str:
        return f"<Peer {self._connection.peer}>"


class Server:
    """Listens, authenticates, hands messages to a `Handler` and sends its answers."""

    def __init__(
        self,
        link: ApplicationLink,
        handler: Handler,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        port_retries: int = 0,
        name: str = "wire-server",
        options: WireOptions | None = None,
        clock: Clock | None = None,
        on_died: Callable[[BaseException], object] = lambda _: None,
    ) -> None:
        """Make a server that does not listen yet.

        Args:
            link: What proves who belongs to the application; its address is not looked at.
            handler: Acts on messages.
            host: The address to listen at; a name for all addresses that it stands for.
            port: The port, or 0 for any free one.
            port_retries: How many ports after it are tried while one is taken.
            name: The thread is called ``penstock-<name>``.
            options: Limits and time-outs.
            clock: For the rate of log lines.
            on_died: Called, on its thread, when an error ended it before `stop`.
        """
        self.options = options or WireOptions()
        self._secret = link.secret
        self._handler = handler
        self._host = host
        self._port = port
        self._port_retries = port_retries
        self._name = name
        self._ssl_context = link.server_context()
        self._limited_log = RateLimitedLog(_logger, clock or SystemClock())
        self._on_died = on_died
        self._thread: threading.Thread | None = None
        self._calls: Mailbox[Callable[[], None]] = Mailbox()
        self._waiting: Mailbox[tuple[Connection, bytes]] = Mailbox()
        self._stop_requested: asyncio.Event
        # The rest belongs to the loop's thread.
        self.arrivals: Arrivals | None = None
        self._unproved: set[Connection] = set()
        self.peers: dict[Connection, Peer] = {}
        self._frames: deque[tuple[Connection, bytes]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self.refused = 0
        # Refuses a secret that is too short, here and not later.
        ServerHandshake(self._secret, TRACKER)

    # -- for the owner -------------------------------------------------------------------------

    def start(self) -> tuple[str, int]:
        """Listen, and return the address that was bound.

        Raises:
            WireError: The address cannot be bound.
            IllegalStateError: It was started before.
        """
        if self._thread is not None:
            raise IllegalStateError("a Server is started once; make another")
        started: Future[tuple[str, int]] = Future()
        self._thread = OwnedThread(partial(self._run, started), self._name, on_error=self._on_died)
        self._thread.start()
        try:
            return started.result()
        except BaseException:
            self._thread.join(_STOP_TIMEOUT_S)
            raise

    def stop(self, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """Stop listening, let what was sent go out for a moment, close all, join the thread.

        May be called twice, and before `start`.

        Raises:
            WireError: The thread did not end within `timeout_s` (a handler blocks it).
            IllegalStateError: It was called on the server's own thread.
        """
        thread = self._thread
        if thread is None:
            return
        if thread is threading.current_thread():
            raise IllegalStateError(
                "Server.stop was called by its own handler: it would wait for itself"
            )
        self.call(lambda: self._stop_requested.set())
        thread.join(timeout_s)
        if thread.is_alive():
            raise WireError(
                address_text(self._host, self._port),
                f"the thread {thread.name} did not end within {timeout_s:g} s: its handler blocks",
            )

    def resolve(self, replies: Iterable[tuple[PendingReply, Message]]) -> None:
        """Answer many asks at once, in this order. From any thread; wakes the loop once.

        Answers to peers that are gone are dropped.
        """
        batch = list(replies)
        self.call(lambda: self._resolve(batch))

    def call(self, function: Callable[[], None]) -> None:
        """Run `function` on the server's thread, soon and in order. From any thread.

        Without effect when the server does not run. Many calls share one wake-up.
        """
        self._calls.put(function)

    # -- the thread ----------------------------------------------------------------------------

    def _run(self, started: Future[tuple[str, int]]) -> None:
        try:
            asyncio.run(self._serve(started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    async def _serve(self, started: Future[tuple[str, int]]) -> None:
        loop = asyncio.get_running_loop()
        self._stop_requested = asyncio.Event()

        def connection(arrival: Arrival) -> Connection:
            handshake = ServerHandshake(self._secret, TRACKER)
            limit_bytes = self.options.write_limit_bytes
            made = Connection(loop, handshake, self, self.options, limit_bytes)
            made.context = arrival
            return made

        try:
            sockets = listen_in_range(self._host, self._port, self._port_retries)
        except OSError as error:
            place = address_text(self._host, self._port)
            raise WireError(
                place,
                f"cannot listen at {place} ({error}); choose another address or port (0 takes any "
                "free port)",
            ) from error
        host, port = sockets[0].getsockname()[:2]
        self._port = port
        self.arrivals = arrivals = Arrivals(
            connection,
            most=self.options.max_unauthenticated,
            timeout_s=self.options.authentication_timeout_s,
            refused=self._refuse,
            ssl_context=self._ssl_context,
        )
        arrivals.listen(sockets)
        self._calls.open(loop, self._run_calls)
        self._waiting.open(loop, self._send_waiting)
        started.set_result((host, port))
        try:
            await self._stop_requested.wait()
            await arrivals.stop()
        finally:
            # While the loop can still be woken.
            self._run_calls(self._calls.close())
            self._frames.extend(self._waiting.close())
            while self._frames:
                self._send_some()
        await self._close_all()

    async def _close_all(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        for connection in list(self._unproved):
            connection.close()
        for connection in list(self.peers):
            connection.close()
        # Bounded: each connection lingers at most this long and is then aborted.
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=1.0)
        while self.peers or self._unproved:
            await asyncio.sleep(0.005)

    def _run_calls(self, calls: list[Callable[[], None]]) -> None:
        for function in calls:
            try:
                function()
            except Exception:
                _logger.exception("a call on the thread of the server %s failed", self._name)

    def _send_waiting(self, frames: list[tuple[Connection, bytes]]) -> None:
        is_sending = bool(self._frames)
        self._frames.extend(frames)
        if not is_sending:
            self._send_some()

    def _send_some(self) -> None:
        # More where many wait, so that they do not become ever more while other threads are busy.
        count = max(_FRAMES_PER_TURN, len(self._frames) // _TURNS)
        for _ in range(min(count, len(self._frames))):
            connection, frame = self._frames.popleft()
            connection.queue(frame)
        if self._frames:
            asyncio.get_running_loop().call_soon(self._send_some)

    # -- ConnectionOwner -----------------------------------------------------------------------

    def connection_made(self, connection: Connection) -> None:
        self._unproved.add(connection)
        connection.context.turn_away = lambda reason: connection.fail(
            WireError(connection.peer, reason)
        )

    def connection_authenticated(self, connection: Connection) -> None:
        self._proved_or_over(connection)
        self.peers[connection] = connection.context = Peer(
            connection, self.call, self._waiting.put, self.options.max_frame_bytes
        )

    def connection_closed(self, connection: Connection, error: WireError | None) -> None:
        peer = self.peers.pop(connection, None)
        if peer is None:
            self._proved_or_over(connection)
            if error is not None:
                reason = error.reason if isinstance(error, AuthenticationError) else str(error)
                self._refuse(connection.peer, reason)
            return
        if error is not None:
            # A connection that just broke is not worth a warning; one that misbehaved is.
            level = logging.INFO if isinstance(error, ConnectionLostError) else logging.WARNING
            _logger.log(level, "the connection of a peer ended: %s", error)
        try:
            self._handler.on_disconnect(peer)
        except Exception:
            _logger.exception(
                "the handler failed at the end of the connection of %s", connection.peer
            )

    def _proved_or_over(self, connection: Connection) -> None:
        if self.arrivals is not None and connection in self._unproved:
            self._unproved.remove(connection)
            self.arrivals.remove(connection.context)
            connection.context = None

    def _refuse(self, peer: str, reason: str) -> None:
        self.refused += 1
        self._limited_log.log(f"refused a connection from {peer}: {reason}", like="")

    def frame_received(
        self, connection: Connection, ask_id: int, kind: Kind, message: Message
    ) -> None:
        if kind is Kind.REPLY:
            return  # this end never asks; an answer to nothing changes nothing
        is_ask = kind is Kind.ASK
        if is_ask:
            connection.pending_asks += 1
            if connection.pending_asks >= self.options.max_pending_asks:
                connection.pause_reading()
        try:
            reply = self._handler.on_message(connection.context, message)
        except Exception as error:  # noqa: BLE001 - it becomes a Failure and a log line
            self._failed(connection, ask_id if is_ask else None, message, error)
            return
        if isinstance(reply, PendingReply):
            if is_ask:
                reply._ask_id = ask_id
                reply._connection = connection
        elif reply is None or isinstance(reply, msgspec.Struct):
            if is_ask:
                self._answer(connection, ask_id, message, reply)
        else:
            task = asyncio.ensure_future(
                self._finish(connection, ask_id if is_ask else None, message, reply)
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # -- answers -------------------------------------------------------------------------------

    async def _finish(
        self,
        connection: Connection,
        ask_id: int | None,
        message: Message,
        awaited: Awaitable[Message | None],
    ) -> None:
        try:
            reply = await awaited
        except Exception as error:  # noqa: BLE001 - it becomes a Failure and a log line
            self._failed(connection, ask_id, message, error)
            return
        if ask_id is not None:
            self._answer(connection, ask_id, message, reply)

    def _answer(
        self, connection: Connection, ask_id: int, message: Message, reply: Message | None
    ) -> None:
        if reply is None:
            name = type(message).__name__
            _logger.error("the handler of %s gave no answer to %s", self._name, name)
            reply = Failure(f"{name} has no answer here: it is to be sent, not asked")
        self._reply(connection, ask_id, reply)

    def _failed(
        self, connection: Connection, ask_id: int | None, message: Message, error: Exception
    ) -> None:
        name = type(message).__name__
        _logger.error("handling %s of %s failed", name, connection.peer, exc_info=error)
        if ask_id is not None:
            self._reply(connection, ask_id, Failure(f"{type(error).__name__}: {error}"))

    def _resolve(self, batch: list[tuple[PendingReply, Message]]) -> None:
        for pending, message in batch:
            connection = pending._connection
            if connection is not None:
                pending._connection = None  # a second answer to the same ask changes nothing
                self._reply(connection, pending._ask_id, message)

    def _reply(self, connection: Connection, ask_id: int, message: Message) -> None:
        try:
            frame = encode_frame(
                message,
                Kind.REPLY,
                ask_id,
                limit_bytes=self.options.max_frame_bytes,
                peer=connection.peer,
            )
        except Exception as error:
            _logger.error("an answer to %s cannot be sent", connection.peer, exc_info=error)
            frame = encode_frame(
                Failure(f"the answer cannot be sent ({error})"[:1000]),
                Kind.REPLY,
                ask_id,
                limit_bytes=self.options.max_frame_bytes,
            )
        connection.queue(frame)
        connection.pending_asks -= 1
        if connection.pending_asks == self.options.max_pending_asks // 2:
            connection.resume_reading()
