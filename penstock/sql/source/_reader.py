"""`PlaceReader`: the offsets, partitions and commits of one query.

It lives in a Python process of its own on the driver's host, for as long as the query, and in those
that plan and run its tasks, where only `read` is called.

An offset is ``{"v", "stream", "consumer", "began", "block", "records"}``: the epoch of the stream
in the ledger, the consumer's id, the place at which it began, the place up to which it goes, and
how many records the stream has before that. The consumer's id is made with the first offset, so
that Spark's own offset log holds it: it is the checkpoint's identity.

With ``failOnDataLoss=false`` there is also ``"skipped"``: how many records were released before
they were read, and for a batch that is planned without some, ``"resumed"``: the place at which it
begins in fact, and the records before that. What a batch that is made again finds released beyond
that is counted with the next one, for its own offset is logged.

*Batch 0.* Spark asks for the first offset again when it starts a query whose first batch is logged
and not committed, and its log has ends only. So each offset says where its consumer began: when
the ends of a batch are of two consumers, the later one is the batch's and the other a phantom.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.blockstore import BlockAccess
from penstock.sql.errors import (
    PlacesReleasedError,
    SourceError,
    SourceOptionError,
)
from penstock.sql.source._options import SourceOptions
from penstock.sql.source._tasks import BlocksPartition, ReadsInTasks, packed, read_partition
from penstock.sql.source.host_client import HostClient
from penstock.wire.messages import (
    BlocksAt,
    CommitPlace,
    EndAt,
    FindEnd,
    FindStream,
    ListBlocks,
    Ok,
    ReceivedBlockInfo,
    StreamAt,
)

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    HAS_LIMITS = True
except ImportError:  # PySpark before 4.2: Spark does not ask for limits, so they are held here.
    HAS_LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands where later versions have it."""


if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_VERSION = 1

_log = logging.getLogger("penstock.sql")

Offset = dict[str, Any]


@dataclass(frozen=True)
class FoundBlocks:
    """The blocks of a batch.

    Attributes:
        blocks: They, in order.
        places: The place of each.
        added_ms: When each was added, ms since the epoch.
        servers: The block servers by host.
    """

    blocks: list[ReceivedBlockInfo] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    added_ms: list[int] = field(default_factory=list)
    servers: dict[str, tuple[str, int]] = field(default_factory=dict)


class ReaderOfQuery(ReadsInTasks, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What reads for one query: a stream (`PlaceReader`), or several."""


class RefusedReader(DataSourceStreamReader):
    """What a query gets whose options are refused, or that has no host: each call raises the error.

    Args:
        error: The error.
    """

    def __init__(self, error: SourceError) -> None:
        self._error = error

    def initialOffset(self) -> Offset:
        """Raise it: this is the first call of a new query."""
        raise self._error

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        """Raise it: this is the first call of a query that goes on."""
        raise self._error

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Raise it: this is the first call of a query that repeats a batch."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Raise it, though no partition ever comes here."""
        raise self._error


def default_read_limit(options: SourceOptions) -> ReadLimit:
    """Return the limit of a query that Spark shows."""
    if options.max_records is not None:
        return ReadMaxRows(options.max_records)
    if options.max_bytes is not None:
        return ReadMaxBytes(options.max_bytes)
    return ReadAllAvailable()


class PlaceReader(ReaderOfQuery):
    """Reads a stream by places for one query.

    Args:
        access: What reaches the host and the blocks.
        options: The query's.
        schema: The columns.
        client: Asks the host; None: one is made with the first question.
    """

    def __init__(
        self,
        access: BlockAccess,
        options: SourceOptions,
        schema: StructType,
        client: HostClient | None = None,
    ) -> None:
        self._access = access
        self._options = options
        self._schema = schema
        self._client = client
        self._stream: StreamAt | None = None
        self._first_offset: Offset | None = None
        self._last: Offset | None = None
        self._until: int | None = None
        self._newest: Offset | None = None
        self._asked = 0
        # By the end of a batch: how many of its records were released after it was planned.
        self._passed_over: dict[int, int] = {}

    # -- offsets -------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Return where a new query begins."""
        if self._first_offset is None:
            options, stream, place = self._options, self.found(), self._first_place()
            end = self._ask(FindEnd(stream.stream_id, stream.epoch, "", place, place), EndAt)
            label = f"{options.consumer}-" if options.consumer else ""
            self._first_offset = {
                "v": _VERSION,
                "stream": stream.epoch,
                "consumer": f"{label}{uuid.uuid4().hex}",
                "began": place,
                "block": place,
                "records": end.records,
            }
        return dict(self._first_offset)

    def _first_place(self) -> int:
        options = self._options
        stream: StreamAt = self._ask(FindStream(options.stream, options.start_ms), StreamAt)
        if options.start_ms is not None:
            assert stream.place is not None
            # What was received then and is released: at least the last block of that.
            has_gone = stream.released_ms >= options.start_ms
            place = max(0, stream.first - 1) if has_gone else stream.place
        elif options.start == "latest":
            place = stream.next
        elif options.start == "earliest":
            place = stream.first
        else:
            place = int(options.start)
            if place > stream.next:
                raise SourceOptionError(
                    "startingOffsets",
                    f"place {place} of stream {options.stream!r} is not there; those from "
                    f"{stream.first} to {stream.next} are",
                )
        if place < stream.first:
            if options.fails_on_loss:
                raise PlacesReleasedError(
                    options.stream,
                    place,
                    stream.next,
                    stream.first,
                    stream.next,
                    is_new_query=True,
                )
            self._warn_of_release(place, stream.first, None)
        return max(place, stream.first)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit that Spark shows; both are held by `latestOffset`."""
        return default_read_limit(self._options)

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        """Return how far the next batch goes, within the limits.

        Args:
            start: Where it begins; None before PySpark 4.2: after what was planned last.
            limit: Spark's; with `ReadAllAvailable` the options' limits do not count.
        """
        self._asked += 1
        begin = start or self._last or self.initialOffset()
        self._check(begin)
        stream, options = self.found(), self._options
        is_limited = not (HAS_LIMITS and isinstance(limit, ReadAllAvailable))
        end = self._ask(
            FindEnd(
                stream.stream_id,
                stream.epoch,
                begin["consumer"],
                begin["block"],
                self._until,
                options.max_records if is_limited else None,
                options.max_bytes if is_limited else None,
            ),
            EndAt,
        )
        self._check_records(begin, end)
        is_new = self._has_just_begun(begin)
        if end.first > begin["block"] and is_new and self._takes_what_is_there:
            # Released since `initialOffset`: the consumer is held from now on.
            begin = {**begin, "began": end.first, "block": end.first}
        if options.fails_on_loss and end.first > begin["block"]:
            raise PlacesReleasedError(
                options.stream,
                begin["block"],
                end.place,
                end.first,
                end.next,
                is_new_query=is_new,
            )
        skipped = self._passed_over.pop(begin["block"], 0)
        begin = dict(begin)
        if end.place > begin["block"] or skipped:
            begin.pop("resumed", None)
        if end.first > begin["block"] and end.place > begin["block"]:
            gone = end.first_records - begin["records"]
            self._warn_of_release(begin["block"], end.first, gone)
            skipped += gone
            begin["resumed"] = {"block": end.first, "records": end.first_records}
        if skipped:
            begin["skipped"] = begin.get("skipped", 0) + skipped
        self._newest = {**begin, "block": end.next, "records": end.next_records}
        return {**begin, "block": end.place, "records": end.records}

    def _has_just_begun(self, offset: Offset) -> bool:
        """Return whether a query is at its first question."""
        first = self._first_offset
        return self._last is None and first is not None and offset["consumer"] == first["consumer"]

    @property
    def _takes_what_is_there(self) -> bool:
        """Whether the query names neither a place nor a time to begin at."""
        return isinstance(self._options.start, str) and self._options.start_ms is None

    def reportLatestOffset(self) -> Offset | None:
        """Return the end of the stream as of the last question, for the query's progress."""
        return self._newest

    def prepareForTriggerAvailableNow(self) -> None:
        """Take note of the end of the stream, up to which the query goes."""
        found = self._ask(FindStream(self._options.stream), StreamAt)
        self._until = found.next

    # -- batches -------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[BlocksPartition]:
        """Return the blocks between two offsets, packed; may be called more than once."""
        found = self.blocks_between(start, end)
        return packed(
            found.blocks,
            found.places,
            found.added_ms,
            found.servers,
            min_partitions=self._options.min_partitions,
            parallelism=self.found().parallelism,
        )

    def blocks_between(self, start: Offset, end: Offset) -> FoundBlocks:
        """Return the blocks between two offsets; may be called more than once."""
        self._check(start)
        self._check(end)
        self._last = end
        is_same = start["consumer"] == end["consumer"]
        begin = max(start["block"], end["began"]) if is_same else end["began"]
        if begin >= end["block"]:
            if end["block"] == end["began"]:
                # Spark has logged a query that has nothing to read yet: it is real from here on.
                self.commit(end)
            return FoundBlocks()
        records = start["records"] if begin == start["block"] else None
        resumed = end.get("resumed")
        if resumed is not None and resumed["block"] > begin:
            begin, records = resumed["block"], resumed["records"]
        return self._list(begin, records, end, "" if is_same else start["consumer"])

    def _list(self, begin: int, records: int | None, end: Offset, phantom: str) -> FoundBlocks:
        """Return the blocks of a batch.

        Args:
            begin: The place at which it begins.
            records: How many the stream has before that; None where the offsets do not say.
            end: Where it ends.
            phantom: A consumer to be dropped, or nothing.
        """
        stream = self.found()
        self._passed_over.pop(end["block"], None)
        batch = FoundBlocks()
        at = begin
        while at < end["block"]:
            found = self._ask(
                ListBlocks(
                    stream.stream_id,
                    stream.epoch,
                    end["consumer"],
                    at,
                    end["block"],
                    phantom,
                    batch=begin,
                ),
                BlocksAt,
            )
            phantom = ""
            if found.first > at or not found.blocks:
                place = end["block"]
                there = self._ask(FindEnd(stream.stream_id, stream.epoch, "", place, place), EndAt)
                self._check_records(end, there)
                if self._options.fails_on_loss:
                    raise PlacesReleasedError(
                        self._options.stream, begin, end["block"], there.first, there.next
                    )
                if found.first > at:
                    records = self._pass_over(at, found.first, records, end)
                at = found.first
                if not found.blocks:
                    break
            batch.blocks.extend(found.blocks)
            batch.places.extend(range(at, at + len(found.blocks)))
            batch.added_ms.extend(found.added_ms)
            batch.servers.update(found.servers)
            at += len(found.blocks)
            if records is not None:
                records += sum(block.num_records for block in found.blocks)
        return batch

    def _pass_over(self, at: int, first: int, records: int | None, end: Offset) -> int:
        """Count what a batch goes on without; return how many records the stream has before that.

        Args:
            at: The first place that was released.
            first: The first one that is kept.
            records: How many there are before `at`, if that is known.
            end: Where the batch ends.
        """
        place, before = end["block"], end["records"]
        if first < place:
            place, stream = first, self.found()
            asked = FindEnd(stream.stream_id, stream.epoch, "", place, place)
            before = self._ask(asked, EndAt).records
        gone = None if records is None else before - records
        self._warn_of_release(at, place, gone)
        if gone is not None:
            self._passed_over[end["block"]] = self._passed_over.get(end["block"], 0) + gone
        return int(before)

    def _warn_of_release(self, start: int, end: int, records: int | None) -> None:
        _log.warning(
            "Stream %s: the places %d to %d were released; the query goes on without their%s "
            "records",
            self._options.stream,
            start,
            end,
            "" if records is None else f" {records}",
        )

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Return the records of a partition as Arrow batches (in a task)."""
        return read_partition(partition, self._access, self._options, self._schema)

    def commit(self, end: Offset) -> None:
        """Say that all before an offset was processed."""
        self._check(end)
        message = CommitPlace(self.found().stream_id, end["stream"], end["consumer"], end["block"])
        self._ask(message, Ok)

    def stop(self) -> None:
        """Close the connection; say so where Spark has ended the query with its first batch."""
        newest, last = self._newest, self._last
        if not HAS_LIMITS and self._asked == 1 and newest is not None and last is not None:
            unread = newest["records"] - last["records"]
            if unread > 0:
                _log.warning(
                    "Stream %s: the query has ended after one batch, and %d records that were "
                    "there then are not read. PySpark before 4.2 runs one batch of a source in "
                    "Python with trigger(availableNow=True): start the query again, or leave "
                    "maxRecordsPerTrigger and maxBytesPerTrigger out there",
                    self._options.stream,
                    unread,
                )
        if self._client is not None:
            self._client.close()

    # -- the host ------------------------------------------------------------------------------

    def _ask(self, message: Any, kind: Any) -> Any:
        if self._client is None:
            self._client = HostClient(self._access)
        return self._client.ask(message, kind)

    def found(self) -> StreamAt:
        """Return the stream, as it was when it was first asked for."""
        if self._stream is None:
            found: StreamAt = self._ask(FindStream(self._options.stream), StreamAt)
            self._stream = found
        return self._stream

    def _check(self, offset: Offset) -> None:
        try:
            version, stream = offset["v"], offset["stream"]
            is_whole = all(isinstance(offset[key], int) for key in ("began", "block", "records"))
            is_whole = is_whole and isinstance(offset["consumer"], str)
            if offset.get("resumed") is not None:
                resumed = offset["resumed"]
                is_whole = is_whole and all(
                    isinstance(resumed[key], int) for key in ("block", "records")
                )
        except (KeyError, TypeError):
            version, stream, is_whole = None, "", False
        if version != _VERSION or not is_whole:
            raise SourceError(
                f"the checkpoint has an offset that is none of version {_VERSION} of this source: "
                f"{msgspec.json.encode(offset).decode()}. It is of a query of several streams "
                "(the option streams), of another source or a newer Penstock, or was edited; "
                "another checkpointLocation starts over"
            )
        if stream != self.found().epoch:
            raise SourceError(
                f"the checkpoint has places of another ledger, or of another stream ({stream}), "
                f"than stream {self._options.stream!r} of this host ({self.found().epoch}): name "
                "the stream that the query has read, give the ReceiverHost the directory that it "
                "had, or give the query another checkpointLocation, with which it starts over"
            )

    def _check_records(self, offset: Offset, there: EndAt) -> None:
        """Check that the ledger, as in `there`, still has what was read up to an offset."""
        place, records = offset["block"], offset["records"]
        if place > there.next or there.start_records not in (None, records):
            raise SourceError(
                f"the query has read stream {self._options.stream!r} up to place {place}, with "
                f"{records} records before it, and the ledger, which ends at place {there.next} "
                f"with {there.next_records} records, has others: the host's directory was put "
                "back, or has lost its end with a power loss (spark.penstock.wal.sync), or the "
                "checkpoint was edited. Put both back to the same time, or give the query another "
                "checkpointLocation, with which it starts over"
            )
