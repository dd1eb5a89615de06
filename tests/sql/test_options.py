"""The options of the source: each is read, or refused with what would be accepted."""

from __future__ import annotations

import pytest

from penstock.sql import SourceOptionError
from penstock.sql.source._options import METADATA_COLUMNS, SourceOptions


def test_only_the_stream_is_needed() -> None:
    assert SourceOptions.of({"stream": "clicks"}) == SourceOptions("clicks")


def test_spark_passes_over_the_case_of_names() -> None:
    options = SourceOptions.of({"STREAM": "clicks", "maxrecordspertrigger": "10"})
    assert (options.stream, options.max_records) == ("clicks", 10)


@pytest.mark.parametrize(
    ("name", "text", "attribute", "value"),
    [
        ("startingOffsets", "latest", "start", "latest"),
        ("startingOffsets", "EARLIEST", "start", "earliest"),
        ("startingOffsets", "17", "start", 17),
        ("startingTimestamp", "1700000000000", "start_ms", 1_700_000_000_000),
        ("startingTimestamp", "2023-11-14T22:13:20+00:00", "start_ms", 1_700_000_000_000),
        ("startingTimestamp", "2023-11-14T23:13:20+01:00", "start_ms", 1_700_000_000_000),
        ("maxBytesPerTrigger", "64m", "max_bytes", 64 << 20),
        ("maxBytesPerTrigger", "2gb", "max_bytes", 2 << 30),
        ("maxBytesPerTrigger", "100", "max_bytes", 100),
        ("minPartitions", "8", "min_partitions", 8),
        ("failOnDataLoss", "false", "fails_on_loss", False),
        ("metadataColumns", "true", "metadata", METADATA_COLUMNS),
        ("metadataColumns", "false", "metadata", ()),
        ("metadataColumns", "_place, _stream", "metadata", ("_stream", "_place")),
        ("metadataColumns", "_watermark", "metadata", ("_watermark",)),
        ("consumer", "hourly-report", "consumer", "hourly-report"),
    ],
)
def test_an_option_is_read(name: str, text: str, attribute: str, value: object) -> None:
    assert getattr(SourceOptions.of({"stream": "clicks", name: text}), attribute) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("startingOffsets", "-1"),
        ("startingOffsets", "first"),
        ("startingTimestamp", "2023-11-14T22:13:20"),
        ("startingTimestamp", "yesterday"),
        ("maxRecordsPerTrigger", "0"),
        ("maxRecordsPerTrigger", "1e6"),
        ("maxBytesPerTrigger", "0"),
        ("maxBytesPerTrigger", "64x"),
        ("maxBytesPerTrigger", "m"),
        ("minPartitions", "0"),
        ("failOnDataLoss", "no"),
        ("metadataColumns", "_place,_offset"),
        ("consumer", "a b"),
    ],
)
def test_a_value_that_is_not_accepted_is_named_with_what_would_be(name: str, text: str) -> None:
    with pytest.raises(SourceOptionError, match=name) as raised:
        SourceOptions.of({"stream": "clicks", name: text})
    assert repr(text) in str(raised.value)


def test_an_option_that_is_not_known_is_named_with_those_that_are() -> None:
    with pytest.raises(SourceOptionError, match=r"maxOffsetsPerTrigger.*maxRecordsPerTrigger"):
        SourceOptions.of({"stream": "clicks", "maxOffsetsPerTrigger": "1"})


def test_a_query_names_its_stream() -> None:
    with pytest.raises(SourceOptionError, match="stream"):
        SourceOptions.of({})


def test_a_query_begins_at_an_offset_or_at_a_time() -> None:
    with pytest.raises(SourceOptionError, match="startingOffsets"):
        SourceOptions.of({"stream": "s", "startingOffsets": "1", "startingTimestamp": "1"})
