"""`KafkaUtils`: what a program calls to make a stream or an RDD of Kafka's records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.host.spark.contexts import read_settings
from penstock.settings import Settings
from penstock.sources.formats import ValueFormat
from penstock.sources.kafka._driver_client import CommitCallback
from penstock.sources.kafka._reading import Reading
from penstock.sources.kafka.columns import Layout
from penstock.sources.kafka.direct_stream import DirectKafkaInputDStream, DirectOptions
from penstock.sources.kafka.params import KafkaParams
from penstock.sources.kafka.rdd import KafkaRDD, places
from penstock.sources.kafka.records import KafkaRecord, OffsetRange, TopicPartition
from penstock.sources.kafka.strategies import (
    ConsumerStrategy,
    LocationStrategies,
    LocationStrategy,
    PerPartitionConfig,
)
from penstock.streaming.dstream.inputs.receiver_dstream import RatedDStream

if TYPE_CHECKING:
    from pyspark import SparkContext

    from penstock.streaming.context import StreamingContext

_KEYS = ("spark.streaming.kafka.", "spark.penstock.kafka.")


class KafkaDStream(RatedDStream[KafkaRecord]):
    """A direct stream of Kafka's records.

    Its RDDs in `foreachRDD` and its DataFrames in `foreachBatch` have `offsetRanges`. Its rate
    holds for all partitions together, in proportion to what each has to catch up on, and from the
    next batch on.
    """

    _node: DirectKafkaInputDStream

    def commitAsync(
        self, offsetRanges: Iterable[OffsetRange], callback: CommitCallback | None = None
    ) -> None:
        """Commit the ends of ranges to the group, with the next batch or when the context stops.

        Args:
            offsetRanges: The ranges of batches that are done, from `rdd.offsetRanges`.
            callback: Called with the offsets by partition, and None or the error, from the
                thread that makes batches; it must be quick and not raise.

        Raises:
            ValueError: The stream has no `group.id`.
        """
        if self._node.params.group_id is None:
            raise ValueError("commitAsync needs group.id in kafkaParams: whose offsets they are")
        self._node.commit_async(offsetRanges, callback)


class KafkaUtils:
    """Makes streams and RDDs of Kafka's records, after Spark's integration for Kafka 0.10."""

    @staticmethod
    def createDirectStream(
        ssc: StreamingContext,
        locationStrategy: LocationStrategy,
        consumerStrategy: ConsumerStrategy,
        perPartitionConfig: PerPartitionConfig | None = None,
        *,
        failOnDataLoss: bool = True,
        includeHeaders: bool = False,
        values: ValueFormat | None = None,
    ) -> KafkaDStream:
        """Return the records of Kafka's partitions, each in exactly one batch.

        Args:
            ssc: The context.
            locationStrategy: Where partitions are read.
            consumerStrategy: Which partitions, with which client settings, and from where.
            perPartitionConfig: Limits per partition; None for the settings
                `spark.streaming.kafka.maxRatePerPartition` and `minRatePerPartition`.
            failOnDataLoss: Whether it is an error that records which should come next are gone:
                by retention, or because a topic was deleted or created again. Each batch fails
                until it is dealt with. False warns and goes on with what is left.
            includeHeaders: Whether the DataFrames of `foreachBatch` have a column ``headers``.
            values: Makes typed values for the DataFrames of `foreachBatch`, such as `JsonFormat`;
                None for bytes.

        Raises:
            SettingError: A setting is not accepted.
            TypeError: An argument is of a type that is not accepted.
        """
        _check(locationStrategy, LocationStrategy, "locationStrategy", "LocationStrategies.…")
        _check(consumerStrategy, ConsumerStrategy, "consumerStrategy", "ConsumerStrategies.…(…)")
        if perPartitionConfig is not None:
            _check(
                perPartitionConfig, PerPartitionConfig, "perPartitionConfig", "PerPartitionConfig()"
            )
        if values is not None:
            _check(values, ValueFormat, "values", "JsonFormat(schema) or AvroFormat(schema)")
        settings = _settings(ssc.sparkContext)
        params = consumerStrategy.params
        options = DirectOptions(
            locationStrategy,
            perPartitionConfig
            or PerPartitionConfig(settings.kafka_max_rate, settings.kafka_min_rate),
            settings.kafka_broker_timeout_s,
            _reading(settings, params, failOnDataLoss),
            Layout(includeHeaders, values),
        )
        node = DirectKafkaInputDStream(ssc._graph, consumerStrategy, options)
        return KafkaDStream(ssc, node)

    @staticmethod
    def createRDD(
        sc: SparkContext,
        kafkaParams: Mapping[str, Any],
        offsetRanges: Sequence[OffsetRange],
        locationStrategy: LocationStrategy = LocationStrategies.PreferConsistent,
    ) -> KafkaRDD:
        """Return the records of ranges of offsets, one partition per range.

        Raises:
            ValueError: `PreferBrokers` is asked for: no one has asked the brokers who leads.
        """
        if locationStrategy.kind == "PreferBrokers":
            raise ValueError("createRDD takes PreferConsistent or PreferFixed")
        reading = _reading(_settings(sc), KafkaParams(kafkaParams), True)
        partitions = [TopicPartition(each.topic, each.partition) for each in offsetRanges]
        found = places(sc, locationStrategy, partitions, lambda _: "")
        return KafkaRDD(sc, reading, tuple(offsetRanges), found)


def _settings(sc: SparkContext) -> Settings:
    return read_settings(sc, lambda key: key.startswith(_KEYS))


def _reading(settings: Settings, params: KafkaParams, fail_on_data_loss: bool) -> Reading:
    capacity = settings.kafka_cache_capacity if settings.kafka_cache_enabled else 0
    return Reading(params, settings.kafka_poll_ms / 1000, capacity, fail_on_data_loss)


def _check(value: object, kind: type, name: str, accepted: str) -> None:
    # Its type only: what stands in a wrong place may be the client's settings, with a password.
    if not isinstance(value, kind):
        raise TypeError(f"{name} of type {type(value).__name__} is not accepted: {accepted}")
