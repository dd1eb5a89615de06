"""What a stop says that it gave up."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.streaming.stop_report import GivenUpBatch, StopReport
from tests.streaming.restarts.driven import Driven, World


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (StopReport(), "The stop gave up nothing"),
        (
            StopReport(batches_not_made=5),
            "The stop gave up 5 batches, whose records are not counted yet; they are lost",
        ),
        (
            StopReport(waiting_records={"a-0": 1}),
            "The stop gave up 1 record of a-0 that no batch has; they are lost",
        ),
        (
            StopReport(given_up=(GivenUpBatch(1000),), are_kept=True),
            "The stop gave up 1 batch without received records; the next start processes them",
        ),
        (
            StopReport(
                given_up=(GivenUpBatch(1000, {"a-0": 2}), GivenUpBatch(2000, {"a-0": 1})),
                waiting_records={"a-0": 4},
            ),
            "2 batches with 3 records of a-0 and 4 records of a-0 that no batch has; they are lost",
        ),
        (
            StopReport(waiting_records={f"a-{number}": 12 for number in range(100)}),
            "1,200 records of a-0, a-1, a-2, a-3 and 96 other streams that no batch has",
        ),
    ],
)
def test_a_report_says_what_was_given_up_and_what_becomes_of_it(
    report: StopReport, said: str
) -> None:
    assert said in str(report)


def test_a_batch_without_records_loses_nothing() -> None:
    assert str(StopReport(given_up=(GivenUpBatch(1000),))) == (
        "The stop gave up 1 batch without received records"
    )


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (
            StopReport(True, ran_s=4.02, duration_s=1.1, batches=4, records=1234),
            "gracefully after 4.0 s, in 1.1 s: 4 batches with 1,234 records done, none given up",
        ),
        (
            StopReport(
                given_up=(GivenUpBatch(1000, {"a-0": 2}),),
                batches_not_made=1,
                waiting_records={"a-0": 1},
                ran_s=4000,
                batches=1,
                failed_batches=1,
                records=1,
            ),
            "1 batch (1 with an error) with 1 record done, 2 batches given up, 1 record left",
        ),
    ],
)
def test_the_last_line_says_what_became_of_everything(report: StopReport, said: str) -> None:
    assert said in report.summary


def test_a_context_that_stops_says_what_became_of_everything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def build(ssc: Any, world: World) -> None:
        world.stream(ssc).foreachRDD(lambda rdd: rdd.count())

    with Driven(build) as program, caplog.at_level("INFO", "penstock.streaming"):
        program.start()
        program.receive([1, 2])
        program.advance(1000)
        program.receive([3])
        program.advance(1000)
        program.stop()
    (said,) = (line for line in caplog.messages if line.startswith("Stopped"))
    assert said.startswith("Stopped gracefully after ")
    assert said.endswith("2 batches with 3 records done, none given up, no record left waiting")
