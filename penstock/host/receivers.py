"""The receivers of a program and their tracker, from an open ledger to the end."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from penstock.blockstore import (
    BlockNotFoundError,
    check_in_memory,
    end_on_this_host,
    read_block,
)
from penstock.dead_letters import LetterName, program_of
from penstock.errors import IllegalStateError
from penstock.files.addresses import is_shared
from penstock.host.durability import check_writable
from penstock.host.preparation import Run
from penstock.host.receiver_readings import ReceiverReadings, ReceiverStatus
from penstock.host.spark.startup_checks import check_cores
from penstock.receiver import policy_of
from penstock.tracker import (
    KeptStreamSettings,
    ReceivedBlockTracker,
    ReceiverState,
    ReceiverTracker,
    ReceiverTrackerEvents,
    ReceiverTrackingInfo,
    SharedSource,
    SparkCluster,
)
from penstock.wire.addresses import address_text
from penstock.wire.messages import LettersSent, ReceivedBlockInfo

if TYPE_CHECKING:
    from pyspark import SparkContext

    from penstock.receiver import Receiver

_STATES = {
    ReceiverState.INACTIVE: "stopped",
    ReceiverState.SCHEDULED: "starting",
    ReceiverState.ACTIVE: "running",
}

_log = logging.getLogger("penstock.host")

_LETTERS_S = 8.0
"""Less than the ten seconds that a command waits for an answer."""


class HostedReceivers:
    """Starts and stops the tracker of a program's receivers.

    Args:
        spark_context: Where they run.
        receivers: Receiver and name of each stream.
        run: The run.
        ledger: The ledger, open, with the streams registered; closed by `stop`.
        events: Is notified of receivers.
        readings: What they report, and their rates; notified by `events`.
        kept: The streams that are read by places.
        shared: The streams whose receivers share a source.

    Attributes:
        tracker: The tracker.
        letters_program: What its dead letters are known by below a folder that programs share; else
            empty.
    """

    _made: ClassVar[weakref.WeakSet[HostedReceivers]] = weakref.WeakSet()

    def __init__(
        self,
        spark_context: SparkContext,
        receivers: Mapping[int, tuple[Receiver, str]],
        run: Run,
        ledger: ReceivedBlockTracker,
        *,
        events: ReceiverTrackerEvents,
        readings: ReceiverReadings,
        kept: Mapping[int, KeptStreamSettings] | None = None,
        shared: Sequence[SharedSource] = (),
    ) -> None:
        self.readings = readings
        self._spark_context = spark_context
        self._run = run
        self._receivers = tuple(receiver for receiver, _ in receivers.values())
        logs = run.logs()
        self.letters_program = program_of(logs.letters_place(run.settings).folder)
        self.tracker = ReceiverTracker(
            SparkCluster(spark_context),
            receivers,
            run.settings,
            ledger=ledger,
            logs=logs,
            events=events,
            clock=run.clock,
            kept=kept,
            shared=shared,
        )
        HostedReceivers._made.add(self)

    @classmethod
    def running_in(cls, spark_context: SparkContext) -> int:
        """Return how many tasks of receivers an application has: each is to hold a core."""
        return sum(
            found.tracker.jobs_left()
            for found in list(cls._made)
            if found._spark_context is spark_context
        )

    def check(self) -> None:
        """Say now what receivers would run into, as far as it can be seen from here.

        Raises:
            SharedRateError: The server of the rate that is shared does not answer.
            UnwritableFolderError: A log folder on this host cannot be written.
            SettingError: A receiver is reliable, and its policy drops records.
            ArenaError: Encryption is on, and the memory folder of this host is not in memory.
        """
        settings = self._run.settings
        for receiver in self._receivers:
            policy_of(receiver, settings)
        if self._run.is_local:
            # Executors are on this host, so that what they would find can be said now.
            check_writable(self._run.durability.host_root)
            letters = settings.dead_letters_dir if settings.dead_letters_enabled else None
            if letters is not None and not is_shared(letters):
                check_writable(letters)
            if self._run.encryption is not None:
                check_in_memory(settings.memory_dir)
        if self.tracker.shared_rate is not None:
            # Receivers would wait for it, and no one would see why.
            self.tracker.shared_rate.check()

    def status(self) -> tuple[ReceiverStatus, ...]:
        """Return the receivers as they are, in the order of their streams."""
        waits = self.readings.waits()
        ledger, idle = self.tracker.ledger, self.tracker.idle_receivers()
        found = []
        for stream_id, info in sorted(self.tracker.tracking_infos().items()):
            records, blocks = ledger.received(stream_id)
            position = ledger.last_position(stream_id)
            address = self.tracker.address(stream_id)
            found.append(
                ReceiverStatus(
                    stream_id,
                    info.name,
                    "idle" if stream_id in idle else self._state_of(stream_id, info),
                    info.location,
                    info.executor_id,
                    "" if address is None else address_text(*address),
                    info.attempts,
                    records,
                    blocks,
                    None if position is None else msgspec.msgpack.decode(position),
                    info.last_error_message,
                    info.last_error_time_ms,
                    waits.get(stream_id),
                    addresses=info.addresses,
                    dropped=info.dropped,
                )
            )
        return tuple(found)

    def _state_of(self, stream_id: int, info: ReceiverTrackingInfo) -> str:
        is_first = info.state is ReceiverState.INACTIVE and not info.attempts
        if is_first and not self.tracker.is_over(stream_id):
            return "starting"  # Its job has not begun yet.
        return _STATES[info.state]

    def check_not_over(self, stream_id: int) -> None:
        """Say so if a receiver was stopped or given up, or its source has ended for good.

        Raises:
            IllegalStateError: It is over.
        """
        if self.tracker.is_over(stream_id):
            raise IllegalStateError(
                f"the receiver of stream {stream_id} has ended, and is not started again"
            )

    def restart(self, stream_id: int, reason: str) -> None:
        """Have a receiver stop and start again.

        Raises:
            IllegalStateError: It does not run now.
        """
        self.check_not_over(stream_id)
        if not self.tracker.restart_receiver(stream_id, reason):
            raise IllegalStateError(
                f"the receiver of stream {stream_id} does not run now; it is started by itself"
            )

    def seal(self, stream_id: int) -> None:
        """Have the receiver of a stream seal its open block now.

        Raises:
            IllegalStateError: It does not run now.
        """
        self.check_not_over(stream_id)
        if not self.tracker.seal_block(stream_id):
            raise IllegalStateError(f"the receiver of stream {stream_id} does not run now")

    def send_letters(
        self, stream_id: int, letters: Sequence[tuple[LetterName, bytes]], even_sent: bool
    ) -> LettersSent:
        """Have a receiver store dead letters of its stream again.

        Raises:
            PenstockError: It could not, or has not said so yet.
        """
        return self.tracker.letter_sends.ask(
            stream_id, letters, even_sent=even_sent, timeout_s=_LETTERS_S
        )

    def first_records(
        self, blocks: Sequence[ReceivedBlockInfo], count: int
    ) -> tuple[str, list[Any]] | None:
        """Return the id and the first records of the last of some blocks that has records.

        Returns:
            None where there is none, or it was just removed.

        Raises:
            Exception: What a record raises that is unpickled.
        """
        full = [block for block in blocks if block.num_records]
        if not full:
            return None
        try:
            with read_block(full[-1], self.tracker.block_access) as block:
                return full[-1].block_id, list(islice(block.records(), count))
        except BlockNotFoundError:
            return None

    @property
    def count(self) -> int:
        """How many receivers there are."""
        return len(self.tracker.tracking_infos())

    def running(self) -> tuple[int, int]:
        """Return how many receivers run, and how many there are."""
        idle = self.tracker.idle_receivers()
        infos = self.tracker.tracking_infos().items()
        active = [info.active for stream_id, info in infos if stream_id not in idle]
        return sum(active), len(active)

    def scale(self, stream_id: int, count: int) -> None:
        """Have another number of receivers of a stream; returns when that is logged.

        Raises:
            NotEnoughCoresError: They would hold every core of a local master.
            IllegalStateError, LedgerWriteError: See `ReceiverTracker.scale`.
        """
        idle, splits = self.tracker.idle_receivers(), self.tracker.splits(stream_id)
        running = sum(one not in idle for one in splits)
        if not self.tracker.has_slot(stream_id) and count > running:
            check_cores(self._spark_context, self.tracker.tasks - running + count)
        self.tracker.scale(stream_id, count)

    def drain(self, timeout_s: float) -> None:
        """Wait until continuous functions have committed all that came; log if they have not.

        Call it after the receivers have stopped.
        """
        if self.tracker.drain_continuous(timeout_s):
            return
        _log.warning(
            "Some records of continuous streams are in no committed epoch yet. %s",
            "A restart on this folder goes on with them"
            if self._run.durability.keeps_blocks
            else "Without a directory or spark.penstock.wal.dir they are given up",
        )

    def stop(self, timeout_s: float) -> None:
        """Stop the tracker; no block can be read any more."""
        self.tracker.stop(False, timeout_s)

    def end_block_server(self) -> None:
        """End the block server of this host, after the tracker has stopped.

        One that was only just starting was never asked to end; other hosts' end by their lease.
        """
        end_on_this_host(
            self._run.run_id,
            block_log_root=self._run.durability.host_root,
            memory_folder=self._run.settings.memory_dir,
        )
