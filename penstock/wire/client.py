"""The connecting end: it keeps a connection alive in a thread, and is usable from any other.

When the connection breaks it is made again, with growing, jittered delays; then the hello
messages of `on_reconnect` are asked, and when they are answered, every ask that has no answer
yet is sent again, in its old order. So a server may see an ask twice, and must take it once.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import enum
import itertools
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from penstock.errors import IllegalStateError
from penstock.runtime.backoff import Backoff
from penstock.runtime.threads import OwnedThread
from penstock.wire._authentication import TRACKER, ClientHandshake
from penstock.wire._connection import Connection, peer_text
from penstock.wire._frames import Kind, encode_frame
from penstock.wire._mailbox import Mailbox
from penstock.wire.errors import (
    AskTimeoutError,
    AuthenticationError,
    ConnectionLostError,
    WireError,
)
from penstock.wire.link import ApplicationLink, WireOptions
from penstock.wire.messages import Message

_logger = logging.getLogger("penstock.wire")

_FIRST_DELAY_S = 0.05
_MAX_DELAY_S = 5.0
"""The first pause between two tries to connect, and the longest."""
_SETTLED_S = 1.0
"""How long a connection must last for the reconnect delay to be reset."""
_GRACE_S = 5.0
"""How long after its time-out a blocking ask assumes that the client's thread is stuck."""
_CLOSE_TIMEOUT_S = 5.0
_MOST_UNSENT = 1024
"""How many sends wait for a connection; then the oldest are dropped."""


class ClientLoop:
    """A thread with an event loop that several clients of a process share.

    A callback of one that blocks holds up all. It ends with the process.

    Args:
        name: The thread is called ``penstock-<name>``.

    Attributes:
        thread: The thread.
    """

    def __init__(self, name: str) -> None:
        self._running: Future[asyncio.AbstractEventLoop] = Future()
        self.thread = OwnedThread(self._run, name)

    def start(self) -> None:
        """Start it."""
        self.thread.start()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin to run something; returns at once."""
        asyncio.run_coroutine_threadsafe(work, self._running.result(_CLOSE_TIMEOUT_S))

    def _run(self) -> None:
        async def wait() -> None:
            self._running.set_result(asyncio.get_running_loop())
            await asyncio.Event().wait()

        asyncio.run(wait())


class Client:
    """A connection to a `Server` that mends itself.

    Callers and the client's thread share the `Mailbox` of new frames and the error that ended
    the client, each with its own lock. All else belongs to the thread ``penstock-<name>``, or that
    of the loop that it shares, on which every callback is called; a callback must not block and
    must not call `ask`.
    """

    def __init__(
        self,
        link: ApplicationLink,
        *,
        on_message: Callable[[Message], None] | None = None,
        on_reconnect: Callable[[], Sequence[Message]] | None = None,
        on_hello_answer: Callable[[Message, Message], None] | None = None,
        on_closed: Callable[[WireError], None] | None = None,
        name: str = "wire-client",
        options: WireOptions | None = None,
        loop: ClientLoop | None = None,
    ) -> None:
        """Make a client that is not connected yet.

        Args:
            link: Where the server is, and what proves who belongs to the application.
            on_message: Gets what the server sends.
            on_reconnect: Returns the messages that are asked first on every connection but the
                first one. Nothing else goes out before they are answered.
            on_hello_answer: Gets each of those messages with its answer.
            on_closed: Called once when the client ends for good by an error: it was refused, or
                `give_up_after_s` or `refused_after_s` of the options passed. Not called by `close`.
            name: The thread is called ``penstock-<name>``.
            options: Limits and time-outs.
            loop: Runs it beside others; None: it has a thread of its own.
        """
        self._address = link.tracker_address
        self._peer = peer_text(self._address)
        self._secret = link.secret
        self._on_message = on_message
        self._on_reconnect = on_reconnect
        self._on_hello_answer = on_hello_answer
        self._on_closed = on_closed
        self._name = name
        self._options = options or WireOptions()
        self._ssl_context = link.client_context()
        self._ids = itertools.count(1)
        self._loop = loop
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._first_connected: Future[None] = Future()
        # New asks, the frames of sends, and None: stop.
        self._submitted: Mailbox[Ask | bytes | None] = Mailbox()
        self._end: WireError | None = None  # set once, under the lock; then nothing is taken
        self._end_lock = threading.Lock()
        # The rest belongs to the client's thread.
        self.state = ClientState.NEW
        self.unanswered = UnansweredAsks()
        self._greetings = UnansweredAsks()
        self._unsent: deque[bytes] = deque(maxlen=_MOST_UNSENT)
        self._connection: Connection | None = None
        self.connections = 0
        self._last_error: BaseException | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._stop: asyncio.Event
        self._connection_over: asyncio.Event
        self._end_of_connection: WireError | None = None
        ClientHandshake(self._secret, TRACKER, self._peer)  # refuses a secret that is too short

    # -- for any thread ------------------------------------------------------------------------

    def connect(self, timeout_s: float | None = None) -> None:
        """Start the thread and wait for the first authenticated connection.

        A server that does not listen yet is tried again until the time is over.

        Args:
            timeout_s: How long to try; the client's ask time-out when None.

        Raises:
            AuthenticationError: The server refused, or could not prove itself.
            ConnectionLostError: There was no connection in time.
            IllegalStateError: It was called before.
        """
        if self._thread is not None:
            raise IllegalStateError("a Client is connected once; it mends itself after that")
        timeout_s = self._options.ask_timeout_s if timeout_s is None else timeout_s
        if self._loop is None:
            self._thread = OwnedThread(self._run, self._name)
            self._thread.start()
        else:
            self._thread = self._loop.thread
            self._loop.run(self._run_beside_others())
        try:
            self._first_connected.result(timeout_s)
        except FutureTimeoutError:
            self.close()
            raise ConnectionLostError(
                self._peer,
                f"no connection to {self._peer} within {timeout_s:g} s (last: "
                f"{self._last_error or 'no answer'}); check that it runs and can be reached",
            ) from self._last_error
        except BaseException:
            self.close()
            raise

    def ask(self, message: Message, timeout_s: float | None = None) -> Message:
        """Ask, and wait for the answer. A `Failure` or `Refused` is also an answer.

        Raises:
            AskTimeoutError: No answer came in time.
            ConnectionLostError: The client was closed, or closes meanwhile; or AuthenticationError
                when that is what ended it.
            FrameTooLargeError: The message is larger than a frame may be; nothing was sent.
            IllegalStateError: It was called on the client's own thread.
        """
        if threading.current_thread() is self._thread:
            raise IllegalStateError(
                "Client.ask was called by a callback of this client and would wait for itself; "
                "use ask_async there"
            )
        timeout_s = self._options.ask_timeout_s if timeout_s is None else timeout_s
        future = self.ask_async(message, timeout_s)
        try:
            return future.result(timeout_s + _GRACE_S)
        except AskTimeoutError:
            raise
        except FutureTimeoutError:
            raise AskTimeoutError(
                self._peer, type(message).__name__, timeout_s, "the client's thread is stuck"
            ) from None

    def ask_async(self, message: Message, timeout_s: float | None = None) -> Future[Message]:
        """Ask, and return at once. Asks of one thread go out in their order.

        The future's callbacks run on the client's thread. It cannot be cancelled once returned;
        an answer to an ask that timed out is dropped.

        Raises:
            ConnectionLostError: The client was closed (AuthenticationError when that ended it).
            FrameTooLargeError: The message is larger than a frame may be; nothing was sent.
        """
        timeout_s = self._options.ask_timeout_s if timeout_s is None else timeout_s
        ask = self._new_ask(message, timeout_s)
        self._submit(ask)
        return ask.future

    def send(self, message: Message) -> None:
        """Send a message that is not answered. It is lost when the connection breaks meanwhile.

        Without a connection it waits for the next one; of more than 1024 the oldest are dropped.

        Raises:
            ConnectionLostError: The client was closed (AuthenticationError when that ended it).
            FrameTooLargeError: The message is larger than a frame may be; nothing was sent.
        """
        limit_bytes = self._options.max_frame_bytes
        self._submit(encode_frame(message, Kind.SEND, limit_bytes=limit_bytes, peer=self._peer))

    def close(self, timeout_s: float = _CLOSE_TIMEOUT_S) -> None:
        """Send what is queued if it can go out at once, fail what has no answer, wait for the end.

        May be called twice. On the client's own thread it does not wait for the end.

        Raises:
            WireError: It did not end within `timeout_s` (a callback blocks its thread).
        """
        self._end_with(
            ConnectionLostError(
                self._peer, f"the connection to {self._peer} was closed by this process"
            )
        )
        self._submitted.put(None)
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        if not self._over.wait(timeout_s):
            raise WireError(
                self._peer,
                f"the client {self._name} did not end within {timeout_s:g} s: a callback blocks "
                f"the thread {thread.name}",
            )
        if self._loop is None:
            thread.join(timeout_s)

    @property
    def is_connected(self) -> bool:
        """True while asks go out at once."""
        return self.state is ClientState.READY

    # -- handing over to the thread ------------------------------------------------------------

    def _new_ask(self, message: Message, timeout_s: float) -> Ask:
        ask_id = next(self._ids)
        limit_bytes = self._options.max_frame_bytes
        frame = encode_frame(message, Kind.ASK, ask_id, limit_bytes=limit_bytes, peer=self._peer)
        return Ask(ask_id, message, frame, timeout_s, time.monotonic() + timeout_s)

    def _submit(self, item: Ask | bytes) -> None:
        if self._end is None and self._submitted.put(item):
            return
        if self._end is not None:
            raise copy.copy(self._end)
        if self._first_connected.done():
            raise ConnectionLostError(self._peer, f"the connection to {self._peer} is just ending")
        raise IllegalStateError("the Client is not connected: call connect() first")

    def _end_with(self, error: WireError) -> bool:
        """Take no more from now on; True when it was this error that ended it."""
        with self._end_lock:
            if self._end is not None:
                return False
            self._end = error
            return True

    def _take(self, items: Sequence[Ask | bytes | None]) -> None:
        connection = self._connection if self.state is ClientState.READY else None
        for item in items:
            if item is None:
                self._stop.set()
            elif isinstance(item, Ask):
                self.unanswered.add(item)
                self._watch(item.deadline_s)
                if connection is not None:
                    connection.queue(item.frame)
            elif connection is not None:
                connection.queue(item)
            else:
                self._unsent.append(item)

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        with self._ending():
            asyncio.run(self._live())

    async def _run_beside_others(self) -> None:
        with self._ending():
            await self._live()

    @contextlib.contextmanager
    def _ending(self) -> Iterator[None]:
        end = ConnectionLostError(self._peer, f"the client of {self._peer} ended")
        try:
            yield
        except WireError as error:
            self._finish(error)
        except BaseException as error:
            _logger.exception("the thread of the client of %s died", self._peer)
            end.__cause__ = error
            self._finish(end)
        else:
            self._finish(end)
        finally:
            self._over.set()

    def _finish(self, end: WireError) -> None:
        """Nothing is taken any more; what has no answer fails; the owner hears of an error."""
        by_itself = self._end_with(end)
        final = self._end or end
        self.state = self.state.to(ClientState.CLOSED)
        left = [item for item in self._submitted.close() if isinstance(item, Ask)]
        for ask in self.unanswered.clear() + left:
            ask.future.set_exception(copy.copy(final))
        if not self._first_connected.done():
            self._first_connected.set_exception(final)
        elif by_itself and self._on_closed is not None:
            try:
                self._on_closed(final)
            except Exception:
                _logger.exception("on_closed of the client of %s failed", self._peer)

    async def _live(self) -> None:
        loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._submitted.open(loop, self._take)
        try:
            if self._end is None:
                await self._stay_connected(loop)
        finally:
            # While the loop can still be woken. What comes now fails with the rest.
            self._take(self._submitted.close())

    async def _stay_connected(self, loop: asyncio.AbstractEventLoop) -> None:
        lost_s = loop.time()
        backoff = Backoff(_FIRST_DELAY_S, _MAX_DELAY_S)
        self.state = self.state.to(ClientState.CONNECTING)
        while not self._stop.is_set():
            connected_s = loop.time()
            try:
                await self._live_connected(loop)
                lost_s = loop.time()
                if lost_s - connected_s >= _SETTLED_S:
                    backoff.reset()
            except AuthenticationError:
                raise
            except (OSError, WireError, asyncio.TimeoutError) as error:
                self._last_error = error
            await self._pause(backoff.next_s() * random.uniform(0.5, 1.0), lost_s)

    async def _pause(self, delay_s: float, lost_s: float) -> None:
        """Wait until the next try, or until the client is stopped or gives up."""
        give_up_s = self._options.give_up_after_s
        if isinstance(self._last_error, ConnectionRefusedError):
            bounds_s = (give_up_s, self._options.refused_after_s)
            give_up_s = min((bound_s for bound_s in bounds_s if bound_s is not None), default=None)
        if give_up_s is not None:
            left_s = lost_s + give_up_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                raise ConnectionLostError(
                    self._peer,
                    f"no connection to {self._peer} for {give_up_s:g} s (last: "
                    f"{self._last_error or 'the connection ended'})",
                )
            delay_s = min(delay_s, left_s)
        try:
            await asyncio.wait_for(self._stop.wait(), delay_s)
        except asyncio.TimeoutError:
            return

    async def _live_connected(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make one connection and stay until it is over. Raises what ended it."""
        self._connection_over = asyncio.Event()
        self._end_of_connection = None
        connection = Connection(
            loop,
            ClientHandshake(self._secret, TRACKER, self._peer),
            self,
            self._options,
            None,  # what is unread is also unanswered, and the asker's to bound
        )
        host, port = self._address
        making = asyncio.ensure_future(
            loop.create_connection(lambda: connection, host, port, ssl=self._ssl_context)
        )
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait(
                {making, stopping},
                timeout=self._options.authentication_timeout_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not making.done():
                making.cancel()
                raise ConnectionLostError(self._peer, f"{self._peer} does not take connections")
            making.result()
            over = asyncio.ensure_future(self._connection_over.wait())
            await asyncio.wait({over, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not over.done():
                self._submitted.pass_on()
                connection.close()
                await over
        finally:
            stopping.cancel()
            self._connection = None
        if self._end_of_connection is not None:
            raise self._end_of_connection

    # -- ConnectionOwner -----------------------------------------------------------------------

    def connection_made(self, connection: Connection) -> None:
        """Nothing to do: the handshake is the connection's matter."""

    def connection_authenticated(self, connection: Connection) -> None:
        self._connection = connection
        self.connections += 1
        if not self._first_connected.done():
            self._ready()
            self._first_connected.set_result(None)
            return
        _logger.info("connected to %s again", self._peer)
        self.state = self.state.to(ClientState.GREETING)
        hellos = self._on_reconnect() if self._on_reconnect is not None else ()
        for message in hellos:
            ask = self._new_ask(message, self._options.ask_timeout_s)
            self._greetings.add(ask)
            self._watch(ask.deadline_s)
            connection.queue(ask.frame)
        if not self._greetings:
            self._ready()

    def frame_received(
        self, connection: Connection, ask_id: int, kind: Kind, message: Message
    ) -> None:
        if kind is Kind.REPLY:
            if (ask := self.unanswered.pop(ask_id)) is not None:
                ask.future.set_result(message)
            elif (ask := self._greetings.pop(ask_id)) is not None:
                self._greeted(ask, message)
        elif self._on_message is not None and kind is Kind.SEND:
            try:
                self._on_message(message)
            except Exception:
                _logger.exception("on_message failed for %s", type(message).__name__)

    def connection_closed(self, connection: Connection, error: WireError | None) -> None:
        self._connection = None
        self._greetings.clear()
        self._end_of_connection = error
        if self.state in (ClientState.READY, ClientState.GREETING):
            self.state = self.state.to(ClientState.CONNECTING)
            if error is not None:
                self._last_error = error
                # A connection that just broke is not worth a warning; one that misbehaved is.
                level = logging.INFO if isinstance(error, ConnectionLostError) else logging.WARNING
                _logger.log(level, "%s; connecting again", error)
        self._connection_over.set()

    def _greeted(self, ask: Ask, answer: Message) -> None:
        if self._on_hello_answer is not None:
            try:
                self._on_hello_answer(ask.message, answer)
            except Exception:
                _logger.exception("on_hello_answer failed for %s", type(answer).__name__)
        if not self._greetings:
            self._ready()

    def _ready(self) -> None:
        """Send again what has no answer, in its order, then what waited."""
        connection = self._connection
        if connection is None or self.state is ClientState.CLOSED:
            return
        self.state = self.state.to(ClientState.READY)
        for ask in self.unanswered:
            connection.queue(ask.frame)
        for frame in self._unsent:
            connection.queue(frame)
        self._unsent.clear()

    # -- time-outs -----------------------------------------------------------------------------

    def _watch(self, deadline_s: float) -> None:
        """See to it that time-outs are noticed. One timer serves all: mostly none ever fires."""
        if self._sweep_timer is not None:
            if self._sweep_timer.when() <= deadline_s:
                return
            self._sweep_timer.cancel()
        self._sweep_timer = asyncio.get_running_loop().call_at(deadline_s, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        now_s = time.monotonic() + 0.001  # the loop's timers are that coarse
        for ask in self.unanswered.expire(now_s):
            name = type(ask.message).__name__
            ask.future.set_exception(
                AskTimeoutError(self._peer, name, ask.timeout_s, self._describe())
            )
        late = self._greetings.expire(now_s)
        if late and self._connection is not None:
            name = type(late[0].message).__name__
            self._connection.fail(
                ConnectionLostError(self._peer, f"{name} was not answered by {self._peer} in time")
            )
        for asks in (self.unanswered, self._greetings):
            if (deadline_s := asks.next_deadline_s()) is not None:
                self._watch(deadline_s)

    def _describe(self) -> str:
        if self.state is ClientState.READY or self._last_error is None:
            return self.state.value
        return f"{self.state.value}; last: {self._last_error}"


class ClientState(enum.Enum):
    """Where a client stands."""

    NEW = "not connected yet"
    CONNECTING = "not connected, trying"
    GREETING = "connected, saying hello again"
    READY = "connected"
    CLOSED = "closed"

    def to(self, state: ClientState) -> ClientState:
        """Return `state` if it may follow this one; a closed client may be closed again.

        Raises:
            IllegalStateError: It may not.
        """
        if state not in _NEXT[self]:
            raise IllegalStateError(f"a client cannot go from {self} to {state}")
        return state


_NEXT = {
    ClientState.NEW: {ClientState.CONNECTING, ClientState.CLOSED},
    ClientState.CONNECTING: {ClientState.GREETING, ClientState.READY, ClientState.CLOSED},
    ClientState.GREETING: {ClientState.READY, ClientState.CONNECTING, ClientState.CLOSED},
    ClientState.READY: {ClientState.CONNECTING, ClientState.CLOSED},
    ClientState.CLOSED: {ClientState.CLOSED},
}


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
