"""From sums that receivers send to what they waited for, in percent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.host.receiver_readings import ReceiverReading, ReceiverReadings
from penstock.rates import RateBook, RateLimits, RateMemory
from penstock.runtime.clock import ManualClock
from penstock.settings import Settings
from penstock.streaming import ReceiverWaits
from penstock.wire.messages import PipeReading, ReportRateStatus

SECONDS = (
    *("rate_s", "byte_rate_s", "shared_rate_s", "queue_s", "durable_s", "memory_s"),
    *("log_s", "replica_s", "room_s", "driver_s", "busy_s"),
)


class Readings:
    """Readings whose time a test says; backpressure has a rate of the stream."""

    def __init__(self) -> None:
        settings = Settings.from_pairs([("spark.streaming.backpressure.enabled", "true")])
        memories = {3: RateMemory(estimate=5.0)}
        self._clock = ManualClock()
        book = RateBook(lambda: memories, lambda: RateLimits.of(settings), self._clock)
        self.found = ReceiverReadings(book, self._clock)

    def at(self, now_s: float) -> ReceiverReadings:
        self._clock.advance(round(1000 * (now_s - self._clock.monotonic_s())))
        return self.found

    def take(self, told: ReportRateStatus, now_s: float) -> None:
        self.at(now_s).take(told)

    def readings(self, now_s: float) -> dict[int, ReceiverReading]:
        return self.at(now_s).readings()


def report(at_s: float, records: int = 0, attempt: str = "a", **sums: Any) -> ReportRateStatus:
    return ReportRateStatus(3, attempt, 0, records, 0.0, False, 0.0, at_s, 0, PipeReading(**sums))


def waits(span_s: float = 1.0, **sums: float) -> ReceiverWaits:
    readings = Readings()
    readings.take(report(5.0), 100.0)
    readings.take(report(5.0 + span_s, **sums), 101.0)
    found = readings.readings(101.0)[3].waits
    assert found is not None
    return found


def percent(found: ReceiverWaits) -> dict[str, float]:
    return {name: round(part, 6) for name, part in found.parts().items() if part}


def test_who_waits_for_nothing_it_knows_waits_for_its_source_or_works() -> None:
    assert percent(waits()) == {"source": 100}
    assert percent(waits(2.0, busy_s=0.5)) == {"source": 75, "nothing": 25}
    assert percent(waits(busy_s=3.0)) == {"nothing": 100}


def test_tokens_are_told_with_whose_limit_it_is() -> None:
    found = waits(rate_s=0.9, byte_rate_s=0.1)
    assert (percent(found), found.limit) == ({"tokens": 100}, "records")
    assert waits(byte_rate_s=0.1).limit == "bytes"
    assert waits(shared_rate_s=0.1).limit == "shared"
    assert waits().limit == ""
    readings = Readings()
    readings.take(report(5.0), 100.0)
    readings.take(report(6.0, rate_s=0.92, busy_s=1.0), 101.0)
    told = readings.at(101.0).waits()[3]
    assert str(told) == "tokens (estimator) 92 %, nothing 8 %"


def test_a_full_queue_is_told_as_what_the_thread_behind_it_waits_for() -> None:
    assert percent(waits(queue_s=1.0, log_s=0.9, room_s=0.1)) == {"log": 90, "driver": 10}
    assert percent(waits(queue_s=0.5, replica_s=1.0, busy_s=0.5)) == {"replica": 50, "nothing": 50}
    assert percent(waits(queue_s=0.5, log_s=0.25)) == {"source": 50, "queue": 25, "log": 25}


def test_a_log_that_holds_nobody_up_is_not_waited_for() -> None:
    assert percent(waits(log_s=0.8, driver_s=0.3)) == {"source": 100}


def test_who_waits_until_it_is_durable_waits_for_all_of_the_way() -> None:
    found = waits(durable_s=1.0, log_s=0.5, driver_s=0.25)
    assert percent(found) == {"queue": 25, "log": 50, "driver": 25}


def test_threads_that_wait_at_once_share_the_hundred_percent() -> None:
    assert percent(waits(rate_s=3.0, memory_s=1.0)) == {"tokens": 75, "memory": 25}


@settings(deadline=None)
@given(
    st.fixed_dictionaries({}, optional={name: st.floats(0, 50) for name in SECONDS}),
    st.floats(0.01, 20),
)
def test_all_parts_always_make_a_hundred(sums: dict[str, float], span_s: float) -> None:
    found = waits(span_s, **sums)
    assert sum(found.parts().values()) == pytest.approx(100)
    assert min(found.parts().values()) >= -1e-9


def test_sums_of_another_attempt_are_not_compared() -> None:
    readings = Readings()
    readings.take(report(500.0, 1000, rate_s=400.0), 100.0)
    readings.take(report(1.0, 7, "b", rate_s=0.0), 101.0)
    first = readings.readings(101.0)[3]
    assert (first.attempt, first.records, first.waits) == ("b", 7, None)
    readings.take(report(3.0, 207, "b", rate_s=1.0), 102.0)
    second = readings.readings(102.0)[3]
    assert second.records_per_second == 100.0
    assert second.waits is not None
    assert second.waits.tokens == 50


def test_a_report_that_was_lost_takes_nothing_with_it() -> None:
    readings = Readings()
    readings.take(report(0.0), 100.0)
    readings.take(report(3.0, 300, memory_s=1.5), 103.0)
    found = readings.readings(103.0)[3]
    assert found.records_per_second == 100
    assert found.waits is not None
    assert found.waits.memory == 50


def test_what_was_overtaken_on_its_way_and_who_is_silent_or_stopped_count_no_more() -> None:
    readings = Readings()
    readings.take(report(2.0, 20), 100.0)
    readings.take(report(1.0, 10), 100.0)
    assert readings.readings(100.0)[3].records == 20
    assert readings.readings(200.0) == {}
    readings.take(report(200.0, 30), 300.0)
    readings.found.ended(3)
    assert readings.readings(300.0) == {}


def test_a_report_of_a_receiver_that_tells_no_waits_is_passed_over() -> None:
    readings = Readings()
    readings.take(ReportRateStatus(3, "a", 0, 5, 0.0, False, 0.0, 1.0), 100.0)
    assert readings.readings(100.0) == {}
