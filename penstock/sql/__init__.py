"""Structured Streaming on received blocks: any receiver is a source of `spark.readStream`.

And of `spark.read`, for what streams have.

::

    host = ReceiverHost(spark, directory="/var/lib/app")
    host.stream("clicks", clicks, retention="24 hours")
    host.start()
    clicks_df = spark.readStream.format("penstock").option("stream", "clicks").load()

What must hold
--------------

* *A row is in one batch of a query, and a batch that is made again has the same rows.* An offset is
  a place in the ledger; the blocks between two places never change, and they go only when the query
  has committed the batch after.
* *A query is its checkpoint.* The consumer's id is made by the first offset and lives in Spark's
  own offset log, so a query that is started again with its checkpoint goes on, also after its first
  batch was cut off; with another checkpoint it is another consumer.
* *Never less without a word* (I15). Places that were released, a ledger that is another one, a host
  that does not answer: each is an error of the query that names what is missing and the way out.
* *Nothing waits for ever* (I12). Each question to the host has an end.
* *No secret is shown.* What opens a connection is in the class that is registered with Spark and
  never in options, offsets, plans or progress.

Layout
------

=================  =================================================================================
`host`             `ReceiverHost`: runs the receivers
`_run`             the queries of `ReceiverHost.run`
`source/`          the data source, in a query's own process and in tasks
`_query_rates`     rates that follow queries, and what Spark reports of queries for that
`_host_monitor`    a host as the monitor sees it; what is notified of its receivers
`session`          `connect`: hosts of other applications
`cli`              ``penstock consumers``
`host_cli`         ``penstock host``
`errors`           what goes wrong, with the way out
=================  =================================================================================

Life of a batch
---------------

Spark asks the reader, in a Python process of the query's own on the driver's host, how far it may
go; the reader asks the tracker, which answers within the limits, and from then on keeps the blocks
from the query's place on. Spark logs the offset, asks for the partitions (the blocks of a batch,
packed in order), and runs a task for each, which reads the blocks as every batch task of Penstock
does. With the next batch it commits this one; the tracker logs the query's new place, and what all
queries have passed and the retention does not keep is released.

A batch read asks for the same blocks when its first job is planned, keeps none, and commits
nothing.

Threads of the host, beside the tracker's: ``penstock-retention``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._lazy_door import lazy_door

if TYPE_CHECKING:
    from penstock.sql._query_rates import QueryRate
    from penstock.sql.errors import (
        FolderError,
        HostNotReachableError,
        PlacesReleasedError,
        SourceError,
        SourceOptionError,
    )
    from penstock.sql.host import ReceiverHost, readStream
    from penstock.sql.session import connect

__all__ = [
    "FolderError",
    "HostNotReachableError",
    "PlacesReleasedError",
    "QueryRate",
    "ReceiverHost",
    "SourceError",
    "SourceOptionError",
    "connect",
    "readStream",
]

_MODULES = {
    "_query_rates": ["QueryRate"],
    "errors": [
        "FolderError",
        "HostNotReachableError",
        "PlacesReleasedError",
        "SourceError",
        "SourceOptionError",
    ],
    "host": ["ReceiverHost", "readStream"],
    "session": ["connect"],
}

if not TYPE_CHECKING:
    # A query's own process and its tasks need no host.
    __getattr__ = lazy_door(__name__, _MODULES)
