"""Building a block where it stays: slots of the arena, and what goes into them.

What must hold
--------------

* A block's bytes are built once, in its slot, which the log then writes and a batch task maps.
* An append happens as a whole or not at all (I11).
* A slot is given away only under an exclusive lock of its range, which no one gets while there is a
  reader. The locks are the kernel's (open file description locks), so a killed process holds none.
* Memory is bounded (I7): the arena has a fixed capacity, and anyone who needs a slot waits until
  one is free, released, or evicted because the log has its block.

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
kind        contents
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

Modules
-------

================  ================================================================================
`memory`          the arena of slots, and their locks
`builder`         filling a slot
`record_pickles`  records that are pickled
`kept_values`     whether a column has the values that it is made of
`lines`           where a block of lines is cut
================  ================================================================================
"""
