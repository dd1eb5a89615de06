"""ReceiverTracker: starts receivers, keeps them running, and knows their blocks (Spark's class)."""

from __future__ import annotations

import enum
import logging
import secrets
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from pyspark import cloudpickle

from penstock.blockstore import BlockAccess
from penstock.clock import Clock, SystemClock
from penstock.errors import IllegalStateError, PenstockError
from penstock.receiver import Receiver, ReceiverFailedError, ReceiverLaunch
from penstock.settings import Settings
from penstock.tracker._block_servers import BlockServers
from penstock.tracker._endpoint import TrackerEndpoint
from penstock.tracker._receiver_jobs import Launch, Next, ReceiverJob
from penstock.tracker._receiver_task import ReceiverTask
from penstock.tracker._receivers import Receivers
from penstock.tracker._restart_backoff import RestartBackoff
from penstock.tracker.cluster import Cluster, SparkCluster, TaskEnd
from penstock.tracker.errors import (
    LedgerError,
    NoExecutorsError,
    ReceiverPickleError,
    TooFewSlotsError,
)
from penstock.tracker.received_block_tracker import LedgerStatistics, ReceivedBlockTracker
from penstock.tracker.receiver_scheduling_policy import ReceiverSchedulingPolicy
from penstock.tracker.receiver_tracking_info import ReceiverInfo, ReceiverState
from penstock.tracker.task_location import TaskLocation
from penstock.wal import LogOptions, SyncPolicy
from penstock.wire import Peer, WireOptions
from penstock.wire.messages import (
    BlockServerRegistered,
    CleanupOldBlocks,
    DeregisterReceiver,
    EnsureBlockServer,
    Failure,
    Message,
    Ok,
    ReceivedBlockInfo,
    Refused,
    RegisterBlockServer,
    Registered,
    RegisterReceiver,
    ReportError,
    StopReceiver,
)

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["ReceiverTracker", "ReceiverTrackerEvents", "TrackerState"]

_log = logging.getLogger("penstock.tracker")

_DRIVER_SEGMENT_BYTES = 16 << 20
_IDS_PER_MESSAGE = 10_000
_CANCEL_S = 10.0
_LOOK_S = 0.25
_SERVER_GRACE_S = 1.0
_HOPELESS_STARTS = 3


class TrackerState(enum.Enum):
    """The life of a `ReceiverTracker`; it only moves forward."""

    INITIALIZED = 0
    STARTED = 1
    STOPPING = 2
    STOPPED = 3


class ReceiverTrackerEvents(Protocol):
    """Who is told of receivers. Called on the tracker's threads: must not block for long."""

    def receiver_started(self, info: ReceiverInfo, /) -> None:
        """A receiver registered."""

    def receiver_error(self, info: ReceiverInfo, /) -> None:
        """A receiver, or its job, had an error; it may go on."""

    def receiver_stopped(self, info: ReceiverInfo, /) -> None:
        """A receiver stopped; unless the tracker stops too, it starts again."""

    def permanent_error(self, stream_id: int, message: str, error: str, /) -> None:
        """A receiver cannot be started, however often it is tried; it is given up."""


class ReceiverTracker:
    """The driver's half of the receivers, and the door to the ledger of their blocks.

    Safe to use from any thread. `_lock` guards the tracker's own state; what is known of receivers
    is guarded by `Receivers`, what is known of blocks by `ReceivedBlockTracker`. Locks are never
    held while the network, the disk, Spark or a listener is waited for.
    """

    def __init__(
        self,
        spark_context: SparkContext | None,
        receivers: Mapping[int, tuple[Receiver, str]],
        settings: Settings,
        *,
        application_id: str,
        driver_log_folder: str | None,
        block_log_root: str,
        sync: str,
        events: ReceiverTrackerEvents,
        clock: Clock | None = None,
        remove_files: bool = False,
        cluster: Cluster | None = None,
    ) -> None:
        """Make a tracker; nothing happens before `start`.

        Args:
            spark_context: Where the receivers run.
            receivers: Receiver and name of each stream.
            settings: The application's settings.
            application_id: Spark's.
            driver_log_folder: Folder of the driver log; None: the ledger is in memory only.
            block_log_root: Folder on each host below which receivers make their logs.
            sync: Sync policy of all logs: ``none``, ``interval`` or ``always``.
            events: Is told of receivers.
            clock: Time.
            remove_files: Whether block servers remove the blocks' logs when the application ends.
            cluster: In place of the Spark application.
        """
        if cluster is None:
            if spark_context is None:
                raise ValueError("a SparkContext or a cluster is needed")
            cluster = SparkCluster(spark_context)
        self._cluster = cluster
        self._receiver_objects = {stream_id: found[0] for stream_id, found in receivers.items()}
        self._settings = settings
        self._application_id = application_id
        self._driver_log_folder = driver_log_folder
        self._block_log_root = block_log_root
        self._sync = sync
        self._events = events
        self._clock = clock or SystemClock()
        self._remove_files = remove_files
        self._secret = secrets.token_bytes(32)
        self._policy = ReceiverSchedulingPolicy()
        self._receivers = Receivers(
            {
                stream_id: (name, receiver.preferredLocation())
                for stream_id, (receiver, name) in receivers.items()
            },
            self._clock,
            is_local=cluster.is_local,
        )
        self._block_servers = BlockServers(settings.block_server_lease_s, self._clock)
        self._lock = threading.Lock()
        self._state = TrackerState.INITIALIZED
        self._pickled: dict[int, bytes] = {}
        self._first_locations: dict[int, tuple[TaskLocation, ...]] = {}
        self._hopeless: dict[int, int] = dict.fromkeys(receivers, 0)
        self._jobs: list[ReceiverJob] = []
        self._ledger: ReceivedBlockTracker | None = None
        self._endpoint: TrackerEndpoint | None = None
        self._address = ("", 0)

    # -- life ----------------------------------------------------------------------------------

    @property
    def state(self) -> TrackerState:
        """Where it is in its life."""
        with self._lock:
            return self._state

    def start(self) -> None:
        """Open the ledger, listen, and start all receivers.

        Raises:
            IllegalStateError: It was started before.
            TooFewSlotsError: The receivers would leave no slot for the batches.
            ReceiverPickleError: A receiver cannot be sent to an executor.
            NoExecutorsError: There is no executor.
            LogFolderInUseError, UnwritableFolderError, CorruptRecordError, LedgerRecoveryError:
                See `ReceivedBlockTracker.recover`.
            ServerStartError: The address cannot be bound.
        """
        with self._lock:
            if self._state is not TrackerState.INITIALIZED:
                raise IllegalStateError("ReceiverTracker already started")
            self._state = TrackerState.STARTED
        try:
            self._check_slots()
            self._pickled = {
                stream_id: _pickle(stream_id, receiver)
                for stream_id, receiver in self._receiver_objects.items()
            }
            self._ledger = self._open_ledger()
            self._listen(self._ledger)
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
            if endpoint is not None:
                self._block_servers.stop(self._remove_files)
                endpoint.stop()
        finally:
            if self._ledger is not None:
                self._ledger.close()

    def stop_receiving(self, graceful: bool, timeout_s: float) -> None:
        """Stop all receivers; the ledger and the block servers stay for the last batches (I10).

        Each is told to stop: it stores and reports its last blocks, deregisters, and its job ends.
        What has not ended in time is cancelled. May be called
        again when it was interrupted.

        Args:
            graceful: Wait the whole `timeout_s` for the receivers; else at most 10 s of it.
            timeout_s: The longest wait.
        """
        with self._lock:
            # STOPPING: a call before was interrupted, or another thread is in it too.
            if self._state not in (TrackerState.STARTED, TrackerState.STOPPING):
                return
            self._state = TrackerState.STOPPING
            jobs = list(self._jobs)
        for job in jobs:
            job.stop()
        self.stop_all_receivers()
        scheduled = [
            stream_id
            for stream_id, info in self._receivers.infos().items()
            if info.state is ReceiverState.SCHEDULED
        ]
        for job in jobs:
            # It has stored nothing yet, and may wait for a free slot for ever.
            if job.stream_id in scheduled and job.is_alive:
                job.cancel()
        end_s = time.monotonic() + (timeout_s if graceful else min(timeout_s, 10.0))
        self._await_jobs(jobs, end_s, "to store their last blocks and end")
        left = [job for job in jobs if job.is_alive]
        if left:
            _log.warning(
                "%d of %d receivers have not ended in time; their jobs are cancelled",
                len(left),
                len(jobs),
            )
            self._cancel(left)
        for info in self._receivers.deactivate_all():
            _log.warning("Receiver %d exited but didn't deregister", info.stream_id)
            self._tell(self._events.receiver_stopped, info.info)

    def _await_jobs(self, jobs: Sequence[ReceiverJob], end_s: float, what: str) -> None:
        said = False
        while True:
            alive = [job for job in jobs if not job.join(0)]
            left_s = end_s - time.monotonic()
            if not alive or left_s <= 0:
                return
            if not said and len(alive) == len(jobs) and left_s > _LOOK_S:
                _log.info("waiting up to %.1f s for %d receivers %s", left_s, len(alive), what)
                said = True
            alive[0].join(min(left_s, _LOOK_S))

    def _cancel(self, jobs: Sequence[ReceiverJob]) -> None:
        end_s = time.monotonic() + _CANCEL_S
        while jobs and time.monotonic() < end_s:
            # Again and again: a job may have been submitted just after it was cancelled.
            for job in jobs:
                job.cancel()
            self._await_jobs(jobs, min(end_s, time.monotonic() + 1.0), "to be cancelled")
            jobs = [job for job in jobs if job.is_alive]
        if jobs:
            _log.error(
                "the jobs %s did not end within %g s after they were cancelled",
                ", ".join(job.tag for job in jobs),
                _CANCEL_S,
            )

    def _check_slots(self) -> None:
        slots, receivers = self._cluster.slots, len(self._receiver_objects)
        if slots is not None and slots <= receivers:
            raise TooFewSlotsError(self._cluster.master, slots, receivers)

    def _open_ledger(self) -> ReceivedBlockTracker:
        streams = self._receiver_objects
        if self._driver_log_folder is None:
            return ReceivedBlockTracker(streams, clock=self._clock)
        return ReceivedBlockTracker.recover(
            streams,
            self._driver_log_folder,
            options=LogOptions(
                segment_size=_DRIVER_SEGMENT_BYTES,
                alignment=64,
                sync=SyncPolicy(self._sync),
                sync_interval_s=self._settings.wal_sync_interval_ms / 1000,
            ),
            clock=self._clock,
            snapshot_age_s=self._settings.driver_wal_rolling_s,
            owner=self._application_id.encode(),
        )

    def _listen(self, ledger: ReceivedBlockTracker) -> None:
        host, advertised = self._cluster.addresses(self._settings.tracker_bind_address)
        endpoint = TrackerEndpoint(
            self._secret,
            ledger,
            self,
            host=host,
            port=self._settings.tracker_port,
            options=WireOptions(max_frame_bytes=self._settings.max_frame_bytes),
        )
        bound = endpoint.start()
        self._endpoint = endpoint
        self._address = (advertised or bound[0], bound[1])
        _log.info("the tracker listens at %s:%d", *bound)

    # -- receivers -----------------------------------------------------------------------------

    def start_all_receivers(self) -> None:
        """Place all receivers and start their jobs (Spark's ``StartAllReceivers``)."""
        self._cluster.wait_for_executors()
        executors = self._cluster.executors()
        if not executors and self._receiver_objects:
            raise NoExecutorsError(
                "no executor is up, so no receiver can run: look at the cluster manager"
            )
        wishes = {stream: self._receivers.preferred(stream) for stream in self._receiver_objects}
        self._first_locations = self._policy.schedule_receivers(wishes, executors)
        settings = self._settings
        with self._lock:
            self._jobs = [
                ReceiverJob(
                    stream_id,
                    self._cluster,
                    self,
                    RestartBackoff(settings.restart_max_delay_s, settings.restart_reset_s),
                    self._clock,
                )
                for stream_id in self._receiver_objects
            ]
        for job in self._jobs:
            job.start()

    def stop_all_receivers(self) -> None:
        """Tell all connected receivers to stop (Spark's ``StopAllReceivers``)."""
        for peer in self._receivers.active_peers():
            peer.send(StopReceiver())

    def all_receiver_ids(self) -> tuple[int, ...]:
        """Return the streams whose receivers are not INACTIVE (Spark's ``AllReceiverIds``)."""
        return tuple(
            stream_id
            for stream_id, info in self._receivers.infos().items()
            if info.state is not ReceiverState.INACTIVE
        )

    def get_all_receiver_info(self) -> dict[int, ReceiverInfo]:
        """Return all receivers by stream (Spark's ``GetAllReceiverInfo``)."""
        return {stream_id: info.info for stream_id, info in self._receivers.infos().items()}

    def receiver_infos(self) -> tuple[ReceiverInfo, ...]:
        """Return all receivers in the order of their streams."""
        return tuple(info for _, info in sorted(self.get_all_receiver_info().items()))

    def update_receiver_rate_limit(self, stream_id: int, records_per_second: float) -> None:
        """Give a receiver another rate, also when it is started again."""
        self._receivers.update_rate(stream_id, records_per_second)

    def send_rate_update(self, stream_id: int, records_per_second: float) -> None:
        """The same under the name that rate controllers call."""
        self.update_receiver_rate_limit(stream_id, records_per_second)

    # -- blocks --------------------------------------------------------------------------------

    @property
    def ledger(self) -> ReceivedBlockTracker:
        """The ledger.

        Raises:
            IllegalStateError: Before `start`.
        """
        if self._ledger is None:
            raise IllegalStateError("the ReceiverTracker was not started")
        return self._ledger

    @property
    def block_access(self) -> BlockAccess:
        """What a batch task needs to reach blocks, as of now."""
        return BlockAccess(
            servers=self._block_servers.addresses(),
            secret=self._secret,
            fetch_timeout_s=self._settings.ask_timeout_s,
        )

    def allocate_blocks_to_batch(self, time_ms: int, /) -> None:
        """Give all waiting blocks to the batch; see `ReceivedBlockTracker`."""
        self.ledger.allocate_blocks_to_batch(time_ms)

    def get_blocks_of_batch(self, time_ms: int, /) -> Mapping[int, tuple[ReceivedBlockInfo, ...]]:
        """Return the batch's blocks by stream, in order."""
        return self.ledger.get_blocks_of_batch(time_ms)

    def get_blocks_of_batch_and_stream(
        self, time_ms: int, stream_id: int, /
    ) -> tuple[ReceivedBlockInfo, ...]:
        """Return the blocks of one stream in the batch, in order."""
        return self.ledger.get_blocks_of_batch_and_stream(time_ms, stream_id)

    def has_unallocated_blocks(self) -> bool:
        """Whether any block waits for a batch."""
        return self.ledger.has_unallocated_blocks

    def statistics(self) -> LedgerStatistics:
        """Return the ledger's counts."""
        return self.ledger.statistics()

    def cleanup_old_blocks_and_batches(self, threshold_ms: int, /) -> None:
        """Log that the batches before `threshold_ms` are done, then have their bytes deleted (I4).

        A living attempt deletes its own; what an ended one left, its host's block server does.
        """
        attempts: dict[str, list[str]] = {}
        segments: dict[str, list[tuple[str, int]]] = {}
        for release in self.ledger.cleanup_old_batches(threshold_ms):
            if release.ended:
                segments.setdefault(release.host, []).extend(release.segments)
                if release.whole:
                    attempts.setdefault(release.host, []).append(release.attempt)
                continue
            self._receivers.clean_up(
                release.stream_id,
                release.attempt,
                _cleanups(release.block_ids, release.segments),
            )
        for host in {*attempts, *segments}:
            gone = attempts.get(host, [])
            if self._block_servers.release(host, gone, segments.get(host, [])) and gone:
                self.ledger.forget_attempts(gone)

    # -- the jobs' threads ---------------------------------------------------------------------

    def next_launch(self, stream_id: int) -> Launch | None:
        """Prepare a new attempt of a receiver (`ReceiverJobOwner`)."""
        if self.state is not TrackerState.STARTED:
            return None
        executors = self._cluster.executors()
        with self._lock:
            locations = self._first_locations.pop(stream_id, None)
        if locations is None:
            locations = self._policy.reschedule_receiver(
                stream_id, self._receivers.preferred(stream_id), self._receivers.infos(), executors
            )
        attempt = uuid.uuid4().hex
        receiver = self._receiver_objects[stream_id]
        launch = ReceiverLaunch(
            stream_id=stream_id,
            attempt=attempt,
            receiver=self._pickled[stream_id],
            tracker_address=self._address,
            secret=self._secret,
            application_id=self._application_id,
            settings=self._settings,
            block_log_root=self._block_log_root,
            sync=self._sync,
            storage_level=ReceiverLaunch.storage_level_tuple(receiver.storageLevel),
            executor_hosts={executor.executor_id: executor.host for executor in executors},
        )
        self._receivers.schedule(stream_id, attempt, locations)
        return Launch(attempt, ReceiverTask(launch, self._remove_files), locations)

    def job_ended(
        self, stream_id: int, attempt: str, end: TaskEnd | None, error: Exception | None
    ) -> Next:
        """Take note of a job's end and say whether the receiver starts again (`ReceiverJobOwner`).

        It does unless the tracker stops, the receiver ended for good, or it is hopeless.
        """
        stopping = self.state is not TrackerState.STARTED
        if error is not None and not stopping:
            text, trace = f"The job of receiver {stream_id} failed", _text_of(error)
            _log.warning("%s: %s", text, _headline(trace))
            self._tell(
                self._events.receiver_error,
                self._receivers.keep_error(stream_id, text, trace).info,
            )
        ended = self._receivers.job_ended(stream_id, attempt)
        if ended.was_active:
            _log.warning("Receiver %d exited but didn't deregister", stream_id)
            self._tell(self._events.receiver_stopped, ended.info.info)
        if ended.disconnected:
            self.ledger.end_attempt(attempt)
        if not ended.registered:
            # It may have made its files, on whichever host it was.
            self._block_servers.release_everywhere((attempt,))
        if stopping or ended.permanent:
            return Next.DONE
        if end is TaskEnd.ENDED and not ended.bounced:
            return Next.DONE
        return self._judge(stream_id, ended.registered, error)

    def _judge(self, stream_id: int, registered: bool, error: Exception | None) -> Next:
        """Give a receiver up whose task raises in Python again and again before it registers."""
        trace = _text_of(error) if error is not None else ""
        with self._lock:
            hopeless = (
                not registered
                and "Traceback (most recent call last)" in trace
                and ReceiverFailedError.__name__ not in trace
            )
            self._hopeless[stream_id] = self._hopeless[stream_id] + 1 if hopeless else 0
            if self._hopeless[stream_id] < _HOPELESS_STARTS:
                return Next.START_AGAIN
        self._permanent(
            stream_id, f"Receiver {stream_id} failed {_HOPELESS_STARTS} times at its start", trace
        )
        return Next.DONE

    def job_thread_died(self, stream_id: int, error: BaseException) -> None:
        """Tell the user of a defect (`ReceiverJobOwner`)."""
        trace = "".join(traceback.format_exception(error))
        self._permanent(stream_id, f"The thread of receiver {stream_id} died", trace)

    def _permanent(self, stream_id: int, message: str, error: str) -> None:
        _log.error("%s; it is given up", message)
        try:
            self._events.permanent_error(stream_id, message, error)
        except Exception:  # noqa: BLE001 - the user's code; the tracker goes on
            _log.exception("a listener failed")

    def _tell(self, event: Callable[[ReceiverInfo], None], info: ReceiverInfo) -> None:
        try:
            event(info)
        except Exception:  # noqa: BLE001 - the user's code; the tracker goes on
            _log.exception("a listener failed")

    # -- the control thread --------------------------------------------------------------------

    def on_control(self, peer: Peer, message: Message) -> Message:
        """Deal with a message of a receiver or a block server (`ControlHandler`)."""
        if isinstance(message, RegisterReceiver):
            return self._register(peer, message)
        if isinstance(message, ReportError):
            self._report_error(message)
            return Ok()
        if isinstance(message, DeregisterReceiver):
            info = self._receivers.deregister(message)
            if info is not None:
                _log.info("Deregistered receiver %d: %s", message.stream_id, message.message)
                self._tell(self._events.receiver_stopped, info.info)
            return Ok()
        if isinstance(message, RegisterBlockServer):
            self._block_servers.register(peer, message)
            _log.info("block server of %s: %s:%d", message.host, *message.address)
            return BlockServerRegistered(self._settings.block_server_lease_s)
        return Refused(f"{type(message).__name__} is not for the tracker")

    def _register(self, peer: Peer, message: RegisterReceiver) -> Message:
        refusal = self._refusal(message)
        if refusal is not None:
            _log.warning("refused a receiver: %s", refusal)
            return Refused(refusal)
        try:
            registration = self.ledger.register_attempt(
                message.stream_id, message.attempt, message.host
            )
        except LedgerError as error:
            # A log that is full now may have space later.
            return Failure(str(error))
        info, new, rate = self._receivers.register(peer, message)
        if self.state is not TrackerState.STARTED:
            # It came just when the receivers were told to stop, and would never hear of it.
            peer.send(StopReceiver())
        elif self._block_servers.is_lost(message.host):
            # It died while no receiver was there to start another.
            peer.send(EnsureBlockServer())
        if new:
            _log.info("Registered receiver %d from %s", message.stream_id, message.host)
            self._tell(self._events.receiver_started, info.info)
        return Registered(registration.first_block_number, registration.last_position, rate)

    def _refusal(self, message: RegisterReceiver) -> str | None:
        if self.state is not TrackerState.STARTED:
            return f"the tracker stops, so receiver {message.stream_id} may not start"
        return self._receivers.refusal(message)

    def _report_error(self, message: ReportError) -> None:
        info = self._receivers.report_error(message)
        if info is None:
            return
        _log.warning("Receiver %d: %s", message.stream_id, message.message)
        self._tell(self._events.receiver_error, info.info)
        if message.permanent:
            self._permanent(message.stream_id, message.message, message.error)

    def on_peer_gone(self, peer: Peer) -> None:
        """Deal with the end of a connection (`ControlHandler`)."""
        gone = self._receivers.disconnected(peer)
        if gone is not None:
            attempt, is_over = gone
            if is_over:
                self.ledger.end_attempt(attempt)
            return
        host = self._block_servers.disconnected(peer)
        with self._lock:
            endpoint = self._endpoint
            running = self._state is TrackerState.STARTED
        if host is not None and endpoint is not None and running:
            # It may only have lost its connection; give it a moment to come back.
            endpoint.later(_SERVER_GRACE_S, lambda: self._replace_block_server(host))

    def _replace_block_server(self, host: str) -> None:
        if self._block_servers.is_served(host) or self.state is not TrackerState.STARTED:
            return
        peer = self._receivers.peer_on(host)
        if peer is None:
            _log.warning(
                "the block server of %s is gone, and no receiver there can start one", host
            )
            return
        _log.warning("the block server of %s is gone; a receiver there starts another", host)
        peer.send(EnsureBlockServer())


def _pickle(stream_id: int, receiver: Receiver) -> bytes:
    try:
        # PySpark's own copy of it, so that both ends have the same; it comes without types.
        pickled: bytes = cloudpickle.dumps(receiver)  # type: ignore[no-untyped-call]
    except Exception as error:  # whatever pickling runs into in the author's objects
        raise ReceiverPickleError(stream_id, type(receiver).__name__, str(error)) from error
    return pickled


def _text_of(error: BaseException) -> str:
    """Return what there is to know of a failed job: Spark puts the task's traceback there."""
    return str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"


def _headline(text: str) -> str:
    """Return the line of a failed job's text that says most: Java's text ends with its stack."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    telling = [line for line in lines if not line.startswith(("at ", "... ", "File "))]
    return (causes or telling or lines or ["no reason given"])[-1]


def _cleanups(
    block_ids: tuple[str, ...], segments: tuple[tuple[str, int], ...]
) -> Sequence[CleanupOldBlocks]:
    """Return messages that fit into frames."""
    found = [
        CleanupOldBlocks(block_ids[start : start + _IDS_PER_MESSAGE], ())
        for start in range(0, len(block_ids), _IDS_PER_MESSAGE)
    ]
    if segments:
        found.append(CleanupOldBlocks((), segments))
    return found
