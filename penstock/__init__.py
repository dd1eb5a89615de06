"""Spark Streaming's receiver and block pipeline, in Python.

Records that a source *pushes* pass a rate limiter into sealed Arrow blocks that survive a crash,
and come out as RDDs and DataFrames::

    source -> Receiver.store -> rate limiter -> block generator -> segment log
           -> AddBlock -> tracker -> batch -> RDD partition -> the user's function

What must hold for every record:

* A source is acknowledged only after its block is stored to the durability policy in force and
  its metadata is in the driver's log.
* A block goes to exactly one batch, and that is written down before any job of the batch runs.
* Memory is bounded: a full queue makes `store` wait.

The rooms, in the order in which they may import each other (never back):

* `penstock.wal`: the segment log, an append-only log of records in numbered files.
* `penstock.dead_letters`: records that fit nowhere, kept where they can be found.
* `penstock.wire`: the control protocol between driver, receivers and block servers.
* `penstock.blockstore`: storing, serving, finding and reading sealed blocks.
* `penstock.receiver`: `Receiver`, its supervisor, the block generator, the rate limiter.
* `penstock.continuous`: functions that are given records as they come: their tasks, epochs and
  sinks.
* `penstock.tracker`: the driver's ledger of received blocks, the receivers' states and placement.
* `penstock.rates`: how fast each receiver may be: whose limit holds, groups, estimators.
* `penstock.host`: what runs receivers, no matter who takes their blocks: checks, durability, start,
  end.
* `penstock.listeners`: what a program implements to be notified of receivers and batches; the
  events.
* `penstock.monitor`: what is seen of a running program from outside.
* `penstock.streaming`: `StreamingContext`, the DStream graph, batches and their jobs.
* `penstock.sql`: `ReceiverHost`, and received records as a source of Structured Streaming.
* `penstock.replay`: reading again what the logs of a `StreamingContext` have.
* `penstock.sources`: receivers and streams that come with the project.

Beside them stand:

===========================  =====================================================================
`settings/`                  every configuration key, how its text is read, what is said of it
`errors`, `user_errors`      the root of the errors; what the program's own functions raised
`runtime/`                   time, threads, pauses, processes, lines of the log, reused memory
`files/`                     files that are seen once they are whole
`position_changes`           positions that are stored by their changes; positions as JSON
`hkdf`                       keys out of one secret
`worker`, `daemon`           what makes short tasks short in PySpark's worker; warm workers
`_lazy_door`                 a room whose modules are imported when they are asked for
`_arguments`, `_html`        what a program gives; records as tables in notebooks
`_versions`, `__main__`      which versions fit; the command ``penstock``
`commands`                   what the commands of the rooms share
`pytest_plugin`              fixtures of `penstock.testing`
===========================  =====================================================================

Importing this package is cheap: it starts nothing and does not import PySpark. In a worker of
PySpark it makes room (`penstock.worker`). It raises
`ImportError` when Python or PySpark does not fit, naming both versions. Logging goes to the
standard logger ``penstock`` and those below it: without a set-up of the program's own, warnings
and errors reach standard error by Python's last resort, and INFO stays quiet.
"""

from __future__ import annotations

import sys

from penstock._versions import check_versions

__all__ = ["__version__"]

__version__ = "0.1.0.dev0"

check_versions()

if "pyspark.worker" in sys.modules:
    from penstock.worker import share_directories

    share_directories()
