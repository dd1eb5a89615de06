"""`Application`: what the monitor asks a running context, or a host of receivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark import SparkContext

from penstock.dead_letters import LetterTail
from penstock.errors import IllegalStateError
from penstock.host.receiver_readings import ReceiverReading, ReceiverStatus
from penstock.host.receivers import HostedReceivers
from penstock.listeners.events import SchedulerStatistics
from penstock.rates import StreamRate
from penstock.tracker import KeptStream
from penstock.wire.messages import BlockTrace, ReceivedBlockInfo


@dataclass(frozen=True)
class Application:
    """A running context or host, as the monitor sees it. Any thread may call each function.

    Attributes:
        name: What the program is called.
        application_id: Spark's id of it.
        batch_ms: The batch interval; None: it has no batches, a `ReceiverHost`.
        streams: The inputs' names by their numbers, those without receivers as well.
        receivers: Returns the receivers as they are.
        readings: Returns the last reading of each receiver, by stream.
        rates: Returns the rates of the streams that have one.
        hosted: Its receivers and their tracker; None: it has none.
        spark_conf: Spark's configuration.
        statistics: Returns how many batches wait, run and are done.
        kept: Returns what is kept of streams that queries read, and their readers, by stream.
        unfinished: Returns the times of the batches that wait or run, and whether each has begun.
        dropped_events: Returns how many events the listener bus has dropped.
        job_ids: Returns the ids of Spark's jobs of a batch's output operation.
        spark_ui: The address of Spark's own page; None where there is none.
        spark_context: Spark's side of it; None where there is none.
        newest_records: Returns the id and some records of a stream's newest block; None: there is
            none.
        letter_tail: Opens what reads its dead letters; None: this driver sees none.
        take_traces: Returns the traces of blocks that came since the call before.
        blocks_of_batch: Returns the blocks of a batch; none once it is cleaned up.
        set_rate: Sets the rate of a stream, as `ReceiverDStream.set_rate`.
        set_paused: Lets nothing of a stream pass, or goes on with it.
        stop: Begins to stop the streams, gracefully or at once; does not wait for the end.
    """

    name: str
    application_id: str
    batch_ms: int | None
    streams: Mapping[int, str]
    receivers: Callable[[], tuple[ReceiverStatus, ...]]
    readings: Callable[[], Mapping[int, ReceiverReading]]
    rates: Callable[[], Mapping[int, StreamRate]]
    hosted: HostedReceivers | None = None
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    statistics: Callable[[], SchedulerStatistics] = lambda: SchedulerStatistics(0, 0, 0, 0, None)
    kept: Callable[[], Mapping[int, KeptStream]] = dict
    unfinished: Callable[[], Mapping[int, bool]] = dict
    dropped_events: Callable[[], int] = lambda: 0
    job_ids: Callable[[int, int], list[int]] = lambda batch_ms, operation: []
    spark_ui: str | None = None
    spark_context: SparkContext | None = None
    newest_records: Callable[[int, int], tuple[str, list[Any]] | None] = lambda stream_id, n: None
    letter_tail: Callable[[], LetterTail] | None = None
    take_traces: Callable[[], list[BlockTrace]] = list
    blocks_of_batch: Callable[[int], tuple[ReceivedBlockInfo, ...]] = lambda batch_ms: ()
    set_rate: Callable[[int, str | float | None], None] = lambda stream_id, rate: None
    set_paused: Callable[[int, bool], None] = lambda stream_id, is_paused: None
    stop: Callable[[bool], None] = lambda graceful: None

    @property
    def skipped_blocks(self) -> int:
        """How many blocks were left out because no host has them."""
        return 0 if self.hosted is None else self.hosted.tracker.skipped_blocks

    def receivers_of(self, stream_id: int) -> HostedReceivers:
        """Return the receivers, for something that is to be done to one of a stream.

        Raises:
            IllegalStateError: The program has none.
        """
        if self.hosted is None:
            raise IllegalStateError(f"stream {stream_id} has no receiver")
        return self.hosted
