"""Receivers: what takes records from outside, and what runs it in an executor.

What must hold
--------------

* What a receiver stored is durable before its source is told so (I1), and all of it is durable
  after a stop that the driver asked for (I10): the last block is sealed, logged and reported
  before the log is closed.
* Every record passes the rate limiter (I8), whichever way it is stored, and `store` waits when the
  queue of blocks is full (I7). Nothing here buffers without a bound.
* A failure is never silent and never half: what the author's code raises, in `onStart`, `onStop`
  or a thread, reaches the driver with its traceback; then the receiver is restarted, or this
  attempt ends and the driver starts another. A failure to push a block that may pass ends
  nothing: it is reported, and tried again. One that cannot pass, and whatever else ends a thread
  of this room, ends the attempt.
* A receiver that can never work (it cannot be unpickled, its constructor raises, a setting is
  wrong) is told to the driver once, as permanent.
* No wait is without a bound, the author's code included; what is left behind is named.
* No process stays behind: an attempt ends when its driver cannot be reached for long, or its
  executor is gone; and a process that was to end ends, whatever hangs in it.

An attempt's life
-----------------

The driver starts a one-task Spark job whose body is `run_receiver`. It unpickles the receiver,
makes the parts, and lets a `ReceiverSupervisor` run it::

    connect ── block server ── block store ── register ── block generator ── onStart
                                                 ▲                              │
                              delay ── flush ◀── │ ── deregister ◀── onStop ◀── restart
                                                                                │
    close log, connection ◀── deregister ◀── last blocks stored ◀── onStop ◀── stop

A restart keeps the process, the block store and the generator; the receiver object, or a copy if
threads were left with it, is started after everything that was stored is durable, with
`lastPosition` set to the stream's last durable position. Each start has a door of its own into the
generator (`_door`), which is closed before the next start: its threads can store nothing any more.
Before either `onStop`, what was stored with an acknowledgement is made durable and acknowledged.

When an attempt ends, nothing of it is used again: the next one has another id, another log folder
and other block numbers.

Modules: `_receiver` (what an author sees), `short_forms`, `_threaded`, `_generator_forms`,
`_async_storing`, `_awaited_stores`, `_yielded`, `_run_form`, `_schemas` and `_context` (generators
and classes with ``run``),
`_start` and `_door` (what belongs to one start),
`supervisor`, `_attempt_state`, `_author`, `calls`, `_tracker_client`, `_exit_report`, `_failures`,
`_parts`, `_uncaught` and `_watchdog` (running one attempt),
`launch` and `placement` (the Spark task), `block_generator`, `_assembler`, `_discards`, `_pieces`,
`_pipeline` and `framing` (records to blocks),
`rate_limiter` and `token_bucket`, `_rate_status` (the driver's rates, and reports of their use),
`shared_rate`, `shared_rate_limiter` and `redis_token_buckets` (a rate that applications share).
"""

from penstock.receiver._context import ReceiverContext
from penstock.receiver._door import ReceiverStoppedError
from penstock.receiver._exit_report import ExitKind, ReceiverFailedError
from penstock.receiver._receiver import Receiver, ReceiverNotAttachedError
from penstock.receiver.block_generator import (
    BlockGenerator,
    BlockGeneratorOptions,
    BlockGeneratorState,
    BlockGeneratorStatistics,
    BlockNotStoredError,
    RecordTooLargeError,
)
from penstock.receiver.framing import Framing
from penstock.receiver.launch import ReceiverLaunch, arena_name, log_folder, run_receiver
from penstock.receiver.rate_limiter import RateLimiter
from penstock.receiver.shared_rate import SharedRateError, SharedRatePlace
from penstock.receiver.short_forms import (
    MissingMethodError,
    NotAReceiverError,
    as_receiver,
    receiver,
)
from penstock.receiver.supervisor import ReceiverSupervisor, SupervisorState

__all__ = [
    "BlockGenerator",
    "BlockGeneratorOptions",
    "BlockGeneratorState",
    "BlockGeneratorStatistics",
    "BlockNotStoredError",
    "ExitKind",
    "Framing",
    "MissingMethodError",
    "NotAReceiverError",
    "RateLimiter",
    "Receiver",
    "ReceiverContext",
    "ReceiverFailedError",
    "ReceiverLaunch",
    "ReceiverNotAttachedError",
    "ReceiverStoppedError",
    "ReceiverSupervisor",
    "RecordTooLargeError",
    "SharedRateError",
    "SharedRatePlace",
    "SupervisorState",
    "arena_name",
    "as_receiver",
    "log_folder",
    "receiver",
    "run_receiver",
]
