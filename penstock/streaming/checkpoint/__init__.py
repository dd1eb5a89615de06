"""Checkpoints: the graph and the progress in the driver log, and the context made again from it.

What must hold
--------------

* A checkpoint is whole or absent, and the newest counts (I11).
* It is of one moment with the ledger, since it is an event of the ledger's log: which blocks are
  received, allocated and released, and how far the batches are, stand in one log (I17).
* A restart makes each batch that was not complete again, under its time and with its blocks (I3).
* Nothing that a checkpoint needs goes before a newer one that does not need it is on the disk.
* What cannot be pickled is named at `start()`.
* With a key, everything that holds the program's data is encrypted; the key is in none of it. What
  was written with another key, or without one, is an error and stays as it is.
* What another version of the program takes up is exact or refused; it needs none of the old code.

Where it is
-----------

The driver log, ``receivedBlockMetadata/`` below the checkpoint directory, also when
``spark.penstock.wal.dir`` is elsewhere, also on HDFS, and also for a program without receivers: its
ledger then knows checkpoints only. The log gives what files had mechanisms of their own for: a lock
and the fencing of an older driver, checksums, encryption, unfinished writes, old ones that go.

A checkpoint is one `CheckpointEvent`, or several pieces of 2 MiB with nothing between them, written
while the ledger holds its commit lock (`ReceivedBlockTracker.write_checkpoint`). Then the log is
forced, whatever its sync policy; a log is forced in order, so what a checkpoint says of batches and
blocks is on the disk with it. The ledger keeps the newest in memory, as a part of its state. So a
snapshot holds it, in parts as everything else, and counts only with its last part: older segments
go when it and the rest of the snapshot are on the disk, and there is never less than one whole
checkpoint. Snapshots come after 8 MiB of events and checkpoints, or twice the last snapshot.

What a crash leaves, between

* two pieces: the checkpoint before; pieces without an end count for nothing, as the next one begins
  at piece 0;
* the last piece and what waits for it (blocks and saved RDDs that may go): the new one, and more
  than it needs;
* roll, parts of a snapshot and removal of segments: the snapshot before and all events since.

A failed append counts as not written as soon as a later one succeeded (`_driver_log`). A damaged
record is an error of the log (I6), for what a checkpoint before it needs may be gone. Only behind
the last record that is known to be committed is it a torn tail: so saved RDDs stay for the newest
two. Blocks need no such grace: their release is a record behind the checkpoint that allows it.

The life of a program: `getOrCreate` reads the log, which no other driver of this host may have, and
on HDFS takes it from another host's (`read_checkpoint`). `start` opens it for writing, and refuses
when the newest checkpoint has changed by then. The writer's thread has one written after a batch
was made, and after one was complete. A stop closes the log after the last.

Checkpoints of format 1 were files, ``checkpoint-<time>``; they are refused with the way out, as
they hold functions of another release anyway.

=====================  ==========================================================================
`record`               a checkpoint as bytes; the newest of a folder
`checkpointer`         what the job generator asks to have its graph and its progress kept, and the
                       thread that writes them
`errors`               what goes wrong, with the way out
`graph_pickling`       a graph as bytes, and back
`program_code`         what a program's streams were made with, to say what has changed since
`saved_states`         states by name, saved by a graceful stop for another version of the program
`cli`                  ``penstock checkpoint``: what a folder holds
=====================  ==========================================================================
"""
