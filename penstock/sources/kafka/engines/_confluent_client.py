"""How confluent-kafka is set up, and what its errors are to us."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from penstock.sources.kafka.engines.seam import AskAgainError, ClientError, OffsetsGoneError
from penstock.sources.kafka.records import TopicPartition

if TYPE_CHECKING:
    from penstock.sources.kafka.params import KafkaParams

__all__ = [
    "as_ours",
    "client_log",
    "consumer",
    "ours",
    "plain",
    "settings",
    "told_by_ours",
]


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
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_INSTANCE_ID,
}
_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}

client_log = logging.getLogger("penstock.sources.kafka.librdkafka")


def as_ours(error: Any) -> ClientError:
    """Return an error of the client, which is a code and a text, as one of ours."""
    told = f"{error.name()}: {error.str()}"
    if error.code() in _GONE:
        return OffsetsGoneError(told)
    if error.code() in _LATER or error.retriable():
        return AskAgainError(told)
    return ClientError(told)


@contextmanager
def told_by_ours() -> Iterator[None]:
    try:
        yield
    except KafkaException as error:
        raise as_ours(error.args[0]) from error


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as the client takes them: secrets as plain text."""
    return {
        name: str.__str__(value) if isinstance(value, str) else value
        for name, value in values.items()
    }


def settings(params: KafkaParams, own: Mapping[str, Any]) -> dict[str, Any]:
    return {"bootstrap.servers": params.servers, **plain(params.values), **own}


def consumer(params: KafkaParams, own: Mapping[str, Any]) -> Any:
    """Return a consumer that commits nothing by itself."""
    fixed = {"enable.auto.commit": False, "enable.auto.offset.store": False, **own}
    given = {**_DEFAULTS, **settings(params, fixed)}
    return confluent_kafka.Consumer(given, logger=client_log)


def ours(partition: Any) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)
