"""Kafka: direct streams, whose batches are ranges of offsets, a receiver, and a sink.

What must hold
--------------

* Each offset of a partition is in exactly one batch, whatever dies: a batch's ranges are fixed
  once, and a task that runs again reads the same ones.
* Records that are gone before they were read are never passed over in silence: an error, or with
  `failOnDataLoss=False` a warning. Gaps that compaction and transactions leave are no loss.
* The receiver commits an offset to the group only when all before it is durable (I1).
* No wait for a broker is without a bound, and what waits says for which part of Kafka.
* An offset is kept with its topic's id: another topic of the name has offsets of its own (I16).
* Settings of TLS and SASL are in no `repr`, no log and no event, but for the name of a mechanism
  in the error of a log-in.
* A Kafka client is imported when a stream is made, and not before.
* Records are Python objects only where a program asks for these; columns are made in bulk.

Layout
------

===================  =============================================================================
`utils`              `KafkaUtils`: makes streams and RDDs; `KafkaDStream` with `commitAsync`
`strategies`         what is read, where, how fast
`params`             the client's settings
`direct_stream`      the node in the driver: which offsets each batch takes, and how many
`_driver_client`     what the driver, or a receiver, asks the brokers
`rdd`                one partition per range
`_reading`           a task reads its range, with a consumer that its Python worker keeps
`engines`            a room of its own: the clients, kafka-python and confluent-kafka
`columns`            the columns of DataFrames, as in Spark's Kafka source
`receiver`           a member of a consumer group, for those who want blocks
`_ledger`            its offsets: stored, durable, committed
`_group_watch`       what it looks at once a second: topics' ids, ends, and what keeps it waiting
`sink`               `KafkaSink`: the other way, for continuous streams; it says what must hold
`records`, `errors`  what programs see
===================  =============================================================================

Life of a batch
---------------

In the generator's thread the node asks for partitions and their first and last offsets, adopts
partitions that are new, and fixes the ranges, within the limits. A task borrows the consumer of
its partition from its Python worker, seeks if it stands elsewhere, and polls up to the end of the
range. The program may commit the range with `commitAsync`; it goes to the brokers with the next
batch, or at the stop.
"""

from penstock.sources.formats import AvroFormat, JsonFormat, ValueFormat
from penstock.sources.kafka.errors import (
    KafkaCommitError,
    KafkaDataLossError,
    KafkaFencedError,
    KafkaRefusedError,
    KafkaSourceError,
    KafkaUnavailableError,
)
from penstock.sources.kafka.params import KafkaParams
from penstock.sources.kafka.rdd import KafkaRDD
from penstock.sources.kafka.receiver import KafkaReceiver
from penstock.sources.kafka.records import KafkaRecord, OffsetRange, TopicPartition
from penstock.sources.kafka.sink import KafkaSink
from penstock.sources.kafka.strategies import (
    ConsumerStrategies,
    ConsumerStrategy,
    LocationStrategies,
    LocationStrategy,
    PerPartitionConfig,
)
from penstock.sources.kafka.utils import KafkaDStream, KafkaUtils

__all__ = [
    "AvroFormat",
    "ConsumerStrategies",
    "ConsumerStrategy",
    "JsonFormat",
    "KafkaCommitError",
    "KafkaDStream",
    "KafkaDataLossError",
    "KafkaFencedError",
    "KafkaParams",
    "KafkaRDD",
    "KafkaReceiver",
    "KafkaRecord",
    "KafkaRefusedError",
    "KafkaSink",
    "KafkaSourceError",
    "KafkaUnavailableError",
    "KafkaUtils",
    "LocationStrategies",
    "LocationStrategy",
    "OffsetRange",
    "PerPartitionConfig",
    "TopicPartition",
    "ValueFormat",
]
