"""The rates of a host's streams: none who has a say in them undoes what another one said."""

from __future__ import annotations

import pytest

from penstock.rates import RateBook, RateLimits, RateMemory, RateSource
from penstock.runtime.clock import ManualClock
from penstock.settings import Settings
from penstock.wire.messages import ReportRateStatus


class Made:
    """Rates whose receivers a test stands in for: stream 0 follows its queries, stream 1 none."""

    def __init__(self, **settings: str) -> None:
        self.sent: list[tuple[object, ...]] = []
        self.waiting: set[int] = set()
        pairs = [(name.replace("__", "."), value) for name, value in settings.items()]
        known = Settings.from_pairs(pairs)
        memories = {0: RateMemory(), 1: RateMemory()}
        self.rates = RateBook(
            lambda: memories,
            lambda: RateLimits.of(known),
            ManualClock(),
        )
        self.follow(None)
        self.rates.start(known, None, self.send, self.waiting.__contains__)
        self.sent.clear()

    def send(
        self,
        stream_id: int,
        records: float | None,
        size: float | None,
        /,
        *,
        is_paused: bool = False,
        takes_over: bool = False,
    ) -> int:
        told = ("paused",) * is_paused + ("taken over",) * takes_over
        self.sent.append((stream_id, records, size, *told))
        return len(self.sent)

    def follow(self, rate: float | None) -> None:
        source = RateSource.UNLIMITED if rate is None else RateSource.QUERY
        self.rates.follow_queries(0, rate, source)

    def of(self, stream_id: int) -> tuple[float | None, str]:
        found = self.rates.rate(stream_id)
        return found.effective, found.source.value


def held(version: int, stream_id: int = 0) -> ReportRateStatus:
    return ReportRateStatus(stream_id, "a", version, 0, 0.0, False, 0.0, 0.0, is_held=True)


def test_a_query_that_gets_faster_does_not_undo_a_pause() -> None:
    made = Made()
    made.follow(100.0)
    made.rates.set_paused(0, True)
    made.follow(200.0)
    assert made.sent == [(0, 100.0, None), (0, 100.0, None, "paused"), (0, 200.0, None, "paused")]
    assert made.of(0) == (0.0, "paused")
    made.rates.set_paused(0, False)
    assert made.sent[-1] == (0, 200.0, None)
    assert made.of(0) == (200.0, "query")


def test_the_lowest_of_them_holds_and_each_can_be_taken_back() -> None:
    made = Made(spark__streaming__receiver__maxRate="300")
    assert made.of(0) == (300.0, "maxRate")
    made.follow(100.0)
    made.rates.set_rate(0, "50/second")
    assert made.of(0) == (50.0, "user")
    made.follow(20.0)
    assert made.of(0) == (20.0, "query")
    made.follow(None)
    made.rates.set_rate(0, None)
    assert [records for _, records, _ in made.sent] == [100.0, 50.0, 20.0, 50.0, 300.0]
    assert made.of(0) == (300.0, "maxRate")


def test_what_is_asked_for_takes_the_place_of_the_rate_in_the_settings() -> None:
    made = Made(
        spark__streaming__backpressure__initialRate="40",
        spark__penstock__receiver__byteRate="1000/second",
    )
    assert made.of(1) == (40.0, "initial")
    made.rates.set_rate(1, 5000)
    assert made.of(1) == (5000.0, "user")
    made.rates.set_rate(1, None)
    assert made.sent == [(1, 5000.0, 1000.0), (1, 40.0, 1000.0)]
    assert made.rates.rate(1).effective_bytes == 1000.0


def test_a_receiver_that_has_paused_itself_goes_on_when_somebody_resumes_it() -> None:
    made = Made()
    made.follow(100.0)
    made.rates.on_rate_status(held(1))
    assert made.sent[-1] == (0, 100.0, None, "paused", "taken over")
    assert made.of(0) == (0.0, "paused")
    made.rates.set_paused(0, False)
    # A report from before it was taken over says nothing new.
    made.rates.on_rate_status(held(1))
    assert made.of(0) == (100.0, "query")
    # It has paused itself once more since.
    made.rates.on_rate_status(held(3))
    assert made.of(0) == (0.0, "paused")


def test_a_stream_that_waits_for_its_queries_has_no_rate() -> None:
    made = Made()
    made.waiting.add(1)
    assert made.of(1) == (0.0, "backlog")
    made.rates.set_paused(1, True)
    assert made.of(1) == (0.0, "paused")


@pytest.mark.parametrize("wrong", [0, -1, "much", float("nan")])
def test_what_is_no_rate_changes_nothing(wrong: object) -> None:
    made = Made()
    with pytest.raises(ValueError, match="is not accepted"):
        made.rates.set_rate(0, wrong)  # type: ignore[arg-type]
    assert made.sent == []


def test_of_two_limits_in_the_settings_the_lower_one_holds() -> None:
    both = [
        ("spark.streaming.receiver.maxRate", "300"),
        ("spark.penstock.receiver.rate", "200/second"),
    ]
    assert Settings.from_pairs(both).max_records_per_second == 200.0


def test_a_report_of_a_stream_that_is_not_there_changes_nothing() -> None:
    made = Made()
    made.rates.on_rate_status(held(1, stream_id=7))
    assert made.sent == []
