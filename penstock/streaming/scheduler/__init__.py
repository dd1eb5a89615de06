"""The scheduler: a batch at each tick, and its jobs.

What must hold
--------------

* An allocation of blocks is in the driver log before any job of its batch runs (I3).
* Batch times are multiples of the interval; each comes once, in order, and none is left out.
* A failed job costs itself and nothing else.
* An executor that holds a receiver, or may be about to, is not let go.

=====================  ==========================================================================
`recurring_timer`      the ticks
`job_generator`        makes a batch at each tick, and clears up after batches that are done
`job_scheduler`        runs the jobs of batches in its threads
`executor_allocation`  as many executors as the batches need
`spark_jobs`           what Spark knows of a batch's jobs: description, batch time, tag
=====================  ==========================================================================
"""
