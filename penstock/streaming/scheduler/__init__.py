"""The scheduler: a batch at each tick, its jobs, and what is told of them.

What must hold
--------------

* An allocation of blocks is in the driver log before any job of its batch runs (I3).
* Batch times are multiples of the interval; each comes once, in order, and none is left out.
* A failed job costs itself and nothing else.
* An executor that holds a receiver, or may be about to, is not let go.
* Listeners get events in order, and a slow one delays no batch.

=====================  ==========================================================================
`recurring_timer`      the ticks
`event_loop`           one thread that handles events one after the other
`due_times`            the ticks whose batches are not made yet
`job_generator`        makes a batch at each tick, and clears up after batches that are done
`jobs`                 a job, and the set of them that a batch is
`job_scheduler`        runs the jobs of batches in its threads
`input_info`           what the inputs of a batch tell of it
`listener_events`,     what listeners get, and the thread that hands it to them
`listener_bus`
`executor_allocation`  as many executors as the batches need
`stats_report`         a listener that logs delays
`_spark_jobs`,         what Spark knows of a batch's jobs: description, batch time, tag; that they
`_output_specs`        may save to folders that are there
=====================  ==========================================================================
"""
