"""Receivers of a group as a model: sources, gates, reports, and messages that take a while."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, field

from penstock.listeners.rate_controller import RateController
from penstock.rates.book import RateBook
from penstock.rates.decision import RateLimits
from penstock.rates.memory import RateMemory
from penstock.runtime.clock import ManualClock
from penstock.settings import Settings
from penstock.wire.messages import ReportRateStatus

STEP_MS = 10
REPORT_MS = 250
BURST_S = 1.0


class Book:
    """A `RateBook` on a clock that the test moves, and what it sends."""

    def __init__(self, streams: int = 1, **settings: str) -> None:
        pairs = [(key.replace("__", "."), value) for key, value in settings.items()]
        self.settings = Settings.from_pairs(pairs)
        self.memories = {stream: RateMemory() for stream in range(streams)}
        self.clock = ManualClock()
        self.sent: list[tuple[int | float | str | None, ...]] = []
        self.versions = dict.fromkeys(self.memories, 0)
        self.book = self._make()
        self.controllers: list[RateController] = []

    def _make(self) -> RateBook:
        return RateBook(lambda: self.memories, lambda: RateLimits.of(self.settings), self.clock)

    def start(self) -> None:
        estimators = self.book.start(self.settings, 1000, self.send)
        self.controllers = [
            RateController(stream, estimator, self.book) for stream, estimator in estimators.items()
        ]

    def send(
        self,
        stream: int,
        records: float | None,
        size: float | None,
        *,
        is_paused: bool = False,
        takes_over: bool = False,
    ) -> int:
        told = ("paused",) * is_paused + ("taken over",) * takes_over
        self.sent.append((stream, records, size, *told))
        self.versions[stream] += 1
        return self.versions[stream]

    def after_recovery(self) -> None:
        """Go on as a new driver, with what a checkpoint of the graph keeps."""
        self.book.stop()
        self.memories = pickle.loads(pickle.dumps(self.memories))
        self.book = self._make()
        self.sent.clear()


@dataclass
class Gate:
    """A receiver: a source of some speed behind a token bucket."""

    speed: float
    rate: float = 0.0
    version: int = 0
    tokens: float = 0.0
    passed: float = 0.0
    waited_s: float = 0.0
    is_waiting: bool = False
    is_running: bool = True
    due: list[tuple[int, float, int]] = field(default_factory=list)
    other: float = math.inf
    """Another limit of its own, of what the group does not count: its waits are another kind."""
    other_waited_s: float = 0.0

    def step(self, now_ms: int) -> bool:
        """Pass what the tokens allow for one step; True when new rates have come into force."""
        is_new = False
        while self.due and self.due[0][0] <= now_ms:
            _, self.rate, self.version = self.due.pop(0)
            is_new = True
        self.tokens = min(self.rate * BURST_S, self.tokens + self.rate * STEP_MS / 1000)
        wanted = self.speed * STEP_MS / 1000
        allowed = self.other * STEP_MS / 1000
        passing = min(wanted, self.tokens, allowed)
        self.tokens -= passing
        self.passed += passing
        self.is_waiting = passing < wanted
        is_other = self.is_waiting and passing == allowed
        self.waited_s += STEP_MS / 1000 * (self.is_waiting and not is_other)
        self.other_waited_s += STEP_MS / 1000 * is_other
        return is_new


class Group:
    """A group whose receivers run; messages take `delay_ms` each way."""

    def __init__(
        self, total: float, speeds: list[float], delay_ms: int = 10, *, in_bytes: bool = False
    ) -> None:
        self.made = Book(len(speeds))
        self.total = total
        self.delay_ms = delay_ms
        self.gates = [Gate(speed) for speed in speeds]
        self.in_bytes = in_bytes
        self.group = self.made.book.make_group(total, range(len(speeds)), in_bytes=in_bytes)
        self.now_ms = 0
        self.largest = 0.0
        self._reports: list[tuple[int, ReportRateStatus]] = []
        self.made.book.start(self.made.settings, 1000, self._send)
        for stream, gate in enumerate(self.gates):
            # What the answer to the registration has.
            gate.step(self.now_ms + delay_ms)
            self.made.book.receiver_started(stream)

    def _send(
        self,
        stream: int,
        records: float | None,
        size: float | None,
        *,
        is_paused: bool = False,
        takes_over: bool = False,
    ) -> int:
        rate, other = (size, records) if self.in_bytes else (records, size)
        assert rate is not None
        assert other is None or not self.in_bytes
        version = self.made.send(stream, records, size, is_paused=is_paused, takes_over=takes_over)
        if is_paused:
            rate = 0.0
        if self.gates[stream].is_running:
            self.gates[stream].due.append((self.now_ms + self.delay_ms, rate, version))
        return version

    def run(self, seconds: float) -> float:
        """Let time pass; return how many records passed per second."""
        begun = sum(gate.passed for gate in self.gates)
        for _ in range(int(seconds * 1000 / STEP_MS)):
            self.now_ms += STEP_MS
            self.made.clock.advance(STEP_MS)
            for stream, gate in enumerate(self.gates):
                if gate.is_running and (gate.step(self.now_ms) or self.now_ms % REPORT_MS == 0):
                    self._reports.append((self.now_ms + self.delay_ms, self._report(stream, gate)))
            in_force = sum(gate.rate for gate in self.gates if gate.is_running)
            self.largest = max(self.largest, in_force)
            assert in_force <= self.total * (1 + 1e-9)
            while self._reports and self._reports[0][0] <= self.now_ms:
                self.made.book.on_rate_status(self._reports.pop(0)[1])
        return (sum(gate.passed for gate in self.gates) - begun) / seconds

    def stop(self, stream: int) -> None:
        self.gates[stream].is_running = False
        self._reports = [found for found in self._reports if found[1].stream_id != stream]
        self.made.book.receiver_stopped(stream)

    def restart(self, stream: int) -> None:
        found, version = self.made.book.rates()[stream], self.made.versions[stream]
        rate = found.effective_bytes if self.in_bytes else found.effective
        assert rate is not None
        passed = self.gates[stream].passed
        self.gates[stream] = Gate(self.gates[stream].speed, rate, version, passed=passed)
        self.made.book.receiver_started(stream)

    def _report(self, stream: int, gate: Gate) -> ReportRateStatus:
        passed = int(gate.passed)
        records, size = (passed // 1000, passed) if self.in_bytes else (passed, 0)
        waits = [gate.waited_s, gate.other_waited_s]
        of_records, of_bytes = reversed(waits) if self.in_bytes else waits
        return ReportRateStatus(
            stream, "a", gate.version, records, of_records, gate.is_waiting, 0.0,
            self.now_ms / 1000, size, byte_waited_s=of_bytes,
        )  # fmt: skip
