"""The rates of a context: decided, sent, confirmed, kept; and the controllers that change them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from penstock.errors import IllegalStateError
from penstock.listeners.events import BatchCompleted, BatchInfo, Time
from penstock.listeners.input_info import BatchInput
from penstock.listeners.rate_controller import RateController
from penstock.rates import PIDRateEstimator, RateEstimator, RateSource
from penstock.streaming import StreamGraphError
from penstock.wire.messages import ReportRateStatus
from tests.rates.plant import Book

BACKPRESSURE = {"spark__streaming__backpressure__enabled": "true"}


def completed(
    end_ms: int, elements: int | None, processing_ms: int, waited_ms: int = 0, stream: int = 0
) -> BatchCompleted:
    """Return the event of a batch that ended at `end_ms`."""
    begun = end_ms - processing_ms
    infos = {} if elements is None else {stream: BatchInput(stream, elements)}
    return BatchCompleted(
        BatchInfo(Time(begun - waited_ms), infos, begun - waited_ms, begun, end_ms, {})
    )


def report(
    version: int, *, records: int = 0, at_s: float = 0.0, fill: float = 0.0
) -> ReportRateStatus:
    return ReportRateStatus(0, "a", version, records, 0.0, False, fill, at_s)


class TestTheProgramsRates:
    def test_every_change_is_sent_once(self) -> None:
        made = Book()
        made.book.set_rate(0, "6000/minute")
        assert made.sent == []
        made.start()
        made.book.set_rate(0, "100/second")
        made.book.set_rate(0, 50)
        made.book.set_byte_rate(0, "1000/second")
        made.book.set_rate(0, None)
        made.book.set_byte_rate(0, None)
        assert made.sent == [
            (0, 100.0, None),
            (0, 50.0, None),
            (0, 50.0, 1000.0),
            (0, None, 1000.0),
            (0, None, None),
        ]
        made.book.stop()
        made.book.set_rate(0, 7)
        assert len(made.sent) == 5
        assert made.book.rate(0).asked == 7

    def test_what_is_in_force_and_whose_it_is(self) -> None:
        made = Book(2, spark__streaming__receiver__maxRate="300")
        made.book.set_rate(1, "200/second")
        before = made.book.rates()
        assert [found.effective for found in before.values()] == [300, 200]
        made.start()
        found = made.book.rate(1)
        assert (found.asked, found.effective, found.source) == (200, 200, RateSource.USER)
        assert made.book.rate(0).source is RateSource.MAX_RATE
        made.book.set_rate(1, 1e6)
        found = made.book.rate(1)
        assert (found.asked, found.effective, found.source) == (1e6, 300, RateSource.MAX_RATE)

    def test_a_stream_is_paused_and_goes_on_with_the_rates_that_it_has(self) -> None:
        made = Book(2)
        with pytest.raises(IllegalStateError):
            made.book.set_paused(0, True)
        made.start()
        made.book.set_rate(0, 50)
        made.book.set_paused(0, True)
        found = made.book.rate(0)
        assert (found.effective, found.source) == (0, RateSource.PAUSED)
        assert made.book.rate(1).source is RateSource.UNLIMITED
        made.book.set_rate(0, 60)
        made.book.set_paused(0, True)
        made.book.set_paused(0, False)
        assert made.sent[-4:] == [
            (0, 50.0, None),
            (0, 50.0, None, "paused"),
            (0, 60.0, None, "paused"),
            (0, 60.0, None),
        ]
        assert (made.book.rate(0).effective, made.book.rate(0).source) == (60, RateSource.USER)

    def test_what_paused_itself_is_paused_until_it_is_resumed_and_no_longer(self) -> None:
        made = Book()
        made.start()
        made.book.set_rate(0, 50)
        held = replace(report(made.versions[0]), is_held=True)
        made.book.on_rate_status(held)
        assert made.book.rate(0).source is RateSource.PAUSED
        made.book.set_paused(0, False)
        # It came late: the receiver had not heard of the pause yet, and hears of the resume.
        made.book.on_rate_status(held)
        assert made.book.rate(0).source is RateSource.USER
        assert made.sent[-2:] == [(0, 50.0, None, "paused", "taken over"), (0, 50.0, None)]
        made.book.on_rate_status(replace(report(made.versions[0]), is_held=True))
        assert made.book.rate(0).source is RateSource.PAUSED

    def test_what_pauses_itself_while_it_is_paused_is_told_that_this_is_known(self) -> None:
        made = Book()
        made.start()
        made.book.set_paused(0, True)
        sent = made.versions[0]
        held = replace(report(sent), is_held=True)
        made.book.on_rate_status(held)
        made.book.on_rate_status(held)
        assert made.versions[0] == sent + 1
        pauses = [(0, None, None, "paused"), (0, None, None, "paused", "taken over")]
        assert made.sent[-2:] == pauses

    def test_what_paused_itself_unheard_is_paused_though_it_was_resumed_meanwhile(self) -> None:
        made = Book()
        made.start()
        begun = made.versions[0]
        made.book.set_paused(0, True)
        made.book.set_paused(0, False)
        made.book.on_rate_status(replace(report(begun), is_held=True))
        assert made.book.rate(0).source is RateSource.PAUSED
        assert made.sent[-1] == (0, None, None, "paused", "taken over")

    def test_a_receiver_confirms(self) -> None:
        made = Book()
        made.start()
        assert not made.book.rate(0).is_confirmed
        made.book.on_rate_status(report(1))
        assert made.book.rate(0).is_confirmed
        made.book.set_rate(0, 5)
        assert not made.book.rate(0).is_confirmed
        made.book.on_rate_status(report(2, records=400, at_s=2.0))
        found = made.book.rate(0)
        assert found.is_confirmed
        assert found.used == 200
        made.book.receiver_stopped(0)
        assert made.book.rate(0).used is None

    def test_they_survive_the_driver(self) -> None:
        made = Book(2)
        made.start()
        made.book.set_rate(0, "10/second")
        made.book.set_byte_rate(1, "20/second")
        made.after_recovery()
        made.start()
        assert made.sent == [(0, 10.0, None), (1, None, 20.0)]

    @pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan"), "50", "0/second", ""])
    def test_what_is_no_rate_is_refused(self, wrong: Any) -> None:
        made = Book()
        with pytest.raises(ValueError, match="rate"):
            made.book.set_rate(0, wrong)
        assert made.book.rate(0).asked is None

    def test_a_stream_without_a_receiver_has_none(self) -> None:
        with pytest.raises(StreamGraphError, match="stream 3 has no receiver"):
            Book().book.set_rate(3, 1)


class TestSlowStart:
    def test_it_doubles_with_each_batch_that_used_it_until_the_estimator_knows(self) -> None:
        made = Book(1, **BACKPRESSURE)
        made.start()
        (controller,) = made.controllers
        assert isinstance(controller, RateController)
        # Too short to tell anything of the speed.
        controller.onBatchCompleted(completed(1000, 900, 0))
        controller.onBatchCompleted(completed(2000, 300, 0))
        controller.onBatchCompleted(completed(3000, 2000, 0))
        assert [rate for _, rate, _ in made.sent] == [1000, 2000, 4000]
        assert made.book.rate(0).source is RateSource.SLOW_START
        controller.onBatchCompleted(completed(4000, 4000, 100))
        assert controller.latest_rate is None
        controller.onBatchCompleted(completed(5000, 8000, 100))
        assert [rate for _, rate, _ in made.sent[3:]] == [8000, 80_000]
        assert made.book.rate(0).source is RateSource.ESTIMATOR
        assert controller.latest_rate == 80_000

    def test_the_user_stays_below(self) -> None:
        made = Book(1, **BACKPRESSURE)
        made.book.set_rate(0, 500)
        made.start()
        (controller,) = made.controllers
        controller.onBatchCompleted(completed(1000, 1000, 0))
        assert made.sent == [(0, 500, None)]

    def test_it_is_off_without_backpressure_as_in_spark(self) -> None:
        made = Book()
        made.start()
        assert made.sent == [(0, None, None)]
        assert made.controllers == []

    def test_a_new_driver_begins_with_what_the_old_one_knew(self) -> None:
        """Spark: `recovery maintains rate controller`."""
        made = Book(1, **BACKPRESSURE)
        made.start()
        (controller,) = made.controllers
        for end_ms in (1000, 2000):
            controller.onBatchCompleted(completed(end_ms, 5000, 100))
        made.after_recovery()
        made.start()
        assert made.sent == [(0, 50_000, None)]
        (controller,) = made.controllers
        controller.onBatchCompleted(completed(3000, 5000, 200))
        assert made.sent[-1] == (0, 25_000, None)


class Fixed(RateEstimator):
    """Answers what it is told, and keeps what it was asked."""

    def __init__(self, *answers: float | None) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Any, ...]] = []

    def compute(self, *arguments: Any, **named: Any) -> float | None:
        self.asked.append((*arguments, *named.values()))
        return self.answers.pop(0)


class TestController:
    def controller(self, *answers: float | None) -> tuple[Book, RateController, Fixed]:
        made = Book()
        made.start()
        made.sent.clear()
        estimator = Fixed(*answers)
        return made, RateController(0, estimator, made.book), estimator

    def test_it_asks_with_what_the_batch_tells_and_publishes_whole_records(self) -> None:
        made, controller, estimator = self.controller(123.9, 0.5, None, -4.0, 7.0)
        made.memories[0].estimate = None
        made.book.on_rate_status(report(1, fill=0.75))
        controller.onBatchCompleted(completed(9000, 40, 300, 20))
        assert estimator.asked == [(9000, 40, 300, 20, 0.75)]
        assert controller.latest_rate == 123
        for end_ms in (1, 2, 3):
            controller.onBatchCompleted(completed(9000 + end_ms, 40, 300))
        assert controller.latest_rate == 123
        controller.onBatchCompleted(completed(9900, 40, 300))
        assert controller.latest_rate == made.memories[0].estimate == 7
        assert estimator.asked[-1][-1] == 0.0

    def test_a_batch_that_does_not_tell_enough_is_passed_over(self) -> None:
        _, controller, estimator = self.controller()
        controller.onBatchCompleted(completed(9000, None, 300))
        controller.onBatchCompleted(completed(9000, 40, 300, stream=1))
        controller.onBatchCompleted(
            BatchCompleted(BatchInfo(Time(0), {0: BatchInput(0, 5)}, 0, -1, -1, {}))
        )
        assert estimator.asked == []


@pytest.mark.parametrize("name", ["pid", "aimd"])
def test_the_named_estimator_is_made(name: str) -> None:
    made = Book(1, **BACKPRESSURE, spark__streaming__backpressure__rateEstimator=name)
    made.start()
    estimator = made.memories[0].estimator
    assert isinstance(estimator, PIDRateEstimator) == (name == "pid")
    assert estimator is not None
