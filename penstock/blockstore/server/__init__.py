"""The block server: one process on each host, which serves its blocks and takes copies of others'.

What must hold
--------------

* It serves only what belongs to its application, only to peers that know the application's secret
  (I9).
* It outlives receivers and their workers, and deletes a block's bytes only when the tracker says so
  (I4), or when the application is over.
* It never has the key of the logs: it sends segments as they are, also to a host that is to keep a
  copy.
* It needs no Arrow, NumPy or PySpark, so that it is small and starts at once.
* No process and no memory file is left behind.

The memory file of an attempt is locked as a whole by its receiver and by the block server: it is
somebody's. One that no one has locked for a while was left by an application that was killed, and
the next application's block server removes it.

Modules
-------

=================  ===============================================================================
`launch`           starting it, at most one for each application and host
`block_server`     its life, and memory files that killed applications left
`_serving`         serving blocks
`_files`           which files are its application's
`replica_service`  taking copies from other hosts
`peer_link`        sending them there
`_copying`         copying blocks of this host to another one, when the tracker asks for that
=================  ===============================================================================
"""
