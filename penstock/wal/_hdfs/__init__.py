"""HDFS as a file system of the segment log, by the `hdfs-native` client.

What differs from a disk of this host:

* A write is forced (`hsync`: on the disks of all DataNodes of the block) whatever the sync policy
  says: between the client's memory and the DataNodes' disks the client knows no step that a dead
  process would survive. So a crash of the writer takes nothing that an append has returned for.
* There is no direct I/O, no reserved space, no overwriting, no cutting.
* A file that is being written cannot be read: a reader does not see its last block yet. It can be
  read once its writer has closed it, or once its lease was recovered, which also ends the writing
  of anyone who still has it (`settle`).
* There is no `flock`. A file says who has a folder; see `HdfsFolderLock`.
* Names are durable when the call that made them returns: there is nothing to force in a folder.

When the NameNode cannot be reached, does not answer or is in safe mode, calls wait and ask again
until `patience_s` is over, as far as asking again cannot do harm: always after a refusal, and after
a lost answer for what may be done twice. The client waits for an answer for ever, and its
connection stays with the NameNode that owes one; so a call that takes too long is left behind, and
the next one has a new client, which asks another NameNode first where there are several.

The client itself asks twice when a connection breaks, and says nothing of it. So after any answer
"there is none" to what takes a name away it is checked whether that was done.

The client has threads of its own, which a fork does not copy: each process has its own clients
(`hdfs_file_system`), made at the first use.

==============  =================================================================================
`filesystem`    `HdfsFileSystem`, its open files, and the owner of a log on it
`limits`        how long DataNodes may take for a write, and whether new files begin with all copies
`client`        what the client leaves to its users: errors, Hadoop's configuration
==============  =================================================================================
"""
