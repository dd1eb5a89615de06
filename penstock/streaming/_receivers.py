"""The receivers of a context: the tracker, if there are any, and what it reports of them.

The rates of its streams, with and without receivers, also begin and end here.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from penstock.errors import IllegalStateError, SettingError, StreamGraphError
from penstock.host.errors import ContinuousStreamError, PermanentReceiverError
from penstock.host.preparation import Run
from penstock.host.receiver_readings import (
    ReceiverReading,
    ReceiverReadings,
    ReceiverStatus,
)
from penstock.host.receivers import HostedReceivers
from penstock.listeners.bus import StreamingListenerBus
from penstock.listeners.events import (
    ReceiverError,
    ReceiverInfo,
    ReceiverStarted,
    ReceiverStopped,
)
from penstock.listeners.rate_controller import RateController
from penstock.rates import RateBook
from penstock.settings import Settings
from penstock.streaming.checkpoint.checkpointer import Checkpointing
from penstock.streaming.checkpoint.record import CheckpointHeader
from penstock.streaming.dstream.graph import DStreamGraph
from penstock.streaming.dstream.inputs.input_streams import DirectInputDStream, ReceiverInputDStream
from penstock.streaming.dstream.names import by_name
from penstock.streaming.durations import next_multiple
from penstock.streaming.received_blocks import NoReceivedBlocks, ReceivedBlocks
from penstock.tracker import (
    BatchCleanedError,
    EpochStatus,
    KeptStream,
    KeptStreamSettings,
    LedgerError,
    ReceivedBlockTracker,
    ReceiverTrackingInfo,
    Retention,
    SharedSource,
)
from penstock.tracker.ledger.places import CONTINUOUS
from penstock.wire.messages import (
    BlockTrace,
    ReceivedBlockInfo,
    ReportRateStatus,
)

if TYPE_CHECKING:
    pass


MOST_UNREAD_BYTES = 256 << 20
"""With this much that is in no logged epoch the receiver of a continuous stream waits."""


def _check_readers(ledger: ReceivedBlockTracker, nodes: Collection[ReceiverInputDStream]) -> None:
    """Refuse what queries of a `ReceiverHost` have yet to read: nothing here would forget them.

    Raises:
        LedgerError: A continuous stream has consumers beside its function.
    """
    for node in nodes:
        if node.continuous is None:
            continue
        found = ledger.places.stream(node.stream_id).consumers
        others = [each.consumer for each in found if each.consumer != CONTINUOUS]
        if others:
            raise LedgerError(
                f"queries of a ReceiverHost read the stream {node.name}, too, and what they have "
                f"not read would stay for ever: run it on a ReceiverHost, or forget "
                f"{', '.join(others)} with `penstock consumers FOLDER --drop CONSUMER`"
            )


class ReceiverSide:
    """Starts and stops the tracker of a context; without receivers there is none.

    Attributes:
        blocks: What batches ask for received blocks.
        hosted: The receivers and their tracker; None: there are none.
    """

    def __init__(
        self,
        graph: DStreamGraph,
        run: Run,
        *,
        bus: StreamingListenerBus,
        on_error: Callable[[BaseException], None],
        rates: RateBook,
        ledger: ReceivedBlockTracker | None,
        checkpointing: Checkpointing | None = None,
    ) -> None:
        upgraded = None if checkpointing is None else checkpointing.upgraded
        nodes = [node for node in graph.inputs if isinstance(node, ReceiverInputDStream)]
        self._graph = graph
        self.blocks: ReceivedBlocks = NoReceivedBlocks()
        self.hosted: HostedReceivers | None = None
        self._settings = run.settings
        self._batch_ms = graph.batch_ms
        self._bus = bus
        self._rates = rates
        self._clock = clock = run.clock
        self._readings = ReceiverReadings(rates, clock)
        self._controllers: list[RateController] = []
        self._keep_batches = checkpointing is not None and checkpointing.recovered is not None
        if not nodes:
            return
        assert ledger is not None
        keeps_blocks = run.durability.keeps_blocks
        _check_retention(run.settings, keeps_blocks)
        number_streams(
            graph,
            ledger,
            rates,
            removed=run.settings.removed_streams or (),
            is_kept=keeps_blocks,
            before=upgraded,
        )
        names = {node: name for name, node in stream_names(graph).items()}
        _check_readers(ledger, nodes)
        if upgraded is not None:
            hand_over(ledger, upgraded, is_resumed=self._keep_batches)
        self.hosted = HostedReceivers(
            graph.spark_context,
            {node.stream_id: (node.receiver, node.name) for node in nodes},
            run,
            ledger,
            events=_TrackerEvents(bus, on_error, self._readings),
            readings=self._readings,
            kept={
                node.stream_id: KeptStreamSettings(
                    names[node],
                    Retention(0),
                    max_backlog_bytes=MOST_UNREAD_BYTES,
                    continuous=node.continuous,
                )
                for node in nodes
                if node.continuous is not None
            },
            shared=[
                SharedSource(
                    node.shared_name, tuple(one.stream_id for one in node.siblings), node.receivers
                )
                for node in nodes
                if node.leads
            ],
        )
        self.blocks = self.hosted.tracker

    def start(self) -> None:
        """Start the tracker, which starts the receivers.

        Raises:
            SharedRateError: The server of the rate that is shared does not answer.
            UnwritableFolderError: A log folder on this host cannot be written.
            ArenaError: Encryption is on, and the memory folder of this host is not in memory.
            PenstockError: See `ReceiverTracker.start`.
        """
        if self.hosted is not None:
            self.hosted.check()
        # The first rates must be known before the first receiver registers.
        estimators = self._rates.start(self._settings, self._batch_ms, self._send_rates)
        self._controllers = [
            RateController(stream_id, estimator, self._rates)
            for stream_id, estimator in estimators.items()
        ]
        for controller in self._controllers:
            self._bus.add(controller)
        if self.hosted is not None:
            self.hosted.tracker.start(keep_batches=self._keep_batches)

    def _send_rates(
        self,
        stream_id: int,
        records_per_second: float | None,
        bytes_per_second: float | None,
        /,
        *,
        is_paused: bool = False,
        takes_over: bool = False,
    ) -> int:
        for node in self._graph.inputs:
            if node.stream_id == stream_id and isinstance(node, DirectInputDStream):
                node.update_rate(records_per_second)
                return 0
        assert self.hosted is not None
        return self.hosted.tracker.send_rate_update(
            *(stream_id, records_per_second, bytes_per_second),
            is_paused=is_paused,
            takes_over=takes_over,
        )

    def readings(self) -> dict[int, ReceiverReading]:
        """Return the last readings, by stream, of the receivers that were heard of lately."""
        return self._readings.readings()

    def take_traces(self) -> list[BlockTrace]:
        """Return the traces of blocks that came since the call before."""
        return self._readings.take_traces()

    def blocks_of_batch(self, time_ms: int) -> tuple[ReceivedBlockInfo, ...]:
        """Return the blocks of a batch; none once it is cleaned up."""
        if self.hosted is None:
            return ()
        try:
            found = self.hosted.tracker.get_blocks_of_batch(time_ms)
        except BatchCleanedError:
            return ()
        return tuple(block for blocks in found.values() for block in blocks)

    @property
    def count(self) -> int:
        """How many receivers there are."""
        return 0 if self.hosted is None else self.hosted.count

    @property
    def tasks(self) -> int:
        """How many Spark tasks the receivers are."""
        return 0 if self.hosted is None else self.hosted.tracker.tasks

    def status(self) -> tuple[ReceiverStatus, ...]:
        """Return the receivers as they are, in the order of their streams."""
        return () if self.hosted is None else self.hosted.status()

    def splits(self, stream_id: int) -> dict[int, tuple[str, ...] | None]:
        """Return which splits the receivers have that share a source with this one."""
        return {} if self.hosted is None else self.hosted.tracker.splits(stream_id)

    def scale(self, stream_id: int, count: int) -> None:
        """See `HostedReceivers.scale`."""
        assert self.hosted is not None
        self.hosted.scale(stream_id, count)

    def scale_by(self, more: int) -> None:
        """See `ReceiverTracker.scale_by`."""
        if self.hosted is not None:
            self.hosted.tracker.scale_by(more)

    def running(self) -> tuple[int, int]:
        """Return how many receivers run, and how many there are."""
        return (0, 0) if self.hosted is None else self.hosted.running()

    @property
    def skipped_blocks(self) -> int:
        """How many blocks batches left out because no host has them."""
        return 0 if self.hosted is None else self.hosted.tracker.skipped_blocks

    def unallocated_records(self) -> dict[int, int]:
        """Return how many records of each stream no batch has, as far as the ledger knows.

        Of a continuous stream, those that are in no epoch that is known to be committed.
        """
        if self.hosted is None:
            return {}
        tracker = self.hosted.tracker
        found = {
            stream_id: sum(
                block.num_records for block in tracker.ledger.unallocated_blocks(stream_id)
            )
            for stream_id in tracker.tracking_infos()
        }
        for stream_id, stream in self.kept().items():
            behind = [consumer.records_behind for consumer in stream.consumers]
            found[stream_id] = max(behind, default=stream.records)
        return found

    def newest_records(self, stream_id: int, count: int) -> tuple[str, list[Any]] | None:
        """Return the id and the first records of a stream's newest block.

        Returns:
            None where there is none, or it was just removed.

        Raises:
            IllegalStateError: The stream has no receiver, so its records are not kept here.
            Exception: What a record raises that is unpickled.
        """
        if self.hosted is None or stream_id not in self.hosted.tracker.tracking_infos():
            raise IllegalStateError("this stream has no receiver: there are no blocks of it here")
        ledger = self.hosted.tracker.ledger
        try:
            blocks = ledger.unallocated_blocks(stream_id)
            for time_ms in sorted(ledger.batch_times_ms, reverse=True):
                if blocks:
                    break
                blocks = ledger.get_blocks_of_batch_and_stream(time_ms, stream_id)
        except BatchCleanedError:
            return None
        return self.hosted.first_records(blocks, count)

    def executors(self) -> frozenset[str] | None:
        """Return the executors that hold receivers; None while one is being placed."""
        return frozenset() if self.hosted is None else self.hosted.tracker.allocated_executors()

    def stop_receiving(self, graceful: bool, timeout_s: float) -> None:
        """Stop the receivers; when graceful, their last blocks are stored and reported first."""
        if self.hosted is not None:
            self.hosted.tracker.stop_receiving(graceful, timeout_s)

    def kept(self) -> dict[int, KeptStream]:
        """Return what is kept of continuous streams, and how far their functions are."""
        if self.hosted is None:
            return {}
        tracker = self.hosted.tracker
        return {
            stream_id: tracker.ledger.places.stream(stream_id) for stream_id in tracker.epochs()
        }

    def epochs(self) -> dict[int, EpochStatus]:
        """Return where the epochs of continuous streams are, by stream."""
        return {} if self.hosted is None else self.hosted.tracker.epochs()

    def drain(self, timeout_s: float) -> None:
        """See `HostedReceivers.drain`."""
        if self.hosted is not None:
            self.hosted.drain(timeout_s)

    def stop(self, timeout_s: float) -> None:
        """Stop the tracker; no block can be read any more."""
        for controller in self._controllers:
            self._bus.remove(controller)
        if self.hosted is not None:
            self.hosted.stop(timeout_s)
        self._rates.stop()
        if self.hosted is not None:
            self.hosted.end_block_server()


class _TrackerEvents:
    """Hands what the tracker reports to the listeners, and what is final to the waiter."""

    def __init__(
        self,
        bus: StreamingListenerBus,
        on_error: Callable[[BaseException], None],
        readings: ReceiverReadings,
    ) -> None:
        self._bus = bus
        self._on_error = on_error
        self._readings = readings

    def receiver_started(self, info: ReceiverTrackingInfo, /) -> None:
        self._readings.started(info.stream_id)
        self._bus.post(ReceiverStarted(ReceiverInfo.of(info)))

    def receiver_error(self, info: ReceiverTrackingInfo, /) -> None:
        self._bus.post(ReceiverError(ReceiverInfo.of(info)))

    def receiver_stopped(self, info: ReceiverTrackingInfo, /) -> None:
        self._readings.ended(info.stream_id)
        self._bus.post(ReceiverStopped(ReceiverInfo.of(info)))

    def permanent_error(self, stream_id: int, message: str, error: str, /) -> None:
        self._on_error(PermanentReceiverError(stream_id, message, error))

    def continuous_error(self, stream_id: int, message: str, error: str, /) -> None:
        self._on_error(ContinuousStreamError(stream_id, message, error))

    def rate_status(self, report: ReportRateStatus, /) -> None:
        self._readings.take(report)


def _check_retention(settings: Settings, keeps_blocks: bool) -> None:
    """Check that what is to be retained outlives the program.

    Raises:
        SettingError: It does not.
    """
    if keeps_blocks or (settings.wal_retention_ms is None and settings.wal_retention_bytes is None):
        return
    key, value = (
        ("spark.penstock.wal.retention", f"{settings.wal_retention_ms}ms")
        if settings.wal_retention_ms is not None
        else ("spark.penstock.wal.retentionSize", str(settings.wal_retention_bytes))
    )
    raise SettingError(
        key,
        value,
        "only with logs that outlive the application; set a folder for them by "
        "StreamingContext.checkpoint(directory) or spark.penstock.wal.dir, and leave "
        "spark.streaming.receiver.writeAheadLog.enable as it is",
    )


# The names of a program's received streams, and the numbers that the ledger has for them.
#
# A stream is known by its number in blocks, folders, events and rates, and by its name from one
# version of a program to the next. Before anything starts, each received stream gets the number
# that the ledger has for its name; numbers of other inputs give way. A program that did not change
# finds its numbers as they are: in the order in which its inputs were made.
#
# A name is the program's own, or else made: from the receiver's type or function, and from the
# second of a kind on with its place among them.

_log = logging.getLogger("penstock.streaming")


def stream_names(graph: DStreamGraph) -> dict[str, ReceiverInputDStream]:
    """Return the received streams by name, in the order in which they were made.

    Raises:
        StreamGraphError: Two have the same name.
    """
    received = (node for node in graph.inputs if isinstance(node, ReceiverInputDStream))
    return by_name(((node.name, node) for node in received), "stream")


def number_streams(
    graph: DStreamGraph,
    ledger: ReceivedBlockTracker,
    rates: RateBook,
    *,
    removed: Collection[str] = (),
    is_kept: bool = True,
    before: CheckpointHeader | None = None,
) -> None:
    """Give each received stream the number that the ledger has for its name.

    Args:
        graph: The graph.
        ledger: The ledger; new names are registered in it.
        rates: Also knows streams by number.
        removed: Names of streams that the program gave up, with what the ledger has of them.
        is_kept: Whether the ledger outlives the program.
        before: The last checkpoint of the other version; None when there is none.

    Raises:
        StreamGraphError: Two streams have the same name, or their order alone would say which is
            which of another version.
        StreamsDoNotFitError: The ledger has records or positions of a stream that the program
            lacks.
        LedgerWriteError: The names could not be logged.
    """
    streams = stream_names(graph)
    kinds = Counter(node.name for node in streams.values() if not node.is_named)
    alike = sorted(kind for kind, count in kinds.items() if count > 1)
    if alike and before is not None:
        raise StreamGraphError(
            f"several streams of {', '.join(alike)} have no name, and version {before.version!r} "
            f"of the program may have had them in another order: name them, with stream.named(...)"
        )
    if alike and is_kept:
        _log.warning(
            "Several streams of %s have no name: a changed program tells them apart by their "
            "order only; name them, with stream.named(...)",
            ", ".join(alike),
        )
    if before is not None:
        others = [node.made_by for node in graph.inputs if node not in streams.values()]
        if others:
            _log.warning(
                "Inputs without a receiver start over in another version of a program: %s",
                ", ".join(others),
            )
    numbers = ledger.register_streams(
        {name: node.stream_id for name, node in streams.items()},
        removed,
        # Their functions read them by places.
        kept=[name for name, node in streams.items() if node.continuous is not None],
    )
    new = {node.stream_id: numbers[name] for name, node in streams.items()}
    taken = set(new.values())
    for node in graph.inputs:
        if node.stream_id not in new:
            number = node.stream_id if node.stream_id not in taken else max(taken) + 1
            new[node.stream_id] = number
            taken.add(number)
    if all(before == after for before, after in new.items()):
        return
    rates.renumber(new)
    for node in graph.inputs:
        node.stream_id = new[node.stream_id]


def hand_over(ledger: ReceivedBlockTracker, before: CheckpointHeader, *, is_resumed: bool) -> None:
    """Divide a ledger between two versions of a program; call before receivers start.

    A version that resumes has the batches of the one before. What no batch has gets one of its
    own: records of the new receivers may have another schema. For one that begins, the batches
    that are in the states count as complete.

    Args:
        ledger: The ledger.
        before: The last checkpoint of the version before.
        is_resumed: Which of the two.

    Raises:
        LedgerWriteError: It could not be logged.
    """
    if not is_resumed:
        # What no state has yet, as all of them have longer slides, is given again.
        in_states_ms = max((state.time_ms for state in before.states), default=-1)
        ledger.complete_batches(ms for ms in ledger.incomplete_batches() if ms <= in_states_ms)
    elif ledger.has_unallocated_blocks:
        last_ms = max(before.last_batch_ms, ledger.last_allocated_ms)
        ledger.allocate_blocks_to_batch(
            next_multiple(last_ms - before.zero_ms, before.batch_ms) + before.zero_ms
        )
