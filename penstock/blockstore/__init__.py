"""The block store: building, keeping, serving, finding and reading blocks.

What must hold
--------------

* A block is one record of its receiver attempt's segment log, or of one that attempts of a process
  share (`process_log`). Its bytes are built once, in the place where they stay: a *slot* of the
  attempt's memory arena. The slot is the unit that the log writes and that a batch task maps; there
  is one copy in memory and one on disk, no third on this host.
* With a ``_2`` storage level a block is stored (I1) when another host also has it, as durable as
  here. Only the driver's word that there is no other host lets a block go on with one copy.
* A reader never sees wrong records, and memory is bounded (I7).
* A block's bytes go only when the tracker says so (I4).
* Only a log on HDFS has blocks compressed: there each byte costs more than to compress it.
* With a key the log's copies are encrypted, and slots, which are in clear, are in memory only. A
  reader of a slot needs no key; a reader of a segment decrypts; the block server never has the key
  and sends segments as they are.

The copy on another host
------------------------

While the log takes the slot, the same bytes go over one kept connection to the block server of
another host (`Replicator`, `PeerLink`). That one appends them to a log of its own and answers with
their place in it. The folder of that log has a name that no other log has on any host
(``<stream>-<attempt>-<copy>``): its sequence numbers and offsets differ from those in the
receiver's log, and a path must never lead to another block. A copy that was sent twice, since the
first answer was lost, is stored twice and known once.

Which host that is, the driver says, one for the attempt as long as it answers. When it does not,
the block that was on its way is sent to the next one. When there is none, blocks go on with one
copy, which is reported once, and another host is looked for in the background.

A copy that was lost is made again when the driver asks for that: the block server of a host that
has the block sends it to that of another one (`BlockCopier`), and the driver notes the new place.
With a key the copy is what came here, or the whole record of the receiver's log, as it is.

A block's life
--------------

`BlockStore.open_block` reserves a slot; a `BlockBuilder` fills it; `BlockBuilder.seal` writes
offsets and descriptor; `BlockStore.put` appends the slot to the log, waits for the copy on another
host if there is to be one, and lets readers in; the receiver reports the `ReceivedBlockInfo` to the
tracker; a task reads it with `read_block`. When its batch is done and no later one reads it, the
tracker has the slot freed, for the next blocks; the segment stays. `BlockStore.release` frees the
slot, and removes the segments that the tracker names when the clean-up is logged. Copies are
removed by the block server that made them.

Map
---

==============================  ==================================================================
room                            holds
==============================  ==================================================================
`server`                        the block server of a host, and its start
`reading`                       finding and reading a block; blocks as an RDD, as a DataFrame
`building`                      the arena of slots, and filling one: the layout of a block
==============================  ==================================================================

==============================  ==================================================================
file                            holds
==============================  ==================================================================
`store`                         a receiver's blocks
`replicator`                    copies on another host: choosing it and sending
`copies`                        a log of blocks that are in the logs of others
`process_log`                   one log for all receivers of a process
`_compression`, `_encryption`   of a log's copies
`arrow_frames`                  PySpark's functions for Arrow data; what Arrow batches take
==============================  ==================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._lazy_door import lazy_door

if TYPE_CHECKING:
    from penstock.blockstore._encryption import check_in_memory
    from penstock.blockstore.building.builder import BlockBuilder, BlockKind, SealedBlock
    from penstock.blockstore.reading.access import BlockAccess
    from penstock.blockstore.reading.dataframe import BlockRDD, block_schema, blocks_to_dataframe
    from penstock.blockstore.reading.reader import (
        Block,
        BlockNotFoundError,
        BlockUnavailableError,
        read_block,
        read_block_if_any,
        shown_block,
    )
    from penstock.blockstore.server.launch import end_on_this_host, scratch_claim_path
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
    "penstock.blockstore.building.builder": ["BlockBuilder", "BlockKind", "SealedBlock"],
    "penstock.blockstore.reading.access": ["BlockAccess"],
    "penstock.blockstore.reading.dataframe": ["BlockRDD", "block_schema", "blocks_to_dataframe"],
    "penstock.blockstore.server.launch": ["end_on_this_host", "scratch_claim_path"],
    "penstock.blockstore.reading.reader": [
        "Block",
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
