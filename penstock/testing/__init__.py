"""Proving a receiver, or a sink: run it without Spark, and kill it at every step of a record's way.

What must hold
--------------

* The receiver runs as in an executor: its own supervisor, rate limiter, block generator, log on a
  real disk, and a real connection to a driver. What is put in place of the driver only notes what
  is reported to it, and lives in the test's process.
* A kill is `SIGKILL`, by the process itself at a named step, so that it comes exactly at that.
* A claim is checked against what the source says it gave, and not against what the receiver says.
* A claim that does not hold is shown by the fewest kills that show it.
* Every wait has a bound, and its error says what for; nothing is left behind.

A test of a receiver::

    with run_receiver(Lines("localhost", port)) as running:
        assert running.wait_for_records(2) == ["one", "two"]

and of what it promises::

    crash_test(lambda feed: Lines(*feed.address), LineFeed, claim="exactly once")

and of a sink of `continuous`::

    sink_crash_test(Mine(folder), lambda: numbers_in(folder))

=============  ====================================================================================
`driver`       the driver's side of one stream, in memory
`running`      `run_receiver`: one attempt in a thread of the test; disks that are full by call
`crashes`      `crash_test`: attempts in processes that are killed, and a claim that is checked
`child`        such a process
`attempts`     forks such processes
`sinks`        `sink_crash_test`: the same for sinks of continuous streams
`batches`      `batches_by_hand`: streams on a clock that a test moves
`new_source`   ``penstock new-source``: writes a package with a receiver and its tests
=============  ====================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._lazy_door import lazy_door

if TYPE_CHECKING:
    from penstock.testing.batches import BatchesByHand, batches_by_hand
    from penstock.testing.crashes import CRASH_POINTS, ClaimNotHeldError, CrashReport, crash_test
    from penstock.testing.driver import ReceiverTestError
    from penstock.testing.running import RunningReceiver, run_receiver
    from penstock.testing.sinks import SINK_CRASH_POINTS, SinkCrashReport, sink_crash_test

__all__ = [
    "CRASH_POINTS",
    "SINK_CRASH_POINTS",
    "BatchesByHand",
    "ClaimNotHeldError",
    "CrashReport",
    "ReceiverTestError",
    "RunningReceiver",
    "SinkCrashReport",
    "batches_by_hand",
    "crash_test",
    "run_receiver",
    "sink_crash_test",
]

_MODULES = {
    "batches": ["BatchesByHand", "batches_by_hand"],
    "crashes": ["CRASH_POINTS", "ClaimNotHeldError", "CrashReport", "crash_test"],
    "driver": ["ReceiverTestError"],
    "running": ["RunningReceiver", "run_receiver"],
    "sinks": ["SINK_CRASH_POINTS", "SinkCrashReport", "sink_crash_test"],
}

if not TYPE_CHECKING:
    # A process that is killed needs no streams.
    __getattr__ = lazy_door(__name__, _MODULES)
