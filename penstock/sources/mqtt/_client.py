"""paho's MQTT client, which sends each acknowledgement by a call, also for QoS 2.

With ``manual_ack`` paho still answers a message of QoS 2 by PUBREC before it hands it out: from
then on only its memory has the message, and a kill loses it. Here the message is handed out as it
comes, and PUBREC, like PUBACK and PUBCOMP, is sent when its time has come.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import paho.mqtt.client as mqtt
from paho.mqtt import MQTTException
from paho.mqtt.enums import CallbackAPIVersion, MessageType, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from penstock.errors import PenstockError, typed_text
from penstock.sources._common import ServerError

__all__ = ["PUBACK", "PUBCOMP", "PUBREC", "MqttClient", "Published"]

PUBACK: int = MessageType.PUBACK
PUBREC: int = MessageType.PUBREC
PUBCOMP: int = MessageType.PUBCOMP
_READ_BYTES = 1 << 16
_PASSING = (0x88, 0x89, 0x97, 0x9F)
"""Refusals that may be over soon: unavailable, busy, a quota, a rate. MQTT 5, 3.2.2.2."""
_NEW_SUBSCRIPTIONS_ONLY = 1
"""Retain handling: retained messages are not sent again for a subscription that exists."""


def _properties(kind: int) -> Properties:
    return Properties(kind)  # type: ignore[no-untyped-call]  # paho's


class _SentProperties(Properties):
    """The properties of a message, whose text is as it was sent.

    paho refuses U+FEFF, which is a character like others (MQTT 5, 1.5.4), and what is no UTF-8,
    which not each broker refuses. Such a message would end one connection after the other.
    """

    _TEXTS: ClassVar = {"UTF-8 Encoded String": 1, "UTF-8 String Pair": 2}

    def readProperty(self, buffer: bytes, type: int, propslen: int) -> tuple[Any, int]:  # noqa: A002
        count = self._TEXTS.get(self.types[type], 0)
        if not count:
            return super().readProperty(buffer, type, propslen)  # type: ignore[no-untyped-call, no-any-return]
        found, at = [], 0
        for _ in range(count):
            (length,) = struct.unpack_from("!H", buffer, at)
            begin, at = at + 2, at + 2 + length
            if at > propslen:
                raise ValueError("a property is longer than all of them")
            found.append(bytes(buffer[begin:at]).decode(errors="replace"))
        return (found[0] if count == 1 else tuple(found)), at


class Published(NamedTuple):
    """A message.

    Attributes:
        topic: In UTF-8.
        qos: How it is delivered.
        number: The packet's; 0 for QoS 0.
        is_again: Whether it may have been sent before.
        is_retained: Whether the broker had kept it from before the subscription.
        properties: Those of MQTT 5, if it has any.
        payload: What it holds.
        came_us: When it came, in microseconds since the epoch.
        size: The bytes of its packet, with topic and properties.
    """

    topic: bytes
    qos: int
    number: int
    is_again: bool
    is_retained: bool
    properties: Properties | None
    payload: bytes
    came_us: int
    size: int


class MqttClient(mqtt.Client):
    """One connection. Used by one thread, which calls `read`, `loop_write` and `loop_misc`.

    Attributes:
        on_published: Called with each message.
        on_release: Called with the packet's number for each PUBREL.
        session_present: Whether the broker had a session; None: it has not answered yet.
        waits_for: Filters by the packet that asked for them, which the broker has not answered yet.
        granted: What the broker said to the others.
    """

    def __init__(self, client_id: str, is_v5: bool, clean: bool) -> None:
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id,
            clean_session=None if is_v5 else clean,
            protocol=mqtt.MQTTv5 if is_v5 else mqtt.MQTTv311,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        self._is_v5 = is_v5
        self._clean = clean
        self._delivered = 0
        self._received = memoryview(b"")
        self._lost_by: ReasonCode | None = None
        self._failure: PenstockError | None = None
        self.session_present: bool | None = None
        self.waits_for: dict[int | None, str] = {}
        self.granted: dict[str, ReasonCode] = {}
        self.on_published: Callable[[Published], None] = lambda message: None
        self.on_release: Callable[[int], None] = lambda number: None
        self.on_connect = self._note_connected
        self.on_disconnect = self._note_disconnected
        self.on_subscribe = self._note_subscribed

    # -- life ------------------------------------------------------------------------------------

    def open(
        self, host: str, port: int, keep_alive_s: int, most: int, session_expiry_s: int
    ) -> None:
        """Connect and ask for a session; the answer comes with what is read.

        Args:
            host: The broker's host.
            port: Its port.
            keep_alive_s: How long the connection may be silent.
            most: How many messages may come that are not acknowledged; MQTT 5.
            session_expiry_s: How long the broker keeps the session without a connection; MQTT 5.
        """
        if not self._is_v5:
            self.connect(host, port, keep_alive_s)
            return
        properties = _properties(PacketTypes.CONNECT)
        properties.ReceiveMaximum = most
        if not self._clean:
            properties.SessionExpiryInterval = session_expiry_s
        self.connect(host, port, keep_alive_s, clean_start=self._clean, properties=properties)

    def subscribe_to(self, filters: Sequence[str], qos: int) -> None:
        """Ask for the messages of filters; in MQTT 5 each of several has its place as its number.

        Messages then bring the number along, which paho reads slowly.
        """
        has_numbers = len(filters) > 1
        for number, each in enumerate(filters, 1):
            if self._is_v5:
                properties = _properties(PacketTypes.SUBSCRIBE)
                if has_numbers:
                    properties.SubscriptionIdentifier = number
                options = SubscribeOptions(qos, retainHandling=_NEW_SUBSCRIPTIONS_ONLY)
                _, packet = self.subscribe(each, options=options, properties=properties)
            else:
                _, packet = self.subscribe(each, qos)
            self.waits_for[packet] = each

    def check(self) -> None:
        """Raise if the connection is over.

        Raises:
            ServerError: It was lost, or the broker refused it (`is_refused`).
        """
        if self._failure is not None:
            raise self._failure
        if self.socket() is None:
            why = "" if self._lost_by is None else f": {self._lost_by}"
            raise ServerError(f"the connection was lost{why}")

    def read(self, has_room: Callable[[], bool]) -> None:
        """Take a packet, and more as long as they are messages and there is room for another."""
        before = -1
        while before != self._delivered and self.socket() is not None:
            before = self._delivered
            self.loop_read()
            if not has_room():
                return

    def has_unread(self) -> bool:
        """Return whether something was received that the socket no longer shows."""
        pending = getattr(self.socket(), "pending", None)
        return bool(self._received) or (pending is not None and pending() > 0)

    def note_unread(self) -> None:
        """Take note that the answer to a ping may wait unread: pings go on without it."""
        self._ping_t = 0.0

    def acknowledge(self, kind: int, numbers: Iterable[int]) -> None:
        """Send acknowledgements, in this order."""
        packets = b"".join(struct.pack("!BBH", kind, 2, number) for number in numbers)
        if packets and self.socket() is not None:
            self._packet_queue(kind, packets, 0, 1)

    # -- paho's callbacks ------------------------------------------------------------------------

    def _note_connected(
        self, client: object, data: object, flags: mqtt.ConnectFlags, reason: ReasonCode, _: object
    ) -> None:
        if reason.is_failure:
            self._failure = ServerError(
                f"it refuses the connection: {reason}", is_refused=reason.value not in _PASSING
            )
        else:
            self.session_present = flags.session_present

    def _note_disconnected(
        self, client: object, data: object, flags: object, reason: ReasonCode, _: object
    ) -> None:
        self._lost_by = reason

    def _note_subscribed(
        self, client: object, data: object, number: int, reasons: list[ReasonCode], _: object
    ) -> None:
        if (asked := self.waits_for.pop(number, None)) is not None:
            self.granted[asked] = reasons[0]

    # -- what paho does by itself ----------------------------------------------------------------

    def _sock_recv(self, bufsize: int) -> bytes:
        # paho asks for a byte, another byte, and the rest of each message.
        if not self._received:
            self._received = memoryview(super()._sock_recv(max(bufsize, _READ_BYTES)))
        found, self._received = self._received[:bufsize], self._received[bufsize:]
        return bytes(found)

    def _handle_publish(self) -> MQTTErrorCode:
        self._delivered += 1
        try:
            published = self._published(self._in_packet["command"], self._in_packet["packet"])
        except (MQTTException, ValueError, LookupError, struct.error) as error:
            raise ServerError(f"it sent no MQTT: {typed_text(error)}") from error
        self.on_published(published)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _published(self, command: int, packet: bytearray) -> Published:
        """Read a message as paho does, which makes large objects for absent properties.

        MQTT 5, 3.3.
        """
        qos = command >> 1 & 3
        (length,) = struct.unpack_from("!H", packet)
        at = 2 + length
        topic = bytes(packet[2:at])
        if len(topic) < length or qos not in (0, 1, 2):
            raise ValueError(f"PUBLISH with QoS {qos} and a topic of {length} bytes")
        number = 0
        if qos:
            (number,) = struct.unpack_from("!H", packet, at)
            at += 2
        properties = None
        if self._is_v5:
            size = 1
            if packet[at]:
                properties = _SentProperties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
                _, size = properties.unpack(packet[at:])  # type: ignore[no-untyped-call]  # paho's
            at += size
        is_again, is_retained = bool(command & 8), bool(command & 1)
        payload, came_us = bytes(packet[at:]), time.time_ns() // 1000
        return Published(
            topic, qos, number, is_again, is_retained, properties, payload, came_us, len(packet)
        )

    def _send_pubrec(self, mid: int) -> MQTTErrorCode:
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_pubrel(self) -> MQTTErrorCode:
        self._delivered += 1
        (number,) = struct.unpack_from("!H", self._in_packet["packet"])
        self.on_release(number)
        return MQTTErrorCode.MQTT_ERR_SUCCESS
