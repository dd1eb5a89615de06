"""What receives, where, and when a receiver is started again.

What must hold:

- *One receiver per stream*. Each launch is a new attempt with its own block numbers. When an
  attempt registers, older ones are fenced: nothing of them is taken any more.
- *A split is in one place.* Receivers that share a source have its splits, each one's in the ledger
  with its position; they change hands only between attempts, which the change fences (`splits`).
- *Nothing spins, nothing hangs.* A receiver that ends is started again, later each time; what
  starting again cannot mend is reported to the user.

Layout:

- ``registry``: all of them, under one lock. ``receiver_tracking_info``: the states of a receiver,
  and what listeners are notified of them.
- ``jobs``: the Spark job of each, in a thread of its own, whose task is
  `penstock.receiver.run_receiver`. That thread prepares it, and starts it again.
- ``slots``: receivers that share a job. ``splits``: receivers that share a source.
- ``receiver_scheduling_policy``: where receivers should run.

The life of an attempt: launched, registered (logged, fences the older ones), ended, and forgotten
when none of its blocks is left.
"""
