"""The host of receivers: what runs them, no matter who takes their blocks.

A program that receives needs the same things whether its blocks go to batches of DStreams or to
queries of Spark SQL: an application that can run it, a place for its logs and a promise about them,
a key if they are encrypted, a ledger, a tracker, and an end that leaves nothing behind. That is
here; `penstock.streaming` and `penstock.sql` stand on it, and neither knows the other.

What must hold
--------------

* What cannot work is an error before anything starts: too few cores, a Python of the executors
  without what the receivers need, a folder that cannot be written, a key that is missing.
* One row of the table of durability is in force, and one line of the log says which.
* Each run has a name of its own, so that what an earlier one of the same application left behind
  does not touch its files.
* The ledger is open before the tracker is made, and closed whatever becomes of the start.
* A key is in no setting, argument, log, `repr` or file.
* A stop ends whatever hangs (I12), and what a killed program left on its host is removed by the
  next one that starts on it.

Layout
------

====================  ==============================================================================
`preparation`         what an application must have, and the name and the promise of a run; whose
                      dead letters are where, below a folder that programs share, and what opens
                      them
`receivers`           the receivers and their tracker, from an open ledger to the end
`receiver_readings`   what receivers wait for, of what they send; one as it is at one moment
`durability`          which promise is in force, and where the logs are
`encryption`          which key there is
`spark/`              the application that receivers run in: checks, its Python, its logs, its end
`receiver_arguments`  what a program gives as a receiver, and to `continuous`; `unpicklable`: which
                      part of it cannot be sent
`terminal`            what a program says on its terminal
`orphans`             what killed programs left on this host
`interrupts`          Ctrl-C and the order to end, also for Spark's JVM and for waiters; what is
                      said when they come
`errors`              what keeps receivers from running
====================  ==============================================================================

Life of a run
-------------

Settings are read and the key is chosen; the application is checked; a run gets its name and its
folders; the ledger is opened, which locks it; anyone who takes the blocks looks into it and says
which streams there are; the tracker starts and places the receivers. At the end the receivers stop
first, then anyone who takes the blocks, then the tracker with the ledger, the block servers of this
host, and the scratch folder.
"""
