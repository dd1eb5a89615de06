"""Kinesis: the records of a stream, each in exactly one batch.

What must hold
--------------

* How far each shard was read is the stream's position: it becomes durable together with the records
  and nowhere else. There is no table in DynamoDB, and no second place that has to agree.
* A shard is read after those that it came from are read to their end, so that the records of a
  partition key keep their order over splits and merges.
* Of receivers that share a stream each has some of its shards. A shard is given to one when those
  that it came from have ended by their durable places, wherever they were read.
* The position says which stream it counts in: one that was deleted and made again by the same name
  begins at its oldest record, and that is reported.
* A shard is read again *at* the last stored record, which is then passed over. If it is gone,
  records were trimmed before they were read, and that is reported.
* One thread stores and knows how far everything is. The others only wait for AWS's answers, of
  which there are no more at a time than `threads`.

============  =====================================================================================
`receiver`    `KinesisReceiver`, and what it is given; `KinesisUtils`, with the signature of
              `pyspark.streaming.kinesis`
`_reading`    one start of it: shards, their order, and how far each is read; records that a
              producer packed into one
============  =====================================================================================
"""

from penstock.sources.kinesis.receiver import (
    InitialPositionInStream,
    KinesisReceiver,
    KinesisUtils,
    MetricsLevel,
    utf8_decoder,
)

__all__ = [
    "InitialPositionInStream",
    "KinesisReceiver",
    "KinesisUtils",
    "MetricsLevel",
    "utf8_decoder",
]
