"""`MqttSession`: one start of an `MqttReceiver`; what must hold is in `penstock.sources.mqtt`."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.sources._client_session import ClientSession
from penstock.sources._common import ServerError
from penstock.sources._urls import trusting
from penstock.sources.mqtt import MOST_UNRELEASED
from penstock.sources.mqtt._client import PUBACK, PUBCOMP, PUBREC, MqttClient, Published

if TYPE_CHECKING:
    from penstock.sources.mqtt import MqttReceiver

_CONNECT_S = 10.0
_ANSWER_S = 30.0
_STEP_MS = 250
_FLUSH_S = 2.0
_MOST_BYTES = 16 << 20
MOST_RELEASED = 20_000
"""Far from 65,535: a broker that counts has not come round to these numbers again."""

_ACKNOWLEDGEMENTS = (0, PUBACK, PUBREC)
"""By QoS."""


class _Item(NamedTuple):
    """A message, or what is to be said of one that is stored already.

    Attributes:
        client: The connection that it came by; None: this is a mark among them.
        kind: The acknowledgement that is due when this is durable; 0: none.
        number: The packet's.
        message: None: there is nothing to store.
    """

    client: MqttClient | None
    kind: int
    number: int
    message: Published | None = None

    @property
    def size(self) -> int:
        return 0 if self.message is None else self.message.size


_NEW_SESSION = _Item(None, 0, 0)
"""From here on, numbers of packets mean other messages than before."""
_SUBSCRIBED = _Item(None, 0, 0)
"""The position has other topics from here on."""


def ranges_of(numbers: Iterable[int]) -> list[int]:
    """Return numbers as a position has them: ``3, -6, 9`` are 3 to 6, and 9; the last ones of many.

    A broker that counts gives ranges. mosquitto (2.0.11) may give tens of thousands of messages
    without a PUBREL, far beyond the bound that it was given, while others publish and after a hold.
    """
    found: list[int] = []
    last = 0
    for number in numbers:
        if number != last + 1 or not found:
            found.append(number)
        elif found[-1] < 0:
            found[-1] = -number
        else:
            found.append(-number)
        last = number
    del found[:-MOST_UNRELEASED]
    return [abs(found[0]), *found[1:]] if found else []


def numbers_of(position: Mapping[str, Any]) -> list[int]:
    """Return the numbers that `ranges_of` has put into a position."""
    found: list[int] = []
    for number in position.get("unreleased", []):
        found += [number] if number > 0 else range(found[-1] + 1, 1 - number)
    return found


class Released:
    """The last messages of QoS 2 that the broker has released, by their numbers.

    A broker must not give such a message again [MQTT-4.3.3-1]. mosquitto does (seen with 2.0.11; it
    is so in 2.0.20): of what has no PUBCOMP yet it forgets that it sent PUBREL when a connection
    dies at once after its CONNECT, as those do that were made while it did not answer.

    That a number comes again as a repetition says too little: the broker may have had the PUBCOMP,
    and the number may be that of a new message whose first sending was lost. So the message has to
    be the same; and where the broker uses numbers again soon, nothing is remembered.
    """

    def __init__(self) -> None:
        self._messages: dict[int, int] = {}
        self._is_of_use = True

    def add(self, number: int, message: int) -> None:
        """Remember a message by the hash of what it holds."""
        if self._is_of_use:
            self._messages[number] = message
            if len(self._messages) > MOST_RELEASED:
                del self._messages[next(iter(self._messages))]

    def has(self, number: int, message: int) -> bool:
        """Return whether this was released."""
        return self._messages.get(number) == message

    def note_new(self, number: int) -> None:
        """Take note that a number is that of a message which was not sent before."""
        if number in self._messages:
            self._is_of_use = False
            self._messages.clear()

    def clear(self) -> None:
        """Forget all, for a new session."""
        self._messages.clear()


class MqttSession(ClientSession[_Item]):
    """Connects to the broker again and again, and keeps account of what is not acknowledged."""

    def __init__(self, receiver: MqttReceiver) -> None:
        server = f"MQTT broker at {receiver.host}:{receiver.port}"
        super().__init__(receiver, server, receiver.max_unacknowledged)
        self._options = receiver
        position = receiver.lastPosition or {}
        # All without another comment is of the client's thread.
        self._topics: list[str] = position.get("topics", [])
        self._qos: int | None = position.get("qos")
        self._had_session = bool(position)
        # Messages of QoS 1 without an acknowledgement, and those of QoS 2 that are not released;
        # with hashes of the latter, as far as this process got them.
        self._held: dict[int, int | None] = dict.fromkeys(numbers_of(position))
        self._released = Released()
        self._in_hand = self._bytes_in_hand = 0
        self._last: tuple[Any, set[int]] = (None, set())
        self._reported: set[str] = set()
        # Of the thread that stores.
        self._unreleased: dict[int, None] = dict.fromkeys(numbers_of(position))
        self._position: Any = receiver.lastPosition
        # Of all threads.
        self._durable: deque[list[_Item]] = deque()
        self._woken, self._waker = socket.socketpair()
        self._waker.setblocking(False)

    def wake(self) -> None:
        with suppress(OSError):  # a full pipe wakes it as well
            self._waker.send(b".")

    # -- the connection --------------------------------------------------------------------------

    def serve(self) -> None:
        options = self._options
        client = MqttClient(options.client_id, options.version == "5", options.qos == 0)
        client.connect_timeout = _CONNECT_S
        if options.is_tls:
            client.tls_set_context(trusting(options.ca_file, options.certificate_file))
        if options.username is not None:
            client.username_pw_set(options.username, options.password)
        client.on_published = partial(self._take, client)
        client.on_release = partial(self._release, client)
        try:
            client.open(
                options.host,
                options.port,
                options.keep_alive_s,
                options.max_unacknowledged,
                options.session_expiry_s,
            )
            self._await(client, lambda: client.session_present is not None)
            self._subscribe(client)
            self.connected()
            while not self.ended.is_set():
                self._turn(client)
            self._close(client)
        finally:
            if (left := client.socket()) is not None:
                left.close()

    def _subscribe(self, client: MqttClient) -> None:
        """Have the session subscribed to what is asked for, and to nothing else."""
        options = self._options
        if not client.session_present:
            self._topics = []
            self._held.clear()
            self._released.clear()
            self.hand_over(_NEW_SESSION)
            if self._had_session:
                self._had_session = False
                self.receiver.reportError(
                    f"The {self.server} has no session {options.client_id!r} any more (it expired, "
                    "or the broker did not keep it): messages that came without a connection, or "
                    "were not acknowledged, are lost"
                )
        # A broker may have lost a subscription, and kept the session. To MQTT 5 it can be repeated;
        # in 3.1.1 the retained messages would come again.
        is_repeated = options.version == "5"
        if is_repeated or self._topics != options.topics or self._qos != options.qos:
            for dropped in set(self._topics) - set(options.topics):
                client.unsubscribe(dropped)
            client.subscribe_to(options.topics, options.qos)
            self._await(client, lambda: not client.waits_for)
            if self.ended.is_set():
                return
            for topic, reason in client.granted.items():
                if reason.value != options.qos and topic not in self._reported:
                    self._reported.add(topic)
                    what = "refuses" if reason.is_failure else "gives less than was asked for to"
                    self.receiver.reportError(
                        f"The {self.server} {what} the subscription {topic!r}: {reason}"
                    )
            self._topics = [each for each in options.topics if not client.granted[each].is_failure]
            self._qos = options.qos
            self.hand_over(_SUBSCRIBED)
            if not self._topics:
                raise ServerError("it refuses all subscriptions", is_refused=True)
        self._had_session = options.qos > 0

    def _await(self, client: MqttClient, has_come: Callable[[], bool]) -> None:
        """Wait for an answer of the broker; messages may come before it."""
        end_s = time.monotonic() + _ANSWER_S
        while not has_come() and not self.ended.is_set():
            if client.session_present is not None and not self._has_room():
                end_s = time.monotonic() + _ANSWER_S  # It may have come, behind messages.
            if time.monotonic() > end_s:
                raise ServerError(f"it has not answered within {_ANSWER_S:g} s")
            self._turn(client)

    def _turn(self, client: MqttClient) -> None:
        """Send what is due, and take what has come; wait for either, for a moment at most."""
        self._send_due(client)
        client.check()
        # Its first answer is no message.
        has_room = client.session_present is None or self._has_room()
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        events = (select.POLLIN if has_room else 0) | (select.POLLOUT if client.want_write() else 0)
        poll.register(_fileno(client), events)
        is_unread = has_room and client.has_unread()
        came = dict(poll.poll(0 if is_unread else _STEP_MS))
        if came.pop(self._woken.fileno(), 0):
            self._woken.recv(1 << 16)
        if not has_room:
            client.note_unread()
            if any(event & ~select.POLLOUT for event in came.values()):
                raise ServerError("the connection was lost")
        elif came or is_unread:
            client.read(self._has_room)
        if client.want_write():
            client.loop_write()
        client.loop_misc()

    def _close(self, client: MqttClient) -> None:
        """Send the last acknowledgements, and take leave; the session stays with the broker."""
        self._send_due(client)
        client.disconnect()
        end_s = time.monotonic() + _FLUSH_S
        while client.socket() is not None and time.monotonic() < end_s:
            select.select([], [_fileno(client)], [], _FLUSH_S)
            client.loop_write()

    # -- messages that come ----------------------------------------------------------------------

    def _has_room(self) -> bool:
        return (
            self._in_hand < self._options.max_unacknowledged and self._bytes_in_hand < _MOST_BYTES
        )

    def _take(self, client: MqttClient, message: Published) -> None:
        what = hash((message.topic, message.payload)) if message.qos == 2 else None
        is_known = bool(message.qos and message.is_again and self._is_known(message.number, what))
        is_unwanted = message.is_retained and not self._options.retained
        item = _Item(
            client,
            _ACKNOWLEDGEMENTS[message.qos],
            message.number,
            None if is_known or is_unwanted or self._is_copy(message) else message,
        )
        if message.qos:
            self._held[message.number] = what
            if not message.is_again:
                self._released.note_new(message.number)
        self._pass(item)

    def _is_known(self, number: int, what: int | None) -> bool:
        return number in self._held or (what is not None and self._released.has(number, what))

    def _release(self, client: MqttClient, number: int) -> None:
        if (what := self._held.pop(number, None)) is not None:
            self._released.add(number, what)
        self._pass(_Item(client, PUBCOMP, number))

    def _pass(self, item: _Item) -> None:
        self._in_hand += 1
        self._bytes_in_hand += item.size
        self.hand_over(item)

    def _is_copy(self, message: Published) -> bool:
        """Return whether this is the last message again, for another filter that matches its topic.

        MQTT 5 brokers may send it for each; then it has the number of another subscription.
        """
        numbers = getattr(message.properties, "SubscriptionIdentifier", None)
        if not numbers or len(self._topics) < 2:
            return False
        what = (message.topic, message.payload)
        last, seen = self._last
        if what == last and seen.isdisjoint(numbers):
            seen.update(numbers)
            return True
        self._last = what, set(numbers)
        return False

    def _send_due(self, client: MqttClient) -> None:
        """Acknowledge what is durable to the connection that it came by.

        What came by another one is held: when the broker gives it again it is acknowledged.
        """
        due: dict[int, list[int]] = {PUBACK: [], PUBREC: [], PUBCOMP: []}
        while self._durable:
            for item in self._durable.popleft():
                self._in_hand -= item.client is not None
                self._bytes_in_hand -= item.size
                if item.kind and item.client is client:
                    due[item.kind].append(item.number)
        for number in due[PUBACK]:
            self._held.pop(number, None)
        for kind, numbers in due.items():
            client.acknowledge(kind, numbers)

    # -- the thread that stores ------------------------------------------------------------------

    def store(self, messages: list[_Item]) -> None:
        unreleased = dict(self._unreleased)
        for item in messages:
            if item.kind == PUBREC:
                unreleased[item.number] = None
            elif item.kind == PUBCOMP:
                unreleased.pop(item.number, None)
            elif item is _NEW_SESSION:
                unreleased.clear()
        position = {"topics": self._topics, "qos": self._qos, "unreleased": ranges_of(unreleased)}
        given = None if position == self._position or not self._options.qos else position
        found = [item.message for item in messages if item.message is not None]
        durable = partial(self._note_durable, messages)
        stored = self._options.messages
        envelope = _envelope(found) if stored.has_envelope else {}
        payloads = [message.payload for message in found]
        stored.store(self.receiver, payloads, envelope, given, durable)
        self._unreleased, self._position = unreleased, position

    def _note_durable(self, messages: list[_Item]) -> None:
        self._durable.append(messages)
        self.wake()


def _envelope(found: list[Published]) -> dict[str, list[Any]]:
    return {
        "topic": [message.topic.decode(errors="replace") for message in found],
        "qos": [message.qos for message in found],
        "retained": [message.is_retained for message in found],
        "timestamp": [message.came_us for message in found],
        "contentType": [getattr(message.properties, "ContentType", None) for message in found],
        "headers": [getattr(message.properties, "UserProperty", None) for message in found],
    }


def _fileno(client: MqttClient) -> int:
    connection = client.socket()
    assert connection is not None
    return connection.fileno()
