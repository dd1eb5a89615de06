"""Records of Kafka as Arrow columns, as in Spark's Kafka source.

``key`` and ``value`` (binary), ``topic`` (string), ``partition`` (int), ``offset`` (long),
``timestamp``, ``timestampType`` (int); with headers also ``headers``, an array of pairs of key and
value. Spark's documentation: "Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.runtime.clock import YEARS_S
from penstock.sources.formats import ValueFormat
from penstock.sources.kafka.engines.interface import Chunk

COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
"""The columns, without headers."""

_PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
HEADERS = pa.field("headers", pa.list_(_PAIR))
"""The column of headers, which is null for records that have none."""


def arrays(
    partition: tuple[str, int],
    offsets: np.ndarray[Any, np.dtype[np.int64]],
    milliseconds: np.ndarray[Any, np.dtype[np.int64]],
    kinds: np.ndarray[Any, np.dtype[np.int32]],
    keys: Iterable[bytes | None],
    values: Iterable[bytes | None],
    headers: Sequence[Any],
) -> Mapping[str, pa.Array]:
    """Return the columns of records of one partition by their names.

    Args:
        partition: Topic and number.
        offsets: Of each record.
        milliseconds: Timestamps since the epoch. One that is in none of the years 1 to 9999, as
            of a producer that counts microseconds, is null: no row could be made of it.
        kinds: The kinds of the timestamps: 0 from the producer, 1 from the broker.
        keys: Of each record.
        values: Of each record.
        headers: Of each record: pairs, or nothing.
    """
    topic, number = partition
    count = len(offsets)
    is_time = (milliseconds >= YEARS_S.start * 1000) & (milliseconds < YEARS_S.stop * 1000)
    microseconds = pa.array(np.where(is_time, milliseconds, 0) * 1000, mask=~is_time)
    return {
        "key": pa.array(keys, pa.binary(), size=count),
        "value": pa.array(values, pa.binary(), size=count),
        "topic": pa.repeat(pa.scalar(topic, pa.string()), count),
        "partition": pa.repeat(pa.scalar(number, pa.int32()), count),
        "offset": pa.array(offsets),
        "timestamp": microseconds.cast(COLUMNS.field("timestamp").type),
        "timestampType": pa.array(kinds),
        "headers": _headers(headers),
    }


def _headers(headers: Sequence[Any]) -> pa.Array:
    if not any(headers):
        return pa.nulls(len(headers), HEADERS.type)
    ends = np.fromiter(accumulate(len(each or ()) for each in headers), np.int32, len(headers))
    pairs = list(chain.from_iterable(each or () for each in headers))
    keys, values = zip(*pairs, strict=True)
    made = pa.StructArray.from_arrays(
        [pa.array(keys, pa.string()), pa.array(values, pa.binary())], fields=list(_PAIR)
    )
    starts = pa.array(np.concatenate([np.zeros(1, np.int32), ends]))
    none = pa.array([not each for each in headers])
    return pa.ListArray.from_arrays(starts, made, HEADERS.type, mask=none)


_CORRUPT = pa.field("corrupt", pa.binary())
_ERROR = pa.field("error", pa.string())


@dataclass(frozen=True)
class Layout:
    """The columns of Spark's Kafka source, maybe with headers, maybe with typed values.

    Attributes:
        headers: Whether there is a column ``headers``.
        values: What makes typed values; None for bytes. With it the column ``value`` is a struct,
            and two more follow: where a value cannot be read, ``value`` is null, ``corrupt`` has
            its bytes and ``error`` the reason. Elsewhere both are null.
    """

    headers: bool = False
    values: ValueFormat | None = None

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        schema = COLUMNS.append(HEADERS) if self.headers else COLUMNS
        if self.values is None:
            return schema
        place = schema.get_field_index("value")
        return (
            schema.set(place, pa.field("value", self.values.type)).append(_CORRUPT).append(_ERROR)
        )

    def batch(self, chunk: Chunk) -> pa.RecordBatch:
        """Return the records of a chunk as one batch."""
        schema = self.schema
        columns = dict(chunk.columns())
        if self.values is not None:
            read = self.values.read(columns["value"])
            columns.update(value=read.values, corrupt=read.corrupt, error=read.errors)
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
