"""Reading a block, wherever it is: in memory, in a segment, or on another host.

What must hold
--------------

* A reader never sees wrong records. It holds a shared lock on the byte range of the slot while it
  reads, and it checks the record's header, its sequence number and its CRC-32C.
* A block is lost only where every place that may have it said that it is missing or damaged.

`BlockRDD` and `blocks_to_dataframe` read a block in a task with `read_block`: from the slot, else
from a segment on this host, else from the block server of a host that has it, wherever that is by
now: a task that can reach none asks the tracker. A segment on HDFS can be read once it is closed;
until then its slots stay.

Modules
-------

============  ====================================================================================
`access`      what a task is given to reach blocks
`reader`      finding and reading a block, or going on without a lost one
`_readahead`  blocks of a task that are elsewhere, asked for together
`fetch`       reading from another host: one connection, used again
`_remote`     until a host has answered
`dataframe`   blocks as an RDD, as a DataFrame
============  ====================================================================================
"""
