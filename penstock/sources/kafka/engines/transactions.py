"""`Transactions`: records, and a number beside them, written in one transaction of Kafka.

By confluent-kafka only. kafka-python 3.0 also has transactions, but waits without a bound for a
coordinator that is away (``KafkaProducer.commit_transaction`` and others).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from penstock.continuous import SinkError
from penstock.sources.kafka.engines._confluent_client import (
    Refusals,
    client_log,
    masked,
    settings,
    shared_settings,
    translated,
)
from penstock.sources.kafka.engines.interface import AccessDeniedError, RetriableError
from penstock.sources.kafka.errors import (
    KafkaFencedError,
    KafkaSourceError,
    KafkaUnavailableError,
    as_source_error,
)

if TYPE_CHECKING:
    from penstock.sources.kafka.engines.interface import ClientParams

ProducedRecord = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]
"""A key, a value and headers."""

_DEFAULTS: dict[str, Any] = {
    # Less than the time that a call of a sink has by default, so that it can say what is away.
    "transaction.timeout.ms": 50_000,
    # A key goes to the partition to which Kafka's own clients would send it.
    "partitioner": "murmur2_random",
    # The brokers may still write the end of a transaction when the next one begins; the client's
    # default would wait for 0.1 s. Its pauses grow.
    "retry.backoff.ms": 10,
}
_OWN = ("transactional.id", "enable.idempotence", "delivery.report.only.error")
_BEGIN_S = 30.0
_TOPIC_S = 10.0
"""How long a topic may be unknown: not all brokers learn of a new one at once."""

_SLICE_S = 1.0
_PAUSE_S = 0.1
_PROBE_S = 2.0
_ABORT_S = 2.0
_TOLD_S = 5.0

_FENCED = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
    KafkaError.INVALID_TXN_STATE,
    KafkaError._FATAL,  # After one of these; the next attempt reports what else is fatal.
)
_NO_TOPIC = "there is no such topic, and the brokers do not make it: create it"
_TOO_OLD = "the brokers have no such transactions: they must be of Kafka 2.5 or later"
_HOPELESS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: _NO_TOPIC,
    KafkaError._UNKNOWN_TOPIC: _NO_TOPIC,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow the user to READ and WRITE the topic",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "allow the user to WRITE transactional ids that begin with group.id"
    ),
    KafkaError.GROUP_AUTHORIZATION_FAILED: "allow the user to READ groups that begin with group.id",
    KafkaError.MSG_SIZE_TOO_LARGE: (
        "a record, or a batch of them, is larger than the client sends (message.max.bytes in "
        "kafkaParams) or the topic takes (max.message.bytes): raise these, lower batch.size to "
        "what the topic takes, or let the function leave such records out"
    ),
    KafkaError.RECORD_LIST_TOO_LARGE: (
        "a batch of records is larger than the topic takes (segment.bytes): lower batch.size"
    ),
    KafkaError.INVALID_RECORD: "the topic does not take it; does it need keys, being compacted?",
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        "transaction.timeout.ms is more than transaction.max.timeout.ms of the brokers: lower it"
    ),
    KafkaError._UNSUPPORTED_FEATURE: _TOO_OLD,
    KafkaError.UNSUPPORTED_VERSION: _TOO_OLD,
}
"""What another attempt would also meet, and the way out."""

_LOOK = "which a cluster of fewer brokers than its replication factor cannot make"
_COORDINATOR = f"the coordinator of transactions; look at the topic __transaction_state, {_LOOK}"
_GROUPS = f"the coordinator of the group; look at the topic __consumer_offsets, {_LOOK}"


def check_settings(params: ClientParams) -> None:
    """Refuse settings that a producer would refuse later.

    Raises:
        ValueError: One is not accepted.
    """
    for name in _OWN:
        if name in params.values:
            raise ValueError(f"{name} is not accepted: a KafkaSink sets it")
    try:
        # Without an address it connects to nothing.
        _producer(params, "penstock", {"bootstrap.servers": "", "log_level": 0})
    except KafkaException as error:
        raise ValueError(masked(error, params.values)) from None


def _producer(params: ClientParams, name: str, own: dict[str, Any]) -> Any:
    fixed = {
        "transactional.id": name,
        "enable.idempotence": True,
        "delivery.report.only.error": True,
        **own,
    }
    return confluent_kafka.Producer({**_DEFAULTS, **settings(params, fixed)}, logger=client_log)


def _note(undelivered: list[Any], error: Any, _: Any) -> None:
    # What an error elsewhere has thrown away says nothing.
    if error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
        undelivered.append(error)


class Transactions:
    """Transactions of one name, which have numbers. Used by one thread, and not after an error.

    A number is an offset of the topic's partition 0, committed within its transaction to a group
    of the name. It is forgotten with the topic, and after `offsets.retention.minutes` without
    another one.

    The methods raise `SinkError` for what another attempt would also meet; `KafkaFencedError`;
    `KafkaUnavailableError`, with the part that did not answer; or another `KafkaSourceError`.

    Args:
        params: The client's settings.
        topic: Where records go.
        name: The transactional id, and the group's.
    """

    def __init__(self, params: ClientParams, topic: str, name: str) -> None:
        self._params = params
        self._topic = topic
        self._name = name
        self._refusals = Refusals(params)
        self._timeout_ms = int({**_DEFAULTS, **params.values}["transaction.timeout.ms"])
        self._undelivered: list[Any] = []
        # Not a method, with which the producer would be in a circle.
        note = partial(_note, self._undelivered)
        self._producer = _producer(params, name, {"error_cb": self._refusals, "on_delivery": note})
        self._group: Any = None

    def begin(self) -> int | None:
        """Fence those who had the name before, and end what they have open.

        Returns:
            The number of the last transaction; None: there was none, or it is forgotten.
        """
        begin_s = time.monotonic()
        end_s = begin_s + _BEGIN_S
        self._wait(self._find_topic, "", begin_s + _TOPIC_S)
        self._wait(self._producer.init_transactions, _COORDINATOR, end_s)
        # It subscribes to nothing, and so joins no group.
        given = {**shared_settings(self._params), "group.id": self._name}
        client = confluent_kafka.Consumer(given, logger=client_log)
        try:
            number: int = self._wait(partial(self._number, client), _GROUPS, end_s)
            self._group = client.consumer_group_metadata()
        finally:
            client.close()
        return None if number < 0 else number

    def _find_topic(self, timeout_s: float) -> None:
        # A broker that makes topics makes it now.
        error = self._producer.list_topics(self._topic, timeout_s).topics[self._topic].error
        if error is not None:
            raise KafkaException(error)

    def _number(self, client: Any, timeout_s: float) -> int:
        # A refusal by the coordinator comes here; the question would only have no answer.
        told = client.poll(0)
        if told is None:
            (told,) = client.committed([self._place()], timeout=timeout_s)
        error = told.error() if callable(told.error) else told.error
        if error is not None:
            raise KafkaException(error)
        return int(told.offset)

    def _place(self, *offset: int) -> Any:
        return confluent_kafka.TopicPartition(self._topic, 0, *offset)

    def write(self, records: Sequence[ProducedRecord], number: int) -> None:
        """Write records and a number; when this returns, both are committed.

        After an error both may be, or neither: the next `begin` shows.
        """
        end_s = time.monotonic() + self._timeout_ms / 1000
        offsets = [self._place(number)]
        send = partial(self._producer.send_offsets_to_transaction, offsets, self._group)
        try:
            self._wait(lambda _: self._producer.begin_transaction(), _COORDINATOR, end_s)
            for record in records:
                self._produce(record, end_s)
            self._wait(send, _GROUPS, end_s)
            self._wait(self._producer.commit_transaction, _COORDINATOR, end_s)
        except BaseException:
            # Else readers would wait until the brokers end it.
            with suppress(KafkaException):
                self._producer.abort_transaction(_ABORT_S)
            raise

    def _produce(self, record: ProducedRecord, end_s: float) -> None:
        key, value, headers = record
        send = partial(self._producer.produce, self._topic, value, key, headers=headers)
        try:
            try:
                send()
            except BufferError:
                self._wait(self._flush, "", end_s)
                send()
        except BufferError:
            raise SinkError(
                f"a record for {self._topic} is larger than all that may wait in the client: raise "
                "queue.buffering.max.kbytes in kafkaParams, or let the function leave it out"
            ) from None
        except KafkaException as failure:
            # The reason is reported of an earlier record, which may come a little later.
            told_s = time.monotonic() + _TOLD_S
            with suppress(KafkaException):
                while not self._undelivered and time.monotonic() < told_s:
                    self._producer.poll(_PAUSE_S)
            raise self._error_of(failure.args[0], "", 0.0) from failure

    def _flush(self, timeout_s: float) -> None:
        if self._producer.flush(timeout_s):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def _wait(self, call: Callable[[float], Any], part: str, end_s: float) -> Any:
        """Call again what may pass: in slices, between which the client's reports are read."""
        begin_s = time.monotonic()
        while True:
            left_s = end_s - time.monotonic()
            try:
                return call(max(_PAUSE_S, min(left_s, _SLICE_S)))
            except KafkaException as failure:
                error = failure.args[0]
                with suppress(KafkaException):
                    # For reports of records; it raises what is fatal once more.
                    self._producer.poll(0)
                may_pass = error.retriable() or isinstance(translated(error), RetriableError)
                is_over = error.fatal() or error.txn_requires_abort() or self._undelivered
                if is_over or not may_pass or left_s <= 0:
                    waited_s = time.monotonic() - begin_s
                    raise self._error_of(error, part, waited_s) from failure
            try:
                self._refusals.check()
            except AccessDeniedError as refusal:
                raise as_source_error(refusal, self._params.servers, 0.0) from refusal
            time.sleep(_PAUSE_S)

    def _error_of(self, error: Any, part: str, waited_s: float) -> Exception:
        servers, client = self._params.servers, self._producer
        if self._undelivered:
            # What came first; all others follow from it.
            error = self._undelivered[0]
        code, told = error.code(), f"{error.name()}: {error.str()}"
        if code in _HOPELESS:
            return SinkError(
                f"Kafka does not take what is for {self._topic}: {told}: {_HOPELESS[code]}"
            )
        if code in _FENCED:
            return KafkaFencedError(self._name, self._timeout_ms, told)
        if not isinstance(translated(error), RetriableError):
            return KafkaSourceError(f"the client of Kafka at {servers} failed: {told}")
        if self._undelivered or len(client):
            part = f"the leaders of the partitions of {self._topic}, or of their replicas"
        try:
            client.list_topics(timeout=_PROBE_S)
        except KafkaException:
            part = ""
        setting = "transaction.timeout.ms" if self._group is not None else ""
        return KafkaUnavailableError(servers, waited_s, told, setting, part)
