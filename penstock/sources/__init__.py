"""Sources: the receivers and streams that come with the project.

A receiver here is an ordinary `penstock.receiver.Receiver`: it uses what any author of a source
can use. What must hold for each: it reads without a buffer of its own (I7), it can be stopped
while it waits for its source, and each way in which its source fails is a restart after the delay
with a message of its own, never a tight loop and never a silent end.

The socket receivers are those of `penstock.receiver`. Each other source is imported from its
module, which needs the extra of its name only where the receiver runs.

=================  ===============================================================================
`kafka`            Kafka's streams and receiver
`http`             requests, with a 2xx once they are durable
`_http_server`     its server, and the thread that stores
`_http_bodies`     bodies, unpacked and cut into records
`_http_keys`       which requests are stored already
`_signatures`      signatures of webhooks
`websocket`        a WebSocket's messages
`server_sent`      a stream of server-sent events; `_event_stream`: its parser
`mqtt`             an MQTT broker's messages; `_mqtt_session`: one start of it, `_mqtt_client`:
                   paho's client, which acknowledges when it is told to
`amqp`             a queue of RabbitMQ; `_amqp_session`: one start of it
`nats`             a consumer of NATS JetStream
`redis`            streams, lists and channels of Redis or Valkey; `_redis_stream`: the first
                   ones, `_redis_receiver`: what all have in common
`postgres`         PostgreSQL's logical replication, and its notifications
`_pgoutput`        what its output plug-in sends, as columns
`sqs`              a queue of AWS SQS
`kinesis`          the shards of an AWS Kinesis stream
`syslog`           syslog over UDP, TCP and TLS; `_syslog_messages`: its messages
`growing_files`    files that grow and rotate
`_growing_file`    which file is which, by inode and content
`_file_content`    what a file holds, also a compressed one
`datagrams`        UDP and Unix datagrams
`formats`          values of messages as typed columns
`_protobuf`        messages of Protocol Buffers, as rows
`_selecting`       what listening receivers share: a thread over their sockets
`_common`          what sources of messages share
`_aws`             what the sources of AWS share: clients, and what errors mean
`_client_session`  one start of a receiver whose client wants a thread of its own
`_on_loop`         receivers on an event loop of their own
`_urls`            URLs, shown without secrets
=================  ===============================================================================
"""

from penstock.receiver.socket_receivers import (
    ConvertingSocketReceiver,
    RawSocketReceiver,
    SocketReceiver,
)

__all__ = ["ConvertingSocketReceiver", "RawSocketReceiver", "SocketReceiver"]
