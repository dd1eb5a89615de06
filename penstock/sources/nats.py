"""NATS JetStream: the messages of a stream, as a durable pull consumer has them.

What must hold
--------------

* A message is acknowledged when it is durable. The position has the sequence numbers of all that
  is stored, as ranges; a message that is given again, after a kill, a lost connection or a lost
  acknowledgement, is acknowledged if its number is among them, and stored if not. So each is stored
  once, in whatever order the server gives it again.
* Numbers hold for one stream only: the position has its time of creation, and nothing of it counts
  for a stream that was made again under the same name. No acknowledgement goes to that one either.
* The server is notified that a message is in progress as long as it waits for its block, so that it
  is not given again, to this receiver or another one.
* No more messages are asked for than there is room for; what the client holds is bounded by that,
  also in bytes.
* A consumer that vanishes is made again, and begins after the first numbers that are stored without
  a gap.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, cast
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import as_count, refused
from penstock.errors import PenstockError, text_of
from penstock.receiver import RecordTooLargeError
from penstock.sources._common import HEADERS, Messages, Pace, Reconnecting, ServerError, in_halves
from penstock.sources._on_loop import Batches, LoopReceiver, within
from penstock.sources._urls import trusting
from penstock.sources.formats import ValueFormat

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

__all__ = ["NatsReceiver"]

_ASK_S = 5.0
_EXPIRES_S = 5.0
"""How long the server keeps a request for messages: one may be lost with the consumer's leader."""
_PAUSE_S = 0.5
_READ_BYTES = 1 << 19
_MOST_RANGES = 1000
"""Ranges of numbers in the position. There are more where receivers that share a consumer get its
messages by turns; then the lowest are left out, and could come twice."""
_CONSUMER_IS_GONE = 10014
_END_S = 2.0

_ENVELOPE = pa.schema(
    [
        ("subject", pa.string()),
        ("sequence", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        HEADERS,
    ]
)

_log = logging.getLogger("penstock.sources")


class _Position(TypedDict):
    created: str
    stored: str


class NatsReceiver(LoopReceiver):
    """Takes the messages of a JetStream stream through a durable pull consumer.

    The consumer is made if it is missing; an existing one keeps its settings. It must be a pull
    consumer whose messages are acknowledged one by one. Each message is stored once, also after a
    kill. What a killed receiver had in hand is given again when the consumer's ``ack_wait`` is
    over, so it comes after later ones.

    Args:
        servers: ``nats://host:4222``, ``tls://…``, or several; a user and a password in it are in
            no message.
        stream: The stream, which must exist.
        consumer: The name of the durable consumer. Several receivers may share one.
        subjects: Which subjects a new consumer gets; all if empty.
        start: Where a new consumer begins: ``"all"``, or ``"new"`` for what comes from now on.
        ack_wait_s: Of a new consumer: seconds after which a message is given again that was neither
            acknowledged nor said to be in progress.
        max_pending: How many messages may wait for their blocks; a new consumer's
            ``max_ack_pending``.
        domain: The JetStream domain.
        ca_file: Certificates that the server's is checked against, in PEM, on the executor's host.
        certificate_file: This client's certificate and key, in PEM.
        columns: Whether records have columns: ``subject``, ``sequence``, ``time``, ``headers`` and
            ``value``.
        values: Makes typed values of the payloads.
        options: Further arguments of `nats.connect`, such as ``{"user": …, "password": …}`` or
            ``{"user_credentials": path}``.
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: The client is not installed.
        TypeError, ValueError: An argument is not accepted.
    """

    requires = ("nats",)
    extra = "nats"
    _position_type = _Position

    def __init__(
        self,
        servers: str | Sequence[str],
        stream: str,
        consumer: str,
        *,
        subjects: str | Sequence[str] = (),
        start: str = "all",
        ack_wait_s: float = 30.0,
        max_pending: int = 10_000,
        domain: str | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        columns: bool = False,
        values: ValueFormat | None = None,
        options: Mapping[str, Any] | None = None,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(storageLevel)
        self._servers = [servers] if isinstance(servers, str) else list(servers)
        places = [_place(each) for each in self._servers]
        if not places or None in places:
            # Not shown: it may have a password in it.
            raise ValueError("servers is not accepted: nats://host:4222 or tls://…, one or more")
        for name, value in (("stream", stream), ("consumer", consumer)):
            if not value or set(value) & set(" .*>/\\\t\r\n"):
                raise ValueError(refused(name, value, "a name without spaces and any of .*>/\\"))
        if start not in ("all", "new"):
            raise ValueError(refused("start", start, "'all' or 'new'"))
        if not 0.1 <= ack_wait_s <= 1e9:
            raise ValueError(refused("ack_wait_s", ack_wait_s, "0.1 seconds or more"))
        self.stream = stream
        self.consumer = consumer
        self.subjects = [subjects] if isinstance(subjects, str) else list(subjects)
        self.start = start
        self.ack_wait_s = ack_wait_s
        self.max_pending = as_count(max_pending, "max_pending", "messages", 1)
        self.ca_file = ca_file
        self.certificate_file = certificate_file
        self._prefix = f"$JS.{domain}.API" if domain else "$JS.API"
        if options:
            _check_options(options)
        self._options = {"ping_interval": 5, "max_outstanding_pings": 2, **(options or {})}
        self._server = f"NATS server at {', '.join(map(str, places))}"
        self._messages = Messages(_ENVELOPE, columns=columns, values=values)
        self.schema = self._messages.schema
        self._lag: int | None = None

    def _source_lag(self) -> int | None:
        return self._lag

    # -- life ------------------------------------------------------------------------------------

    async def _main(self) -> None:
        from nats.errors import Error

        reconnecting = Reconnecting(self.reportError, self._server)
        taken = _Taken(self.lastPosition or {})
        store = partial(in_halves, partial(self._store, taken, asyncio.get_running_loop()))
        async with Batches(store, f"nats-store-{self.streamId}") as batches:
            while True:
                try:
                    await self._serve(taken, batches, reconnecting)
                except (Error, ServerError, OSError, asyncio.TimeoutError) as error:
                    if self.isStopped():
                        raise
                    await asyncio.sleep(reconnecting.failed(error))

    async def _serve(
        self, taken: _Taken, batches: Batches[_Message], reconnecting: Reconnecting
    ) -> None:
        """Connect, and take messages until the connection ends by an error."""
        is_tls = bool(self.ca_file or self.certificate_file)
        client = _new_client(is_tls)
        connection = _Connection(client)
        taken.has_room = connection.wake
        helper = None
        try:
            await self._connect(connection, is_tls)
            config = await self._prepare(client, taken)
            inbox = client.new_inbox()
            await client.subscribe(f"{inbox}.*", cb=connection.arrive)
            await client.subscribe(
                f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.{self.stream}.{self.consumer}",
                cb=partial(self._tell_given_up, taken),
            )
            # Of a consumer with `backoff`, its times replace `ack_wait`.
            ack_wait_s = min([config.get("ack_wait", 30e9), *config.get("backoff", [])]) / 1e9
            helper = asyncio.create_task(_answer(connection, taken, ack_wait_s / 3))
            reconnecting.connected()
            await self._pull(connection, taken, batches, inbox, config)
        finally:
            if helper is not None:
                helper.cancel()
            with contextlib.suppress(Exception):
                await within(_take_leave(connection, taken), _END_S)
            with contextlib.suppress(Exception):
                await within(client.close(), _END_S)

    async def _connect(self, connection: _Connection, is_tls: bool) -> None:
        from nats.errors import NoServersError, UnexpectedEOF

        cut = (ConnectionResetError, BrokenPipeError, UnexpectedEOF)
        tls = {"tls": trusting(self.ca_file, self.certificate_file)} if is_tls else {}
        try:
            await connection.client.connect(
                **{
                    "servers": self._servers,
                    "name": f"penstock-{self.streamId}",
                    "allow_reconnect": False,
                    # It is asked again here, with an error that is reported.
                    "max_reconnect_attempts": 1,
                    "reconnect_time_wait": 0,
                    **self._options,
                    **tls,
                    "error_cb": connection.note_error,
                    "closed_cb": connection.note_end,
                }
            )
        except (NoServersError, *cut) as error:
            why = connection.error or error
            told = text_of(why)
            has_tls = is_tls or any(server.startswith("tls:") for server in self._servers)
            if has_tls and not self.certificate_file and isinstance(why, cut):
                # By TLS 1.3 it says so after the handshake; what is sent meanwhile hides it.
                told += ", as TLS began: is a certificate required (certificate_file)?"
            raise ConnectionError(told) from why

    # -- the consumer ----------------------------------------------------------------------------

    async def _prepare(self, client: Client, taken: _Taken) -> dict[str, Any]:
        """Make sure of stream and consumer, and return the settings of the consumer."""
        stream = await self._ask(client, f"STREAM.INFO.{self.stream}")
        if taken.created not in ("", stream["created"]):
            if taken.consumer:
                raise PenstockError(f"the stream {self.stream!r} was made again")
            self.reportError(
                f"The stream {self.stream!r} was made again: its messages count from the first one"
            )
            taken.stored = _Numbers()
        taken.created = stream["created"]
        try:
            consumer = await self._ask(client, f"CONSUMER.INFO.{self.stream}.{self.consumer}")
        except ServerError as error:
            if error.code != _CONSUMER_IS_GONE:
                raise
            if taken.consumer:
                raise PenstockError(f"the consumer {self.consumer!r} is gone") from error
            consumer = await self._make(client, taken)
        if taken.consumer not in ("", consumer["created"]):
            raise PenstockError(f"the consumer {self.consumer!r} was made again")
        taken.consumer = consumer["created"]
        taken.floor = consumer.get("ack_floor", {}).get("stream_seq", 0)
        config: dict[str, Any] = consumer["config"]
        policy = config.get("ack_policy", "none")
        kind = ""
        if config.get("deliver_subject"):
            kind = "pushes"
        elif config.get("headers_only"):
            kind = "gives headers only"
        elif policy != "explicit":
            kind = f"has the ack policy {policy!r}"
        if kind:
            raise ServerError(
                f"the consumer {self.consumer!r} {kind}: a pull consumer of whole messages "
                "with the ack policy 'explicit' is needed; take another name, and it is made"
            )
        return config

    async def _make(self, client: Client, taken: _Taken) -> dict[str, Any]:
        config: dict[str, Any] = {
            "durable_name": self.consumer,
            "ack_policy": "explicit",
            "ack_wait": int(self.ack_wait_s * 1e9),
            "max_ack_pending": self.max_pending,
            "max_deliver": -1,
            # A stream that was made again has nothing from before this receiver.
            "deliver_policy": "all" if self.lastPosition else self.start,
        }
        if len(self.subjects) == 1:
            config["filter_subject"] = self.subjects[0]
        elif self.subjects:
            config["filter_subjects"] = self.subjects
        if taken.stored:
            after = taken.stored.gapless()
            if after:
                config |= {"deliver_policy": "by_start_sequence", "opt_start_seq": after + 1}
            self.reportError(
                f"The consumer {self.consumer!r} of the stream {self.stream!r} was gone: it is "
                f"made again, and begins after the message {after}"
            )
        body = {"stream_name": self.stream, "config": config}
        return await self._ask(
            client, f"CONSUMER.DURABLE.CREATE.{self.stream}.{self.consumer}", body
        )

    async def _ask(self, client: Client, what: str, body: object = None) -> dict[str, Any]:
        from nats.errors import NoRespondersError

        payload = b"" if body is None else json.dumps(body).encode()
        try:
            answer = await client.request(f"{self._prefix}.{what}", payload, _ASK_S)
        except NoRespondersError as error:
            raise ServerError(
                f"no one answers {self._prefix}: JetStream is not enabled there, or not for this "
                "account"
            ) from error
        except asyncio.TimeoutError as error:
            # What it does not permit, it says apart from that.
            why = f": {client.last_error}" if client.last_error else ""
            raise ServerError(f"no answer to {what} within {_ASK_S:g} s{why}") from error
        found: dict[str, Any] = json.loads(answer.data)
        if "error" in found:
            why, code = found["error"].get("description"), found["error"].get("err_code", 0)
            raise ServerError(f"{why} (stream {self.stream!r}, consumer {self.consumer!r})", code)
        return found

    async def _tell_given_up(self, taken: _Taken, message: Msg) -> None:
        found = json.loads(message.data)
        if found["stream_seq"] not in taken.stored:
            self.reportError(
                f"The message {found['stream_seq']} of the stream {self.stream!r} was given "
                f"{found['deliveries']} times and is not given again, by the consumer's "
                "max_deliver; it is not stored"
            )

    # -- messages --------------------------------------------------------------------------------

    async def _pull(
        self,
        connection: _Connection,
        taken: _Taken,
        batches: Batches[_Message],
        inbox: str,
        config: Mapping[str, Any],
    ) -> None:
        client = connection.client
        pace = Pace(_READ_BYTES)
        subject = f"{self._prefix}.CONSUMER.MSG.NEXT.{self.stream}.{self.consumer}"
        most = min(self.max_pending, config.get("max_batch") or self.max_pending)
        expires_s = min(_EXPIRES_S, (config.get("max_expires") or _EXPIRES_S * 1e9) / 1e9)
        # One message of the largest size fits in always.
        max_bytes = min(_READ_BYTES + client.max_payload, config.get("max_bytes") or 1 << 40)
        left = wanted = number = 0
        asked_s = time.monotonic()
        taken.forget_order()
        while True:
            room = self.max_pending - len(taken.waiting)
            if left <= 0 and room > 0:
                number += 1
                left = wanted = min(room, pace.count, most)
                asked = {"batch": left, "expires": int(expires_s * 1e9), "max_bytes": max_bytes}
                await client.publish(subject, json.dumps(asked).encode(), f"{inbox}.{number}")
                asked_s = time.monotonic()
            arrived = await connection.next(_PAUSE_S if left <= 0 else expires_s)
            count = size = 0
            for message in arrived:
                if message.reply.startswith("$JS.ACK."):
                    left -= 1
                    found = taken.take(message)
                    if found is not None:
                        batches.add(found, found.size)
                        count, size = count + 1, size + found.size
                        self._lag = found.pending
                elif message.subject == f"{inbox}.{number}" and message.headers:
                    self._look_at_status(message.headers, is_fruitless=left == wanted)
                    left = 0
            if count:
                pace.note(count, size, most)
                await batches.room()
            if left > 0 and time.monotonic() > asked_s + 2 * expires_s:
                left = 0

    def _look_at_status(self, headers: Mapping[str, str], is_fruitless: bool) -> None:
        """Take note of why a request has ended.

        Raises:
            PenstockError: The consumer is gone.
            ServerError: The server refuses what is asked for.
        """
        status = headers.get("Status", "")
        why = headers.get("Description", "")
        if status == "503" or "Consumer Deleted" in why:
            raise PenstockError(f"the consumer {self.consumer!r} of {self.stream!r} is gone")
        if is_fruitless and status not in ("404", "408"):
            raise ServerError(
                f"no messages of the consumer {self.consumer!r} of {self.stream!r}: {status} {why}"
            )

    def _store(
        self, taken: _Taken, loop: asyncio.AbstractEventLoop, messages: list[_Message]
    ) -> None:
        """On the storing thread: store messages with the position after them.

        Raises:
            RecordTooLargeError: They do not fit into one block; nothing of them was stored.
        """
        before, stored = taken.stored, taken.stored.copy()
        if taken.floor:
            # The server gives nothing up to that again.
            stored.add(1, taken.floor)
        for each in messages:
            stored.add(each.first, each.sequence)
        numbers = [each.sequence for each in messages]

        def durable() -> None:
            with contextlib.suppress(RuntimeError):  # The loop has ended with the source.
                loop.call_soon_threadsafe(taken.note_durable, numbers)

        names = _ENVELOPE.names if self._messages.has_envelope else []
        taken.stored = stored
        try:
            self._messages.store(
                self,
                [each.payload for each in messages],
                {name: [getattr(each, name) for each in messages] for name in names},
                {"created": taken.created, "stored": stored.text()},
                durable,
            )
        except RecordTooLargeError:
            taken.stored = before
            raise


class _Message(NamedTuple):
    """A message that is to be stored.

    Attributes:
        first: The first number of those up to `sequence` that are stored with it: between it and
            the last message there is none of this consumer.
        pending: How many the consumer has behind it.
        time: In microseconds.
    """

    sequence: int
    first: int
    pending: int
    time: int
    subject: str
    sent_headers: _Headers | None
    payload: bytes

    @property
    def size(self) -> int:
        """About how many bytes it has in memory."""
        return len(self.payload) + (0 if self.sent_headers is None else len(self.sent_headers.sent))

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Names and values of its headers, which are looked for where they are stored."""
        return [] if self.sent_headers is None else self.sent_headers.all()


class _Headers(dict[str, str]):
    """What the client makes of a message's headers, which has the last value of each name only.

    Attributes:
        sent: What was sent.
    """

    def __init__(self, found: Mapping[str, str], sent: bytes) -> None:
        super().__init__(found)
        self.sent = sent

    def all(self) -> list[tuple[str, str]]:
        """Return names and values in their order, as they were sent."""
        _, *lines = self.sent.decode(errors="replace").split("\r\n")
        pairs = [line.partition(":") for line in lines]
        return [(name, value.strip()) for name, colon, value in pairs if colon]


class _Numbers:
    """Ranges of sequence numbers, in their order."""

    def __init__(self, text: str = "") -> None:
        pairs = [each.partition("-") for each in text.split()]
        self._firsts = [int(first) for first, _, _ in pairs]
        self._lasts = [int(last or first) for first, _, last in pairs]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def gapless(self) -> int:
        """Return the last number up to which it has all, from 1 on; 0 if that is none."""
        return self._lasts[0] if self._firsts and self._firsts[0] == 1 else 0

    def add(self, first: int, last: int) -> None:
        """Add numbers."""
        firsts, lasts = self._firsts, self._lasts
        if firsts and firsts[-1] <= first <= lasts[-1] + 1:
            lasts[-1] = max(last, lasts[-1])
            return
        begin = bisect_right(firsts, first)
        if begin and first <= lasts[begin - 1] + 1:
            begin -= 1
        end = begin
        while end < len(firsts) and firsts[end] <= last + 1:
            first, last = min(first, firsts[end]), max(last, lasts[end])
            end += 1
        firsts[begin:end] = [first]
        lasts[begin:end] = [last]
        if len(firsts) > _MOST_RANGES:
            # Not the first one, after which a consumer that is made again begins.
            del firsts[1], lasts[1]

    def copy(self) -> _Numbers:
        """Return another one with the same."""
        found = _Numbers()
        found._firsts, found._lasts = self._firsts.copy(), self._lasts.copy()
        return found

    def text(self) -> str:
        """Return them as text for the constructor."""
        pairs = zip(self._firsts, self._lasts, strict=True)
        return " ".join(f"{one}-{last}" if one < last else str(one) for one, last in pairs)


class _Taken:
    """What one start has taken, over all connections. It is the event loop's.

    Attributes:
        created: When the stream was made.
        consumer: When the consumer was made.
        floor: The number up to which all is acknowledged.
        stored: The numbers of all that is stored, or being stored; the storing thread sets another
            one for each call.
        waiting: Where messages are acknowledged that are being stored, by their numbers.
        due: What can be acknowledged.
    """

    def __init__(self, position: Mapping[str, Any]) -> None:
        self.created: str = position.get("created", "")
        self.consumer = ""
        self.floor = 0
        self.stored = _Numbers(position.get("stored", ""))
        self.waiting: dict[int, str] = {}
        self.due: deque[str] = deque()
        self.has_due = asyncio.Event()
        self.has_room: Callable[[], object] = lambda: None
        self._last = (0, 0)

    def forget_order(self) -> None:
        """Begin with another connection, on whose way messages may have been lost."""
        self._last = (0, 0)

    def take(self, message: Msg) -> _Message | None:
        """Return what is to be stored of a message; None if it is stored, or being stored."""
        parts = message.reply.split(".")
        # A domain and the account's hash may stand before the stream's name.
        at = 4 if len(parts) == 9 else 6
        delivered, sequence, place, time_ns, pending = map(int, parts[at : at + 5])
        last_place, last = self._last
        self._last = (place, sequence) if delivered == 1 else (0, 0)
        if sequence in self.waiting:
            self.waiting[sequence] = message.reply
            return None
        if sequence in self.stored:
            self.due.append(message.reply)
            self.has_due.set()
            return None
        self.waiting[sequence] = message.reply
        # What the consumer gives for the first time it gives in the order of the stream.
        is_next = delivered == 1 and last_place and place == last_place + 1
        first = last + 1 if is_next else sequence
        sent = cast("_Headers | None", message.headers)
        return _Message(
            sequence, first, pending, time_ns // 1000, message.subject, sent, message.data
        )

    def note_durable(self, numbers: list[int]) -> None:
        """Take note that messages can be acknowledged."""
        self.due.extend(self.waiting.pop(number) for number in numbers)
        self.has_due.set()
        self.has_room()


class _Connection:
    """What arrives on one connection."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.arrived: deque[Msg] = deque()
        self.error: Exception | None = None
        self._changed = asyncio.Event()
        self._is_over = False

    async def arrive(self, message: Msg) -> None:
        """Take a message, or a status."""
        self.arrived.append(message)
        self._changed.set()

    def wake(self) -> None:
        """End a wait for messages."""
        self._changed.set()

    def replies(self) -> list[str]:
        """Return where what has arrived is acknowledged."""
        return [each.reply for each in self.arrived if each.reply]

    async def note_error(self, error: Exception) -> None:
        """Take note of why it will end."""
        self.error = error
        _log.info("An error of the connection to NATS: %s", error)

    async def note_end(self) -> None:
        """Take note of its end."""
        self._is_over = True
        self._changed.set()

    async def next(self, timeout_s: float) -> list[Msg]:
        """Wait for messages, and return those that have arrived; maybe none.

        Raises:
            ConnectionError: It is over.
        """
        if not self.arrived:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(self._changed.wait(), timeout_s)
        self._changed.clear()
        found = list(self.arrived)
        self.arrived.clear()
        if self._is_over and not found:
            raise self.error or self.client.last_error or ConnectionError("the connection ended")
        return found


async def _answer(connection: _Connection, taken: _Taken, every_s: float) -> None:
    """Acknowledge what is due, and tell the server now and then what is in progress.

    What is not acknowledged, as the connection has ended, comes again.
    """
    from nats.errors import Error

    publish = connection.client.publish
    next_s = time.monotonic() + every_s
    with contextlib.suppress(Error, OSError):
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(taken.has_due.wait(), max(0.0, next_s - time.monotonic()))
            taken.has_due.clear()
            while taken.due:
                await publish(taken.due.popleft())
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + every_s
                for reply in (*taken.waiting.values(), *connection.replies()):
                    await publish(reply, b"+WPI")


async def _take_leave(connection: _Connection, taken: _Taken) -> None:
    """Acknowledge what is durable, and let the server give again at once what was not looked at."""
    while taken.due:
        await connection.client.publish(taken.due.popleft())
    for reply in connection.replies():
        await connection.client.publish(reply, b"-NAK")
    await connection.client.flush()


def _new_client(is_tls: bool) -> Client:
    from nats.aio.client import Client
    from nats.errors import Error

    class BytesClient(Client):
        """A client that goes on after subjects and headers that a sender got wrong.

        To the server they are bytes. The client would read nothing any more, and say nothing; nor
        after a flush that was cancelled. Nor does this one send a password to a server without TLS
        that should have it.
        """

        def _connect_command(self) -> Any:
            server = self._current_server
            wants = is_tls or (server is not None and server.uri.scheme == "tls")
            has = self._server_info.get("tls_required") or self.options["tls_handshake_first"]
            if wants and not has:
                raise Error("the server has no TLS")
            return super()._connect_command()

        async def _process_pong(self) -> None:
            if self._pongs and self._pongs[0].done():
                # Of a flush that was given up: its answer would end the reading of all else.
                self._pongs[0] = asyncio.get_running_loop().create_future()
            await super()._process_pong()

        async def _process_headers(self, headers: Any) -> Any:
            if not headers:
                return None
            try:
                found = await super()._process_headers(headers)
            except (ValueError, LookupError) as error:
                _log.info("Headers of a message cannot be read by its client: %r", error)
                found = None
            return _Headers(found or {}, headers)

        def _build_message(
            self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: Any
        ) -> Any:
            subject = subject.decode(errors="replace").encode()
            return super()._build_message(sid, subject, reply, data, headers)

    return BytesClient()


def _check_options(options: Mapping[str, Any]) -> None:
    """Check arguments of `nats.connect`, which would refuse them in the executor only."""
    from nats.aio.client import Client

    try:
        inspect.signature(Client.connect).bind(None, **options)
    except TypeError as error:
        raise TypeError(f"options of a NatsReceiver are not accepted: {error}") from None


def _place(address: object) -> str | None:
    """Return the host and port of a server's address; None if it is none."""
    if not isinstance(address, str):
        return None
    try:
        parts = urlsplit(address)
        is_one = parts.scheme in ("nats", "tls", "ws", "wss") and parts.port != 0
    except ValueError:
        return None
    return (is_one and parts.netloc.rpartition("@")[2]) or None
