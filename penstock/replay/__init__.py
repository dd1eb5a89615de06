"""Reading again what the receivers of a `StreamingContext` stored, from their logs.

What must hold
--------------

- What is read is what the ledger took, in the order of the stream (I5), each block once; a record
  that a receiver logged and the ledger never took is left out, for its source gave it again.
- Nothing is written: neither to the logs nor to the ledger.
- A segment that is gone, or cannot be read, is an error that names it, and never less data.
- Memory is bounded by a block, whatever the logs hold.

Layout
------

The ledger (``receivedBlockMetadata``) says which segments of the receivers' logs (``receivedData``)
hold which blocks of a stream: those of batches that are not cleaned up yet, those that wait, and
those that are retained (`spark.penstock.wal.retention`). Logs are looked for below the folder
first, by the names of their receiver attempts, so that a copy is read wherever it is; then where
the ledger says.

=============  =========================================================
`_history`     `History`: the segments of a folder's streams; `Window`
`_read`        `read` and `read_rdd`, which read them in Spark's tasks; `record`, which copies
               them, as they come, into a folder that is read in the same way
`_receiver`    `ReplayReceiver`, which stores them again in another program; `ReplaySteps`, which
               lets its blocks through one by one
`cli`          ``penstock replay``, which writes them to a file; ``penstock record``
=============  =========================================================

Time counts by blocks: each has the time at which it was sealed, which is up to a block interval
after its records came. Blocks of a release before that have none; of them a window takes each
segment that may have a block of it.
"""

from penstock.replay._history import HistoryError
from penstock.replay._read import read, read_rdd
from penstock.replay._receiver import ReplayReceiver, ReplaySteps

__all__ = ["HistoryError", "ReplayReceiver", "ReplaySteps", "read", "read_rdd"]
