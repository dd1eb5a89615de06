"""Offsets, partitions and commits of one query, over a connection to a ledger, without Spark."""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.sql import PlacesReleasedError, SourceError
from penstock.sql.source import _reader
from penstock.sql.source._options import SourceOptions
from penstock.sql.source._reader import PlaceReader
from penstock.tracker.consumers.place_service import _BLOCKS_PER_ANSWER
from tests.sql.serving import (
    COLUMNS,
    START_MS,
    Racing,
    logged,
    of_seconds,
    places,
    release,
    serving,
)
from tests.tracker.place_cases import Case


@contextlib.contextmanager
def reading(case: Case, **options: str) -> Iterator[PlaceReader]:
    """Connect a query to the ledger of a case, as its process in the driver does."""
    with serving(case) as access:
        reader = PlaceReader(access, SourceOptions.of({"stream": "clicks", **options}), COLUMNS)
        try:
            yield reader
        finally:
            reader.stop()


def test_a_batch_of_many_blocks_is_held_until_it_is_committed(tmp_path: Path) -> None:
    count = 2 * _BLOCKS_PER_ANSWER + 7
    case = Case(tmp_path, count=count)
    with reading(case) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        assert places(reader.partitions(start, end)) == list(range(count))
        case.release()
        assert places(reader.partitions(start, end)) == list(range(count))
        reader.commit(end)
    case.release()
    assert case.ledger.places.stream(0).first == count


def test_who_is_forgotten_while_a_batch_is_planned_is_held_where_the_batch_begins(
    tmp_path: Path,
) -> None:
    count = _BLOCKS_PER_ANSWER + 7
    case = Case(tmp_path, count=count)
    pages = itertools.count()

    def forget() -> None:
        if next(pages) == 1:
            case.ledger.places.drop(0, list(case.consumers()))

    with serving(case) as access:
        options = SourceOptions.of({"stream": "clicks"})
        reader = PlaceReader(access, options, COLUMNS, client=Racing(access, forget))
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        assert places(reader.partitions(start, end)) == list(range(count))
        assert case.consumers() == {end["consumer"]: 0}
        case.release()
        assert places(reader.partitions(start, end)) == list(range(count))
        reader.stop()


def test_a_query_that_has_begun_before_there_is_anything_gets_what_comes(tmp_path: Path) -> None:
    case = Case(tmp_path)
    with reading(case, startingOffsets="latest") as reader:
        start = reader.initialOffset()
        first = reader.latestOffset(start)
        assert places(reader.partitions(start, first)) == []
        case.add(3)
        case.commit(8, consumer="quicker")
        case.release()
        end = reader.latestOffset(logged(first))
        assert places(reader.partitions(logged(first), end)) == [5, 6, 7]


def test_a_query_that_was_stopped_before_there_was_anything_gets_what_comes(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, consumer_timeout_s=1e9)
    with reading(case, startingOffsets="latest") as reader:
        start = reader.initialOffset()
        first = logged(reader.latestOffset(start))
        reader.partitions(start, first)
    case.clock.advance(86_400_000)
    case.service.sweep()
    case.add(3)
    case.commit(8, consumer="quicker")
    case.release()
    with reading(case, startingOffsets="latest") as reader:
        end = reader.latestOffset(first)
        assert places(reader.partitions(first, end)) == [5, 6, 7]


def test_a_query_begins_with_what_is_there_when_it_first_asks(tmp_path: Path) -> None:
    case = Case(tmp_path)
    with reading(case) as reader:
        start = reader.initialOffset()
        case.commit(2, consumer="quicker")
        case.release()
        end = reader.latestOffset(start)
        assert places(reader.partitions(start, end)) == [2, 3, 4]
    # And so it does when the batch is made again.
    with reading(case) as reader:
        assert places(reader.partitions(reader.initialOffset(), logged(end))) == [2, 3, 4]


def test_what_a_restarted_query_is_told_of_its_last_offset_gives_nothing_away(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path)
    with reading(case) as reader:
        start = logged(reader.initialOffset())
        end = logged(reader.latestOffset(start))
        reader.partitions(start, end)
    with reading(case) as reader:
        # As PySpark 4.0 does with the last offset, whether it was committed or not.
        assert reader.partitions(end, end) == []
        case.release()
        assert places(reader.partitions(start, end)) == [0, 1, 2, 3, 4]


def test_places_that_are_gone_are_an_error_that_names_them(tmp_path: Path) -> None:
    case = Case(tmp_path)
    with reading(case) as reader:
        start = logged(reader.initialOffset())
        end = reader.latestOffset(start)
        case.commit(3, consumer=end["consumer"])
        case.release()
        with pytest.raises(PlacesReleasedError, match=r"0 to 5 .* from 3 to 5"):
            reader.partitions(start, end)
        with pytest.raises(PlacesReleasedError):
            reader.latestOffset(start)


@pytest.mark.parametrize("released", [3, 5])
def test_what_a_batch_that_is_made_again_goes_on_without_is_told_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, released: int
) -> None:
    case = Case(tmp_path)
    with reading(case, failOnDataLoss="false") as reader:
        start = logged(reader.initialOffset())
        end = logged(reader.latestOffset(start))
        case.commit(released, consumer=end["consumer"])
        case.release()
        for _ in range(2):  # Spark may ask more than once.
            assert places(reader.partitions(start, end)) == list(range(released, 5))
        case.add(1)
        following = logged(reader.latestOffset(end))
        assert following["skipped"] == 10 * released
        assert places(reader.partitions(end, following)) == [5]
        assert logged(reader.latestOffset(following)) == following
    told = f"places 0 to {released} were released; the query goes on without their {10 * released} "
    assert told in caplog.text


def test_what_was_released_beyond_the_end_of_a_batch_is_counted_once(tmp_path: Path) -> None:
    case = Case(tmp_path)
    with reading(case, failOnDataLoss="false") as reader:
        start = logged(reader.initialOffset())
        end = logged(reader.latestOffset(start))
        case.add(3)
        case.commit(8, consumer=end["consumer"])
        case.release()
        assert places(reader.partitions(start, end)) == []
        case.add(1)
        following = logged(reader.latestOffset(end))
        assert following["skipped"] == 80
        assert places(reader.partitions(end, following)) == [8]


def test_what_was_released_before_a_batch_is_planned_is_counted_once(tmp_path: Path) -> None:
    case = Case(tmp_path)
    with reading(case) as reader:
        start = logged(reader.initialOffset())
        consumer = reader.latestOffset(start)["consumer"]
    case.commit(2, consumer=consumer)
    case.release()
    with reading(case, failOnDataLoss="false") as reader:
        end = logged(reader.latestOffset(start))
        assert end["skipped"] == 20
        assert places(reader.partitions(start, end)) == [2, 3, 4]
        case.commit(3, consumer=consumer)
        case.release()
        assert places(reader.partitions(start, end)) == [3, 4]
        following = logged(reader.latestOffset(end))
        assert following["skipped"] == 30
        assert places(reader.partitions(end, following)) == []
        assert logged(reader.latestOffset(following)) == following


@pytest.mark.parametrize("count", [1, 2, 20])
def test_a_ledger_that_was_put_back_is_an_error_also_after_it_has_grown(
    tmp_path: Path, count: int
) -> None:
    case = Case(tmp_path / "host", count=3)
    case.ledger.close()
    shutil.copytree(tmp_path / "host", tmp_path / "before")
    case.open()
    case.add(2)
    with reading(case) as reader:
        start = reader.initialOffset()
        end = logged(reader.latestOffset(start))
        assert end["block"] == 5
    case.ledger.close()
    shutil.rmtree(tmp_path / "host")
    shutil.move(tmp_path / "before", tmp_path / "host")
    case.open()
    case.add(count, num_records=7)
    for loss in ("true", "false"):
        with (
            reading(case, failOnDataLoss=loss) as reader,
            pytest.raises(SourceError, match="50 records"),
        ):
            reader.latestOffset(end)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"maxRecordsPerTrigger": "35"}, 3),
        ({"maxRecordsPerTrigger": "35", "maxBytesPerTrigger": "2500"}, 2),
        ({"maxRecordsPerTrigger": "15", "maxBytesPerTrigger": "2500"}, 1),
        ({"maxBytesPerTrigger": "1"}, 1),
        ({}, 10),
    ],
)
def test_both_limits_hold_and_the_end_of_the_stream_is_told(
    tmp_path: Path, options: dict[str, str], expected: int
) -> None:
    with reading(Case(tmp_path, count=10), minPartitions="2", **options) as reader:
        start = reader.initialOffset()
        assert reader.reportLatestOffset() is None
        end = reader.latestOffset(start)
        assert (end["block"], end["records"]) == (expected, 10 * expected)
        newest = reader.reportLatestOffset()
        assert newest is not None
        assert (newest["block"], newest["records"]) == (10, 100)
        assert len(reader.partitions(start, end)) == min(2, expected)


@pytest.mark.skipif(not _reader.HAS_LIMITS, reason="Spark asks for no limits before 4.2")
@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"maxRecordsPerTrigger": "35", "maxBytesPerTrigger": "2500"}, "ReadMaxRows"),
        ({"maxBytesPerTrigger": "2500"}, "ReadMaxBytes"),
        ({}, "ReadAllAvailable"),
    ],
)
def test_spark_is_shown_a_limit_and_may_ask_for_all(
    tmp_path: Path, options: dict[str, str], shown: str
) -> None:
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    with reading(Case(tmp_path, count=10), **options) as reader:
        assert type(reader.getDefaultReadLimit()).__name__ == shown
        start = reader.initialOffset()
        assert reader.latestOffset(start, ReadAllAvailable())["block"] == 10


def test_a_query_of_what_is_available_now_ends_where_the_stream_ended(tmp_path: Path) -> None:
    case = Case(tmp_path, count=5)
    with reading(case, maxRecordsPerTrigger="20") as reader:
        reader.prepareForTriggerAvailableNow()
        case.add(5)
        at, found = reader.initialOffset(), list[int]()
        while (end := reader.latestOffset(at)) != at:
            found += places(reader.partitions(at, end))
            at = end
        assert found == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("triggers", [1, 2])
def test_a_query_that_spark_ends_with_its_first_batch_says_what_it_has_not_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    triggers: int,
) -> None:
    monkeypatch.setattr(_reader, "HAS_LIMITS", False)  # As PySpark 4.0 and 4.1 have none.
    with reading(Case(tmp_path), maxRecordsPerTrigger="20") as reader:
        start = reader.initialOffset()
        for _ in range(triggers):
            end = reader.latestOffset()
            reader.partitions(start, end)
            start = end
    told = "ended after one batch, and 30 records that were there then are not read"
    assert (told in caplog.text) == (triggers == 1)


# -- where a new query begins --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"startingTimestamp": str(START_MS)}, "2 to 6"),
        ({"startingTimestamp": str(START_MS + 2000)}, "2 to 6"),
        ({"startingOffsets": "1"}, "1 to 6"),
    ],
)
def test_a_new_query_does_not_pass_over_what_was_released_unless_that_is_wanted_I15(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, options: dict[str, str], needed: str
) -> None:
    case = of_seconds(tmp_path)
    release(case, 3)
    wanted = rf"query needs the places {needed} .* from 3 to 6 are .* retention of the stream"
    with reading(case, **options) as reader:
        for _ in range(2):
            with pytest.raises(PlacesReleasedError, match=wanted):
                reader.initialOffset()
    assert list(case.consumers()) == ["c"]
    with reading(case, **options, failOnDataLoss="false") as reader:
        start = reader.initialOffset()
        assert places(reader.partitions(start, reader.latestOffset(start))) == [3, 4, 5]
    assert "3 were released; the query goes on without their records" in caplog.text


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"startingTimestamp": str(START_MS + 2001)},
        {"startingTimestamp": str(START_MS + 3000)},
        {"startingOffsets": "3"},
    ],
)
def test_a_new_query_that_asks_for_nothing_that_is_gone_begins(
    tmp_path: Path, options: dict[str, str]
) -> None:
    case = of_seconds(tmp_path)
    release(case, 3)
    with reading(case, **options) as reader:
        start = reader.initialOffset()
        assert places(reader.partitions(start, reader.latestOffset(start))) == [3, 4, 5]
    # And so when its first batch is made again.
    with reading(case, **options) as reader:
        assert reader.initialOffset()["block"] == 3


@pytest.mark.parametrize(
    "options", [{"startingTimestamp": str(START_MS)}, {"startingOffsets": "0"}]
)
def test_what_is_released_before_a_query_holds_it_is_not_passed_over_I15(
    tmp_path: Path, options: dict[str, str]
) -> None:
    case = of_seconds(tmp_path)
    with reading(case, **options) as reader:
        start = reader.initialOffset()
        release(case, 3)
        with pytest.raises(PlacesReleasedError, match=r"places 0 to 6 .* retention of the stream"):
            reader.latestOffset(start)
    case = of_seconds(tmp_path / "other")
    with reading(case, **options, failOnDataLoss="false") as reader:
        start = reader.initialOffset()
        release(case, 3)
        end = reader.latestOffset(start)
        assert end["skipped"] == 30
        assert places(reader.partitions(start, end)) == [3, 4, 5]
