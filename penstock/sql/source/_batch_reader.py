"""`BatchReader`: what `spark.read` reads of a stream, from one place up to another.

It lives in the process that plans the first job of a DataFrame, where `partitions` is called, and
in the tasks, where only `read` is. Spark plans a DataFrame once: ``latest`` is where the stream
ends at that moment, and each job reads the same places.

A batch read is no consumer. What is released before or while it runs is an error that names the
places, or with ``failOnDataLoss=false`` is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyspark.sql.datasource import DataSourceReader

from penstock.blockstore import BlockAccess
from penstock.sql.errors import PlacesReleasedError, SourceError, SourceOptionError
from penstock.sql.source._options import SourceOptions
from penstock.sql.source._tasks import BlocksPartition, ReadsInTasks, packed, read_partition
from penstock.wire.messages import (
    BlocksAt,
    FindStream,
    ListBlocks,
    Message,
    ReceivedBlockInfo,
    StreamAt,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_log = logging.getLogger("penstock.sql")

M = TypeVar("M")


class PlaceClient(Protocol):
    """Answers questions about places: `HostClient`, or `EndedHost`."""

    def ask(self, message: Message, kind: type[M]) -> M:
        """Ask, and return the answer; see `HostClient.ask`."""
        ...

    def close(self) -> None:
        """Let go of what was opened."""
        ...


class BatchReader(ReadsInTasks, DataSourceReader):
    """Reads places of a stream once.

    Args:
        connect: Returns what answers questions about the stream.
        access: What reaches the blocks.
        options: The read's.
        schema: The columns.

    Raises:
        SourceOptionError: There is an option among them that a batch read does not have.
    """

    def __init__(
        self,
        connect: Callable[[], PlaceClient],
        access: BlockAccess,
        options: SourceOptions,
        schema: StructType,
    ) -> None:
        options.check_batch()
        self._connect = connect
        self._access = access
        self._options = options
        self._schema = schema

    def partitions(self) -> list[BlocksPartition]:
        """Return the blocks that are wanted, packed.

        Raises:
            SourceOptionError: A place does not exist yet, or the end is before the beginning.
            PlacesReleasedError: Some of them were released, and that is an error.
        """
        client = self._connect()
        try:
            return self._planned(client)
        finally:
            client.close()

    def _planned(self, client: PlaceClient) -> list[BlocksPartition]:
        options = self._options
        stream = client.ask(FindStream(options.stream, options.start_ms), StreamAt)
        begin, end = self._bounds(client, stream)
        blocks: list[ReceivedBlockInfo] = []
        places: list[int] = []
        added_ms: list[int] = []
        servers: dict[str, tuple[str, int]] = {}
        at = max(begin, stream.first)
        self._check_released(begin, end, at, stream.next)
        while at < end:
            found = client.ask(ListBlocks(stream.stream_id, stream.epoch, "", at, end), BlocksAt)
            if found.first > at:
                # Released since: a read of what is kept has only to begin later.
                begins_later = not blocks and self._takes_what_is_there and found.first < end
                if not begins_later:
                    self._check_released(at, end, found.first, stream.next)
                at = found.first
            if not found.blocks:
                break
            blocks.extend(found.blocks)
            places.extend(range(at, at + len(found.blocks)))
            added_ms.extend(found.added_ms)
            servers.update(found.servers)
            at += len(found.blocks)
        return packed(
            blocks,
            places,
            added_ms,
            servers,
            min_partitions=options.min_partitions,
            parallelism=stream.parallelism,
        )

    @property
    def _takes_what_is_there(self) -> bool:
        return self._options.start == "earliest" and self._options.start_ms is None

    def _bounds(self, client: PlaceClient, stream: StreamAt) -> tuple[int, int]:
        """Return the first place that is wanted, which may be gone, and the one after the last."""
        options = self._options
        end = stream.next
        if options.end_ms is not None:
            place = client.ask(FindStream(options.stream, options.end_ms), StreamAt).place
            assert place is not None
            end = min(place, stream.next)
        elif isinstance(options.end, int):
            end = self._place("endingOffsets", options.end, stream)
        if isinstance(options.start, int):
            begin = self._place("startingOffsets", options.start, stream)
            if begin > end:
                raise SourceOptionError(
                    "endingTimestamp", f"it is that of place {end}, before startingOffsets, {begin}"
                )
            return begin, end
        if options.start_ms is not None:
            assert stream.place is not None
            if stream.released_ms >= options.start_ms:
                # What was received then was released, at least up to here.
                return max(0, min(stream.first, end) - 1), end
            if isinstance(options.end, int) and stream.place > end:
                raise SourceOptionError(
                    "startingTimestamp", f"it is that of place {stream.place}, after endingOffsets"
                )
            return min(stream.place, end), end
        # The earliest that is kept, but never nothing where something has gone.
        has_gone = end <= stream.first and (options.end != "latest" or options.end_ms is not None)
        return 0 if has_gone else stream.first, end

    def _place(self, option: str, place: int, stream: StreamAt) -> int:
        if place > stream.next:
            raise SourceOptionError(
                option,
                f"place {place} of stream {self._options.stream!r} is not there; those from "
                f"{stream.first} to {stream.next} are",
            )
        return place

    def _check_released(self, begin: int, end: int, first: int, next_: int) -> None:
        """Check that nothing that is wanted was released; or log it, where that is wanted."""
        if begin >= min(first, end):
            return
        stream = self._options.stream
        if self._options.fails_on_loss:
            raise PlacesReleasedError(stream, begin, end, first, next_, is_batch_read=True)
        _log.warning(
            "Stream %s: the places %d to %d were released; they are not read",
            stream,
            begin,
            min(first, end),
        )

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Return the records of a partition as Arrow batches (in a task)."""
        if not isinstance(partition, BlocksPartition):
            # Spark's own, where there are none.
            return iter(())
        return read_partition(
            partition,
            self._access,
            self._options,
            self._schema,
            lambda place: self._check_place(place, partition.places[-1] + 1),
        )

    def _check_place(self, place: int, end: int) -> None:
        """Report a block that cannot be found because it was released meanwhile."""
        client = self._connect()
        try:
            found = client.ask(FindStream(self._options.stream), StreamAt)
        except SourceError as error:
            _log.info("whether place %d was released is not known: %s", place, error)
            return
        finally:
            client.close()
        self._check_released(place, end, found.first, found.next)
