"""A model that is fed by events, as the listener bus feeds it; no Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.dead_letters import LetterName
from penstock.host.receiver_readings import ReceiverReadings
from penstock.listeners.events import (
    BatchCompleted,
    BatchStarted,
    BatchSubmitted,
    OutputOperationCompleted,
    OutputOperationStarted,
    ReceiverError,
    ReceiverInfo,
    ReceiverStarted,
    ReceiverStopped,
    StreamingStarted,
)
from penstock.listeners.input_info import BatchInput
from penstock.monitor import Application, Model
from penstock.rates import RateSource, StreamRate
from penstock.runtime.clock import ManualClock
from penstock.streaming import ReceiverStatus
from penstock.streaming.dstream.job import Job, JobResult, JobSet
from penstock.tracker import EpochStatus, KeptStream
from penstock.wire.messages import (
    LettersSent,
    LogReading,
    PipeReading,
    ReportRateStatus,
    SlowBlock,
)

START_MS = 1_700_000_000_000


def rate_of(stream_id: int, effective: float | None, source: str) -> StreamRate:
    """Return a rate that somebody decided."""
    unlimited = RateSource.UNLIMITED
    return StreamRate(
        *(stream_id, None, effective, RateSource(source), None, None, unlimited, None, None, True)
    )


class Rates:
    """The book of a program whose rates a test says."""

    def __init__(self, found: dict[int, StreamRate]) -> None:
        self.rate = found.__getitem__
        self.on_rate_status = self.receiver_started = self.receiver_stopped = lambda _: None


@dataclass
class Program:
    """A program that never ran: what happens in it is said by the test."""

    batch_ms: int | None = 1000
    streams: dict[int, str] = field(default_factory=lambda: {0: "numbers"})
    retained_batches: int = 1000
    shows_samples: bool = False

    def __post_init__(self) -> None:
        self.clock = ManualClock(START_MS)
        self.statuses: dict[int, ReceiverStatus] = {}
        self.rates: dict[int, StreamRate] = {}
        self.kept: dict[int, KeptStream] = {}
        self.epochs: dict[int, EpochStatus] = {}
        book: Any = Rates(self.rates)
        self.readings = ReceiverReadings(book, self.clock)
        self.acted: list[tuple[object, ...]] = []
        self.skipped = 0
        self.attempt = "a"
        self.free_bytes = 1 << 30
        self.blocks: list[tuple[str, Any]] = []
        self.slow_blocks: list[SlowBlock] = []
        self._sums: dict[int, dict[str, float]] = {}
        self.model = Model(
            self.application(),
            retained_batches=self.retained_batches,
            shows_samples=self.shows_samples,
            clock=self.clock,
        )

    def application(self) -> Application:
        return Application(
            name="a <b>program</b>",
            application_id="local-1",
            batch_ms=self.batch_ms,
            streams=self.streams,
            kept=lambda: self.kept,
            receivers=lambda: tuple(self.statuses.values()),
            readings=self.readings.readings,
            rates=lambda: self.rates,
            hosted=Hosted(self),  # type: ignore[arg-type]
            job_ids=lambda batch_ms, number: [7, 8 + number],
            spark_ui="http://127.0.0.1:4040",
            newest_records=self._newest_records,
            set_rate=self._set_rate,
            set_paused=lambda stream_id, is_paused: self.acted.append(
                ("pause" if is_paused else "resume", stream_id)
            ),
            stop=lambda graceful: self.acted.append(("stop", graceful)),
        )

    def _newest_records(self, stream_id: int, count: int) -> tuple[str, list[Any]] | None:
        if not self.blocks:
            return None
        block, records = self.blocks.pop(0)
        if isinstance(records, Exception):
            raise records
        return block, records[:count]

    def _set_rate(self, stream_id: int, rate: str | float | None) -> None:
        if rate == "-5":
            raise ValueError("rate='-5' is not accepted: it must be above 0")
        self.acted.append(("rate", stream_id, rate))

    def start(self) -> Model:
        self.model.onStreamingStarted(StreamingStarted(self.clock.time_ms()))
        return self.model

    # -- receivers -------------------------------------------------------------------------------

    def receiver(
        self,
        stream_id: int = 0,
        state: str = "running",
        error: str = "",
        trace: str = "",
        limit: float | None = None,
        source: str = "unlimited",
    ) -> None:
        """Have a receiver that starts, stops or errs, which the model is told of."""
        name = f"{self.streams[stream_id]}-{stream_id}"
        at_ms = self.clock.time_ms() if error else -1
        is_active = state == "running"
        info = ReceiverInfo(stream_id, name, is_active, "h1", "3", error, trace, at_ms)
        known = self.statuses.get(stream_id)
        if is_active and error:
            self.model.onReceiverError(ReceiverError(info))
        elif is_active:
            self.model.onReceiverStarted(ReceiverStarted(info))
        else:
            self.readings.ended(stream_id)
            self.model.onReceiverStopped(ReceiverStopped(info))
        attempts = 1 if known is None else known.attempts + (is_active and not error)
        self.statuses[stream_id] = ReceiverStatus(
            *(stream_id, name, state, "h1", "3", "h1:5000", attempts, 12_345, 7),
            *({"offset": 17}, error, at_ms),
            addresses=("http://h1:8080/",) if is_active else (),
        )
        self.rates[stream_id] = rate_of(stream_id, limit, source)

    def report(
        self, stream_id: int = 0, records: int = 0, at_s: float = 0.0, **sums: float
    ) -> None:
        """Have a receiver report what it waited for since its attempt began."""
        pipe = PipeReading(
            **sums,  # type: ignore[arg-type]
            queued_blocks=2,
            blocks=5,
            latency_ms=(12.5, 80.0),
            log=LogReading(3, 4096, 7, 0.5, 0.25, self.free_bytes),
        )
        sums_of = (records, 0.0, False, 0.0, at_s, records * 10, pipe)
        report = ReportRateStatus(stream_id, self.attempt, 0, *sums_of)
        self.readings.take(report)
        waits = self.readings.waits()
        status = self.statuses[stream_id]
        self.statuses[stream_id] = ReceiverStatus(
            *(status.stream_id, status.name, status.state, status.host, status.executor_id),
            *(status.address, status.attempts, status.records, status.blocks, status.position),
            *(status.last_error, status.last_error_ms),
            waits.get(stream_id),
            status.addresses,
            status.dropped,
        )

    def second(self, records: int = 0, stream_id: int = 0, **spent_s: float) -> None:
        """Let a second pass in which a receiver waited for things."""
        sums = self._sums.setdefault(stream_id, {"records": 0, "at": 0.0})
        if not sums["at"]:
            self.report(stream_id)
        self.clock.advance(1000)
        sums["at"] += 1.0
        sums["records"] += records
        for name, spent in spent_s.items():
            sums[name] = sums.get(name, 0) + spent
        told = {name: value for name, value in sums.items() if name not in ("records", "at")}
        self.report(stream_id, int(sums["records"]), sums["at"], **told)
        self.model.tick()

    # -- batches ---------------------------------------------------------------------------------

    def batch(
        self,
        number: int,
        records: int = 100,
        waits_ms: int = 10,
        takes_ms: int | None = 300,
        errors: tuple[str | None, ...] = (None,),
        description: str | None = None,
        plans_ms: int = 0,
    ) -> JobSet:
        """Have a batch; without `takes_ms` it does not end, with `waits_ms` -1 it does not begin.

        Args:
            number: It is the batch of so many intervals after the start.
            errors: What each of its output operations failed of.
        """
        assert self.batch_ms is not None
        time_ms = START_MS + number * self.batch_ms
        jobs = tuple(
            Job(time_ms, index, f"pprint at program.py:{index}", "the stack", lambda: None)
            for index in range(len(errors))
        )
        metadata = {} if description is None else {"Description": description}
        submission_ms = time_ms + plans_ms
        job_set = JobSet(time_ms, jobs, {0: BatchInput(0, records, metadata)}, submission_ms)
        self.model.onBatchSubmitted(BatchSubmitted(job_set.info()))
        if waits_ms < 0:
            return job_set
        job_set.start_ms = submission_ms + waits_ms
        self.model.onBatchStarted(BatchStarted(job_set.info()))
        for index, reason in enumerate(errors):
            result = job_set.results[index]
            result.start_ms = job_set.start_ms
            self.model.onOutputOperationStarted(OutputOperationStarted(result.info()))
            if takes_ms is not None:
                self.end(result, job_set.start_ms + takes_ms, reason)
        if takes_ms is not None:
            job_set.end_ms = job_set.start_ms + takes_ms
            self.model.onBatchCompleted(BatchCompleted(job_set.info()))
        return job_set

    def end(self, result: JobResult, end_ms: int, reason: str | None) -> None:
        result.end_ms = end_ms
        result.error = None if reason is None else ValueError(reason)
        self.model.onOutputOperationCompleted(OutputOperationCompleted(result.info()))


class Hosted:
    """The receivers of a `Program`, and their tracker."""

    letters_program = ""

    def __init__(self, program: Program) -> None:
        self.tracker = self
        self._program = program

    @property
    def skipped_blocks(self) -> int:
        return self._program.skipped

    def take_slow_blocks(self) -> list[SlowBlock]:
        found, self._program.slow_blocks = self._program.slow_blocks, []
        return found

    def epochs(self) -> dict[int, EpochStatus]:
        return self._program.epochs

    def seal(self, stream_id: int) -> None:
        self._program.acted.append(("seal", stream_id))

    def restart(self, stream_id: int, reason: str) -> None:
        self._program.acted.append(("restart", stream_id))

    def send_letters(
        self, stream_id: int, letters: list[tuple[LetterName, bytes]], even_sent: bool
    ) -> LettersSent:
        self._program.acted.append(("send", stream_id, letters, even_sent))
        return LettersSent(stream_id, "", 0, len(letters))
