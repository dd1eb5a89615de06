"""`AmqpSession`: one start of an `AmqpReceiver`; what must hold is in `penstock.sources.amqp`."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import pika.data
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import (
    AMQPConnectionError,
    AMQPError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from penstock.errors import PenstockError, typed_text
from penstock.runtime.clock import YEARS_S
from penstock.sources._client_session import ClientSession
from penstock.sources._common import ServerError
from penstock.sources._urls import trusting

if TYPE_CHECKING:
    from penstock.sources.amqp import AmqpReceiver

_CONNECT_S = 10.0
_STEP_S = 1.0
_ID_BYTES = 8
_LEVELS = 32
"""A header is shown to this depth; one that is nested too deeply for Python would end each
attempt."""
_STREAM_OFFSET = "x-stream-offset"
_ACCESS_REFUSED, _RESOURCE_LOCKED = 403, 405
_REFUSALS = (ProbableAuthenticationError, ProbableAccessDeniedError)
_decode_value = pika.data.decode_value
_NUMBERS = {b"f": struct.Struct(">f"), b"d": struct.Struct(">d"), b"T": struct.Struct(">Q")}


def _decode_value_as_sent(encoded: bytes, offset: int) -> tuple[Any, int]:
    """Decode a value of a header where pika would change it, or lose its connection for it.

    Pika cuts floating-point numbers to integers, which not all of them can be, and not each 64 bits
    are a time that Python has. The server would give such a message again at each reconnection.
    """
    if (number := _NUMBERS.get(encoded[offset : offset + 1])) is None:
        return _decode_value(encoded, offset)  # type: ignore[no-any-return]
    (value,) = number.unpack_from(encoded, offset + 1)
    if number.format == ">Q" and value in YEARS_S:
        value = datetime.fromtimestamp(value, timezone.utc)
    return value, offset + 1 + number.size


# It has no place where this could be given to one connection.
pika.data.decode_value = _decode_value_as_sent


@dataclass(frozen=True)
class _Link:
    """A channel, and its connection, which alone may be used by another thread."""

    connection: Any
    channel: Any


@dataclass(frozen=True)
class _Delivery:
    link: _Link
    method: Any
    properties: Any
    body: bytes


class AmqpSession(ClientSession[_Delivery]):
    """Consumes the queue again and again, and keeps account of ids."""

    def __init__(self, receiver: AmqpReceiver) -> None:
        where = f"{receiver.host}:{receiver.port}, queue {receiver.queue!r}"
        super().__init__(receiver, f"AMQP server at {where}", receiver.prefetch)
        # It logs each attempt as errors, with tracebacks; here an outage is reported once.
        logging.getLogger("pika").setLevel(logging.CRITICAL)
        self._options = receiver
        self._link: _Link | None = None
        self._is_over = False
        # Of the thread that stores: the ids of the last messages, in the order of deliveries.
        kept: bytes = (receiver.lastPosition or {}).get("ids", b"")
        self._ids = {kept[at : at + _ID_BYTES]: None for at in range(0, len(kept), _ID_BYTES)}

    def wake(self) -> None:
        if (link := self._link) is not None:
            # After the acknowledgements that are due.
            _call(link, self._note_over)

    def _note_over(self) -> None:
        self._is_over = True

    # -- the client's thread ---------------------------------------------------------------------

    def serve(self) -> None:
        connection = None
        try:
            connection = pika.BlockingConnection(self._parameters())
            self._consume(connection)
        except ChannelClosedByBroker as error:
            raise _closed(error) from error
        except (AMQPError, AMQPConnectorException) as error:
            raise _failed(error) from error
        finally:
            self._link = None
            if connection is not None and connection.is_open:
                with suppress(AMQPError):
                    connection.close()

    def _parameters(self) -> Any:
        options = self._options
        tls = None
        if options.is_tls:
            context = trusting(options.ca_file, options.certificate_file)
            tls = pika.SSLOptions(context, options.host)
        return pika.ConnectionParameters(
            options.host,
            options.port,
            options.virtual_host,
            pika.PlainCredentials(options.username, options.password),
            heartbeat=options.heartbeat_s,
            ssl_options=tls,
            socket_timeout=_CONNECT_S,
            stack_timeout=_CONNECT_S,
        )

    def _consume(self, connection: Any) -> None:
        channel = connection.channel()
        link = _Link(connection, channel)
        cancelled: list[object] = []
        channel.add_on_cancel_callback(cancelled.append)
        channel.queue_declare(self._options.queue, passive=True)
        channel.basic_qos(prefetch_count=self._options.prefetch)
        self._link = link
        if self.ended.is_set():  # a stop that found no link has woken no one
            return
        self.forget()

        def take(_: object, method: Any, properties: Any, body: bytes) -> None:
            if _STREAM_OFFSET in (properties.headers or {}):
                raise ServerError(
                    "the queue is a stream, which keeps no account of what was read",
                    is_refused=True,
                )
            self.hand_over(_Delivery(link, method, properties, body))

        channel.basic_consume(self._options.queue, take)
        self.connected()
        while not self._is_over:
            connection.process_data_events(_STEP_S)
            if cancelled:
                raise ServerError(
                    "it cancelled the consumer: the queue was deleted, or its node is gone"
                )
            if not channel.is_open:
                raise channel._closing_reason or ServerError("the channel was closed")

    # -- the thread that stores ------------------------------------------------------------------

    def store(self, messages: list[_Delivery]) -> None:
        # The server gives again what a channel had that is gone.
        current = [each for each in messages if each.link is self._link]
        if not current:
            return
        ids = dict(self._ids)
        found = []
        for each in current:
            if (known := _id_of(each)) is not None:
                is_stored = each.method.redelivered and known in ids
                ids.pop(known, None)
                ids[known] = None
                if is_stored:
                    continue
            found.append(each)
        ids = dict(islice(ids.items(), max(0, len(ids) - self._options.prefetch), None))
        position = None if ids.keys() == self._ids.keys() else {"ids": b"".join(ids)}
        durable = partial(self._acknowledge_later, current[-1])
        stored = self._options.messages
        envelope = _envelope(found) if stored.has_envelope else {}
        stored.store(self.receiver, [each.body for each in found], envelope, position, durable)
        self._ids = ids

    def _acknowledge_later(self, last: _Delivery) -> None:
        """Have the client's thread acknowledge a message and all before it on its channel."""
        _call(last.link, partial(_acknowledge, last))


def _call(link: _Link, function: Callable[[], object]) -> None:
    """Call a function in the client's thread, unless the connection is gone."""
    with suppress(AMQPError):
        link.connection.add_callback_threadsafe(function)


def _acknowledge(last: _Delivery) -> None:
    if last.link.channel.is_open:
        last.link.channel.basic_ack(last.method.delivery_tag, multiple=True)


def _failed(error: Exception) -> PenstockError:
    cause: BaseException = error
    if isinstance(error, AMQPConnectionError) and error.args:
        # Of a connection that was never made pika itself says nothing.
        cause = getattr(error.args[0], "exception", error)
    said = typed_text(cause)
    # pika also takes a connection that ends at that moment for a refusal.
    if isinstance(error, _REFUSALS) and ConnectionClosedByBroker.__name__ in said:
        return ServerError(f"it refuses the connection: {said}", is_refused=True)
    return ServerError(said)


def _closed(error: ChannelClosedByBroker) -> PenstockError:
    is_refused = error.reply_code in (_ACCESS_REFUSED, _RESOURCE_LOCKED)
    return ServerError(error.reply_text, is_refused=is_refused)


def _id_of(message: _Delivery) -> bytes | None:
    """Return what identifies a message: its id, and what it holds, should ids repeat."""
    given = message.properties.message_id
    if not given:
        return None
    told = hashlib.blake2b(_text(given).encode(), digest_size=_ID_BYTES)
    told.update(b"\0")
    told.update(message.body)
    return told.digest()


def _envelope(found: list[_Delivery]) -> dict[str, list[Any]]:
    return {
        "exchange": [_text(each.method.exchange) for each in found],
        "routingKey": [_text(each.method.routing_key) for each in found],
        "messageId": [_text(each.properties.message_id) for each in found],
        "timestamp": [_us(each.properties.timestamp) for each in found],
        "contentType": [_text(each.properties.content_type) for each in found],
        "redelivered": [each.method.redelivered for each in found],
        "headers": [_headers(each.properties.headers) for each in found],
    }


def _us(seconds: int | None) -> int | None:
    """Return microseconds; None also for what no time is: a sender may give any 64 bits."""
    return seconds * 1_000_000 if seconds is not None and seconds in YEARS_S else None


def _text(value: Any) -> Any:
    """Return a header's name or value as text, a table or an array as JSON.

    Pika gives as bytes what is no UTF-8. Its integers of 64 bits would have an L behind them in
    Python's own text of a table; in JSON they have none.
    """
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, (dict, list, bool)):
        return json.dumps(_plain(value), ensure_ascii=False)
    if isinstance(value, datetime):
        return value.isoformat()
    return None if value is None else str(value)


def _plain(value: Any, levels: int = _LEVELS) -> Any:
    """Return what JSON has for a value: text for what it has nothing for, as NaN."""
    if isinstance(value, (dict, list)) and not levels:
        return "..."
    if isinstance(value, dict):
        return {_text(name): _plain(each, levels - 1) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each, levels - 1) for each in value]
    if value is None or isinstance(value, int):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else _text(value)


def _headers(headers: dict[Any, Any] | None) -> list[tuple[Any, Any]] | None:
    if headers is None:
        return None
    return [(_text(name), _text(value)) for name, value in headers.items()]
