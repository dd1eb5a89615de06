"""Records of Kafka as Arrow columns: those of Spark's Kafka source.

``key`` and ``value`` (binary), ``topic`` (string), ``partition`` (int), ``offset`` (long),
``timestamp``, ``timestampType`` (int); with headers also ``headers``, an array of pairs of key and
value. Spark's documentation: "Structured Streaming + Kafka Integration Guide".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.clock import YEARS_S

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
