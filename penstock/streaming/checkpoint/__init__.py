"""Checkpoints: the graph and the progress in one file, and the context made again from it.

What must hold
--------------

* A checkpoint is whole or not there, and the newest that can be read counts.
* A restart makes each batch that was not complete again, under its time and with its blocks (I3).
* Nothing that a checkpoint needs goes before a newer one that does not need it is on the disk.
* What cannot be pickled is named at `start()`.
* With a key, everything that holds the program's data is encrypted; the key is in none of it. What
  was written with another key, or without one, is an error and stays as it is.
* What another version of the program takes up is exact or refused; it needs none of the old code.

=====================  ==========================================================================
`folder`               a checkpoint as a file; the folder that holds the newest ten
`writer`               the thread that writes them
`checkpointer`         what the job generator asks to have its graph and its progress kept
`errors`               what goes wrong, with the way out
`graph_pickling`       a graph as bytes, and back
`program_code`         what a program's streams were made with, to say what has changed since
`_sealed_file`         a checkpoint as an encrypted file
`saved_states`         states by name, saved by a graceful stop for another version of the program
`cli`                  ``penstock checkpoint``: what a folder holds
=====================  ==========================================================================
"""
