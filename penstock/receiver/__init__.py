"""Receivers: what takes records from outside, and what runs it in an executor.

What must hold
--------------

* What a receiver stored is durable before its source is told so (I1), and all of it is durable
  after a stop that the driver asked for (I10): the last block is sealed, logged and reported
  before the log is closed.
* Every record passes the rate limiter (I8), whichever way it is stored, and `store` waits when the
  queue of blocks is full (I7). Nothing here buffers without a bound.
* Nothing is dropped unless the user chose a policy that drops. Then all that is dropped is counted,
  and nothing that somebody relies on is taken under it (`intake`).
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
and lets a `ReceiverSupervisor` run it::

    connect ── block server ── block store ── register ── block generator ── onStart
                                                 ▲                              │
                              delay ── flush ◀── │ ── deregister ◀── onStop ◀── restart
                                                                                │
    close log, connection ◀── deregister ◀── last blocks stored ◀── onStop ◀── stop

A restart keeps the process, the block store and the generator; the receiver object, or a copy if
threads were left with it, is started after everything that was stored is durable, with
`lastPosition` set to the stream's last durable position. Each start has a door of its own into the
generator (`door`), which is closed before the next start: its threads can store nothing any more.
Before either `onStop`, what was stored with an acknowledgement is made durable and acknowledged.

With ``spark.penstock.receivers.perSlot`` attempts of several receivers run beside one another in
one task (`slot`); an attempt's life is the same.

When an attempt ends, nothing of it is used again: the next one has another id, another log folder
and other block numbers.

Map
---

==================  ==============================================================================
file                holds
==================  ==============================================================================
`base`              `Receiver`: what an author writes; `ReceiverContext`: what a short form is given
`short_forms`       what else is taken as a receiver: generator functions, classes with ``run``
`threaded`          `ThreadedReceiver`: one that is a thread, with a bounded stop, as most here are
`forms`             what short forms become; coroutines on an event loop
`socket_receivers`  the receivers of lines and of serialized objects from a socket
`launch`            what one attempt is made of, as the settings say
`task`              the body of the Spark task that runs it, and where that is
`slot`              several receivers in one Spark task and process: its keeper, its processes
`slot_board`        whether a process hangs, as its keeper sees it
`slot_load`         what each of them takes of its process, and who has to leave it
`supervisor`        runs one attempt, from registration to the last block
`attempt_state`     the state of an attempt, its bounds; when its failures are enough
`shared_threads`    what receivers that share a process have one thread for
`source_loop`       one event loop for their async sources
`workers`           threads for what waits there
`user_calls`        calls into the author's code, with a bound; what their threads die of
`door`              one start of a receiver: what it stores through, and asks for
`tracker_client`    what is asked of the tracker, and told
`exit_report`       how an attempt ended
`block_generator`   records to blocks: its life and its clock
`storing`           `store`, its bulk path, and `storeFrom`
`intake`            records that wait where `store` is not to wait; which of them are dropped
`spill`             those of them that wait on the disk
`bulk`              bulk calls, cut into pieces
`framing`           bytes of a source, cut into records
`assembler`         the open block
`splits`            the parts of a source that receivers share: their names and positions
`validation`        the program's own say in which records are taken
`discards`          records that fit nowhere
`letters_again`     dead letters that are stored again
`pipeline`          sealed blocks: to the log, to the tracker, and then acknowledged
`listening`         where a receiver listens: its sockets, and its addresses for others
`rate_limiter`      permits for records and bytes, from a token bucket each
`shared_rate`       a rate that applications share
`rate_status`       the rates that the driver sets, and reports of their use
==================  ==============================================================================
"""

from penstock.position_changes import PositionChanges
from penstock.receiver.base import Receiver, ReceiverContext
from penstock.receiver.block_generator import (
    BlockGenerator,
    BlockGeneratorOptions,
    RecordTooLargeError,
)
from penstock.receiver.bulk import WithLetters
from penstock.receiver.door import ReceiverStoppedError
from penstock.receiver.exit_report import ExitKind, ReceiverFailedError
from penstock.receiver.framing import Framing
from penstock.receiver.intake import WhenFull
from penstock.receiver.launch import BlockLogs, ReceiverLaunch, log_folder, policy_of
from penstock.receiver.listening import bound_socket, ports_of
from penstock.receiver.rate_limiter import RateLimiter
from penstock.receiver.shared_rate import SharedRateError, SharedRatePlace
from penstock.receiver.short_forms import (
    NotAReceiverError,
    as_receiver,
    receiver,
)
from penstock.receiver.splits import SplitPositionError, SplitsError
from penstock.receiver.supervisor import SupervisorState
from penstock.receiver.task import run_receiver

__all__ = [
    "BlockGenerator",
    "BlockGeneratorOptions",
    "BlockLogs",
    "ExitKind",
    "Framing",
    "NotAReceiverError",
    "PositionChanges",
    "RateLimiter",
    "Receiver",
    "ReceiverContext",
    "ReceiverFailedError",
    "ReceiverLaunch",
    "ReceiverStoppedError",
    "RecordTooLargeError",
    "SharedRateError",
    "SharedRatePlace",
    "SplitPositionError",
    "SplitsError",
    "SupervisorState",
    "WhenFull",
    "WithLetters",
    "as_receiver",
    "bound_socket",
    "log_folder",
    "policy_of",
    "ports_of",
    "receiver",
    "run_receiver",
]
