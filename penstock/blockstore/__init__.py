"""The block store: building, keeping, serving, finding and reading blocks.

What must hold
--------------

* A block is one record of its receiver attempt's segment log, or of one that attempts of a process
  share (`process_log`). Its bytes are built once, in the
  place where they stay: a *slot* of the attempt's memory arena. The slot is the unit that the log
  writes and that a batch task maps; there is one copy in memory and one on disk, no third on
  this host.
* With a ``_2`` storage level a block is stored (I1) when another host has it, too, as durable as
  here. Only the driver's word that there is no other host lets a block go on with one copy.
* A reader never sees wrong records. It holds a shared lock on the byte range of the slot while it
  reads, and it checks the record's header, its sequence number and its CRC-32C. A slot is given
  away only under an exclusive lock of its range. The locks are the kernel's (open file description
  locks), so a killed process holds none.
* Memory is bounded (I7): the arena has a fixed capacity, and anyone who needs a slot waits until
  one is free, released, or evicted because the log has its block.
* A block's bytes go only when the tracker says so (I4).
* Only a log on HDFS has blocks compressed: there each byte costs more than to compress it.
* With a key the log's copies are encrypted, and slots, which are in clear, are in memory only. Who
  reads a slot needs no key; who reads a segment decrypts; the block server never has the key and
  sends segments as they are.

Layout of a block
-----------------

The payload of the log record, offsets from its start, little-endian::

    0   descriptor, 64 bytes: magic, kind, number of records, offset and length of the data,
        offset of the Arrow offsets, when it was sealed
    64  data
    ..  padding to a multiple of 64
    ..  Arrow offsets, (records + 1) times int32; absent for lines and for the kind ``arrow``
    ..  of pickles: the definitions of classes that the records name

==========  ====================================================================================
kind        what is there
==========  ====================================================================================
binary      the data and offsets buffers of an Arrow binary column; records are ``bytes``
string      the same with UTF-8 text; records are ``str`` (bytes that are not UTF-8 come out as
            U+FFFD, as the JVM's socket receiver reads them)
pickled     a binary column of pickles, written by the receiver and read by the batch task, as
            Spark itself does between the same two processes; classes of the user's own script are
            defined once a block
arrow       an Arrow IPC stream of record batches; records are ``dict``
lines       lines of text as they came, each with its LF; the task that reads them cuts them, by the
            same rules as for ``string``. The receiver only counts them: it is one process, and the
            tasks are many
byte-lines  the same; records are ``bytes``
==========  ====================================================================================

The copy on another host
------------------------

While the log takes the slot, the same bytes go over one kept connection to the block server of
another host (`Replicator`, `PeerLink`). That one appends them to a log of its own and answers with
their place there. The folder of that log has a name that no other log has on any host
(``<stream>-<attempt>-<copy>``): sequence numbers and offsets there are others than in the
receiver's log, and a path must never lead to another block. A copy that was sent twice, since the
first answer was lost, is there twice and is known once.

Which host that is, the driver says, one for the attempt as long as it answers. When it does not,
the block that was on its way is sent to the next one. When there is none, blocks go on with one
copy, which is reported once, and another host is looked for in the background.

A block's life
--------------

`BlockStore.open_block` reserves a slot; a `BlockBuilder` fills it; `BlockBuilder.seal` writes
offsets and descriptor; `BlockStore.put` appends the slot to the log, waits for the copy on another
host if there is to be one, and lets readers in; the receiver reports the `ReceivedBlockInfo` to the
tracker; `BlockRDD` and `blocks_to_dataframe` read it in a task with `read_block`: from the slot,
else from a segment on this host, else from the block server of a host that has it, wherever that is
by now: who can reach none asks the tracker. A segment on HDFS can be read once it is closed; until
then its slots stay. When its batch is done and no later one reads it, the tracker has the slot
freed, for the next blocks; the segment stays. `BlockStore.release` frees the slot, and removes the
segments that the tracker names when the clean-up is logged. Copies are removed by the block server
that made them.

The memory file of an attempt is locked as a whole by its receiver and by the block server: it is
somebody's. One that no one has locked for a while was left by an application that was killed, and
the next application's block server removes it.

Modules
-------

=================================  ===============================================================
`memory`                           the arena of slots, and their locks
`builder`, `record_pickles`        filling a slot; records that are pickled
`arrow_frames`                     PySpark's functions for Arrow data; what Arrow batches take
`kept_values`                      whether a column has the values that it is made of
`lines`                            where a block of lines is cut
`store`, `launch`                  a receiver's blocks; making sure that its host has a block server
`process_log`                      one log for all receivers of a process
`_compression`, `_encryption`      of a log's copies
`reader`                           finding and reading a block, or going on without a lost one
`_readahead`                       blocks of a task that are elsewhere, asked for together
`_fetch`                           reading from another host: one connection, used again
`_remote`                          until a host has answered
`dataframe`                        blocks as an RDD, as a DataFrame
`server`, `_serving`, `_files`     the block server: its life, and memory files that killed
                                   applications left; serving; which files are its own
`replicator`, `_replica_service`   copies on another host: choosing it and sending; taking them
=================================  ===============================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._lazy_door import lazy_door

if TYPE_CHECKING:
    from penstock.blockstore._encryption import check_in_memory
    from penstock.blockstore.builder import BlockBuilder, BlockKind, SealedBlock
    from penstock.blockstore.dataframe import BlockRDD, block_schema, blocks_to_dataframe
    from penstock.blockstore.launch import end_on_this_host, scratch_claim_path
    from penstock.blockstore.reader import (
        Block,
        BlockAccess,
        BlockNotFoundError,
        BlockUnavailableError,
        read_block,
        read_block_if_any,
        shown_block,
    )
    from penstock.blockstore.store import BlockStore

__all__ = [
    "Block",
    "BlockAccess",
    "BlockBuilder",
    "BlockKind",
    "BlockNotFoundError",
    "BlockRDD",
    "BlockStore",
    "BlockUnavailableError",
    "SealedBlock",
    "block_schema",
    "blocks_to_dataframe",
    "check_in_memory",
    "end_on_this_host",
    "read_block",
    "read_block_if_any",
    "scratch_claim_path",
    "shown_block",
]

_MODULES = {
    "_encryption": ["check_in_memory"],
    "builder": ["BlockBuilder", "BlockKind", "SealedBlock"],
    "dataframe": ["BlockRDD", "block_schema", "blocks_to_dataframe"],
    "launch": ["end_on_this_host", "scratch_claim_path"],
    "reader": [
        "Block",
        "BlockAccess",
        "BlockNotFoundError",
        "BlockUnavailableError",
        "read_block",
        "read_block_if_any",
        "shown_block",
    ],
    "store": ["BlockStore"],
}

if not TYPE_CHECKING:
    # A host's block server needs no Arrow, NumPy or PySpark.
    __getattr__ = lazy_door(__name__, _MODULES)
