"""confluent-kafka (librdkafka) as an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from penstock.sources.kafka.engines._confluent_chunk import MessageChunk, error_of
from penstock.sources.kafka.engines._confluent_client import (
    Failures,
    bounds_of,
    consumer,
    masked,
    plain,
    translated_errors,
)
from penstock.sources.kafka.engines._confluent_driver import ConfluentDriver
from penstock.sources.kafka.engines._confluent_member import ConfluentMember
from penstock.sources.kafka.engines.interface import (
    Chunk,
    DriverConnection,
    Engine,
    GroupMember,
    OffsetsOfMember,
    RangeConsumer,
)
from penstock.sources.kafka.records import TopicPartition

if TYPE_CHECKING:
    from penstock.sources.kafka.params import KafkaParams

__all__ = ["ENGINE"]


# What kafka-python and Kafka itself call the same things.
_OTHER_NAMES = {
    "sasl_plain_username": "sasl.username",
    "sasl_plain_password": "sasl.password",
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
    "ssl_crlfile": "ssl.crl.location",
    "ssl_ciphers": "ssl.cipher.suites",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "fetch_max_wait_ms": "fetch.wait.max.ms",
    "request_timeout_ms": "socket.timeout.ms",
    "connections_max_idle_ms": "connections.max.idle.ms",
}


class _RangeConsumer(RangeConsumer):
    def __init__(self, params: KafkaParams, partition: TopicPartition) -> None:
        # Only partitions that are assigned are read: the group is never joined.
        self._client = consumer(
            params,
            {
                "group.id": params.group_id or "penstock",
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
            },
        )
        self._partition = partition
        self._failures = Failures()

    def seek(self, offset: int) -> None:
        self._failures = Failures()
        with translated_errors():
            self._client.assign([confluent_kafka.TopicPartition(*self._partition, offset)])

    def poll(self, wait_s: float, most: int) -> tuple[Chunk | None, int | None]:
        self._failures.check()
        with translated_errors():
            found = self._client.consume(most, wait_s)
        position: int | None = None
        if any(map(error_of, found)):
            others = [each for each in found if each.error() is not None]
            found = [each for each in found if each.error() is None]
            for each in others:
                if each.error().code() == KafkaError._PARTITION_EOF:
                    # It comes once for each end, also when markers are all that was there.
                    position = each.offset()
                else:
                    self._failures.take([each.error()])
            if not found:
                self._failures.check()
        if found:
            chunk = MessageChunk(found)
            return chunk, max(chunk.end, position or 0)
        return None, position

    def bounds(self, timeout_s: float) -> tuple[int, int]:
        return bounds_of(self._client, self._partition, timeout_s)

    def close(self) -> None:
        self._client.close()


class Confluent(Engine):
    """confluent-kafka 2."""

    name = "confluent-kafka"

    def accept(self, given: Mapping[str, Any]) -> dict[str, Any]:
        values = {}
        for name, value in given.items():
            own = _OTHER_NAMES.get(name, name.replace("_", "."))
            if name == "ssl_check_hostname":
                value = "https" if value in (True, "true") else "none"
            values[own] = value
        return values

    def check(self, values: Mapping[str, Any]) -> None:
        try:
            # Without an address it connects to nothing.
            confluent_kafka.Consumer({**plain(values), "group.id": "penstock"}).close()
        except KafkaException as error:
            raise ValueError(masked(error, values)) from None
        except (TypeError, ValueError) as error:
            raise ValueError("confluent-kafka refuses the type of a setting") from error

    def range_consumer(
        self, params: KafkaParams, partition: TopicPartition, timeout_s: float
    ) -> RangeConsumer:
        return _RangeConsumer(params, partition)

    def driver_connection(
        self, params: KafkaParams, timeout_s: float, on_close: Callable[[], bool]
    ) -> DriverConnection:
        return ConfluentDriver(params, timeout_s, on_close)

    def member(
        self,
        params: KafkaParams,
        topics: Sequence[str],
        instance: str,
        offsets: OffsetsOfMember,
        timeout_s: float,
    ) -> GroupMember:
        # It connects in the background and would try for ever.
        ConfluentDriver(params, timeout_s, lambda: False).close()
        return ConfluentMember(params, topics, instance, offsets)


ENGINE = Confluent()
