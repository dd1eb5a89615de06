"""The doctor: checks whether a program can run here, before one does.

What must hold
--------------

* It looks by doing: a folder is written to, a port is bound, a cluster is given a job. What it
  makes it removes, and a missing folder is not made.
* Each check ends in findings of its own: one that fails keeps no other from being made, and every
  wait has a bound.
* A finding that is not fine says what to change.

Layout
------

============  ===================================================================================
`driver`      this machine: Python, Java, shared memory, open files, ports; `Finding`: what was
              found, how bad it is, what to change
`folder`      where logs are: a disk of this host or HDFS, and Kerberos
`cluster`     the executors of a master: their Python, clocks and open files
`cli`         ``penstock doctor``
============  ===================================================================================
"""
