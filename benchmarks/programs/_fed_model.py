"""A model with 64 receivers and 1,000 batches; no streams run.

It is fed with the events and readings that they would send.
"""

from __future__ import annotations

from penstock.host.receiver_readings import ReceiverReadings
from penstock.listeners.events import (
    BatchCompleted,
    BatchStarted,
    BatchSubmitted,
)
from penstock.listeners.input_info import BatchInput
from penstock.monitor import Application, Model
from penstock.runtime.clock import ManualClock
from penstock.streaming import ReceiverStatus, SchedulerStatistics
from penstock.streaming.dstream.job import Job, JobSet
from penstock.wire.messages import LogReading, PipeReading, ReportRateStatus

RECEIVERS = 64
BATCHES = 1_000
START_MS = 1_700_000_000_000


class Fed:
    """A model of a program that does not run."""

    def __init__(self):
        self.clock = ManualClock(START_MS)
        self.readings = ReceiverReadings()
        self.model = Model(
            Application(
                name="benchmark",
                application_id="local-1",
                batch_ms=1000,
                streams=dict.fromkeys(range(RECEIVERS), "numbers"),
                statistics=lambda: SchedulerStatistics(0, 0, 0, 0, None),
                receivers=self.statuses,
                readings=lambda: self.readings.readings(self.clock.monotonic_s()),
                rates=dict,
            ),
            clock=self.clock,
        )
        self.second = 0

    def statuses(self):
        readings = self.readings.readings(self.clock.monotonic_s())
        return tuple(
            ReceiverStatus(
                *(number, f"numbers-{number}", "running", "host", "1", "host:5", 1),
                *(self.second * 1000, self.second, None, "", -1, readings[number].waits),
            )
            for number in sorted(readings)
        )

    def pass_second(self):
        self.clock.advance(1000)
        self.second += 1
        for number in range(RECEIVERS):
            pipe = PipeReading(
                rate_s=self.second * 0.5,
                log_s=self.second * 0.25,
                blocks=self.second,
                latency_ms=(5.0, 20.0),
                log=LogReading(2, self.second << 20, self.second, 0.5, 0.1, 1 << 40),
            )
            report = ReportRateStatus(
                number, "a", 0, self.second * 1000, 0.0, False, 0.1, self.second * 1.0, 0, pipe
            )
            self.readings.take(report, self.clock.monotonic_s())
        self.model.tick()

    def batch(self, number):
        time_ms = START_MS + number * 1000
        jobs = tuple(Job(time_ms, at, f"pprint at a.py:{at}", "stack", int) for at in range(3))
        inputs = {at: BatchInput(at, 1000) for at in range(RECEIVERS)}
        batch = JobSet(time_ms, jobs, inputs, time_ms)
        self.model.onBatchSubmitted(BatchSubmitted(batch.info()))
        batch.start_ms = time_ms + 5
        self.model.onBatchStarted(BatchStarted(batch.info()))
        batch.end_ms = time_ms + 500
        self.model.onBatchCompleted(BatchCompleted(batch.info()))
