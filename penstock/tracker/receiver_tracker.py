"""ReceiverTracker: starts receivers, keeps them running, and knows their blocks (Spark's class)."""

from __future__ import annotations

import enum
import logging
import secrets
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from py4j.protocol import Py4JError
from pyspark import cloudpickle

from penstock.blockstore import BlockAccess
from penstock.errors import IllegalStateError, PenstockError, text_of
from penstock.files.addresses import is_on_hdfs, is_on_objects, is_shared
from penstock.receiver import BlockLogs, Receiver, ReceiverLaunch, SharedRatePlace
from penstock.receiver.attempts.rate_status import report_interval_s
from penstock.runtime.clock import Clock, SystemClock
from penstock.runtime.processes import ProcessIdentity
from penstock.runtime.threads import Repeated
from penstock.settings import Settings
from penstock.settings.values import wait_for_lost_blocks_s
from penstock.tracker._control import Control
from penstock.tracker._endpoint import LetterSends, TrackerEndpoint
from penstock.tracker.cluster import Cluster, ExecutorLocation, HostLocation, TaskLocation
from penstock.tracker.consumers.continuous_streams import (
    ContinuousStream,
    ContinuousStreams,
    TaskSurroundings,
    remove_states,
)
from penstock.tracker.consumers.epochs import EpochStatus
from penstock.tracker.consumers.place_service import KeptStreamSettings, PlaceService
from penstock.tracker.errors import (
    LedgerWriteError,
    ReceiverPickleError,
)
from penstock.tracker.hosts.block_deletion import BlockDeletion, DiskRoom, SharedLogs
from penstock.tracker.hosts.block_servers import BlockServers
from penstock.tracker.hosts.replica_hosts import ReplicaHosts
from penstock.tracker.hosts.rereplication import Rereplication
from penstock.tracker.ledger.places import CONTINUOUS
from penstock.tracker.ledger.received_block_tracker import ReceivedBlockTracker
from penstock.tracker.receivers.jobs import ReceiverJob, ReceiverStarts, RestartBackoff
from penstock.tracker.receivers.receiver_scheduling_policy import ReceiverSchedulingPolicy
from penstock.tracker.receivers.receiver_tracking_info import (
    Listeners,
    ReceiverState,
    ReceiverTrackerEvents,
    ReceiverTrackingInfo,
)
from penstock.tracker.receivers.registry import Receivers
from penstock.tracker.receivers.slots import ReceiverSlot, share_of, slots_of
from penstock.tracker.receivers.splits import SharedSource, SplitStream
from penstock.wal import Company
from penstock.wire import ApplicationLink, TlsIdentity, WireOptions
from penstock.wire.addresses import address_text
from penstock.wire.messages import ReceivedBlockInfo, SlowBlock, StopReceiver

if TYPE_CHECKING:
    pass

_log = logging.getLogger("penstock.tracker")

_CANCEL_S = 10.0
_LOOK_S = 0.25
_SPARK_IS_GONE = (Py4JError, AttributeError, OSError)
"""What calls of a context that was stopped, or whose JVM is gone, raise."""
_LEAVING_S = 1.0
"""How often executors that are about to go are looked for."""
_MOVE_S = 30.0
"""How long a receiver on one may take to store its last blocks."""
_PLACED_S = 10.0
"""How long tasks of a continuous stream wait for its receiver, to run beside it."""


class SendRates(Protocol):
    """Sends rates to a stream's receiver, as `ReceiverTracker.send_rate_update`; does not wait."""

    def __call__(
        self,
        stream_id: int,
        records_per_second: float | None,
        bytes_per_second: float | None,
        /,
        *,
        is_paused: bool = False,
        takes_over: bool = False,
    ) -> int: ...


class TrackerState(enum.Enum):
    """The life of a `ReceiverTracker`; it only moves forward."""

    INITIALIZED = 0
    STARTED = 1
    STOPPING = 2
    STOPPED = 3


class ReceiverTracker:
    """The driver's half of the receivers, and the door to the ledger of their blocks.

    Safe to use from any thread. `_lock` guards the tracker's own state; what is known of receivers
    is guarded by `Receivers`, what is known of blocks by `ReceivedBlockTracker`. Locks are never
    held while the network, the disk, Spark or a listener is waited for.

    Attributes:
        ledger: The ledger.
        letter_sends: Has receivers store dead letters again.
        shared_rate: What the receivers share with other applications' receivers.
    """

    def __init__(
        self,
        cluster: Cluster,
        receivers: Mapping[int, tuple[Receiver, str]],
        settings: Settings,
        *,
        ledger: ReceivedBlockTracker,
        logs: BlockLogs,
        events: ReceiverTrackerEvents,
        clock: Clock | None = None,
        kept: Mapping[int, KeptStreamSettings] | None = None,
        shared: Sequence[SharedSource] = (),
    ) -> None:
        """Make a tracker; nothing happens before `start`.

        Args:
            cluster: Where the receivers run.
            receivers: Receiver and name of each stream.
            settings: The application's settings.
            ledger: The ledger, open; closed by `stop`.
            logs: The receivers' logs.
            events: Is notified of receivers.
            clock: Time.
            kept: The streams that are read by places; batches take the blocks of all others.
            shared: The streams whose receivers share a source.
        """
        self._cluster = cluster
        self._receiver_objects = {stream_id: found[0] for stream_id, found in receivers.items()}
        self._stream_names = {stream_id: found[1] for stream_id, found in receivers.items()}
        self._settings = settings
        self.ledger = ledger
        self._logs = logs
        self._shared_logs = SharedLogs(logs.root)
        self._listeners = Listeners(events)
        self._clock = clock or SystemClock()
        self._lost_attempts: frozenset[str] = frozenset()
        self.shared_rate = SharedRatePlace.of(settings)
        self._link = ApplicationLink(
            secrets.token_bytes(32),
            tls=TlsIdentity.make() if self._settings.tls_enabled else None,
        )
        self._receivers = Receivers(
            {
                stream_id: (name, receiver.preferredLocation())
                for stream_id, (receiver, name) in receivers.items()
            },
            self._clock,
            is_local=cluster.is_local,
            first_rates=(settings.backpressure_initial_rate, settings.max_bytes_per_second),
        )
        self.letter_sends = LetterSends(self._receivers.send, ledger.sent_letters)
        self._block_servers = BlockServers(settings.block_server_lease_s, self._clock)
        # Storage that all hosts share has copies of its own; a local master is one host.
        can_copy = not cluster.is_local and not is_shared(logs.root)
        levels = {
            stream_id: receiver.storageLevel.replication
            for stream_id, receiver in self._receiver_objects.items()
            if can_copy and receiver.storageLevel.replication > 1
        }
        self._with_copies = frozenset(levels)
        self._deletion = BlockDeletion(
            self._receivers,
            self._block_servers,
            self._shared_logs,
            with_copies=self._with_copies,
            is_shared=is_shared(logs.root),
        )
        self._replica_hosts = ReplicaHosts(
            cluster,
            self._block_servers,
            receivers=len(self._with_copies),
            copies=max(levels.values(), default=2) - 1,
            launch=lambda: self._launch(min(self._receiver_objects), "", {}).block_server(""),
            receiver_hosts=self._receivers.hosts,
            clock=self._clock,
        )
        self._rereplication = Rereplication(
            ledger,
            self._replica_hosts,
            levels=levels,
            is_encrypted=logs.encryption is not None,
            clock=self._clock,
        )
        self._lock = threading.Lock()
        self._state = TrackerState.INITIALIZED
        self._pickled: dict[int, bytes] = {}
        self._jobs: list[ReceiverJob] = []
        self._starts: ReceiverStarts | None = None
        self._slots = self._make_slots()
        self._slotted = {one for slot in self._slots.values() for one in slot.streams}
        self._slot_places: dict[int, Sequence[TaskLocation]] = {}  # where they begin
        sharing = {one for source in shared for one in source.streams}
        alone = [
            SharedSource(name, (stream_id,), 1)
            for stream_id, (receiver, name) in receivers.items()
            if receiver.splits is not None
            and receiver._has_splits_alone
            and stream_id not in sharing
        ]
        self._split_streams = [self._make_splits(source) for source in (*shared, *alone)]
        self._splits = {one: found for found in self._split_streams for one in found.streams}
        self._leaving = Repeated(self._move_from_leaving, _LEAVING_S, "leaving", self._clock)
        self._kept = kept or {}
        self._place_service: PlaceService | None = None
        self._operations = {
            stream_id: found.continuous
            for stream_id, found in self._kept.items()
            if found.continuous is not None
        }
        self._continuous: ContinuousStreams | None = None
        self._sources: frozenset[str] | None = None
        # By stream: before that place nothing need be in memory. For one thread.
        self._in_memory_from: dict[int, int] = {}
        self._endpoint: TrackerEndpoint | None = None
        self._control: Control | None = None
        lost = settings.lost_blocks
        tries = 1 if lost == "fail" else cluster.most_tries()
        self._skip_after = tries if lost == "skip" else None
        self._wait_s = wait_for_lost_blocks_s(lost) / tries

    # -- life ----------------------------------------------------------------------------------

    @property
    def state(self) -> TrackerState:
        """Where it is in its life."""
        with self._lock:
            return self._state

    def _is_started(self) -> bool:
        return self.state is TrackerState.STARTED

    def start(self, *, keep_batches: bool = False) -> None:
        """Listen, and start all receivers.

        Args:
            keep_batches: Whether batches that an earlier run did not finish keep their blocks,
                because they are made again under the same times (I3). Else their blocks wait for
                a batch again.

        Raises:
            IllegalStateError: It was started before.
            ReceiverPickleError: A receiver cannot be sent to an executor.
            PenstockError: There is no executor.
            LedgerWriteError: The driver log does not take what an earlier run left undone.
            WireError: The address cannot be bound.
        """
        with self._lock:
            if self._state is not TrackerState.INITIALIZED:
                raise IllegalStateError("ReceiverTracker already started")
            self._state = TrackerState.STARTED
        try:
            self._pickled = {
                stream_id: _pickle(stream_id, receiver)
                for stream_id, receiver in self._receiver_objects.items()
            }
            if self._logs.are_removed:
                self._lost_attempts = frozenset(self.ledger.attempts)
            if self._lost_attempts:
                _log.warning(
                    "Some blocks could not be recovered: an earlier run stored them without a log "
                    "that outlives it; their batches are made without them"
                )
            again = 0 if keep_batches else self.ledger.return_unfinished_batches()
            if again:
                _log.warning(
                    "%d blocks of batches that an earlier run did not finish are processed again",
                    again,
                )
            for splits in self._split_streams:
                splits.start()
            self._listen()
            self.start_all_receivers()
        except BaseException:
            self.stop(graceful=False, timeout_s=_CANCEL_S)
            raise

    def stop(self, graceful: bool = False, timeout_s: float = _CANCEL_S) -> None:
        """Stop the receivers if they still run, then the server and the ledger.

        May be called again, and before `start`.

        Args:
            graceful: See `stop_receiving`.
            timeout_s: Bounds the wait for the receivers.
        """
        self.stop_receiving(graceful, timeout_s)
        with self._lock:
            if self._state is TrackerState.STOPPED:
                return
            self._state = TrackerState.STOPPED
            endpoint, self._endpoint = self._endpoint, None
        try:
            if self._continuous is not None:
                self._continuous.stop(timeout_s)
            if endpoint is not None:
                self._block_servers.stop(self._logs.go_with_application)
                endpoint.stop()
        finally:
            for splits in self._split_streams:
                splits.join(timeout_s)
            self._leaving.stop(timeout_s)
            self.ledger.close()
            self._shared_logs.close(timeout_s)

    def stop_receiving(self, graceful: bool, timeout_s: float) -> None:
        """Stop all receivers; the ledger and the block servers stay for the last batches (I10).

        Each is asked to stop: it stores and reports its last blocks, deregisters, and its job ends.
        What has not ended in time is cancelled. May be called again when it was interrupted.

        Args:
            graceful: Wait the whole `timeout_s` for the receivers; else at most 10 s of it.
            timeout_s: The longest wait.
        """
        with self._lock:
            # STOPPING: a call before was interrupted, or another thread is also in it.
            if self._state not in (TrackerState.STARTED, TrackerState.STOPPING):
                return
            self._state = TrackerState.STOPPING
            jobs = list(self._jobs)
        for job in jobs:
            job.stop()
        for splits in self._split_streams:
            splits.stop()
        self._leaving.stop(0)
        self._replica_hosts.stop()
        patience_s = timeout_s if graceful else min(timeout_s, 10.0)
        end_s = time.monotonic() + patience_s
        self.stop_all_receivers(patience_s)
        infos = self._receivers.infos()
        # They have stored nothing yet, and may wait for a free slot for ever.
        starting = [job for job in jobs if infos[job.stream_id].state is ReceiverState.SCHEDULED]
        self._await_jobs(jobs, end_s, "to store their last blocks and end", cancelled=starting)
        left = [job for job in jobs if job.is_alive]
        if left:
            _log.warning(
                "%d of %d receivers have not ended in time; their jobs are cancelled",
                len(left),
                len(jobs),
            )
            self._cancel(left)
        # They end by themselves when their receivers have.
        slots = list(self._slots.values())
        self._await_jobs(slots, time.monotonic() + _CANCEL_S, "that share tasks to end these")
        self._cancel([slot for slot in slots if slot.is_alive])
        for info in self._receivers.deactivate_all():
            _log.warning("Receiver %d exited but didn't deregister", info.stream_id)
            self._listeners.stopped(info)

    def drain_continuous(self, timeout_s: float) -> bool:
        """Wait until all that was received of continuous streams is in committed epochs.

        Call it after `stop_receiving`.

        Returns:
            Whether it is.
        """
        return self._continuous is None or self._continuous.drain(timeout_s)

    def epochs(self) -> dict[int, EpochStatus]:
        """Return where the epochs of continuous streams are, by stream."""
        return {} if self._continuous is None else self._continuous.status()

    def _await_jobs(
        self,
        jobs: Sequence[ReceiverJob | ReceiverSlot],
        end_s: float,
        what: str,
        *,
        cancelled: Sequence[ReceiverJob | ReceiverSlot] = (),
    ) -> None:
        said = False
        while True:
            # Again and again: a job may have been submitted just after it was cancelled.
            for job in cancelled:
                if job.is_alive:
                    job.cancel()
            alive = [job for job in jobs if not job.join(0)]
            left_s = end_s - time.monotonic()
            if not alive or left_s <= 0:
                return
            if not said and len(alive) == len(jobs) and left_s > _LOOK_S:
                _log.info("waiting up to %.1f s for %d receivers %s", left_s, len(alive), what)
                said = True
            alive[0].join(min(left_s, _LOOK_S))

    def _cancel(self, jobs: Sequence[ReceiverJob | ReceiverSlot]) -> None:
        self._await_jobs(jobs, time.monotonic() + _CANCEL_S, "to be cancelled", cancelled=jobs)
        if left := [job.tag for job in jobs if job.is_alive]:
            _log.error(
                "the jobs %s did not end within %g s after they were cancelled",
                ", ".join(left),
                _CANCEL_S,
            )

    def _server_died(self, error: BaseException) -> None:
        """Report of every receiver that nothing of it arrives any more."""
        for stream_id in self._receiver_objects:
            self._listeners.gave_up(
                stream_id,
                "The driver's server for receivers has ended, and takes nothing any more",
                "".join(traceback.format_exception(error)),
            )

    def _listen(self) -> None:
        host, advertised = self._cluster.addresses(self._settings.tracker_bind_address)
        interval_s = self._settings.block_interval_ms / 1000
        # Each record of a driver log there is paid for.
        pays = is_on_objects(self._logs.root)
        endpoint = TrackerEndpoint(
            self._link,
            self.ledger,
            host=host,
            port=self._settings.tracker_port,
            port_retries=self._settings.port_max_retries,
            options=WireOptions(max_frame_bytes=self._settings.max_frame_bytes),
            on_died=self._server_died,
            company=Company(interval_s, interval_s / 4) if pays else None,
        )
        disk_room = DiskRoom(
            self.ledger,
            self._deletion,
            self._clock,
            segment_bytes=self._settings.wal_segment_bytes,
            is_shared=is_shared(self._logs.root),
        )
        endpoint.handler = self._control = Control(
            self.ledger,
            self._receivers,
            self._listeners,
            is_started=self._is_started,
            later=endpoint.later,
            disk_room=disk_room,
            on_letters_sent=self.letter_sends.answered,
            slots=self._slots,
            rereplication=self._rereplication,
        )
        if self._kept:
            endpoint.places = self._place_service = PlaceService(
                self.ledger.places,
                self._kept,
                clock=self._clock,
                servers=self._block_servers.addresses,
                parallelism=self._free_slots,
                hold=self._receivers.hold,
            )
            # Before receivers come: what they store stays for it, and what an earlier run left may
            # be too much.
            self._place_service.attach(CONTINUOUS, self._operations)
            self._place_service.backlogs.check()
            self._make_continuous(endpoint, self._place_service)
            self._remove_states()
        bound = endpoint.start()
        self._endpoint = endpoint
        self._link = replace(self._link, tracker=(advertised or bound[0], bound[1]))
        _log.info("the tracker listens at %s", address_text(*bound))

    def _make_continuous(self, endpoint: TrackerEndpoint, service: PlaceService) -> None:
        if not self._operations:
            return
        endpoint.continuous = self._continuous = ContinuousStreams(
            {
                stream_id: ContinuousStream(
                    self._stream_names[stream_id],
                    operation,
                    _dumps((operation.function, operation.sink, operation.on_timer)),
                    self._kept[stream_id].max_backlog_bytes,
                )
                for stream_id, operation in self._operations.items()
            },
            self.ledger.places,
            around=TaskSurroundings(
                self._cluster,
                self._settings,
                lambda: self.block_access,
                self._logs,
                self._beside_receiver,
            ),
            clock=self._clock,
            listeners=self._listeners,
            later=endpoint.later,
            on_logged=service.backlogs.check,
            release=self.release_places,
            lost=self._lost_attempts,
        )

    def _beside_receiver(self, stream_id: int) -> tuple[TaskLocation, ...]:
        """Return where a stream's receiver runs, once it does."""
        end_s = time.monotonic() + _PLACED_S
        while not self._cluster.is_local and time.monotonic() < end_s:
            running = self._receivers.infos()[stream_id].running
            if running is not None:
                return (running, HostLocation(running.host))
            time.sleep(_LOOK_S)
        return ()

    def _free_slots(self) -> int:
        return max(1, self._cluster.slots() - self.tasks)

    # -- receivers -----------------------------------------------------------------------------

    @property
    def tasks(self) -> int:
        """How many Spark tasks the receivers are, and the functions of continuous streams."""
        functions = sum(found.parallelism for found in self._operations.values())
        alone = self._receiver_objects.keys() - self._slotted - self.idle_receivers()
        return len(alone) + len(self._slots) + functions

    # -- splits --------------------------------------------------------------------------------

    def _make_splits(self, source: SharedSource) -> SplitStream:
        return SplitStream(
            source,
            self._receiver_objects[source.streams[0]],
            ledger=self.ledger,
            receivers=self._receivers,
            settings=self._settings,
            clock=self._clock,
            cancel=self._cancel_receiver,
            room=lambda: self._room_of(source.streams),
        )

    def _cancel_receiver(self, stream_id: int) -> None:
        with self._lock:
            jobs = [job for job in self._jobs if job.stream_id == stream_id]
        for job in jobs:
            job.cancel()

    def _room_of(self, streams: Sequence[int]) -> int | None:
        """Return for how many receivers of a stream there are slots, beside one for batches."""
        if self.has_slot(streams[0]) or self._cluster.is_local:
            return None
        idle = self.idle_receivers()
        own = sum(one not in idle for one in streams)
        try:
            return self._cluster.slots() - 1 - (self.tasks - own)
        except _SPARK_IS_GONE:
            return None

    def idle_receivers(self) -> frozenset[int]:
        """Return the streams whose receivers do not run, as they have no splits."""
        return frozenset(one for found in self._split_streams for one in found.idle)

    def scale(self, stream_id: int, count: int) -> None:
        """Have another number of receivers of a stream; returns when that is logged.

        Args:
            stream_id: Any of its streams in the ledger.
            count: How many.

        Raises:
            IllegalStateError: The tracker does not run.
            LedgerWriteError: It could not be logged.
        """
        if not self._is_started():
            raise IllegalStateError(
                "scale() changes the number of receivers while the context runs; it has stopped"
            )
        self._splits[stream_id].scale(count)

    def scale_by(self, more: int) -> None:
        """Have that many receivers more, or less, of each stream whose receivers share a source.

        At least as many as the program asks for, and at most as many as it allows.
        """
        for found in self._split_streams:
            try:
                found.scale_by(more)
            except LedgerWriteError as error:
                _log.error("%s; the number of receivers stays", error)

    def splits(self, stream_id: int) -> dict[int, tuple[str, ...] | None]:
        """Return which splits the receivers of a stream have."""
        return self._splits[stream_id].splits

    def has_slot(self, stream_id: int) -> bool:
        """Whether a receiver shares a slot, and so is no task of its own."""
        return stream_id in self._slotted

    def _make_slots(self) -> dict[int, ReceiverSlot]:
        streams, per_slot = list(self._receiver_objects), self._settings.receivers_per_slot
        shares = [share_of(found, per_slot) for found in self._receiver_objects.values()]
        is_one_host = self._cluster.is_local
        wishes = None if is_one_host else [self._receivers.preferred(one) for one in streams]
        return {
            number: ReceiverSlot(
                number,
                {streams[one]: partial(self._launch, streams[one]) for one in slot},
                self._cluster,
                self._place_slot,
            )
            for number, slot in enumerate(slots_of(shares, wishes))
        }

    def _place_slot(
        self, streams: Sequence[int], executors: Sequence[ExecutorLocation]
    ) -> Sequence[TaskLocation]:
        """Say where a slot should run: away from other receivers, if its own do not wish."""
        if (first := self._slot_places.pop(streams[0], None)) is not None:
            return first
        if self._starts is not None:
            self._starts.warn_of_few_slots()
        others = {
            stream_id: info
            for stream_id, info in self._receivers.infos().items()
            if stream_id not in streams
        }
        return ReceiverSchedulingPolicy().reschedule_receiver(
            streams[0], self._receivers.preferred(streams[0]), others, executors
        )

    def start_all_receivers(self) -> None:
        """Place all receivers and start their jobs (Spark's ``StartAllReceivers``)."""
        # Second copies need one more.
        self._cluster.wait_for_executors(self.tasks + bool(self._with_copies))
        executors = self._cluster.executors()
        if not executors and self._receiver_objects:
            raise PenstockError(
                "no executor is up, so no receiver can run: look at the cluster manager"
            )
        slots = {stream: slot for slot in self._slots.values() for stream in slot.streams}
        # Those of a slot wish for the same, and the slot is placed as its first one.
        wishes = {
            stream: self._receivers.preferred(stream)
            for stream in self._receiver_objects
            if stream not in slots or stream == slots[stream].streams[0]
        }
        places = ReceiverSchedulingPolicy().schedule_receivers(wishes, executors)
        self._slot_places = {stream: places[stream] for stream in wishes if stream in slots}
        self._starts = starts = ReceiverStarts(
            {
                stream: (partial(self._launch, stream), places.get(stream))
                for stream in self._receiver_objects
            },
            self.tasks,
            cluster=self._cluster,
            ledger=self.ledger,
            receivers=self._receivers,
            listeners=self._listeners,
            is_started=self._is_started,
            splits=self._splits,
            sharing=slots,
        )
        settings = self._settings
        with self._lock:
            self._jobs = [
                ReceiverJob(
                    stream_id,
                    self._cluster,
                    starts,
                    RestartBackoff(settings.restart_max_delay_s, settings.restart_reset_s),
                    self._clock,
                    slots.get(stream_id),
                )
                for stream_id in self._receiver_objects
            ]
        for slot in self._slots.values():
            slot.start()
        for job in self._jobs:
            job.start()
        if self._continuous is not None:
            self._continuous.start()
        if self._control is not None:
            self._control.watch_starts()
            self._control.watch_hosts()
        if self._cluster.decommissions:
            self._leaving.start()

    def _move_from_leaving(self) -> None:
        """Move receivers from executors that are about to go, if others stay.

        What they have stored is durable before, and no batch waits for it at the kill. Where a host
        is left without executors, its copies are made on another one.
        """
        if not self._is_started():
            return
        try:
            leaving = self._cluster.leaving()
            staying = self._cluster.executors() if leaving else []
        except _SPARK_IS_GONE:
            return
        stay_on = {executor.host for executor in staying if executor.executor_id not in leaving}
        going = frozenset(leaving.values()) - stay_on
        self._replica_hosts.leaving = going if stay_on else frozenset()
        if not staying:
            return
        slots = {stream: slot for slot in self._slots.values() for stream in slot.streams}
        for info in self._receivers.on_executors(leaving):
            _log.info("Receiver %d moves: its executor is about to go", info.stream_id)
            if info.stream_id in slots:
                slots[info.stream_id].move()
            self._receivers.move(info.stream_id, _MOVE_S)

    def _launch(self, stream_id: int, attempt: str, hosts: Mapping[str, str]) -> ReceiverLaunch:
        return ReceiverLaunch(
            stream_id=stream_id,
            attempt=attempt,
            receiver=self._pickled[stream_id],
            link=self._link,
            settings=self._settings,
            logs=self._logs,
            storage_level=ReceiverLaunch.storage_level_tuple(
                self._receiver_objects[stream_id].storageLevel
            ),
            executor_hosts=hosts,
            driver=ProcessIdentity.this_process(),
            shared_rate=self.shared_rate,
            has_copies=stream_id in self._with_copies,
            stream_name=self._stream_names[stream_id],
            seals_early=self._seals_early(stream_id),
            shows_blocks=self._shows_blocks(stream_id),
            report_interval_s=report_interval_s(len(self._receiver_objects)),
        )

    def _seals_early(self, stream_id: int) -> bool:
        """Return whether blocks may be as short as a function would have them.

        Not where they are kept, each in the ledger, nor where each write of the log is paid for.
        """
        if stream_id not in self._operations or is_on_objects(self._logs.root):
            return False
        return self._kept[stream_id].retention.time_ms == 0

    def _shows_blocks(self, stream_id: int) -> bool:
        found = self._operations.get(stream_id)
        return found is not None and found.deliver == "stored"

    def stop_all_receivers(self, timeout_s: float | None = None) -> None:
        """Ask all connected receivers to stop within a time (Spark's ``StopAllReceivers``)."""
        for peer in self._receivers.active_peers():
            peer.send(StopReceiver(timeout_s=timeout_s))

    def allocated_executors(self) -> frozenset[str] | None:
        """Return the executors that run receivers (Spark's ``allocatedExecutors``).

        None while a job of a receiver was submitted and the receiver has not registered: it may be
        in any of them.
        """
        infos = self._receivers.infos().values()
        if any(info.state is ReceiverState.SCHEDULED for info in infos):
            return None
        return frozenset(
            info.running.executor_id
            for info in infos
            if info.state is ReceiverState.ACTIVE and info.running is not None
        )

    def tracking_infos(self) -> dict[int, ReceiverTrackingInfo]:
        """Return all that is known of the receivers, by stream."""
        return self._receivers.infos()

    def jobs_left(self) -> int:
        """Return how many jobs receivers have in Spark, or are about to have (again)."""
        with self._lock:
            if self._state is TrackerState.STARTED and not self._jobs:
                return self.tasks  # Executors are waited for.
            jobs = list(self._jobs)
        idle = self.idle_receivers()
        alive = {job.stream_id for job in jobs if job.is_alive and job.stream_id not in idle}
        for slot in self._slots.values():
            if slot.is_alive or not alive.isdisjoint(slot.streams):
                alive = alive.difference(slot.streams[1:]) | {slot.streams[0]}
        return len(alive) + (0 if self._continuous is None else self._continuous.jobs_left())

    def is_over(self, stream_id: int) -> bool:
        """Whether a receiver has ended and is not started again: stopped, given up, or finite."""
        with self._lock:
            if self._state in (TrackerState.STOPPING, TrackerState.STOPPED):
                return True
            jobs = list(self._jobs)
        return any(job.stream_id == stream_id and job.is_over for job in jobs)

    def address(self, stream_id: int) -> tuple[str, int] | None:
        """Return where a receiver's connection comes from; None while there is none."""
        return self._receivers.address(stream_id)

    def send_rate_update(
        self,
        stream_id: int,
        records_per_second: float | None,
        bytes_per_second: float | None = None,
        *,
        is_paused: bool = False,
        takes_over: bool = False,
    ) -> int:
        """Give a receiver other rates, also when it is started again (Spark's ``sendRateUpdate``).

        None is no limit. The receiver holds the lower of the rate of records and the settings'
        rates; one that is paused lets nothing pass until it is given rates again. So does one that
        had paused itself, once a pause of the driver takes that over.

        Returns:
            The version of the rates; the receiver's reports say which one it has in force.
        """
        return self._receivers.update_rate(
            *(stream_id, records_per_second, bytes_per_second),
            is_paused=is_paused,
            takes_over=takes_over,
        )

    def restart_receiver(self, stream_id: int, reason: str) -> bool:
        """Have a receiver stop and start again in its process.

        Returns:
            False when it is not connected now, and nothing was done.
        """
        return self._receivers.restart(stream_id, reason)

    def seal_block(self, stream_id: int) -> bool:
        """Have a receiver seal its open block now.

        Returns:
            False when it is not connected now, and nothing was done.
        """
        return self._receivers.seal(stream_id)

    # -- blocks --------------------------------------------------------------------------------

    @property
    def block_access(self) -> BlockAccess:
        """What a batch task needs to reach blocks, as of now."""
        return BlockAccess(
            servers=self._block_servers.addresses(),
            link=self._link,
            fetch_timeout_s=self._settings.ask_timeout_s,
            encryption=self._logs.encryption,
            skip_after=self._skip_after,
            wait_s=self._wait_s,
        )

    def take_slow_blocks(self) -> list[SlowBlock]:
        """Return what tasks reported of blocks that were slow to read since the call before."""
        found: list[SlowBlock] = []
        while self._control is not None and self._control.slow_blocks:
            found.append(self._control.slow_blocks.popleft())
        return found

    @property
    def skipped_blocks(self) -> int:
        """How many blocks batches left out because no host has them."""
        return self._control.skipped_blocks if self._control is not None else 0

    def allocate_blocks_to_batch(self, time_ms: int, /) -> None:
        """Give all waiting blocks to the batch; see `ReceivedBlockTracker`.

        Raises:
            LedgerWriteError: The driver log did not take it.
        """
        self.ledger.allocate_blocks_to_batch(time_ms)

    def get_blocks_of_batch(self, time_ms: int, /) -> Mapping[int, tuple[ReceivedBlockInfo, ...]]:
        """Return the batch's blocks by stream, in order."""
        return self.ledger.get_blocks_of_batch(time_ms)

    def get_blocks_of_batch_and_stream(
        self, time_ms: int, stream_id: int, /
    ) -> tuple[ReceivedBlockInfo, ...]:
        """Return the blocks of one stream in the batch, in order."""
        blocks = self.ledger.get_blocks_of_batch_and_stream(time_ms, stream_id)
        if not self._lost_attempts:
            return blocks
        return tuple(block for block in blocks if block.attempt not in self._lost_attempts)

    def has_unallocated_blocks(self) -> bool:
        """Whether any block waits for a batch."""
        return self.ledger.has_unallocated_blocks

    def incomplete_batches(self) -> tuple[int, ...]:
        """Times of the batches that are not known to be complete, in order."""
        return self.ledger.incomplete_batches()

    def complete_batches(self, times_ms: Iterable[int], /) -> None:
        """Note that batches were processed; see `ReceivedBlockTracker`."""
        self.ledger.complete_batches(times_ms)

    def last_allocated_ms(self) -> int:
        """Time of the last allocated batch, also of an earlier run; -1 before the first."""
        return self.ledger.last_allocated_ms

    def release_memory(self, time_ms: int, /) -> None:
        """Let the memory copies of a batch's blocks go, where the log also has the blocks."""
        self._deletion.release_memory(self.ledger.get_blocks_of_batch(time_ms))

    def cleanup_old_blocks_and_batches(self, threshold_ms: int, /) -> None:
        """Log that the batches before `threshold_ms` are done, then have their bytes deleted (I4).

        A living attempt deletes its own; what an ended one left, its host's block server does, or
        this process where it is on HDFS. Copies are deleted by the block servers that made them.
        """
        self._deletion.delete(self.ledger, self.ledger.cleanup_old_batches(threshold_ms))

    def release_places(self) -> None:
        """Forget consumers that never came back, and have deleted what no one needs any more."""
        service = self._place_service
        if service is None or self.state is TrackerState.STOPPED:
            return
        try:
            service.sweep()
        except LedgerWriteError as error:
            _log.error("%s; it is tried again", error)
        self._deletion.delete(self.ledger, self.ledger.places.release(service.retentions()))
        self._release_memory_of_places(service)
        service.backlogs.check()
        self._remove_states()

    def _remove_states(self) -> None:
        """Remove the states of continuous functions that the ledger has forgotten."""
        sources = self.ledger.places.sources()
        if sources != self._sources:
            own = frozenset() if self._continuous is None else self._continuous.sources()
            remove_states(self._logs, sources | own)
            self._sources = sources

    def _release_memory_of_places(self, service: PlaceService) -> None:
        """Let the memory copies go of what queries have read: it is for what they read next.

        The retention keeps the log. A segment on HDFS cannot be read while it is open, so there
        memory is let go by the receiver alone.
        """
        if is_on_hdfs(self._logs.root):
            return
        for stream_id in self._kept:
            begin, end = self._in_memory_from.get(stream_id, 0), service.read_before(stream_id)
            if end is not None and end > begin:
                _, blocks, _ = self.ledger.places.between(stream_id, begin, end)
                self._deletion.release_memory({stream_id: blocks})
                self._in_memory_from[stream_id] = end

    def waits_for_consumers(self, stream_id: int) -> bool:
        """Whether a stream that is read by places has as much unread as its bound allows."""
        service = self._place_service
        return service is not None and service.backlogs.is_held(stream_id)

    def fail_places(self, stream_id: int, reason: str) -> None:
        """Let readers of a stream by places know that nothing more will come, and why."""
        if self._place_service is not None:
            self._place_service.fail(stream_id, reason)


def _pickle(stream_id: int, receiver: Receiver) -> bytes:
    try:
        return _dumps(receiver)
    except Exception as error:  # whatever pickling runs into in the author's objects
        raise ReceiverPickleError(stream_id, type(receiver).__name__, text_of(error)) from error


def _dumps(thing: object) -> bytes:
    # PySpark's own copy of it, so that both ends have the same; it comes without types.
    pickled: bytes = cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]
    return pickled
