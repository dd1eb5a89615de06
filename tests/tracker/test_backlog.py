"""When the receiver of a stream waits for those who read it. Blocks have 1,000 bytes each."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from penstock.tracker import Retention
from tests.tracker.place_cases import DAY_S, Case

HOUR_MS = 3_600_000


def grown(case: Case, count: int) -> list[bool]:
    """Add blocks, and return what the receiver is told from the first of them on."""
    case.holds.clear()
    case.add(count)
    case.service.backlogs.check()
    return case.holds


def test_a_receiver_waits_at_the_bound_and_goes_on_when_a_consumer_has_passed(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, count=0, max_backlog_bytes=8000)
    case.end(0)
    assert grown(case, 7) == []
    assert grown(case, 1) == [True]
    # It does not stop and go with each block.
    case.end(1)
    assert case.holds == [True]
    case.end(2)
    assert case.holds == [True, False]


def test_the_slowest_consumer_counts_and_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    case = Case(tmp_path, count=0, max_backlog_bytes=4000)
    case.end(0, consumer="quick")
    case.end(0, consumer="slow")
    with caplog.at_level(logging.INFO, "penstock.tracker"):
        grown(case, 1)
        case.end(1, consumer="quick")
        assert grown(case, 3) == [True]
        case.end(4, consumer="quick")
        assert case.service.backlogs.is_held(0)
        assert "stream clicks has 4000 unread bytes" in caplog.text
        assert "slow" in caplog.text
        case.ledger.places.drop(0, ["slow"])
        case.service.backlogs.check()
    assert not case.service.backlogs.is_held(0)
    assert "goes on" in caplog.text


def test_a_query_that_has_read_all_and_waits_for_more_holds_nothing_up(tmp_path: Path) -> None:
    # Spark commits a batch only with the next one, which needs something new.
    case = Case(tmp_path, count=0, max_backlog_bytes=4000)
    case.end(0)
    assert grown(case, 4) == [True]
    case.list(0, 4)
    assert case.holds == [True]
    case.end(4)
    assert case.holds == [True, False]
    case.release()
    assert case.consumers() == {"c": 0}
    assert case.ledger.places.stream(0).first == 0


def test_what_a_query_has_read_is_not_counted_again_when_it_stops(tmp_path: Path) -> None:
    case = Case(tmp_path, count=3, max_backlog_bytes=4000)
    case.commit(1)
    case.end(3)
    case.service.disconnected(case.peer)
    assert grown(case, 3) == []
    assert grown(case, 1) == [True]


def test_a_consumer_that_is_forgotten_holds_nothing_up_any_more(tmp_path: Path) -> None:
    case = Case(tmp_path, count=0, max_backlog_bytes=4000, consumer_timeout_s=2 * DAY_S)
    case.commit(0, consumer="gone")
    case.service.disconnected(case.peer)
    assert grown(case, 4) == [True]
    case.commit(4, consumer="there")
    case.clock.advance(3 * DAY_S * 1000)
    case.service.sweep()
    case.commit(4, consumer="there")
    case.service.backlogs.check()
    assert case.consumers() == {"there": 4}
    assert case.holds == [True, False]


def test_without_a_query_the_receiver_of_a_queue_waits_for_one(tmp_path: Path) -> None:
    case = Case(tmp_path, count=0, max_backlog_bytes=4000)
    assert grown(case, 4) == [True]
    case.release()
    case.service.backlogs.check()
    assert case.holds == [True]
    case.end(0)
    assert case.holds == [True, False]
    assert grown(case, 4) == [True]


def test_a_query_that_begins_with_what_was_there_holds_nobody_up(tmp_path: Path) -> None:
    case = Case(tmp_path, count=0, retention=Retention(None), max_backlog_bytes=4000)
    case.end(0, consumer="first")
    for end in (3, 6, 9):
        assert grown(case, 3) == []
        case.end(end, consumer="first")
    case.end(0, consumer="late")
    # What comes since then counts for it, too.
    assert grown(case, 3) == []
    case.end(3, consumer="late")
    case.end(12, consumer="first")
    assert grown(case, 1) == [True]
    case.end(10, consumer="late")
    assert case.holds == [True, False]


def test_a_consumer_of_the_program_that_begins_with_what_was_there_holds_nobody_up(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, count=8, max_backlog_bytes=8000, retention=Retention(HOUR_MS))
    case.service.attach("own", [0])
    assert case.consumers() == {"own": 0}
    assert grown(case, 7) == []
    assert grown(case, 1) == [True]
    # One that is known is as far behind as it is.
    case.start_again()
    case.service.attach("own", [0])
    case.service.backlogs.check()
    assert case.holds == [True, True]


def test_without_a_query_it_goes_on_when_the_retention_is_over(tmp_path: Path) -> None:
    case = Case(tmp_path, count=0, retention=Retention(HOUR_MS), max_backlog_bytes=4000)
    assert grown(case, 4) == [True]
    case.clock.advance(HOUR_MS + 1)
    case.release()
    case.service.backlogs.check()
    assert case.holds == [True, False]


def test_what_the_retention_bounds_by_its_size_is_not_waited_for_without_a_query(
    tmp_path: Path,
) -> None:
    retention = Retention(HOUR_MS, 10_000)
    case = Case(tmp_path, count=0, retention=retention, max_backlog_bytes=4000)
    assert grown(case, 20) == []
    case.release()
    assert case.ledger.places.stream(0).size_bytes == 10_000
    case.end(10)
    assert grown(case, 4) == [True]


def test_what_all_have_read_and_the_retention_keeps_does_not_count(tmp_path: Path) -> None:
    case = Case(tmp_path, count=0, retention=Retention(HOUR_MS), max_backlog_bytes=4000)
    case.commit(0)
    for end in (3, 6, 9):
        assert grown(case, 3) == []
        case.commit(end)
    assert case.ledger.places.stream(0).size_bytes == 9000


def test_without_a_bound_nobody_waits(tmp_path: Path) -> None:
    case = Case(tmp_path, count=0)
    case.end(0)
    assert grown(case, 100) == []
