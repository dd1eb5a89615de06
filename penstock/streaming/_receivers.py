"""The receivers of a context: the tracker, if there are any, and what it tells of them.

The rates of its streams, with and without receivers, begin and end here, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from penstock.blockstore import check_in_memory, end_on_this_host
from penstock.clock import Clock
from penstock.errors import IllegalStateError
from penstock.receiver import SharedRatePlace
from penstock.settings import Settings
from penstock.streaming._durability import Durability, check_writable
from penstock.streaming._stream_numbers import check_ledger, hand_over, number_streams
from penstock.streaming.checkpoint.folder import CheckpointHeader
from penstock.streaming.dstream.graph import DStreamGraph
from penstock.streaming.dstream.input_streams import DirectInputDStream, ReceiverInputDStream
from penstock.streaming.errors import PermanentReceiverError
from penstock.streaming.listeners.bus import StreamingListenerBus
from penstock.streaming.listeners.events import (
    ReceiverError,
    ReceiverInfo,
    ReceiverStarted,
    ReceiverStopped,
)
from penstock.streaming.rates import RateBook, RateController
from penstock.streaming.received_blocks import NoReceivedBlocks, ReceivedBlocks
from penstock.streaming.receiver_status import ReceiverStatus
from penstock.tracker.receiver_tracker import ReceiverTracker, open_ledger
from penstock.tracker.receiver_tracking_info import ReceiverInfo as TrackedReceiver
from penstock.tracker.receiver_tracking_info import ReceiverState
from penstock.wal import EncryptionKey
from penstock.wire.addresses import address_text

if TYPE_CHECKING:
    from pyspark import SparkContext

__all__ = ["ReceiverSide"]

_STATES = {
    ReceiverState.INACTIVE: "stopped",
    ReceiverState.SCHEDULED: "starting",
    ReceiverState.ACTIVE: "running",
}


class ReceiverSide:
    """Starts and stops the tracker of a context; without receivers there is none.

    Attributes:
        blocks: What batches ask for received blocks.
    """

    def __init__(
        self,
        spark_context: SparkContext,
        graph: DStreamGraph,
        settings: Settings,
        durability: Durability,
        *,
        run_id: str,
        clock: Clock,
        bus: StreamingListenerBus,
        on_error: Callable[[BaseException], None],
        rates: RateBook,
        made_ms: int | None = None,
        upgraded: CheckpointHeader | None = None,
        encryption: EncryptionKey | None = None,
    ) -> None:
        nodes = [node for node in graph.inputs if isinstance(node, ReceiverInputDStream)]
        self._graph = graph
        self.blocks: ReceivedBlocks = NoReceivedBlocks()
        self._tracker: ReceiverTracker | None = None
        self._durability = durability
        self._memory_dir = settings.memory_dir
        self._run_id = run_id
        self._settings = settings
        self._is_encrypted = encryption is not None
        self._batch_ms = graph.batch_ms
        self._bus = bus
        self._rates = rates
        self._controllers: list[RateController] = []
        self._is_local = (spark_context.master or "").startswith("local")
        self._shared_rate = SharedRatePlace.of(settings) if nodes else None
        if not nodes:
            return
        ledger = open_ledger(
            (),
            durability.driver_log_folder,
            settings,
            sync=durability.sync,
            owner=run_id,
            clock=clock,
            encryption=encryption,
        )
        keep_batches = made_ms is not None
        try:
            if made_ms is not None:
                check_ledger(graph, ledger, durability.driver_log_folder, made_ms, durability.sync)
            number_streams(
                graph,
                ledger,
                rates,
                removed=settings.removed_streams or (),
                is_kept=durability.keeps_blocks,
                before=upgraded,
            )
            if upgraded is not None:
                hand_over(ledger, upgraded, is_resumed=keep_batches)
            self._tracker = ReceiverTracker(
                spark_context,
                {node.stream_id: (node.receiver, node.name) for node in nodes},
                settings,
                application_id=run_id,
                driver_log_folder=durability.driver_log_folder,
                block_log_root=durability.block_log_root,
                host_root=durability.host_root,
                sync=durability.sync,
                events=_TrackerEvents(bus, on_error, rates),
                clock=clock,
                remove_files=not durability.keeps_blocks,
                keep_batches=keep_batches,
                blocks_outlive_run=durability.keeps_blocks,
                on_rate_status=rates.on_rate_status,
                shared_rate=self._shared_rate,
                encryption=encryption,
                ledger=ledger,
            )
        except BaseException:
            ledger.close()
            raise
        self.blocks = self._tracker

    def start(self) -> None:
        """Start the tracker, which starts the receivers.

        Raises:
            SharedRateError: The server of the rate that is shared does not answer.
            UnwritableFolderError: A log folder on this host cannot be written.
            ArenaError: Encryption is on, and the memory folder of this host is not in memory.
            PenstockError: See `ReceiverTracker.start`.
        """
        if self._is_local and self._tracker is not None:
            # Executors are on this host, so that what they would find can be said now.
            check_writable(self._durability.host_root)
            if self._is_encrypted:
                check_in_memory(self._memory_dir)
        if self._shared_rate is not None:
            # Receivers would wait for it, and nobody would see why.
            self._shared_rate.check()
        # The first rates must be known before the first receiver registers.
        self._controllers = self._rates.start(self._settings, self._batch_ms, self._send_rates)
        for controller in self._controllers:
            self._bus.add(controller)
        if self._tracker is not None:
            self._tracker.start()

    def _send_rates(
        self, stream_id: int, records_per_second: float | None, bytes_per_second: float | None
    ) -> int:
        for node in self._graph.inputs:
            if node.stream_id == stream_id and isinstance(node, DirectInputDStream):
                node.update_rate(records_per_second)
                return 0
        assert self._tracker is not None
        return self._tracker.send_rate_update(stream_id, records_per_second, bytes_per_second)

    @property
    def count(self) -> int:
        """How many receivers there are."""
        return 0 if self._tracker is None else len(self._tracker.get_all_receiver_info())

    def status(self) -> tuple[ReceiverStatus, ...]:
        """Return the receivers as they are, in the order of their streams."""
        tracker = self._tracker
        if tracker is None:
            return ()
        try:
            ledger = tracker.ledger
        except IllegalStateError:
            return ()  # It has not started.
        found = []
        for stream_id, info in sorted(tracker.tracking_infos().items()):
            records, blocks = ledger.received(stream_id)
            position = ledger.last_position(stream_id)
            address = tracker.address(stream_id)
            found.append(
                ReceiverStatus(
                    stream_id,
                    info.info.name,
                    _STATES[info.state],
                    info.info.location,
                    info.info.executorId,
                    "" if address is None else address_text(*address),
                    info.attempts,
                    records,
                    blocks,
                    None if position is None else msgspec.msgpack.decode(position),
                    info.last_error_message,
                    info.last_error_time_ms,
                )
            )
        return tuple(found)

    def running(self) -> tuple[int, int]:
        """Return how many receivers run, and how many there are."""
        if self._tracker is None:
            return 0, 0
        infos = self._tracker.get_all_receiver_info().values()
        return sum(info.active for info in infos), len(infos)

    @property
    def skipped_blocks(self) -> int:
        """How many blocks batches left out because no host has them."""
        return 0 if self._tracker is None else self._tracker.skipped_blocks

    def unallocated_records(self) -> dict[int, int]:
        """Return how many records of each stream no batch has, as far as the ledger knows."""
        if self._tracker is None:
            return {}
        try:
            ledger = self._tracker.ledger
        except IllegalStateError:
            return {}  # It has not started.
        return {
            stream_id: sum(block.num_records for block in ledger.unallocated_blocks(stream_id))
            for stream_id in self._tracker.get_all_receiver_info()
        }

    def executors(self) -> frozenset[str] | None:
        """Return the executors that hold receivers; None while one is being placed."""
        return frozenset() if self._tracker is None else self._tracker.allocated_executors()

    def stop_receiving(self, graceful: bool, timeout_s: float) -> None:
        """Stop the receivers; when graceful, their last blocks are stored and reported first."""
        if self._tracker is not None:
            self._tracker.stop_receiving(graceful, timeout_s)

    def stop(self, timeout_s: float) -> None:
        """Stop the tracker; no block can be read any more."""
        for controller in self._controllers:
            self._bus.remove(controller)
        if self._tracker is not None:
            self._tracker.stop(False, timeout_s)
        self._rates.stop()
        if self._tracker is not None:
            # A block server that was only just starting was never told; other hosts' end by their
            # lease.
            end_on_this_host(
                self._run_id,
                block_log_root=self._durability.host_root,
                memory_folder=self._memory_dir,
            )


class _TrackerEvents:
    """Hands what the tracker tells to the listeners, and what is final to the waiter."""

    def __init__(
        self,
        bus: StreamingListenerBus,
        on_error: Callable[[BaseException], None],
        rates: RateBook,
    ) -> None:
        self._bus = bus
        self._on_error = on_error
        self._rates = rates

    def receiver_started(self, info: TrackedReceiver, /) -> None:
        self._rates.receiver_started(info.streamId)
        self._bus.post(ReceiverStarted(_info(info)))

    def receiver_error(self, info: TrackedReceiver, /) -> None:
        self._bus.post(ReceiverError(_info(info)))

    def receiver_stopped(self, info: TrackedReceiver, /) -> None:
        self._rates.receiver_stopped(info.streamId)
        self._bus.post(ReceiverStopped(_info(info)))

    def permanent_error(self, stream_id: int, message: str, error: str, /) -> None:
        self._on_error(PermanentReceiverError(stream_id, message, error))


def _info(info: TrackedReceiver) -> ReceiverInfo:
    return ReceiverInfo(
        info.streamId,
        info.name,
        info.active,
        info.location,
        info.executorId,
        info.lastErrorMessage,
        info.lastError,
        info.lastErrorTime,
    )
