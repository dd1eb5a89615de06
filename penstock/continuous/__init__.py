"""Continuous streams: from `store` to a function in milliseconds, exactly once by epochs.

What must hold:

- *Log before act.* An epoch is in the driver log before any of its output can be seen. What is
  logged of it is enough to make the output again: its number, its blocks, and its parts.
- *Once.* A logged epoch is committed, if need be again and again, under its number, until each of
  its parts is where it belongs; only then is the next one logged. A sink takes an epoch's number
  once. What was not logged is dropped, and computed again from its blocks.
- *Numbers go on.* Epochs of a stream are numbered one by one from the driver log, whatever the
  number of tasks, and a new ledger has another name (`Epoch.source`): so what a sink has under a
  name is that epoch's output, and never an older one's.
- *Order* (I5). A task calls the function with the blocks of its part in their order, and gives the
  sink what it returned in the same.
- *No one waits for a sink but the sink.* While an epoch is prepared, logged and committed, the next
  one fills.
- *Time is also in the log*: what expires in an epoch, and what is late, is the same whenever the
  epoch is computed again (`penstock.continuous.timers`).
- *One reader among others.* On a `ReceiverHost` a stream may also have queries. The consumer
  ``continuous`` is in the ledger before the first block is, so that what others have passed stays
  for it, and it is not forgotten while a program has it, whether or not something comes.
- *Bounded* (I7, I12). What a task is sent and was not committed has a bound; then the receiver is
  held back. A call of a function or sink has a time, after which its process ends. An attempt that
  failed is followed by another, which computes the same epoch again; after that many failures
  without an epoch between, the stream is given up, and what was received stays in the log.

Layout:

- ``operation``: what a program asks for. ``sinks``: `Sink`, and those that come with the project;
  ``http_sink``: the one that leads back into a stream.
- ``state``: what the function keeps by key. ``timers``: what it asks to be done at a time.
- ``task``: the body of the Spark task: its three threads (one supervises, one calls the function,
  one the sink).
- A `StreamingContext` or a `ReceiverHost` asks for it; what both do is in `penstock.host`:
  ``receiver_arguments`` (whether a stream can have it) and ``receivers`` (its start and end).
- The driver's half is `penstock.tracker`: its ``consumers`` say when an epoch ends, log it, and
  start the tasks by what starts receivers. The messages are `penstock.wire`'s.

The life of an epoch. A stream is read by places, and each place belongs to the part (place modulo
parts) of one task; where the program names a column of keys, each task is sent all blocks, and
takes the rows of its keys. Blocks are sent to the tasks as soon as the driver log has them. Where
they are delivered when they are ``stored``, their receiver has them shown to the task before
(`ShownBlock`), on the same connections: the function is called ahead, and what it made is used when
the block comes with its place. That is a hint, and nothing rests on it: what is not seen, or is
another attempt's, or fails, is as if it had not been shown.

1. *Filling*: the function is called with each block.
2. *Ended*: the driver says before which place (`EndEpoch`), when its time is over or it is large.
   Each task *prepares*: it has called the function with all of it, what that changed of its state
   is on the disk, the sink has done what can be done without being seen, and the driver is notified
   (`EpochPrepared`).
3. *Logged*: all tasks have prepared; the driver log takes the epoch (`EpochEvent`).
4. *Committed*: each task's sink commits (`CommitEpoch`, `EpochCommitted`).
5. *Released*: the next epoch is logged, or nothing has come for a while; the blocks may go.

Only one epoch is anywhere from 2 to 4. A task that dies before 3 is sent the blocks again; one that
dies between 3 and 4 is sent them as a logged epoch, which it computes and commits at once. A driver
that dies finds the last logged epoch in its log, and has all parts of it committed again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._lazy_door import lazy_door

if TYPE_CHECKING:
    from penstock.continuous.http_sink import HttpSink
    from penstock.continuous.operation import ContinuousOperation, Watermark
    from penstock.continuous.sinks import (
        DatabaseSink,
        Epoch,
        FileSink,
        FunctionSink,
        Sink,
        SinkError,
    )
    from penstock.continuous.state import KeyedState, StateError, StatePlace
    from penstock.continuous.task import ContinuousLaunch, ContinuousTaskError, run_task
    from penstock.continuous.timers import ExpiredTimers, TimeDomain, Timers

__all__ = [
    "ContinuousLaunch",
    "ContinuousOperation",
    "ContinuousTaskError",
    "DatabaseSink",
    "Epoch",
    "ExpiredTimers",
    "FileSink",
    "FunctionSink",
    "HttpSink",
    "KeyedState",
    "Sink",
    "SinkError",
    "StateError",
    "StatePlace",
    "TimeDomain",
    "Timers",
    "Watermark",
    "run_task",
]

_MODULES = {
    "http_sink": ["HttpSink"],
    "operation": ["ContinuousOperation", "Watermark"],
    "sinks": ["DatabaseSink", "Epoch", "FileSink", "FunctionSink", "Sink", "SinkError"],
    "state": ["KeyedState", "StateError", "StatePlace"],
    "task": ["ContinuousLaunch", "ContinuousTaskError", "run_task"],
    "timers": ["ExpiredTimers", "TimeDomain", "Timers"],
}

if not TYPE_CHECKING:
    # A process that has a sink alone needs no tasks.
    __getattr__ = lazy_door(__name__, _MODULES)
