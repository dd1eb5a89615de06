"""The driver's side: who receives, where, and which blocks are there (Spark's ``ReceiverTracker``).

What must hold:

- *Log before act* (I1, I3, I4). Every change of the ledger is in the driver log before it is in
  memory, and in memory before anybody is told. A change that the log did not take did not happen.
- *One block, one batch* (I2). A block is known by its number, for as long as its attempt is
  known, also when it was released; adding it again changes nothing. A batch takes a block away.
- *One receiver per stream*. Each launch is a new attempt with its own block numbers. When an
  attempt registers, older ones are fenced: nothing of them is taken any more.
- *A stream has batches or places.* Batches take its blocks away; or it is a log that any number of
  consumers read, each at its own place, and a block goes when all have passed it and its retention
  is over (`_kept_blocks`).
- *What is retained holds no one up.* Segments may stay in the receivers' logs after the batches of
  their blocks; they go by age, by size, and at once when the disk runs short (`_retained`).
- *A split is in one place.* Receivers that share a source have its splits, each one's in the ledger
  with its position; they change hands only between attempts, which the change fences (`_splits`).
- *A stream is its name*. Its number is given once, in the driver log, and never to another name;
  what the ledger has of a stream that the program lacks is refused, or given up by name.
- *Order* (I5). Blocks of a stream stay in the order in which they were accepted. A position counts
  only with the block that carries it, and only if nothing before that block is missing.
- *A second copy is known or it does not count*. A block is added with the places of all its
  copies, which are made before; a copy goes when the block's clean-up is logged (I4), and a block
  is told as lost only when all its hosts are gone.
- *Nothing spins, nothing hangs.* A receiver that ends is started again, later each time; what
  starting again cannot mend is told to the user. Every wait has an end and says what it is for.

Layout:

- ``received_block_tracker``: the ledger. ``_events`` (the log's records), ``_ledger_state`` (the
  memory), ``_block_numbers`` (what makes adding idempotent), ``_recovery`` (snapshots, and
  reading them back). ``_ledger_opening``: where it is.
- ``_driver_log``: how events and snapshots get into the segment log.
- ``places``: the streams that are read by places. ``_kept_blocks`` (their blocks and consumers),
  ``_place_service`` (what is answered to those who read them; whose receivers wait for them).
- ``_epochs``: those of a stream whose blocks are given to a function as they come.
  ``_continuous``: the tasks of these streams.
- ``_retained``: the segments that stay after the clean-up of their batches.
- ``cluster``: what is asked of Spark. ``receiver_scheduling_policy``: where receivers should run.
- ``receiver_tracking_info``: the states of a receiver, and what listeners are notified of them.
- ``_receivers``: all of them, under one lock. ``_receiver_jobs``: the Spark job of each, in a
  thread of its own, whose task is `penstock.receiver.run_receiver`. It is prepared
  there, and started again. ``_slots``: those whose receivers share one. ``_splits``: those that
  share a source.
- ``_endpoint``: the messages; many `AddBlock` of them as one record of the log, and receivers
  that store dead letters again. ``_control``: what is done with them, and what is said of hosts
  that are out of reach. ``_block_servers``: who serves which host's blocks.
  ``_replica_hosts``: which host has the second copies of a receiver's blocks, and a block server.
- ``_block_deletion``: has deleted what the ledger lets go, by the hosts that have it; what is on
  HDFS by itself; and what is retained, when the disk runs short.
- ``receiver_tracker``: `ReceiverTracker`, which owns all of these. ``errors``: what can go wrong.

The life of a block here: added (logged, waiting), allocated to a batch (logged, before any job),
released when the batch is cleaned up (logged), and only then deleted, by the living attempt that
wrote it or by the block server of its host; a copy by the block server that made it. With a
retention its segment stays (logged with the clean-up) until that is over (logged). With places:
added (logged, it has its place), passed by each consumer (logged), released (logged). The life of
an attempt: launched, registered (logged, fences the older ones), ended, and forgotten when none of
its blocks is left.

The driver log holds events, the checkpoints of a program (see `penstock.streaming.checkpoint`), and
at times a snapshot of the whole ledger at the start of a segment; older segments go then. Recovery
reads from the newest whole snapshot on. Batches are whole numbers that grow; the ledger does not
know what they mean or who consumes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._lazy_door import lazy_door

if TYPE_CHECKING:
    from penstock.tracker._epochs import EpochStatus
    from penstock.tracker._ledger_opening import open_ledger, read_checkpoint
    from penstock.tracker._place_service import KeptStreamSettings, PlaceService
    from penstock.tracker._slots import share_of, slots_of
    from penstock.tracker._splits import SharedSource
    from penstock.tracker.cluster import (
        ExecutorLocation,
        HostLocation,
        SparkCluster,
        TaskEnd,
        TaskLocation,
    )
    from penstock.tracker.errors import (
        BatchCleanedError,
        DamagedLedgerError,
        LedgerError,
        LedgerLostError,
        LedgerRecoveryError,
        LedgerWriteError,
        ReceiverPickleError,
        StreamsDoNotFitError,
    )
    from penstock.tracker.places import ConsumerStatus, KeptStream, Places, Retention
    from penstock.tracker.received_block_tracker import LoggedSegment, ReceivedBlockTracker
    from penstock.tracker.receiver_tracker import ReceiverTracker, TrackerState
    from penstock.tracker.receiver_tracking_info import (
        ReceiverState,
        ReceiverTrackerEvents,
        ReceiverTrackingInfo,
    )

__all__ = [
    "BatchCleanedError",
    "ConsumerStatus",
    "DamagedLedgerError",
    "EpochStatus",
    "ExecutorLocation",
    "HostLocation",
    "KeptStream",
    "KeptStreamSettings",
    "LedgerError",
    "LedgerLostError",
    "LedgerRecoveryError",
    "LedgerWriteError",
    "LoggedSegment",
    "PlaceService",
    "Places",
    "ReceivedBlockTracker",
    "ReceiverPickleError",
    "ReceiverState",
    "ReceiverTracker",
    "ReceiverTrackerEvents",
    "ReceiverTrackingInfo",
    "Retention",
    "SharedSource",
    "SparkCluster",
    "StreamsDoNotFitError",
    "TaskEnd",
    "TaskLocation",
    "TrackerState",
    "open_ledger",
    "read_checkpoint",
    "share_of",
    "slots_of",
]

_MODULES = {
    "_epochs": ["EpochStatus"],
    "_ledger_opening": ["open_ledger", "read_checkpoint"],
    "_splits": ["SharedSource"],
    "_place_service": ["KeptStreamSettings", "PlaceService"],
    "_slots": ["share_of", "slots_of"],
    "cluster": [
        "ExecutorLocation",
        "HostLocation",
        "SparkCluster",
        "TaskEnd",
        "TaskLocation",
    ],
    "errors": [
        "BatchCleanedError",
        "DamagedLedgerError",
        "LedgerError",
        "LedgerRecoveryError",
        "LedgerLostError",
        "LedgerWriteError",
        "ReceiverPickleError",
        "StreamsDoNotFitError",
    ],
    "places": ["ConsumerStatus", "KeptStream", "Places", "Retention"],
    "received_block_tracker": [
        "LoggedSegment",
        "ReceivedBlockTracker",
    ],
    "receiver_tracker": ["ReceiverTracker", "TrackerState"],
    "receiver_tracking_info": [
        "ReceiverState",
        "ReceiverTrackerEvents",
        "ReceiverTrackingInfo",
    ],
}

if not TYPE_CHECKING:
    # What reads streams by places needs no receivers, and no Spark.
    __getattr__ = lazy_door(__name__, _MODULES)
