"""The ledger: which blocks there are, in which batch or at which place, in the driver log first.

What must hold:

- *Log before act* (I1, I3, I4). Every change of the ledger is in the driver log before it is in
  memory, and in memory before anyone hears of it. A change that the log did not take did not
  happen.
- *One block, one batch* (I2). A block is known by its number, for as long as its attempt is
  known, also when it was released; adding it again changes nothing. A batch takes a block away.
- *A stream has batches or places.* Batches take its blocks away; or it is a log that any number of
  consumers read, each at its own place, and a block goes when all have passed it and its retention
  is over (`_kept_blocks`).
- *What is retained holds no one up.* Segments may stay in the receivers' logs after the batches of
  their blocks; they go by age, by size, and at once when the disk runs short (`_retained`).
- *A stream is its name*. Its number is given once, in the driver log, and never to another name;
  what the ledger has of a stream that the program lacks is refused, or given up by name.
- *Order* (I5). Blocks of a stream stay in the order in which they were accepted. A position counts
  only with the block that carries it, and only if nothing before that block is missing.

Layout:

- ``received_block_tracker``: the ledger, `ReceivedBlockTracker`. ``opening``: where it is.
- ``events``: the log's records. ``_ledger_state``: the memory. ``_block_numbers``: what makes
  adding idempotent. ``_driver_log``: how events and snapshots get into the segment log.
  ``_recovery``: snapshots, and reading them back.
- ``places``: the streams that are read by places. ``_kept_blocks``: their blocks and consumers.
- ``_retained``: the segments that stay after the clean-up of their batches.

The life of a block here: added (logged, waiting), allocated to a batch (logged, before any job),
released when the batch is cleaned up (logged), and only then deleted, by the living attempt that
wrote it or by the block server of its host; a copy by the block server that made it. With a
retention its segment stays (logged with the clean-up) until that is over (logged). With places:
added (logged, it has its place), passed by each consumer (logged), released (logged).

The driver log holds events, the checkpoints of a program (see `penstock.streaming.checkpoint`), and
at times a snapshot of the whole ledger at the start of a segment; then older segments go. Recovery
reads from the newest whole snapshot on. Batches are whole numbers that grow; the ledger does not
know what they mean or who consumes them.
"""
