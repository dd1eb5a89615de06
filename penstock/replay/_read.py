"""`read` and `read_rdd`: a stream's history as a DataFrame or RDD."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock._arguments import as_folder
from penstock.blockstore import Block
from penstock.blockstore.arrow_frames import map_in_arrow, plain_schema, to_plain, to_spark_schema
from penstock.blockstore.dataframe import columns_of
from penstock.blockstore.record_pickles import ProgramObjectError
from penstock.replay._history import History, HistoryError, Window, as_time_ms, blocks_of
from penstock.tracker import LoggedSegment
from penstock.wal import EncryptionKey
from penstock.worker import begin_task

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

_ROWS_PER_BATCH = 32_768


def read(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    stream: str | int,
    *,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    encryption: EncryptionKey | None = None,
) -> DataFrame:
    """Return what a stream's receivers stored as a DataFrame, one partition a segment.

    What is read is what is there when a job runs: a segment that was let go meanwhile is an error.

    Args:
        spark: The session. Its executors read the logs, which must be where they see them: on
            this host with a local master, on HDFS, or in a folder that all hosts share.
        folder: The checkpoint directory or log folder of the program, which may run.
        stream: The stream's name or number.
        start: Only blocks that were sealed then or later.
        end: Only blocks that were sealed before.
        encryption: The key, where logs are encrypted.

    Returns:
        The columns of the stored Arrow batches; ``bytes`` and ``str`` have one column ``value``.
        An empty string column ``value`` where there is nothing.

    Raises:
        HistoryError: There is no such folder or stream, its records have no columns (pickled
            objects: see `read_rdd`), or, in a job, a segment cannot be read or has others.
        TypeError, ValueError: An argument is not accepted.
        UnsupportedColumnError: Spark has no type for a column.
    """
    window, segments = find(folder, stream, start, end, encryption)
    found = first_schema(segments, window, encryption)
    if found is None:
        return spark.createDataFrame([], "value string")
    schema = plain_schema(found)
    numbers = spark.range(0, len(segments), 1, len(segments))
    task = partial(_read_numbered, segments, window, encryption, schema)
    return map_in_arrow(numbers, task, to_spark_schema(schema))


def read_rdd(
    spark: SparkSession,
    folder: str | os.PathLike[str],
    stream: str | int,
    *,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    encryption: EncryptionKey | None = None,
) -> RDD[Any]:
    """Return what a stream's receivers stored as an RDD of the records that batches had.

    Arguments and errors are those of `read`; records of any kind are read.
    """
    window, segments = find(folder, stream, start, end, encryption)
    slices = spark.sparkContext.parallelize(list(segments), max(1, len(segments)))
    return slices.mapPartitions(partial(_records, window, encryption))


def find(
    folder: str | os.PathLike[str],
    stream: str | int,
    start: datetime | str | None,
    end: datetime | str | None,
    encryption: EncryptionKey | None,
    names: tuple[str, str] = ("start", "end"),
) -> tuple[Window, tuple[LoggedSegment, ...]]:
    """Return the window that is meant, and the segments of the stream; raises as `read`.

    `names` is what anyone who asks calls `start` and `end`.
    """
    window = Window(as_time_ms(start, names[0]) or 0, as_time_ms(end, names[1]))
    history = History(as_folder(folder, "folder"), encryption)
    return window, history.segments(stream)


def first_schema(
    segments: Sequence[LoggedSegment], window: Window, encryption: EncryptionKey | None
) -> pa.Schema | None:
    """Return the columns of the first block that has records; None: there is none."""
    for segment in segments:
        for _, block in blocks_of(segment, window, encryption):
            if block.num_records:
                return _columns(segment, block)
    return None


def tables(
    segment: LoggedSegment,
    window: Window,
    encryption: EncryptionKey | None,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a segment as Arrow batches of a schema that Spark has.

    Raises:
        HistoryError: It cannot be read here, or has other columns.
    """
    for _, block in blocks_of(segment, window, encryption):
        if not block.num_records:
            continue  # It carries a position or acknowledgements.
        columns = plain_schema(_columns(segment, block))
        if columns != schema:
            raise HistoryError(
                segment.folder,
                f"from segment {segment.number} on the columns are others: {_named(columns)}, "
                f"and not {_named(schema)}. Read what is before it and what is behind it by times",
            )
        for batch in block.batches():
            for at in range(0, batch.num_rows, _ROWS_PER_BATCH):
                yield to_plain(batch.slice(at, _ROWS_PER_BATCH), schema)


def rows(
    segment: LoggedSegment, window: Window, encryption: EncryptionKey | None
) -> Iterator[tuple[dict[Any, Any], bool]]:
    """Yield the records of a segment as dicts, and whether they are such that Arrow has made.

    What has no columns is the column ``value``.

    Raises:
        HistoryError: It cannot be read here, or a record is an object of a program's class.
        UnsupportedColumnError: Spark has no type for a column.
    """
    for _, block in blocks_of(segment, window, encryption):
        if not block.num_records:
            continue
        if (columns := columns_of(block)) is not None:
            schema = plain_schema(columns)
            for batch in block.batches():
                for at in range(0, batch.num_rows, _ROWS_PER_BATCH):
                    plain = to_plain(batch.slice(at, _ROWS_PER_BATCH), schema)
                    yield from ((row, True) for row in plain.to_pylist())
            continue
        try:
            for chunk in block.plain_chunks():
                yield from ((_row_of(record), False) for record in chunk)
        except ProgramObjectError as error:
            raise HistoryError(
                segment.folder,
                f"{error}, which is not loaded here: penstock.replay.read_rdd reads it in a "
                "program",
            ) from error


def _row_of(record: Any) -> dict[Any, Any]:
    if hasattr(record, "__fields__"):
        return dict(record.asDict(recursive=True))
    return record if isinstance(record, dict) else {"value": record}


def _columns(segment: LoggedSegment, block: Block) -> pa.Schema:
    found = columns_of(block)
    if found is None:
        raise HistoryError(
            segment.folder,
            "its records are pickled objects, which have no columns: penstock.replay.read_rdd "
            "reads them, and penstock replay --format json writes those of plain values",
        )
    return found


def _named(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _read_numbered(
    segments: Sequence[LoggedSegment],
    window: Window,
    encryption: EncryptionKey | None,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    begin_task()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from tables(segments[number], window, encryption, schema)


def _records(
    window: Window, encryption: EncryptionKey | None, segments: Iterable[LoggedSegment]
) -> Iterator[Any]:
    begin_task()
    for segment in segments:
        for _, block in blocks_of(segment, window, encryption):
            yield from block.records()
