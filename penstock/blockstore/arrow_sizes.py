"""What Arrow batches take in an IPC stream, and how to make them take less."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa


def stream_size(batches: Iterable[pa.RecordBatch]) -> int:
    """Return the exact bytes of a stream of these batches, from schema to end; 0 for none."""
    sink = pa.MockOutputStream()
    writer = None
    for batch in batches:
        if writer is None:
            writer = pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
    if writer is not None:
        writer.close()
    return int(sink.size())


def compacted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with what its rows need only.

    A slice of a column of views or of a dictionary keeps all the values of the column that it was
    cut from, and they are written with it.
    """
    columns = [
        _compacted_column(column) if _keeps_more(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema) if columns else batch


def _keeps_more(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _keeps_more(kind.storage_type)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return True
    return pa.types.is_dictionary(kind) or any(map(_keeps_more, _children(kind)))


def _children(kind: pa.DataType) -> Iterator[pa.DataType]:
    for number in range(kind.num_fields):
        yield kind.field(number).type


def _compacted_column(column: Any) -> Any:
    if isinstance(column.type, pa.BaseExtensionType):
        storage = _compacted_column(column.storage)
        return pa.ExtensionArray.from_storage(column.type, storage)
    try:
        found = pa.array(column.to_pylist(), column.type)
        # Of nulls alone in a struct it makes indices into an empty dictionary.
        found.validate(full=True)
    except (pa.ArrowException, TypeError, ValueError):
        # Arrow makes no such columns of Python values (unions): it stays as it is.
        return column
    return found
