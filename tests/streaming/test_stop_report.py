"""What a stop says that it gave up."""

from __future__ import annotations

import pytest

from penstock.streaming.stop_report import GivenUpBatch, StopReport


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
            "The stop gave up 1 batch without records; the next start processes them",
        ),
        (
            StopReport(
                given_up=(GivenUpBatch(1000, {"a-0": 2}), GivenUpBatch(2000, {"a-0": 1})),
                waiting_records={"a-0": 4},
            ),
            "2 batches with 3 records of a-0 and 4 records of a-0 that no batch has; they are lost",
        ),
    ],
)
def test_a_report_says_what_was_given_up_and_what_becomes_of_it(
    report: StopReport, said: str
) -> None:
    assert said in str(report)


def test_a_batch_without_records_loses_nothing() -> None:
    assert str(StopReport(given_up=(GivenUpBatch(1000),))) == (
        "The stop gave up 1 batch without records"
    )
