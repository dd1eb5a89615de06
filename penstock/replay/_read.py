"""`read` and `read_rdd`: a stream's history as a DataFrame or RDD."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock._arguments import as_folder
from penstock.blockstore import Block
from penstock.blockstore.arrow_frames import map_in_arrow, plain_schema, to_plain, to_spark_schema
from penstock.blockstore.building.record_pickles import ProgramObjectError
from penstock.blockstore.copies import BlockCopies
from penstock.blockstore.reading.dataframe import columns_of
from penstock.files.addresses import is_shared
from penstock.host.durability import BLOCKS, LEDGER
from penstock.replay._history import History, HistoryError, Window, as_time_ms, blocks_of
from penstock.tracker import LoggedSegment, ReceivedBlockTracker
from penstock.wal import EncryptionKey
from penstock.wire.messages import AddBlock, Ok, ReceivedBlockInfo
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

    A job reads what is kept when it runs: a segment that was let go meanwhile is an error.

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

    Arguments and errors are as for `read`; records of any kind are read.
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


_LOOK_S = 0.1
"""Less than a batch takes: blocks stay until theirs is cleaned up."""


@dataclass(frozen=True)
class Recorded:
    """What a recording has.

    Attributes:
        records: Records.
        blocks: Blocks, each with the time at which it was sealed, and its position.
        missed: Blocks that their program had let go before they were copied.
    """

    records: int
    blocks: int
    missed: int


def record(
    folder: str,
    stream: str,
    output: str,
    *,
    encryption: EncryptionKey | None,
    stopped: threading.Event,
    for_s: float | None = None,
) -> Recorded:
    """Copy what a stream has and what comes, until it is stopped.

    Args:
        folder: The checkpoint directory or log folder of a program, on this host.
        stream: The stream's name or number.
        output: A folder that is made; it is read as that of a program with this stream alone.
        encryption: The key of those logs; the copy is also encrypted with it.
        stopped: Ends it.
        for_s: Ends it after that many seconds.

    Raises:
        HistoryError: There is no such folder or stream, or it cannot be read.
        OSError, PenstockError: There is such an output, or it cannot be written.
    """
    if is_shared(folder):
        raise HistoryError(folder, "only logs on this host are recorded")
    end_s = None if for_s is None else time.monotonic() + for_s
    name = History(folder, encryption).name_of(stream)
    os.mkdir(output, 0o700)
    with contextlib.closing(_Recording(os.path.abspath(output), name, encryption)) as recording:
        while True:
            is_last = stopped.is_set() or (end_s is not None and time.monotonic() >= end_s)
            recording.add(History(folder, encryption).blocks(stream))
            if is_last:
                return recording.recorded
            stopped.wait(_LOOK_S)


class _Recording:
    def __init__(self, folder: str, name: str, encryption: EncryptionKey | None) -> None:
        attempt = uuid.uuid4().hex
        host = socket.gethostname()
        self.recorded = Recorded(0, 0, 0)
        self._next: dict[str, int] | None = None
        self._ledger = ReceivedBlockTracker.recover(
            (), os.path.join(folder, LEDGER), encryption=encryption
        )
        try:
            self._ledger.register_streams({name: 0})
            self._number = self._ledger.register_attempt(0, attempt, host).first_block_number
            logs = os.path.join(folder, BLOCKS)
            os.mkdir(logs, 0o700)
            log = os.path.join(logs, f"0-{attempt}")
            self._copies = BlockCopies(log, attempt, host, encryption)
        except BaseException:
            self._ledger.close()
            raise

    def add(self, blocks: tuple[ReceivedBlockInfo, ...]) -> None:
        """Copy those that are new, and note what was let go before it was seen."""
        is_first, taken = self._next is None, self._next or {}
        self._next = taken
        found: list[ReceivedBlockInfo] = []
        missed = 0
        for info in blocks:
            # What an attempt stored before the recording began is not missed.
            due = taken.get(info.attempt, info.sequence if is_first else 1)
            if info.sequence < due:
                continue
            missed += info.sequence - due
            taken[info.attempt] = info.sequence + 1
            try:
                found.append(self._copies.copy(info, f"input-0-{self._number}"))
            except FileNotFoundError:
                missed += 1
                continue
            self._number += 1
        if found:
            answer = self._ledger.add_blocks(AddBlock(0, self._copies.attempt, tuple(found)))
            if not isinstance(answer, Ok):
                raise OSError(f"the recording takes no more: {answer}")
        self.recorded = Recorded(
            self.recorded.records + sum(info.num_records for info in found),
            self.recorded.blocks + len(found),
            self.recorded.missed + missed,
        )

    def close(self) -> None:
        try:
            self._copies.close()
        finally:
            self._ledger.close()
