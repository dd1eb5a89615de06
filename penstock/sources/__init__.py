"""Sources: the receivers and streams that come with the project.

A receiver here is an ordinary `penstock.receiver.Receiver`: it uses what any author of a source can
use. What must hold for each: it reads without a buffer of its own (I7), it can be stopped while it
waits for its source, and each way in which its source fails is a restart after the delay with a
message of its own, never a tight loop and never a silent end. Most are a `ThreadedReceiver`
(`penstock.receiver.forms.threaded`), which sees to the stop and to what no one expected.

The socket receivers are those of `penstock.receiver`. Each other source is imported from its
module, which needs the extra of its name only where the receiver runs; `source` makes one by its
short name.

==================  ==============================================================================
`kafka/`            Kafka's streams and receiver
`http/`             requests, with a 2xx once they are durable
`websocket`         a WebSocket's messages
`server_sent`       a stream of server-sent events
`mqtt/`             an MQTT broker's messages
`amqp/`             a queue of RabbitMQ
`nats`              a consumer of NATS JetStream
`redis/`            streams, lists and channels of Redis or Valkey
`postgres/`         PostgreSQL's logical replication, and its notifications
`sqs`               a queue of AWS SQS
`kinesis/`          the shards of an AWS Kinesis stream
`syslog/`           syslog over UDP, TCP and TLS
`growing_files/`    files that grow and rotate
`datagrams`         UDP and Unix datagrams
`formats`           values of messages as typed columns
`_protobuf`         messages of Protocol Buffers, as rows
`_selecting`        what listening receivers share: a thread over their sockets
`_common`           what sources of messages share; `SourceReceiver`, which needs a client
`_aws`              what the sources of AWS share: clients, and what errors mean
`_client_session`   one start of a receiver whose client wants a thread of its own
`_on_loop`          receivers on an event loop
`_urls`             URLs, shown without secrets
==================  ==============================================================================
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from penstock._arguments import refused
from penstock.receiver import Receiver
from penstock.receiver.forms.socket_receivers import (
    ConvertingSocketReceiver,
    RawSocketReceiver,
    SocketReceiver,
)

__all__ = ["ConvertingSocketReceiver", "RawSocketReceiver", "SocketReceiver", "source"]

_SOURCES = {
    "amqp": "amqp.AmqpReceiver",
    "datagrams": "datagrams.DatagramReceiver",
    "growing-files": "growing_files.GrowingFilesReceiver",
    "http": "http.HttpReceiver",
    "kafka": "kafka.KafkaReceiver",
    "kinesis": "kinesis.KinesisReceiver",
    "mqtt": "mqtt.MqttReceiver",
    "nats": "nats.NatsReceiver",
    "postgres": "postgres.PostgresReceiver",
    "postgres-notify": "postgres.PostgresNotifyReceiver",
    "redis-channel": "redis.RedisChannelReceiver",
    "redis-list": "redis.RedisListReceiver",
    "redis-stream": "redis.RedisStreamReceiver",
    "server-sent-events": "server_sent.ServerSentEventsReceiver",
    "sqs": "sqs.SqsReceiver",
    "syslog": "syslog.SyslogReceiver",
    "websocket": "websocket.WebSocketReceiver",
}


def source(name: str, *arguments: Any, **options: Any) -> Receiver:
    """Make a receiver of this room by its short name.

    ::

        orders = source("nats", "nats://localhost:4222", "ORDERS", "shop")
        ssc.receiverStream(orders)
        penstock.sql.readStream(spark, orders)  # format("penstock"), of the stream "nats"

    Args:
        name: Such as ``"nats"``. It is also the stream's name with `penstock.sql.readStream`, where
            none is given.
        arguments: Its class's.
        options: The same.

    Raises:
        ValueError: There is none of this name.
        Exception: An argument is not accepted, or a package is missing, as its class says.
    """
    given: object = name
    found = _SOURCES.get(name) if isinstance(given, str) else None
    if found is None:
        raise ValueError(refused("name", name, "one of " + ", ".join(_SOURCES)))
    module, _, kind = found.partition(".")
    made: Receiver = getattr(import_module(f"{__name__}.{module}"), kind)(*arguments, **options)
    made.__dict__["__name__"] = name
    return made
