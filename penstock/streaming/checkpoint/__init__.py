"""Checkpoints: the graph and the progress in one file, and the context made again from it.

What must hold
--------------

* A checkpoint is whole or not there, and the newest that can be read counts.
* A restart makes each batch that was not complete again, under its time and with its blocks (I3).
* Nothing that a checkpoint needs goes before a newer one that does not need it is on the disk.
* What cannot be pickled is named at `start()`.

=====================  ==========================================================================
`folder`               a checkpoint as a file; the folder that holds the newest ten
`writer`               the thread that writes them
`checkpointer`         what the job generator asks to have its graph and its progress kept
`errors`               what goes wrong, with the way out
`_graph_pickling`      a graph as bytes, and back
`_culprits`            which function, and which of its variables, cannot be pickled
`_rdd_files`           RDDs that were saved, read back
`_recovery`            the context made again: `StreamingContext.getOrCreate`
=====================  ==========================================================================
"""
