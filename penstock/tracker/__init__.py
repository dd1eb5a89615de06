"""The driver's side: the receivers, where they are, and the blocks (Spark's ``ReceiverTracker``).

What must hold:

- *Log before act* (I1, I3, I4). Every change is in the driver log before anyone hears of it.
- *One block, one batch* (I2), or one place for all readers of its stream.
- *One receiver per stream*, and a split of a shared source in one place. When an attempt registers,
  older ones are fenced.
- *A second copy is known or it does not count*.
- *Nothing spins, nothing hangs.* Every wait has an end and says what it is for.

Layout, from the top; each room's door says more:

- ``receiver_tracker``: `ReceiverTracker`, which owns all that follows.
- ``_endpoint``: the messages; many `AddBlock` of them as one record of the log, and receivers
  that store dead letters again. ``_control``: what is done with them, and what is said of hosts
  that are out of reach.
- ``consumers``: readers of streams by places: queries, and functions that are sent records.
- ``hosts``: the hosts that have blocks: what serves them, which have copies, what is deleted on
  them.
- ``receivers``: the receivers, their Spark jobs and slots, and the splits of shared sources.
- ``ledger``: the blocks that were received, and the driver log.
- ``cluster``: what is asked of Spark. ``errors``: what can go wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._lazy_door import lazy_door

if TYPE_CHECKING:
    from penstock.tracker.cluster import (
        ExecutorLocation,
        HostLocation,
        SparkCluster,
        TaskEnd,
        TaskLocation,
    )
    from penstock.tracker.consumers.epochs import EpochStatus
    from penstock.tracker.consumers.place_service import KeptStreamSettings, PlaceService
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
    from penstock.tracker.ledger.opening import open_ledger, read_checkpoint
    from penstock.tracker.ledger.places import ConsumerStatus, KeptStream, Places, Retention
    from penstock.tracker.ledger.received_block_tracker import LoggedSegment, ReceivedBlockTracker
    from penstock.tracker.receiver_tracker import ReceiverTracker, TrackerState
    from penstock.tracker.receivers.receiver_tracking_info import (
        ReceiverState,
        ReceiverTrackerEvents,
        ReceiverTrackingInfo,
    )
    from penstock.tracker.receivers.slots import share_of, slots_of
    from penstock.tracker.receivers.splits import SharedSource

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
    "penstock.tracker.consumers.epochs": ["EpochStatus"],
    "penstock.tracker.ledger.opening": ["open_ledger", "read_checkpoint"],
    "penstock.tracker.receivers.splits": ["SharedSource"],
    "penstock.tracker.consumers.place_service": ["KeptStreamSettings", "PlaceService"],
    "penstock.tracker.receivers.slots": ["share_of", "slots_of"],
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
    "penstock.tracker.ledger.places": ["ConsumerStatus", "KeptStream", "Places", "Retention"],
    "penstock.tracker.ledger.received_block_tracker": [
        "LoggedSegment",
        "ReceivedBlockTracker",
    ],
    "receiver_tracker": ["ReceiverTracker", "TrackerState"],
    "penstock.tracker.receivers.receiver_tracking_info": [
        "ReceiverState",
        "ReceiverTrackerEvents",
        "ReceiverTrackingInfo",
    ],
}

if not TYPE_CHECKING:
    # What reads streams by places needs no receivers, and no Spark.
    __getattr__ = lazy_door(__name__, _MODULES)
