"""Which columns a batch of Kafka's records has, and how a chunk becomes a batch of them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from penstock.sources.formats import ValueFormat
from penstock.sources.kafka.columns import COLUMNS, HEADERS
from penstock.sources.kafka.engines.interface import Chunk

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
