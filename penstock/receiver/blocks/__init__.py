"""Records to blocks: from a call of `store` to a block that is logged, reported and acknowledged.

What must hold
--------------

* Every record passes the rate limiter (I8), whichever way it is stored, and `store` waits when the
  queue of blocks is full (I7). Nothing here buffers without a bound.
* Records of one thread keep their order, in a block and from block to block (I5).
* Nothing is dropped unless the user chose a policy that drops. Then all that is dropped is counted,
  and nothing that a source relies on is taken under it (`intake`).
* A failure to push a block that may pass ends nothing: it is reported, and tried again. One that
  cannot pass, and whatever else ends a thread of this room, ends the attempt.

A record's way
--------------

::

    store ─▶ intake, where it may not wait ─▶ permit ─▶ pending ─▶ the open block ─▶ sealed
                                                                                       │
                            acknowledged ◀── in the ledger ◀── reported ◀── logged ◀───┘

Map
---

==================  ==============================================================================
file                holds
==================  ==============================================================================
`block_generator`   records to blocks: its life and its clock
`options`           how blocks are made
`storing`           `store`, its bulk path, and `storeFrom`
`intake`            records that wait where `store` is not to wait; which are dropped
`spill`             records that wait on the disk
`bulk`              bulk calls, cut into pieces
`framing`           bytes of a source, cut into records
`assembler`         the open block
`discards`          records that fit nowhere
`letters_again`     dead letters that are stored again
`pipeline`          sealed blocks: to the log, to the tracker, and then acknowledged
==================  ==============================================================================
"""
