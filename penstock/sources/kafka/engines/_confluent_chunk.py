"""Messages of confluent-kafka as a chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from confluent_kafka import Message

from penstock.sources.kafka.columns import arrays
from penstock.sources.kafka.engines._list_chunk import ListChunk
from penstock.sources.kafka.records import KafkaRecord

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MessageChunk", "error_of", "offset_of", "partition_of", "topic_of"]


# Each runs in C for all records of a chunk.
_make = partial(tuple.__new__, KafkaRecord)
error_of: Callable[[Any], Any] = Message.error
offset_of: Callable[[Any], int] = Message.offset
_value: Callable[[Any], bytes | None] = Message.value
_key: Callable[[Any], bytes | None] = Message.key
_headers: Callable[[Any], Any] = Message.headers
_timestamp: Callable[[Any], tuple[int, int]] = Message.timestamp
partition_of: Callable[[Any], int] = Message.partition
topic_of: Callable[[Any], str] = Message.topic


class MessageChunk(ListChunk):
    """Messages without errors, of one partition, in their order."""

    @staticmethod
    def _offset(record: Any) -> int:
        return offset_of(record)

    def values(self) -> list[bytes | None]:
        return list(map(_value, self._found))

    def records(self) -> list[KafkaRecord]:
        found = self._found
        first = found[0]
        times = self._times()
        return list(
            map(
                _make,
                zip(
                    repeat(first.topic()),
                    repeat(first.partition()),
                    map(offset_of, found),
                    times[:, 1].tolist(),
                    (times[:, 0] - 1).tolist(),
                    map(_key, found),
                    map(_value, found),
                    [each or [] for each in map(_headers, found)],
                    strict=False,
                ),
            )
        )

    def columns(self) -> Mapping[str, pa.Array]:
        found, count = self._found, len(self._found)
        first = found[0]
        times = self._times()
        return arrays(
            (first.topic(), first.partition()),
            np.fromiter(map(offset_of, found), np.int64, count),
            np.ascontiguousarray(times[:, 1]),
            (times[:, 0] - 1).astype(np.int32),
            map(_key, found),
            map(_value, found),
            list(map(_headers, found)),
        )

    def _times(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return a row of kind and milliseconds for each."""
        pairs = chain.from_iterable(map(_timestamp, self._found))
        return np.fromiter(pairs, np.int64, 2 * len(self._found)).reshape(-1, 2)
