"""`MqttReceiver`: the messages of an MQTT broker, acknowledged once they are durable.

What must hold
--------------

* PUBACK (QoS 1) and PUBREC (QoS 2) are sent when the message is durable, in the order in which the
  messages came; PUBCOMP when it is durable that the broker has released the message's number.
* QoS 2: the numbers that are not released travel with the records as the stream's position. So a
  message that comes again after a kill is known, and each is stored once, as long as the broker
  keeps the session. What a broker has released, and gives again though it must not, is known to the
  start of the receiver that took it only.
* QoS 1: what the broker gives again while this process has it is acknowledged, not stored again.
  After a kill, or when an acknowledgement was lost with its connection, it comes twice. QoS 0 has
  no acknowledgement: what was not durable at a kill is lost.
* An acknowledgement goes to the connection that its message came by, or nowhere.
* Messages that are not durable are bounded, over all connections: in MQTT 5 the broker knows the
  bound; beyond it, and in 3.1.1, nothing is read from the connection until there is room again.

============  ====================================================================================
`_session`    one start of the receiver
`_client`     paho's client, which acknowledges when asked to
============  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypedDict

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import as_count, refused
from penstock.sources._client_session import ClientReceiver, ClientSession, address_of
from penstock.sources._common import HEADERS, Messages
from penstock.sources._urls import check_tls_files
from penstock.sources.formats import ValueFormat

__all__ = ["MqttReceiver"]

_COLUMNS = pa.schema(
    [
        ("topic", pa.string()),
        ("qos", pa.int32()),
        ("retained", pa.bool_()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("contentType", pa.string()),
        HEADERS,
    ]
)
MOST_UNRELEASED = 4000
"""With QoS 2 the numbers of all of them go to the driver's log with each block."""


class _Position(TypedDict):
    topics: list[str]
    qos: int | None
    unreleased: list[int]


class MqttReceiver(ClientReceiver):
    """Subscribes to topics of an MQTT broker, and stores the payloads of their messages.

    A message is acknowledged when it is durable. With QoS 2 each is stored once, also when the
    receiver is killed; with QoS 1 some then come twice; with QoS 0 some are lost.

    Args:
        url: ``mqtt://host:1883``, or ``mqtts://host:8883`` for TLS.
        topics: Filters such as ``"plant/+/temperature"``, or ``"$share/group/plant/#"`` for a
            subscription whose messages are shared by receivers with one `client_id` each.
        client_id: The name of the session in which the broker keeps messages while this receiver
            is away; for this receiver alone, and the same at each start of the program. Not needed
            for QoS 0.
        qos: 0, 1 or 2: how messages are delivered at most; a sender may have chosen less.
        version: ``"5"`` or ``"3.1.1"``.
        username: The user's name, or None.
        password: The password, or None.
        ca_file: Certificates that the broker's is checked against, in PEM, a path on the executor's
            host; None: the host's.
        certificate_file: This client's certificate and key, in PEM; None for none.
        keep_alive_s: Seconds after which a silent connection is looked after, and given up.
        max_unacknowledged: How many messages are taken that are not durable yet.
        session_expiry_s: Seconds for which an MQTT 5 broker keeps the session; the most, 2^32 - 1,
            is for good. In 3.1.1 the broker's settings say it.
        retained: Whether messages are stored that the broker kept from before the subscription.
        columns: Whether topic, QoS, time and so on are stored as columns beside ``value``.
        values: Makes typed values, such as `JsonFormat`; None for bytes. What it cannot read is a
            dead letter.
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: The client is not installed.
        ValueError: An argument is not accepted, or `client_id` is missing.
    """

    requires = ("paho",)
    extra = "mqtt"
    _position_type = _Position

    def __init__(
        self,
        url: str,
        topics: str | Iterable[str],
        *,
        client_id: str | None = None,
        qos: int = 1,
        version: str = "5",
        username: str | None = None,
        password: str | None = None,
        ca_file: str | None = None,
        certificate_file: str | None = None,
        keep_alive_s: int = 30,
        max_unacknowledged: int = 1000,
        session_expiry_s: int = 7 * 86_400,
        retained: bool = True,
        columns: bool = False,
        values: ValueFormat | None = None,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(storageLevel)
        parts, self.port = address_of(url, {"mqtt": 1883, "mqtts": 8883})
        self.host = parts.hostname or ""
        self.is_tls = parts.scheme == "mqtts"
        check_tls_files(self.is_tls, "mqtts", ca_file=ca_file, certificate_file=certificate_file)
        self.topics = list(dict.fromkeys([topics] if isinstance(topics, str) else topics))
        if not self.topics or not all(map(_is_filter, self.topics)):
            raise ValueError(refused("topics", topics, 'filters such as "a/+/b" or "a/#"'))
        if qos not in (0, 1, 2):
            raise ValueError(refused("qos", qos, "0, 1 or 2"))
        if version not in ("5", "3.1.1"):
            raise ValueError(refused("version", version, '"5" or "3.1.1"'))
        if qos and not client_id:
            raise ValueError(
                f"client_id is needed for qos={qos}: a name, the same at each start, in which the "
                "broker keeps the messages that are not acknowledged"
            )
        self.client_id = client_id or ""
        self.qos = qos
        self.version = version
        self.username = username
        self.password = password
        self.ca_file = ca_file
        self.certificate_file = certificate_file
        self.keep_alive_s = as_count(keep_alive_s, "keep_alive_s", "seconds", 1, 0xFFFF)
        self.max_unacknowledged = as_count(
            max_unacknowledged, "max_unacknowledged", "messages", 1, MOST_UNRELEASED
        )
        self.session_expiry_s = as_count(
            session_expiry_s, "session_expiry_s", "seconds", 1, 0xFFFF_FFFF
        )
        self.retained = retained
        self.messages = Messages(_COLUMNS, columns=columns, values=values)
        self.schema = self.messages.schema

    def _begin(self) -> ClientSession[Any]:
        from penstock.sources.mqtt._session import MqttSession

        return MqttSession(self)


def _is_filter(text: object) -> bool:
    """Return whether this is a filter of topics. MQTT 5, 4.7."""
    if not isinstance(text, str) or not 0 < len(text.encode()) <= 0xFFFF or "\0" in text:
        return False
    *others, last = text.split("/")
    return all(level == "+" or not set(level) & set("+#") for level in others) and (
        last in ("+", "#") or not set(last) & set("+#")
    )
