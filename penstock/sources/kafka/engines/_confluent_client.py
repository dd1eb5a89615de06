"""How confluent-kafka is set up, and what its errors are to us."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.sources.kafka.engines.interface import (
    AccessDeniedError,
    ClientError,
    OffsetOutOfRangeError,
    RetriableError,
    UnknownMemberError,
)
from penstock.sources.kafka.records import TopicPartition

if TYPE_CHECKING:
    from penstock.sources.kafka.engines.interface import ClientParams

_DEFAULTS = {
    # Its default lets a client stay away for ten seconds after a broker is back.
    "reconnect.backoff.max.ms": 1000,
    # Its default of a second is how long it fetches nothing after what it has fetched is enough.
    "fetch.queue.backoff.ms": 5,
    # Little at a time stays in the processor's cache (twice as fast as the default's 64 MiB), and
    # little is thrown away when the next task of the partition runs in another worker.
    "max.partition.fetch.bytes": 1 << 20,
    "queued.max.messages.kbytes": 4 << 10,
}
_LATER = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._WAIT_CACHE,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._STATE,
    KafkaError._NO_OFFSET,
    KafkaError._NOENT,  # no partition that is asked for has a leader
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.FENCED_INSTANCE_ID,
    # What the protocol calls retriable, and `KafkaError.retriable` does for transactions only.
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.NOT_CONTROLLER,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.FETCH_SESSION_ID_NOT_FOUND,
    KafkaError.INVALID_FETCH_SESSION_EPOCH,
    KafkaError.LISTENER_NOT_FOUND,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
}
_DENIED = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_UNKNOWN_MEMBER = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION}
_OUT_OF_RANGE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}


_SHARED = (
    "bootstrap.",
    "security.",
    "sasl.",
    "ssl.",
    "enable.ssl.",
    "enable.sasl.",
    "https.",
    "socket.",
    "reconnect.",
    "client.",
    "broker.",
)
"""Settings that all clients take: each warns of those that only others have."""


class ClientLog:
    """What librdkafka logs, each kind of line once in a while: it logs every try to connect.

    Args:
        log: Where to.
    """

    def __init__(self, log: RateLimitedLog) -> None:
        self._log = log

    def log(self, level: int, text: str, *arguments: object) -> None:
        """Take a line, as `logging.Logger.log` does; the client asks for no other method."""
        self._log.log(text % arguments, level=level)


client_log = ClientLog(RateLimitedLog(logging.getLogger("penstock.sources.kafka.librdkafka")))


def translated(error: Any) -> ClientError:
    """Return an error of the client, which is a code and a text, as one of ours."""
    told = f"{error.name()}: {error.str()}"
    if error.code() in _OUT_OF_RANGE:
        return OffsetOutOfRangeError(told)
    if error.code() in _DENIED:
        return AccessDeniedError(told)
    if error.code() in _UNKNOWN_MEMBER:
        return UnknownMemberError(told)
    if error.code() in _LATER or error.retriable():
        return RetriableError(told)
    return ClientError(told)


@contextmanager
def translated_errors() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise translated(error.args[0]) from error


class Failures:
    """Errors that came among records: they are raised when the records are dealt with.

    A client reports each once, and may never read the partition again.
    """

    def __init__(self) -> None:
        self._worst: ClientError | None = None

    def take(self, told: Iterable[Any]) -> None:
        """Keep the first that is final, or else the first."""
        for each in map(translated, told):
            is_worse = isinstance(self._worst, RetriableError) and not isinstance(
                each, RetriableError
            )
            if self._worst is None or is_worse:
                self._worst = each

    def check(self) -> None:
        """Raise what was kept, once.

        Raises:
            ClientError: There was one.
        """
        error, self._worst = self._worst, None
        if error is not None:
            raise error


class Refusals:
    """What brokers refused of a client's log-in or TLS, which only its log says: it tries for ever.

    Args:
        params: The client's settings.

    Attributes:
        told: What the client said last of any error, or "".
    """

    def __init__(self, params: ClientParams) -> None:
        self.told = ""
        self._params = params
        self._last: Any = None

    def __call__(self, error: Any) -> None:
        """Take an error that the client reports."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self.told:
            self.told = error.str()
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._last = error

    def check(self) -> None:
        """Raise the last one, once.

        Raises:
            AccessDeniedError: TLS or the log-in failed.
        """
        error, self._last = self._last, None
        if error is None:
            return
        if error.code() == KafkaError._SSL:
            raise AccessDeniedError.of_tls(error.str())
        values = self._params.values
        mechanism = values.get("sasl.mechanism") or values.get("sasl.mechanisms") or "GSSAPI"
        raise AccessDeniedError.of_log_in(mechanism, error.str())


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as the client takes them: secrets as plain text."""
    return {
        name: str.__str__(value) if isinstance(value, str) else value
        for name, value in values.items()
    }


def masked(error: KafkaException, values: Mapping[str, Any]) -> str:
    """Return what the client says of a setting that it refuses, without secrets."""
    told = str(error.args[0].str())
    for name, value in values.items():
        if name.startswith(("sasl.", "ssl.")) and isinstance(value, str) and value:
            told = told.replace(str.__str__(value), "***")
    return f"confluent-kafka refuses a setting: {told}"


def settings(params: ClientParams, own: Mapping[str, Any]) -> dict[str, Any]:
    return {"bootstrap.servers": params.servers, **plain(params.values), **own}


def shared_settings(params: ClientParams) -> dict[str, Any]:
    """Return those that a client takes that neither reads nor writes records."""
    return {name: value for name, value in settings(params, {}).items() if name.startswith(_SHARED)}


def consumer(params: ClientParams, own: Mapping[str, Any]) -> Any:
    """Return a consumer that commits nothing by itself.

    Raises:
        AccessDeniedError: A setting is refused here, such as a file that only the driver's host
            has.
    """
    fixed = {"enable.auto.commit": False, "enable.auto.offset.store": False, **own}
    given = {**_DEFAULTS, **settings(params, fixed)}
    try:
        return confluent_kafka.Consumer(given, logger=client_log)
    except KafkaException as error:
        raise AccessDeniedError(masked(error, params.values)) from None


def bounds_of(client: Any, partition: TopicPartition, timeout_s: float) -> tuple[int, int]:
    """Return the first offset of a partition and the one after its last.

    Raises:
        RetriableError: There is no answer in time.
    """
    mine = confluent_kafka.TopicPartition(*partition)
    with translated_errors():
        found = client.get_watermark_offsets(mine, timeout=timeout_s)
    if found is None or found[0] < 0 or found[1] < 0:
        raise RetriableError("no answer in time")
    return int(found[0]), int(found[1])


def ours(partition: Any) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)
