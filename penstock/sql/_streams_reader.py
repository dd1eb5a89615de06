"""`StreamsReader`: several streams as one source, each read by places.

An offset is ``{"v", "streams": {name: offset}}`` with those of `PlaceReader`. So each stream has a
consumer of its own, and what holds for one stream holds for each. A stream that was added to the
query's option begins as in a new query. The blocks of all are packed together, stream by stream:
how many partitions a batch has depends on its bytes, not on how many receivers there are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.blockstore import BlockAccess
from penstock.sql._host_client import HostClient
from penstock.sql._options import SourceOptions
from penstock.sql._reader import (
    Offset,
    PlaceReader,
    ReaderOfQuery,
    default_read_limit,
)
from penstock.sql._tasks import BlocksPartition, packed, read_partition
from penstock.sql.errors import SourceError
from penstock.wire.messages import ReceivedBlockInfo

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_VERSION = 1


class StreamsReader(ReaderOfQuery):
    """Reads streams by places for one query.

    Args:
        access: What reaches the host and the blocks.
        options: The query's.
        schema: The columns, of each of the streams.
    """

    def __init__(self, access: BlockAccess, options: SourceOptions, schema: StructType) -> None:
        self._access = access
        self._options = options
        self._schema = schema
        self._client: HostClient | None = None
        self._readers: dict[str, PlaceReader] = {}

    # -- offsets -------------------------------------------------------------------------------

    def initialOffset(self) -> Offset:
        """Return where a new query begins."""
        return _of({name: each.initialOffset() for name, each in self._each().items()})

    def getDefaultReadLimit(self) -> Any:
        """Return the limit that Spark shows; both are held by `latestOffset`."""
        return default_read_limit(self._options)

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        """Return how far the next batch goes; each stream has its share of the limits.

        Args:
            start: Where it begins; None before PySpark 4.2: after what was planned last.
            limit: Spark's; with `ReadAllAvailable` those of the options do not count.
        """
        begins = {} if start is None else self._parts(start)
        return _of(
            {
                # A stream that is new among them begins where a new query does.
                name: each.latestOffset(
                    begins.get(name) or (None if start is None else each.initialOffset()), limit
                )
                for name, each in self._each().items()
            }
        )

    def reportLatestOffset(self) -> Offset | None:
        """Return the ends of the streams as of the last question, for the query's progress."""
        ends = {name: each.reportLatestOffset() for name, each in self._each().items()}
        known = {name: end for name, end in ends.items() if end is not None}
        return _of(known) if known else None

    def prepareForTriggerAvailableNow(self) -> None:
        """Take note of the ends of the streams: the query goes up to there."""
        for each in self._each().values():
            each.prepareForTriggerAvailableNow()

    # -- batches -------------------------------------------------------------------------------

    def partitions(self, start: Offset, end: Offset) -> Sequence[BlocksPartition]:
        """Return the blocks between two offsets, packed; may be called more than once."""
        begins, ends = self._parts(start), self._parts(end)
        blocks: list[ReceivedBlockInfo] = []
        places: list[int] = []
        added_ms: list[int] = []
        servers: dict[str, tuple[str, int]] = {}
        names: dict[int, str] = {}
        parallelism = 1
        for name, until in ends.items():
            each = self._each()[name]
            # As of another consumer: the batch has what comes after the beginning.
            begin = begins.get(name) or {**until, "consumer": "", "block": -1}
            found = each.blocks_between(begin, until)
            blocks += found.blocks
            places += found.places
            added_ms += found.added_ms
            servers.update(found.servers)
            stream = each.found()
            names[stream.stream_id] = name
            parallelism = stream.parallelism
        return packed(
            blocks,
            places,
            added_ms,
            servers,
            min_partitions=self._options.min_partitions,
            parallelism=parallelism,
            names=names,
        )

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Return the records of a partition as Arrow batches (in a task)."""
        return read_partition(partition, self._access, self._options, self._schema)

    def commit(self, end: Offset) -> None:
        """Say that all before an offset was processed."""
        for name, until in self._parts(end).items():
            self._each()[name].commit(until)

    def stop(self) -> None:
        """Close the connection."""
        for each in self._readers.values():
            each.stop()
        if self._client is not None:
            self._client.close()

    # ------------------------------------------------------------------------------------------

    def _each(self) -> dict[str, PlaceReader]:
        if not self._readers:
            self._client = HostClient(self._access)
            names = self._options.streams
            for name in names:
                options = replace(
                    self._options,
                    stream=name,
                    streams=(),
                    max_records=_share(self._options.max_records, len(names)),
                    max_bytes=_share(self._options.max_bytes, len(names)),
                )
                self._readers[name] = PlaceReader(
                    self._access, options, self._schema, client=self._client
                )
        return self._readers

    def _parts(self, offset: Offset) -> dict[str, Offset]:
        parts = offset.get("streams")
        if offset.get("v") != _VERSION or not isinstance(parts, dict):
            raise SourceError(
                f"the checkpoint has an offset that is none of version {_VERSION} of a source of "
                f"several streams: {json.dumps(offset)}. It is of a query of one stream, of "
                "another source or of a newer Penstock, or was edited; another "
                "checkpointLocation begins anew"
            )
        missing = sorted(parts.keys() - set(self._options.streams))
        if missing:
            raise SourceError(
                f"the checkpoint has places of {', '.join(missing)}, which the option streams does "
                "not name: name them, or begin anew with another checkpointLocation"
            )
        return parts


def _of(parts: dict[str, Offset]) -> Offset:
    return {"v": _VERSION, "streams": parts}


def _share(limit: int | None, streams: int) -> int | None:
    return None if limit is None else max(1, limit // streams)
