"""Receivers: what takes records from outside, and what runs it in an executor.

What must hold
--------------

* What a receiver stored is durable before its source learns so (I1), and all of it is durable after
  a stop that the driver asked for (I10).
* Every record passes the rate limiter (I8), and what waits is bounded (I7).
* A failure is never silent and never half: what the author's code raises, in `onStart`, `onStop`
  or a thread, reaches the driver with its traceback; then the receiver is restarted, or this
  attempt ends and the driver starts another.
* No wait is without a bound, the author's code included; what is left behind is named.
* No process stays behind: a process that was to end ends, whatever hangs in it.

Map
---

==================  ==============================================================================
room, from the top  holds
==================  ==============================================================================
`attempts`          what runs a receiver: the Spark task, the slot of several, the supervisor
`forms`             what an author may write in place of a subclass of `Receiver`
`blocks`            records to blocks, and these to the log and the tracker
`threads`           an event loop and threads that receivers of a process share
==================  ==============================================================================

==================  ==============================================================================
file                holds
==================  ==============================================================================
`base`              `Receiver`: what an author writes; `ReceiverContext`: what a short form is given
`door`              one start of a receiver: what it stores through, and asks for
`user_calls`        calls into the author's code, with a bound; what their threads die of
`exit_report`       how an attempt ended
`splits`            the parts of a source that receivers share: their names and positions
`validation`        the program's own say in which records are taken
`listening`         where a receiver listens: its sockets, and its addresses for others
`rate_limiter`      permits for records and bytes, from a token bucket each
`shared_rate`       a rate that applications share
==================  ==============================================================================
"""

from penstock.position_changes import PositionChanges
from penstock.receiver.attempts.launch import BlockLogs, ReceiverLaunch, log_folder, policy_of
from penstock.receiver.attempts.supervisor import SupervisorState
from penstock.receiver.attempts.task import run_receiver
from penstock.receiver.base import Receiver, ReceiverContext
from penstock.receiver.blocks.block_generator import (
    BlockGenerator,
    RecordTooLargeError,
)
from penstock.receiver.blocks.bulk import WithLetters
from penstock.receiver.blocks.framing import Framing
from penstock.receiver.blocks.options import BlockGeneratorOptions, WhenFull
from penstock.receiver.door import ReceiverStoppedError
from penstock.receiver.exit_report import ExitKind, ReceiverFailedError
from penstock.receiver.forms.short_forms import (
    NotAReceiverError,
    as_receiver,
    receiver,
)
from penstock.receiver.listening import bound_socket, ports_of
from penstock.receiver.rate_limiter import RateLimiter
from penstock.receiver.shared_rate import SharedRateError, SharedRatePlace
from penstock.receiver.splits import PositionError, SplitsError

__all__ = [
    "BlockGenerator",
    "BlockGeneratorOptions",
    "BlockLogs",
    "ExitKind",
    "Framing",
    "NotAReceiverError",
    "PositionChanges",
    "PositionError",
    "RateLimiter",
    "Receiver",
    "ReceiverContext",
    "ReceiverFailedError",
    "ReceiverLaunch",
    "ReceiverStoppedError",
    "RecordTooLargeError",
    "SharedRateError",
    "SharedRatePlace",
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
