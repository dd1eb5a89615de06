"""Parquet files in which Spark finds each row that matches.

Spark passes over what the file seems to rule out. The least and the greatest number of a column
leave out NaN, which in Spark is greater than any number; and a zero is looked up in the dictionary
by its bits, though 0.0 equals -0.0. So columns of floats have neither of the two here.
"""

from __future__ import annotations

import functools
import io
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


def parquet_writer(file: IO[bytes], schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer of a Parquet file, which the caller closes."""
    import pyarrow.parquet as pq

    exact = _without_floats(schema)
    return pq.ParquetWriter(file, schema, write_statistics=exact, use_dictionary=exact)


@functools.lru_cache(16)
def _without_floats(schema: pa.Schema) -> list[str]:
    """Return the paths of all columns that have no floats, also those within others."""
    import pyarrow.parquet as pq

    empty = io.BytesIO()
    pq.ParquetWriter(empty, schema).close()
    columns = pq.ParquetFile(empty).schema
    return [
        column.path
        for column in (columns.column(at) for at in range(len(columns.names)))
        if column.physical_type not in ("FLOAT", "DOUBLE") and column.logical_type.type != "FLOAT16"
    ]
