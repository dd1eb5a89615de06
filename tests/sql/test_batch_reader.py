"""What a batch read takes of a stream, over a connection to a ledger, without Spark."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from penstock.sql import PlacesReleasedError, SourceError, SourceOptionError
from penstock.sql.source._batch_reader import BatchReader
from penstock.sql.source._options import SourceOptions
from penstock.sql.source.data_source import PenstockSource
from penstock.sql.source.host_client import HostClient
from penstock.tracker import Retention
from penstock.tracker.consumers.place_service import _BLOCKS_PER_ANSWER
from tests.sql.serving import COLUMNS, START_MS, Racing, of_seconds, release, serving
from tests.tracker.place_cases import SERVERS, Case


@contextlib.contextmanager
def reading(case: Case, client: Any = HostClient, **options: Any) -> Iterator[BatchReader]:
    with serving(case) as access:
        texts = {name: str(value) for name, value in options.items()}
        chosen = SourceOptions.of({"stream": "clicks", **texts})
        yield BatchReader(partial(client, access), access, chosen, COLUMNS)


def places(case: Case, **options: Any) -> list[int]:
    with reading(case, **options) as reader:
        return [place for part in reader.partitions() for place in part.places]


# -- what is read --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, [0, 1, 2, 3, 4, 5]),
        ({"startingOffsets": 2}, [2, 3, 4, 5]),
        ({"endingOffsets": 2}, [0, 1]),
        ({"startingOffsets": 2, "endingOffsets": 4}, [2, 3]),
        ({"startingOffsets": 3, "endingOffsets": 3}, []),
        ({"startingOffsets": 6}, []),
        ({"endingOffsets": 0}, []),
        ({"startingTimestamp": START_MS + 1}, [1, 2, 3, 4, 5]),
        ({"startingTimestamp": START_MS + 1000}, [1, 2, 3, 4, 5]),
        ({"endingTimestamp": START_MS + 1000}, [0]),
        ({"endingTimestamp": START_MS + 1001}, [0, 1]),
        ({"startingTimestamp": START_MS + 1000, "endingTimestamp": START_MS + 3000}, [1, 2]),
        ({"startingTimestamp": START_MS + 60_000}, []),
        ({"startingOffsets": 1, "endingTimestamp": START_MS + 3000}, [1, 2]),
    ],
)
def test_a_batch_read_takes_what_lies_between_places_or_times(
    tmp_path: Path, options: dict[str, Any], expected: list[int]
) -> None:
    assert places(of_seconds(tmp_path), **options) == expected


def test_many_blocks_are_asked_for_in_pages_and_packed(tmp_path: Path) -> None:
    count = 2 * _BLOCKS_PER_ANSWER + 7
    case = Case(tmp_path, count=count)
    with reading(case, minPartitions=5) as reader:
        parts = reader.partitions()
    assert [place for part in parts for place in part.places] == list(range(count))
    assert len(parts) == 5
    # Where tasks find them.
    assert all(part.servers == SERVERS for part in parts)


def test_a_batch_read_is_no_consumer(tmp_path: Path) -> None:
    case = of_seconds(tmp_path)
    assert places(case) == [0, 1, 2, 3, 4, 5]
    assert case.consumers() == {}
    release(case, 6)


def test_spark_reads_nothing_where_there_is_no_partition(tmp_path: Path) -> None:
    with reading(of_seconds(tmp_path)) as reader:
        assert list(reader.read(InputPartition(None))) == []


# -- what is gone --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": 1},
        {"startingOffsets": 0, "endingOffsets": 2},
        {"startingTimestamp": START_MS + 2000},
        {"startingTimestamp": START_MS, "endingTimestamp": START_MS + 2000},
        {"startingTimestamp": START_MS, "endingOffsets": 1},
        {"startingTimestamp": START_MS + 2000, "endingOffsets": 3},
        {"endingOffsets": 2},
        {"endingTimestamp": START_MS + 1000},
    ],
)
def test_what_was_released_is_an_error_unless_that_is_wanted(
    tmp_path: Path, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    case = of_seconds(tmp_path)
    release(case, 3)
    with pytest.raises(
        PlacesReleasedError, match=r"batch read .* from 3 to 6 .* retention"
    ) as told:
        places(case, **options)
    assert "checkpoint" not in str(told.value)
    is_over = "endingOffsets" in options or "endingTimestamp" in options
    assert places(case, **options, failOnDataLoss="false") == ([] if is_over else [3, 4, 5])
    assert "were released; they are not read" in caplog.text


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [3, 4, 5]),
        ({"startingTimestamp": START_MS + 2001}, [3, 4, 5]),
        ({"startingOffsets": 3}, [3, 4, 5]),
        ({"endingOffsets": 4}, [3]),
        ({"startingOffsets": 1, "endingOffsets": 1}, []),
    ],
)
def test_what_is_there_is_read_where_nothing_else_is_asked_for(
    tmp_path: Path, options: dict[str, Any], expected: list[int]
) -> None:
    case = of_seconds(tmp_path)
    release(case, 3)
    assert places(case, **options) == expected


@pytest.mark.parametrize("start", ["earliest", "1"])
def test_what_is_released_while_a_read_is_planned_counts_where_it_was_asked_for(
    tmp_path: Path, start: str
) -> None:
    case = of_seconds(tmp_path)
    racing = partial(Racing, meanwhile=lambda: release(case, 2))
    with reading(case, racing, startingOffsets=start) as reader:
        if start == "1":
            with pytest.raises(PlacesReleasedError, match="places 1 to 6"):
                reader.partitions()
            return
        assert [place for part in reader.partitions() for place in part.places] == [2, 3, 4, 5]


def test_what_is_released_between_two_pages_is_never_left_out_without_a_word_I15(
    tmp_path: Path,
) -> None:
    count = _BLOCKS_PER_ANSWER + 500
    case = Case(tmp_path, count=count, retention=Retention(None, 0))
    pages = itertools.count()

    def release_some() -> None:
        if next(pages) == 1:
            release(case, _BLOCKS_PER_ANSWER + 100)

    with reading(case, partial(Racing, meanwhile=release_some)) as reader:
        gone = f"places {_BLOCKS_PER_ANSWER} to {count}"
        with pytest.raises(PlacesReleasedError, match=gone):
            reader.partitions()


def test_what_is_released_while_a_read_runs_is_told_as_that(tmp_path: Path) -> None:
    case = of_seconds(tmp_path)
    with reading(case) as reader:
        (part,) = reader.partitions()
        release(case, 4)
        with pytest.raises(PlacesReleasedError, match=r"places 0 to 6 .* from 4 to 6"):
            list(reader.read(part))


# -- what cannot be read -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"startingOffsets": 7}, "startingOffsets"),
        ({"endingOffsets": 7}, "endingOffsets"),
        ({"startingOffsets": 4, "endingOffsets": 2}, "endingOffsets"),
        ({"startingTimestamp": 2, "endingTimestamp": 1}, "endingTimestamp"),
        ({"startingOffsets": 4, "endingTimestamp": START_MS + 1000}, "endingTimestamp"),
        ({"startingTimestamp": START_MS + 4000, "endingOffsets": 2}, "startingTimestamp"),
        ({"maxRecordsPerTrigger": 5}, "maxRecordsPerTrigger"),
        ({"maxBytesPerTrigger": 5}, "maxBytesPerTrigger"),
        ({"consumer": "me"}, "consumer"),
    ],
)
def test_what_a_batch_read_cannot_do_is_named(
    tmp_path: Path, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(SourceOptionError) as told:
        places(of_seconds(tmp_path), **options)
    assert told.value.option == named


@pytest.mark.parametrize("options", [{"endingOffsets": "3"}, {"endingTimestamp": "3"}])
def test_a_query_has_no_end(options: dict[str, str]) -> None:
    with pytest.raises(SourceOptionError, match=r"spark\.read;"):
        SourceOptions.of({"stream": "clicks", **options}).check_query()


def test_a_query_whose_options_are_refused_says_so_at_its_first_question() -> None:
    # What `streamReader` raises, PySpark 4.3 hides behind an error of its own.
    columns = StructType().add("value", "string")
    reader = PenstockSource({"stream": "clicks", "endingOffsets": "3"}).streamReader(columns)
    questions = (
        reader.initialOffset,
        reader.latestOffset,
        partial(reader.partitions, {}, {}),
    )
    for ask in questions:
        with pytest.raises(SourceOptionError, match=r"spark\.read;"):
            ask()
    # So does a query of a session without a host, with columns of its own.
    reader = PenstockSource({"stream": "clicks"}).streamReader(columns)
    with pytest.raises(SourceError, match="no ReceiverHost was started in this session"):
        reader.initialOffset()
