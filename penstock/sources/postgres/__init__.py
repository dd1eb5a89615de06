"""`PostgresReceiver`: what is written to tables, by logical replication; `PostgresNotifyReceiver`.

What must hold
--------------

* The slot is notified of a place in the log only when all changes before it are durable (I1); a
  place is never behind the one before.
* The position is the commit of a transaction and a number in it. The server begins again with the
  first transaction that the slot was not notified of; changes up to the position are left out. So
  each change is stored once, whatever is killed, also one of a transaction that is larger than a
  block.
* A position counts for one slot, in one history of one server. That of another slot or source is
  refused. Where the history has been left (another server, an older copy of it, a promoted standby
  that lacks a part), it is said, and no change is left out by comparing places that do not belong
  together.
* The connection is kept while `store` waits: a thread of its own sends status updates.
* What cannot pass by waiting (a slot that is gone or has lost its log) is reported at once and
  looked at again at the longest pause only. A slot is never made again in the middle of a stream.
* Passwords are in no message: what is shown of the connection are host, port and database.

==================  ============================================================================
`_replication`      `PostgresReceiver`
`_pgoutput`         what the output plug-in sends, as columns
`_notifications`    `PostgresNotifyReceiver`
`_connection`       a connection, and what both receivers do with one
==================  ============================================================================
"""

from penstock.sources.postgres._notifications import PostgresNotifyReceiver
from penstock.sources.postgres._replication import PostgresReceiver

__all__ = ["PostgresNotifyReceiver", "PostgresReceiver"]
