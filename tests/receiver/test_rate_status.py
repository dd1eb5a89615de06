"""The rates that the driver sets for a running receiver, and what it is told of their use."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from penstock.receiver import ReceiverStoppedError
from penstock.receiver.attempts import rate_status
from penstock.receiver.attempts.rate_status import RateStatus, report_interval_s
from penstock.receiver.blocks.block_generator import RateUsage
from penstock.runtime.event_loop import EventLoop
from penstock.wire.messages import (
    Message,
    PipeReading,
    Registered,
    RegisterReceiver,
    ReportRateStatus,
    StopReceiver,
    UpdateRateLimit,
)
from tests.receiver.conftest import SETTINGS
from tests.receiver.running import WAIT_S, Running, Shared, Tracker
from tests.receiver.test_life_cycle import Quiet

Run = Callable[..., Running]

NEVER = 1 / 86_400
"""Records per second: one a day, and the first of them is not there at the start."""


def without_reading(report: ReportRateStatus) -> ReportRateStatus:
    return structs.replace(report, at_s=0.0, pipe=None)


def store_many(shared: Shared) -> threading.Thread:
    def store() -> None:
        for number in range(1000):
            shared.receiver.store(str(number))
        shared.say("stored")

    thread = threading.Thread(target=store, daemon=True)
    thread.start()
    return thread


def test_i8_an_update_that_overtook_the_registration_is_not_undone_by_it(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    def register(message: Message) -> Message | None:
        if not isinstance(message, RegisterReceiver):
            return None
        assert tracker.peer is not None
        tracker.peer.send(UpdateRateLimit(3, 1e6, None, 8))
        return Registered(1 << 32, None, NEVER, NEVER, 7)

    tracker.answer = register
    run(Quiet(shared))
    shared.wait_for("onStart")
    store_many(shared)
    shared.wait_for("stored")
    tracker.wait_for(lambda: tracker.rate_reports and tracker.rate_reports[-1].rate_version == 8)


def test_i8_the_rates_of_the_registration_hold_from_the_first_record_on(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    tracker.answer = lambda message: (
        Registered(1 << 32, None, NEVER, None, 1) if isinstance(message, RegisterReceiver) else None
    )
    running = run(Quiet(shared))
    shared.wait_for("onStart")
    errors: list[Exception] = []

    def store() -> None:
        try:
            for number in range(1000):
                shared.receiver.store(str(number))
        except Exception as error:  # noqa: BLE001 - it is looked at below
            errors.append(error)

    thread = threading.Thread(target=store, daemon=True)
    thread.start()
    tracker.wait_for(lambda: tracker.rate_reports and tracker.rate_reports[-1].is_waiting)
    assert tracker.rate_reports[-1].records == 1
    tracker.send(StopReceiver())
    assert running.join() is None
    thread.join(WAIT_S)
    assert tracker.records() == ["0"], "the first passes at once, the next a day later"
    assert [type(error) for error in errors] == [ReceiverStoppedError]


def test_i8_a_rate_of_bytes_holds_for_who_waits(run: Run, tracker: Tracker, shared: Shared) -> None:
    run(Quiet(shared), settings=replace(SETTINGS, receiver_byte_rate="1/day"))
    shared.wait_for("onStart")
    store_many(shared)
    tracker.wait_for(lambda: tracker.rate_reports and tracker.rate_reports[-1].is_waiting)
    tracker.send(UpdateRateLimit(3, None, None, 1))
    shared.wait_for("stored")


@pytest.mark.parametrize("of_bytes", [False, True])
def test_which_of_its_rates_a_receiver_waits_for_is_told(
    run: Run, tracker: Tracker, shared: Shared, of_bytes: bool
) -> None:
    """The driver gives more of that one only."""
    rates = (None, NEVER) if of_bytes else (NEVER, None)
    tracker.answer = lambda message: (
        Registered(1 << 32, None, *rates, 1) if isinstance(message, RegisterReceiver) else None
    )
    run(Quiet(shared))
    shared.wait_for("onStart")
    store_many(shared)

    def waits(report: ReportRateStatus) -> tuple[bool, bool]:
        return report.waited_s > 0, report.byte_waited_s > 0

    tracker.wait_for(lambda: any(any(waits(report)) for report in tracker.rate_reports))
    assert {waits(report) for report in tracker.rate_reports if any(waits(report))} == {
        (not of_bytes, of_bytes)
    }


def test_a_reconnect_makes_up_for_a_lost_update(run: Run, tracker: Tracker, shared: Shared) -> None:
    run(Quiet(shared))
    shared.wait_for("onStart")
    tracker.answer = lambda message: (
        Registered(1 << 32, None, 1e6, None, 9) if isinstance(message, RegisterReceiver) else None
    )
    assert tracker.peer is not None
    tracker.peer.close()
    tracker.wait_for_count(RegisterReceiver, 2)
    tracker.wait_for(lambda: tracker.rate_reports and tracker.rate_reports[-1].rate_version == 9)


def test_nothing_passes_while_the_driver_pauses_it(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    tracker.answer = lambda message: (
        Registered(1 << 32, None, None, None, 1, is_paused=True)
        if isinstance(message, RegisterReceiver)
        else None
    )
    run(Quiet(shared))
    shared.wait_for("onStart")
    store_many(shared)
    tracker.wait_for(lambda: tracker.rate_reports and tracker.rate_reports[-1].is_waiting)
    assert tracker.rate_reports[-1].records == 0
    tracker.send(UpdateRateLimit(3, None, None, 2))
    shared.wait_for("stored")
    tracker.send(UpdateRateLimit(3, None, None, 3, is_paused=True))
    tracker.wait_for(lambda: tracker.rate_reports[-1].rate_version == 3)
    store_many(shared)
    tracker.wait_for(lambda: tracker.rate_reports[-1].is_waiting)
    assert tracker.rate_reports[-1].records == 1000
    tracker.send(UpdateRateLimit(3, None, None, 4))
    shared.wait_for("stored", 2)


@pytest.mark.slow
def test_about_once_a_second_reports_tell_what_the_attempt_waits_for(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    def pipes() -> list[PipeReading]:
        return [report.pipe for report in tracker.rate_reports if report.pipe is not None]

    run(Quiet(shared))
    shared.wait_for("onStart")
    shared.receiver.store([str(number) for number in range(500)])
    tracker.wait_for(lambda: pipes() and pipes()[-1].blocks)
    quiet = pipes()[-1]
    assert (quiet.open_records, quiet.queued_blocks, quiet.stored_blocks) == (0, 0, 0)
    assert quiet.rate_s == 0
    assert quiet.durable_s > 0
    assert quiet.log_s > 0
    assert quiet.driver_s > 0
    assert quiet.busy_s > 0
    assert quiet.latency_ms is not None
    assert 0 < quiet.latency_ms[0] <= quiet.latency_ms[1]
    assert quiet.log is not None
    assert quiet.log.segments == 1
    assert quiet.log.bytes > 0
    assert quiet.log.free_bytes > 0
    tracker.send(UpdateRateLimit(3, NEVER, None, 1))
    tracker.wait_for(lambda: tracker.rate_reports[-1].rate_version == 1)
    store_many(shared)
    # A wait that does not end counts while it lasts.
    tracker.wait_for(lambda: pipes()[-1].rate_s > 1)
    assert pipes()[-1].byte_rate_s == 0
    assert len(pipes()) < len(tracker.rate_reports)


@pytest.mark.long
@pytest.mark.slow
def test_between_two_readings_reports_come_only_with_news(
    run: Run, tracker: Tracker, shared: Shared
) -> None:
    run(Quiet(shared))
    shared.wait_for("onStart")
    shared.receiver.store("0")
    tracker.wait_for(lambda: sum(report.pipe is not None for report in tracker.rate_reports) > 3)
    reports = list(tracker.rate_reports)
    assert max(report.records for report in reports) == 1
    for before, after in itertools.pairwise(reports):
        assert after.pipe is not None or without_reading(after) != without_reading(before)


def test_reports_tell_what_passed_and_who_waits(run: Run, tracker: Tracker, shared: Shared) -> None:
    run(Quiet(shared))
    shared.wait_for("onStart")
    shared.receiver.store([str(number) for number in range(500)])
    tracker.wait_for(lambda: tracker.rate_reports and tracker.rate_reports[-1].records == 500)
    quiet = tracker.rate_reports[-1]
    assert (quiet.stream_id, quiet.rate_version, quiet.is_waiting) == (3, 0, False)
    assert quiet.attempt == tracker.of(RegisterReceiver)[0].attempt
    tracker.send(UpdateRateLimit(3, 10.0, None, 1))
    tracker.wait_for(lambda: tracker.rate_reports[-1].rate_version == 1)
    store_many(shared)
    tracker.wait_for(
        lambda: tracker.rate_reports[-1].waited_s > 0 and tracker.rate_reports[-1].is_waiting
    )
    held_back = tracker.rate_reports[-1]
    assert held_back.rate_version == 1
    # The rate times the time, one burst, and the permits of the leases.
    assert held_back.records <= 500 + 10 * (held_back.at_s - quiet.at_s) + 2 * 10


def test_the_driver_is_not_told_more_often_than_it_can_take() -> None:
    assert report_interval_s(1) == rate_status.REPORT_INTERVAL_S
    for receivers in (64, 1000, 100_000):
        interval_s = report_interval_s(receivers)
        # Who is not heard of for two seconds gets no share of a budget above its reserve.
        assert rate_status.REPORT_INTERVAL_S <= interval_s < 2
        assert receivers / interval_s < 1000 or receivers > 1000


class Gate:
    """A generator of which only is known whether anything may pass."""

    is_resting = False

    def __init__(self) -> None:
        self.is_paused = False

    def pause(self) -> None:
        self.is_paused = True

    def read_rate_usage(self, *, with_pipe: bool) -> RateUsage:
        return RateUsage(0, 0.0, False, 0.0, 0)

    def update_rate(self, records_per_second: float | None, *, is_paused: bool) -> None:
        self.is_paused = is_paused

    def update_byte_rate(self, bytes_per_second: float | None) -> None:
        pass


Start = Callable[[Any, Callable[[RateUsage, int, bool], None]], RateStatus]


@pytest.fixture
def started() -> Iterator[Start]:
    """What starts the reports of a generator, all of a test in one thread."""
    errors: list[BaseException] = []
    loop = EventLoop("test-rate-status", errors.append)
    loop.start()

    def start(generator: Any, report: Callable[[RateUsage, int, bool], None]) -> RateStatus:
        status = RateStatus(loop, report, errors.append)
        status.start(generator)
        return status

    yield start
    assert loop.stop(WAIT_S)
    assert errors == []


class RestingGenerator(Gate):
    """Nothing comes to it until it is woken."""

    is_resting = True

    def __init__(self) -> None:
        super().__init__()
        self.records = 0
        self.looks = threading.Semaphore(0)

    def read_rate_usage(self, *, with_pipe: bool = False) -> RateUsage:
        self.looks.release()
        return RateUsage(self.records, 0.0, False, 0.0, 0)


def test_a_generator_that_rests_is_looked_at_again_when_it_is_woken(
    monkeypatch: pytest.MonkeyPatch, started: Start
) -> None:
    monkeypatch.setattr(rate_status, "PIPE_INTERVAL_S", 3600.0)
    generator: Any = RestingGenerator()
    told: queue.Queue[int] = queue.Queue()
    status = started(generator, lambda usage, version, is_held: told.put(usage.records))
    for records in range(3):
        assert told.get(timeout=WAIT_S) == records
        # One look that finds something, one that finds the same.
        for _ in range(2):
            assert generator.looks.acquire(timeout=WAIT_S)
        generator.records += 1
        generator.woken()
    status.stop(WAIT_S)


class EmptyingGenerator(RestingGenerator):
    """One that rests, while a block is on its way, or none."""

    stored_blocks = 1

    def read_rate_usage(self, *, with_pipe: bool = False) -> RateUsage:
        pipe = PipeReading(stored_blocks=self.stored_blocks) if with_pipe else None
        return RateUsage(self.records, 0.0, False, 0.0, 0, pipe)


def test_one_with_nothing_on_its_way_is_told_of_more_rarely(
    monkeypatch: pytest.MonkeyPatch, started: Start
) -> None:
    monkeypatch.setattr(rate_status, "PIPE_INTERVAL_S", 0.0)
    monkeypatch.setattr(rate_status, "REST_INTERVAL_S", 3600.0)
    generator: Any = EmptyingGenerator()
    told: queue.Queue[RateUsage] = queue.Queue()
    status = started(generator, lambda usage, version, is_held: told.put(usage))
    try:
        for _ in range(3):
            assert told.get(timeout=WAIT_S).pipe == PipeReading(stored_blocks=1)
        generator.stored_blocks = 0
        while told.get(timeout=WAIT_S).pipe != PipeReading():
            pass
        # Woken by something else: what is new is told, and nothing is read of what is on its way.
        generator.records = 1
        status.update(None, None, 1)
        news = told.get(timeout=WAIT_S)
        assert (news.records, news.pipe) == (1, None)
        # Of what came it is told as ever, and then once that nothing more comes.
        for records in (1, 1):
            news = told.get(timeout=WAIT_S)
            assert (news.records, news.pipe) == (records, PipeReading())
        generator.records = 2
        status.update(None, None, 2)
        news = told.get(timeout=WAIT_S)
        assert (news.records, news.pipe) == (2, None)
    finally:
        status.stop(WAIT_S)


class Held:
    """An attempt that has paused itself, and the last that the driver was told of it."""

    def __init__(self, started: Start) -> None:
        self.gate = Gate()
        self.told: list[tuple[int, bool]] = []
        self.changed = threading.Condition()
        self.status = started(self.gate, self.report)
        self.update(1)
        self.status.hold()
        self.wait_for(1, True)

    def report(self, _reading: Any, version: int, is_held: bool) -> None:
        with self.changed:
            self.told.append((version, is_held))
            self.changed.notify_all()

    def update(self, version: int, *, is_paused: bool = False, taken_over: int = 0) -> None:
        rates = 5.0, None, version
        self.status.update(*rates, is_paused=is_paused, taken_over_version=taken_over)

    def wait_for(self, version: int, is_held: bool) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.told[-1:] == [(version, is_held)], WAIT_S)


@pytest.fixture
def held(started: Start) -> Iterator[Held]:
    made = Held(started)
    yield made
    made.status.stop(WAIT_S)


def test_who_paused_himself_goes_on_when_the_driver_has_paused_and_resumed_him(held: Held) -> None:
    held.update(2)
    held.wait_for(2, True)
    assert held.gate.is_paused, "other rates are no resume"
    held.update(3, is_paused=True, taken_over=3)
    held.wait_for(3, False)
    assert held.gate.is_paused
    held.update(4, taken_over=3)
    held.wait_for(4, False)
    assert not held.gate.is_paused


def test_a_resume_counts_whose_pause_was_lost_with_a_connection(held: Held) -> None:
    held.update(4, taken_over=3)
    held.wait_for(4, False)
    assert not held.gate.is_paused


def test_a_pause_for_what_queries_have_unread_does_not_end_the_own_one(held: Held) -> None:
    held.update(2, is_paused=True)
    held.wait_for(2, True)
    held.update(3)
    held.wait_for(3, True)
    assert held.gate.is_paused


def test_who_pauses_himself_while_the_driver_does_tells_it(held: Held) -> None:
    held.update(2, is_paused=True, taken_over=2)
    held.wait_for(2, False)
    held.status.hold()
    held.wait_for(2, True)
    held.update(3, taken_over=2)
    held.wait_for(3, True)
    assert held.gate.is_paused, "that was the pause before"
    held.update(4, is_paused=True, taken_over=4)
    held.wait_for(4, False)


def test_a_pause_and_a_resume_of_somebody_who_did_not_hear_of_it_do_not_end_the_own_one(
    held: Held,
) -> None:
    held.update(2, is_paused=True)
    held.update(3)
    held.wait_for(3, True)
    assert held.gate.is_paused
    held.update(4, is_paused=True, taken_over=4)
    held.update(5, taken_over=4)
    held.wait_for(5, False)
    assert not held.gate.is_paused


class HangingGenerator:
    """Its log's disk does not say how much is free."""

    is_resting = False

    def __init__(self) -> None:
        self.is_asked = threading.Event()
        self.goes_on = threading.Event()
        self.rates: list[float | None] = []

    def read_rate_usage(self, *, with_pipe: bool) -> RateUsage:
        self.is_asked.set()
        assert self.goes_on.wait(WAIT_S)
        return RateUsage(0, 0.0, False, 0.0, 0)

    def update_rate(self, records_per_second: float | None, *, is_paused: bool) -> None:
        self.rates.append(records_per_second)

    def update_byte_rate(self, bytes_per_second: float | None) -> None:
        pass


def test_a_new_rate_holds_at_once_while_a_disk_hangs_and_is_reported_after_it(
    started: Start,
) -> None:
    generator: Any = HangingGenerator()
    told: list[int] = []
    is_told = threading.Event()

    def report(reading: Any, version: int, is_held: bool) -> None:
        told.append(version)
        if version == 7:
            is_told.set()

    status = started(generator, report)
    assert generator.is_asked.wait(WAIT_S)
    setting = threading.Thread(target=status.update, args=(5.0, None, 7), daemon=True)
    setting.start()
    setting.join(WAIT_S / 4)
    assert not setting.is_alive()
    assert generator.rates == [5.0]
    generator.goes_on.set()
    assert is_told.wait(WAIT_S)
    assert told[0] == 0
    status.stop(WAIT_S)
