"""`AmqpReceiver`: the messages of a queue of RabbitMQ, acknowledged once they are durable.

What must hold
--------------

* Messages are acknowledged when they are durable, up to the last one in their order, on the channel
  that they came by, or not at all.
* The ids of the last messages, with what they held, travel with the records as the stream's
  position. A message that the server gives again is known by that, and each that has an id is
  stored once. One without comes twice when it had not been acknowledged; so does one that a queue
  with priorities gives again behind `prefetch` newer ones.
* No more messages are in hand than `prefetch`, and what one call of `store` has: those of a channel
  that is gone are given up, since the server gives them again.
* A queue that is deleted, a consumer that is cancelled and a channel that is closed are reported.

============  ====================================================================================
`_session`    one start of the receiver
============  ====================================================================================
"""

from __future__ import annotations

from typing import Any, TypedDict
from urllib.parse import unquote

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import as_count, refused
from penstock.sources._client_session import ClientReceiver, ClientSession, address_of
from penstock.sources._common import HEADERS, Messages
from penstock.sources._urls import check_tls_files
from penstock.sources.formats import ValueFormat

__all__ = ["AmqpReceiver"]

_COLUMNS = pa.schema(
    [
        ("exchange", pa.string()),
        ("routingKey", pa.string()),
        ("messageId", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("contentType", pa.string()),
        ("redelivered", pa.bool_()),
        HEADERS,
    ]
)
_MOST = 5000
"""The ids of that many messages go to the driver's log with each block."""


class _Position(TypedDict):
    ids: bytes


class AmqpReceiver(ClientReceiver):
    """Consumes a queue of an AMQP 0-9-1 server such as RabbitMQ, and stores the messages' bodies.

    A message is acknowledged when it is durable. One that has a message id is stored once, also
    when the receiver is killed; one without may then come twice.

    Args:
        url: ``amqp://host:5672/vhost``, or ``amqps://host:5671/vhost`` for TLS; without a path the
            virtual host ``/``.
        queue: The queue, classic or quorum, which must exist.
        username: The user's name.
        password: The password.
        ca_file: Certificates that the server's is checked against, in PEM, a path on the executor's
            host; None: the host's.
        certificate_file: This client's certificate and key, in PEM; None for none.
        prefetch: How many messages are taken that are not acknowledged, 5,000 at most.
        heartbeat_s: Seconds without a sign of life after which a connection is given up.
        columns: Whether exchange, routing key, headers and so on are stored as columns beside
            ``value``.
        values: Makes typed values, such as `JsonFormat`; None for bytes. What it cannot read is a
            dead letter.
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: The client is not installed.
        ValueError: An argument is not accepted.
    """

    requires = ("pika",)
    extra = "amqp"
    _position_type = _Position

    def __init__(
        self,
        url: str,
        queue: str,
        *,
        username: str = "guest",
        password: str = "guest",
        ca_file: str | None = None,
        certificate_file: str | None = None,
        prefetch: int = 1000,
        heartbeat_s: int = 30,
        columns: bool = False,
        values: ValueFormat | None = None,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(storageLevel)
        parts, self.port = address_of(url, {"amqp": 5672, "amqps": 5671})
        self.host = parts.hostname or ""
        self.is_tls = parts.scheme == "amqps"
        check_tls_files(self.is_tls, "amqps", ca_file=ca_file, certificate_file=certificate_file)
        self.virtual_host = unquote(parts.path[1:]) or "/"
        given: object = queue
        if not isinstance(given, str) or not 0 < len(given.encode()) <= 255:
            raise ValueError(refused("queue", queue, "the name of a queue"))
        self.queue = queue
        self.username = username
        self.password = password
        self.ca_file = ca_file
        self.certificate_file = certificate_file
        self.prefetch = as_count(prefetch, "prefetch", "messages", 1, _MOST)
        self.heartbeat_s = as_count(heartbeat_s, "heartbeat_s", "seconds", 1, 0xFFFF)
        self.messages = Messages(_COLUMNS, columns=columns, values=values)
        self.schema = self.messages.schema

    def _begin(self) -> ClientSession[Any]:
        from penstock.sources.amqp._session import AmqpSession

        return AmqpSession(self)
