"""An object store as a file system of the segment log: files that grow, of objects that do not.

*A file is a chain of objects*, its parts: the part whose bytes begin at offset 4096 of ``NAME`` is
the object ``NAME@000000000004096``. Each write is one object, so an append that returned is a
whole object that the store has acknowledged; nothing is held back, whatever the sync policy. A file
is as long as its last part reaches, or to its fence; where a part is lost it has zeros. What
differs from a disk, here and nowhere else:

* **There is no append, so each part is made by "create if absent".** Anyone who writes at an offset
  at which something is already is refused by the store, not by a clock.
* **Several writes are under way**, for a store takes as many at once as it is asked for, and its
  answer takes long (`penstock.wal._writer`); what is large is cut into parts, which are made at
  once. They arrive in any order, and each is acknowledged when all before it have. So what has not
  yet, or never will, is a *gap*: a part whose end is not the beginning of another one. Nothing
  behind a gap was acknowledged, and none of it knows as committed what was to be in the gap: to a
  reader, which finds zeros in it, it is a torn tail. A gap that a record behind it knows as
  committed is a lost part, and so damage.
* **Fences.** An object of no bytes at the end of a file ends it: the next part would have its key.
  `settle` puts one behind each segment of the writers before, and first a *plug*, an object of one
  zero, into each of its gaps: into the gap itself, since what is behind a gap would be
  acknowledged once it is filled; and no fence, for behind a part that was lost are others to be
  read. A driver that was paused in the middle of some writes and comes back meets a plug or the
  fence with the first of them that its successor has not read, and none behind that one is
  acknowledged. So an append was either acknowledged and is read, or it is refused. A part that
  comes later is behind a plug or the fence, and void. Plugs and fences stay when their file is
  removed, for a paused writer may come back at any time; they are removed with the log's folder.
* A writer whose own write failed puts a fence in its place (`truncate`), which hides the parts
  behind it, also those that come later.
* **Epochs.** The newest of the objects ``LOCK@<epoch>`` says who writes a log; it is made by
  "create if absent"; epochs never go back. The order is that of HDFS (`penstock.wal._hdfs`): the
  newcomer takes the epoch, begins a segment, fences all before it, and only then reads; a new
  segment is begun only if the epoch is still its writer's, asked before and again when its header
  is stored. So the newcomer sees every segment to which an append can go.
* **Ambiguous answers.** After a time-out, a broken connection, a 409 or a 412 it is not known
  whether the request was done: it is made again, and where that meets an object, the object is read
  back. All that is made by "create if absent" has bytes that no other writer writes (a record has
  its writer's random id, an epoch a token), so the same bytes are the same writer's. Fences are the
  same, no matter who puts them, and mean the same. So no retry doubles a record, or takes what it
  finds for its own. A request that is done late, after its writer gave up, leaves a part in a
  segment that was abandoned, which the next one's header declares void; it is no more than a failed
  write on a disk leaves.
* **A name exists with its first part, or not at all**, so a segment is not begun under another
  name. Removing takes the first part first: what a crash leaves of the rest has no name any more,
  and goes when the folder is taken the next time. A rename copies; it is at once for a file of one
  part.
* **There are no folders.** One exists as long as something is below it.
* What is being written can be read, at any time and from everywhere.

A store that ignores conditions would let two writers write one log. So before this process takes
the first folder of a bucket it tries it: an object is created twice, and the second try must be
refused (`ObjectFileSystem.check_conditions`).

While the store cannot be reached or asks for less (503, 429), calls wait and ask again until
`patience_s` is over, as for HDFS.

Requests: an append is one PUT (many appends share one, by group commit), above 12 MiB several of
about 8 MiB; none is a multipart upload, so none is left unfinished; a new segment one PUT, two
LIST and two GET; opening a file one LIST for a thousand parts, and one more while there is a gap; a
read one GET for each part that it touches, several at a time; removing a file one LIST and two
DELETE.

Receivers of one process share a log, and so its writes (`penstock.blockstore.process_log`).

*Nothing is written again*, neither a segment that is mostly dead nor the small parts of one that is
closed: what is kept for nothing costs less than the requests and the entries of the ledger that
would say where it is now (`benchmarks/object_storage.md`).

===============  ================================================================================
`filesystem`     `ObjectFileSystem`, and the owner of a log on it
`client`         the requests that are made of a store, and what it answers
`clouds`         what differs between S3, Google Cloud Storage and Azure
`settings`       how their settings reach every process
`aws_profile`    credentials of ``~/.aws``
===============  ================================================================================
"""
