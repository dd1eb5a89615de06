"""The hosts that have blocks: what serves them, which have copies, and how blocks are deleted.

What must hold:

- *Delete last* (I4). A block's bytes go, and its copies', once it is logged that the ledger has let
  the block go.
- *A second copy is known or it does not count*. A block is added with the places of all its
  copies, which are made before; a block is reported lost only when all its hosts are gone.
- *A lost copy is made again*, where another host is left, and logged before it counts.
- *A host that is gone is forgotten* once it has nothing of the ledger; what is left to delete on
  its disk is given up after a day.

Layout:

- ``block_servers``: what serves which host's blocks.
- ``replica_hosts``: which host has the second copies of a receiver's blocks, and a block server.
- ``rereplication``: has copies made again, and hosts forgotten.
- ``block_deletion``: has deleted what the ledger lets go, by the hosts that have it; what is on
  HDFS by itself; and what is retained, when the disk runs short.
"""
