"""Attempts: what runs a receiver in an executor, from registration to the last block.

What must hold
--------------

* All that was stored is durable after a stop that the driver asked for (I10): the last block is
  sealed, logged and reported before the log is closed.
* A receiver that can never work (it cannot be unpickled, its constructor raises, a setting is
  wrong) is reported to the driver once, as permanent.
* An attempt ends when its driver cannot be reached for long, or its executor is gone.

An attempt's life
-----------------

The driver starts a one-task Spark job whose body is `run_receiver`. It unpickles the receiver,
and lets a `ReceiverSupervisor` run it::

    connect ── block server ── block store ── register ── block generator ── onStart
                                                 ▲                              │
                              delay ── flush ◀── │ ── deregister ◀── onStop ◀── restart
                                                                                │
    close log, connection ◀── deregister ◀── last blocks stored ◀── onStop ◀── stop

A restart keeps the process, the block store and the generator; the receiver object, or a copy if
threads were left with it, is started after everything that was stored is durable, with
`lastPosition` set to the stream's last durable position. Each start has a door of its own into the
generator (`penstock.receiver.door`), which is closed before the next start: its threads can store
nothing any more. Before either `onStop`, what was stored with an acknowledgement is made durable
and acknowledged.

With ``spark.penstock.receivers.perSlot`` attempts of several receivers run beside one another in
one task (`slot`); an attempt's life is the same.

When an attempt ends, nothing of it is used again: the next one has another id, another log folder
and other block numbers.

Map
---

================  ================================================================================
file              holds
================  ================================================================================
`launch`          what one attempt is made of, as the settings say
`task`            the body of the Spark task that runs it, and where that is
`slot`            several receivers in one Spark task and process: its keeper, its processes
`slot_load`       what each of them takes of its process, and which has to leave it
`supervisor`      runs one attempt, from registration to the last block
`attempt_state`   the state of an attempt, its bounds; when its failures are enough
`tracker_client`  what is asked of the tracker, and reported
`rate_status`     the rates that the driver sets, and reports of their use
================  ================================================================================
"""
