"""Offsets and partitions of a query of several streams, without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.sql import SourceError
from penstock.sql.source._options import SourceOptions
from penstock.sql.source.data_source import StreamsReader
from tests.sql.serving import COLUMNS, logged, places, serving
from tests.tracker.place_cases import Case


@contextlib.contextmanager
def reading(case: Case, **options: str) -> Iterator[StreamsReader]:
    with serving(case) as access:
        given = SourceOptions.of({"streams": ", ".join(("clicks", *case.others)), **options})
        reader = StreamsReader(access, given, COLUMNS)
        try:
            yield reader
        finally:
            reader.stop()


def test_a_batch_is_held_until_it_is_committed_and_knows_its_streams(tmp_path: Path) -> None:
    case = Case(tmp_path, count=5)
    with reading(case) as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        case.release()
        found = reader.partitions(start, end)
        assert places(found) == [0, 1, 2, 3, 4]
        assert [part.names for part in found] == [{0: "clicks"}] * len(found)
        reader.commit(end)
        assert reader.latestOffset(end) == end
    case.release()
    assert case.ledger.places.stream(0).first == 5


def test_a_stream_that_is_added_begins_as_in_a_new_query_also_when_its_batch_is_made_again(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, count=3)
    without = {"v": 1, "streams": {}}
    with reading(case) as reader:
        end = logged(reader.latestOffset(without))
        assert places(reader.partitions(without, end)) == [0, 1, 2]
    case.add(2)
    with reading(case) as reader:
        assert places(reader.partitions(without, end)) == [0, 1, 2]
        later = reader.latestOffset(end)
        assert places(reader.partitions(end, later)) == [3, 4]
    assert len(case.consumers()) == 1


def test_the_first_batch_is_made_again_as_it_was_and_leaves_no_phantom(tmp_path: Path) -> None:
    case = Case(tmp_path, count=3)
    with reading(case) as reader:
        start = reader.initialOffset()
        end = logged(reader.latestOffset(start))
        reader.partitions(start, end)
    case.add(1)
    with reading(case) as reader:
        # Spark asks for the first offset again: it is another consumer's.
        phantom = reader.initialOffset()
        assert places(reader.partitions(phantom, end)) == [0, 1, 2]
    assert list(case.consumers()) == [end["streams"]["clicks"]["consumer"]]


def test_streams_share_the_limits_and_are_packed_together(tmp_path: Path) -> None:
    case = Case(tmp_path, count=6, others=("views",))
    case.add_to(1, 6)
    for options, each in (
        ({"maxRecordsPerTrigger": "60"}, 3),
        ({"maxRecordsPerTrigger": "60", "maxBytesPerTrigger": "4000"}, 2),
        ({"maxBytesPerTrigger": "1"}, 1),
    ):
        with reading(case, minPartitions="4", **options) as reader:
            start = reader.initialOffset()
            assert reader.reportLatestOffset() is None
            end = reader.latestOffset(start)
            found = reader.partitions(start, end)
            assert places(found) == [*range(each), *range(each)]
            assert len(found) == min(4, 2 * each)
            assert found[0].names == {0: "clicks", 1: "views"}
            newest = reader.reportLatestOffset()
            assert newest is not None
            assert {name: part["block"] for name, part in newest["streams"].items()} == {
                "clicks": 6,
                "views": 6,
            }


def test_a_query_of_what_is_available_now_ends_each_stream_where_it_was(tmp_path: Path) -> None:
    case = Case(tmp_path, count=3, others=("views",))
    case.add_to(1, 2)
    with reading(case) as reader:
        reader.prepareForTriggerAvailableNow()
        case.add(4)
        start = reader.initialOffset()
        end = reader.latestOffset(start)
        assert places(reader.partitions(start, end)) == [0, 1, 2, 0, 1]
        assert reader.latestOffset(end) == end


def test_a_query_that_is_not_told_where_a_batch_begins_goes_on_from_the_last(
    tmp_path: Path,
) -> None:
    """PySpark before 4.2 does not say it."""
    case = Case(tmp_path, count=3)
    with reading(case, maxRecordsPerTrigger="30") as reader:
        start = reader.initialOffset()
        end = reader.latestOffset()
        assert places(reader.partitions(start, end)) == [0, 1, 2]
        case.add(2)
        later = reader.latestOffset()
        assert places(reader.partitions(end, later)) == [3, 4]
        assert reader.latestOffset() == later


def test_an_offset_of_one_stream_and_a_stream_that_is_not_named_are_errors(tmp_path: Path) -> None:
    case = Case(tmp_path)
    with reading(case) as reader:
        (part,) = reader.initialOffset()["streams"].values()
        with pytest.raises(SourceError, match="It is of a query of one stream"):
            reader.latestOffset(part)
        with pytest.raises(SourceError, match="places of views, which the option streams does not"):
            reader.latestOffset({"v": 1, "streams": {"clicks": part, "views": part}})
