"""``penstock replay``: write what a stream's receivers stored to a file."""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import pyarrow as pa

from penstock.blockstore.arrow_frames import plain_schema
from penstock.errors import PenstockError
from penstock.replay._read import find, first_schema, tables
from penstock.wal import EncryptionKey
from penstock.whole_files import whole_file

__all__ = ["main", "make_parser"]

_DESCRIPTION = """\
Write what the receivers of a stream stored, as far as their logs still have it, to a file. FOLDER
is the checkpoint directory or the log folder of the program, which may run, or an address
hdfs://... Blocks stay in the logs until their batch is cleaned up, or longer with
spark.penstock.wal.retention.

Times such as 2026-11-22T03:00:00 are of this host's zone unless they name one. They are those at
which blocks were sealed, up to a block interval after their records came. Nothing in FOLDER is
changed. FILE is there when all of it is written; what is not yet is in FILE.<pid>.part. Encrypted
logs are read with the key of PENSTOCK_ENCRYPTION_KEY.
"""
_EPILOG = """\
exit codes: 0 written, 1 there is no record, 2 wrong usage, no such folder or stream, it cannot be
            read or written, or its records have no columns, 130 interrupted; then no file is left
"""

_POOL_BYTES = 32 << 20
_POOL_ROWS = 1 << 20


def main(argv: Sequence[str], key: Callable[[], EncryptionKey | None] = lambda: None) -> int:
    """Run ``penstock replay`` with these arguments and return its exit code.

    Args:
        argv: The arguments.
        key: Returns the key that encrypted logs are read with.
    """
    options = make_parser().parse_args(argv)
    if options.output is None and options.format not in ("json", "raw"):
        return _fail(f"--format {options.format} needs --output", 2)
    try:
        encryption = key()
        window, segments = find(
            options.folder, options.stream, options.start, options.end, encryption
        )
        schema = first_schema(segments, window, encryption)
        if schema is None:
            return _fail(f"no record of stream {options.stream} is there", 1)
        schema = plain_schema(schema)
        batches = (
            batch for found in segments for batch in tables(found, window, encryption, schema)
        )
        if options.output is None:
            _WRITERS[options.format](sys.stdout.buffer, schema, batches)
            sys.stdout.flush()
            return 0
        return _write(options.output, _WRITERS[options.format], schema, batches)
    except BrokenPipeError:
        # Whoever read the output has seen enough: keep the interpreter from complaining at exit.
        _write_no_more()
        return 0
    except KeyboardInterrupt:
        return _fail("interrupted", 130)
    except (OSError, ValueError, PenstockError, pa.ArrowException) as error:
        return _fail(str(error), 2)


def make_parser() -> argparse.ArgumentParser:
    """Return what takes the arguments of ``penstock replay``."""
    parser = argparse.ArgumentParser(
        prog="penstock replay",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="FOLDER", help="of the program, or hdfs://…")
    parser.add_argument("--stream", required=True, help="its name or number")
    parser.add_argument("--from", dest="start", metavar="TIME", help="stored then or later")
    parser.add_argument("--to", dest="end", metavar="TIME", help="stored before")
    parser.add_argument(
        "--format",
        choices=sorted(_WRITERS),
        default="json",
        help="json (the default: an object a line), parquet, arrow (an IPC stream), or raw (the "
        "bytes or the text of each record, and a newline)",
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="one that is not there yet; without it JSON or raw is printed",
    )
    return parser


_Writer = Callable[[IO[bytes], pa.Schema, Iterator[pa.RecordBatch]], int]


def _write(path: str, write: _Writer, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    with whole_file(path) as file:
        records = write(file, schema, batches)
    print(f"{records} records written to {path}", file=sys.stderr)
    return 0


def _pooled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join batches to larger ones: a stream may have hundreds of thousands of small blocks."""
    found: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        found.append(batch)
        size += batch.nbytes
        rows += batch.num_rows
        if size >= _POOL_BYTES or rows >= _POOL_ROWS:
            yield pa.Table.from_batches(found)
            found, size, rows = [], 0, 0
    if found:
        yield pa.Table.from_batches(found)


def _write_parquet(file: IO[bytes], schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    import pyarrow.parquet as pq

    records = 0
    with pq.ParquetWriter(file, schema) as writer:
        for table in _pooled(batches):
            writer.write_table(table, row_group_size=table.num_rows)
            records += table.num_rows
    return records


def _write_arrow(file: IO[bytes], schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    records = 0
    with pa.ipc.new_stream(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            records += batch.num_rows
    return records


def _write_json(file: IO[bytes], schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    records = 0
    for batch in batches:
        for row in batch.to_pylist():
            file.write(_json_line(row).encode() + b"\n")
        records += batch.num_rows
    return records


def _write_raw(file: IO[bytes], schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> int:
    import pyarrow.compute as pc

    if len(schema) != 1 or schema.types[0] not in (pa.binary(), pa.string()):
        raise ValueError(
            f"the records have the columns {', '.join(schema.names)}: --format raw is for bytes "
            "and text"
        )
    records = 0
    for batch in batches:
        column = batch.column(0).view(pa.binary())
        # In bulk: the data of this column are the records, each with a newline.
        lines = pc.binary_join_element_wise(column, b"", b"\n", null_handling="replace")
        _, offsets, data = lines.buffers()
        end = int.from_bytes(memoryview(offsets)[4 * len(lines) :][:4], sys.byteorder)
        file.write(memoryview(data)[:end])
        records += batch.num_rows
    return records


_WRITERS: dict[str, _Writer] = {
    "arrow": _write_arrow,
    "json": _write_json,
    "parquet": _write_parquet,
    "raw": _write_raw,
}


def _json_line(row: dict[str, Any]) -> str:
    try:
        return json.dumps(row, default=_as_json, ensure_ascii=False, allow_nan=False)
    except ValueError:
        return json.dumps(_with_finite(row), default=_as_json, ensure_ascii=False)


def _with_finite(value: Any) -> Any:
    """Return a value with text in place of numbers that JSON has not, as Spark writes them."""
    if isinstance(value, dict):
        return {name: _with_finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_with_finite(part) for part in value]
    is_number = not isinstance(value, float) or math.isfinite(value)
    return value if is_number else json.dumps(value)


def _as_json(value: Any) -> Any:
    """Return what JSON has for a value: text for times and decimals, and for bytes if it is."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _write_no_more() -> None:
    """Keep the interpreter from writing at its end what is left for the standard output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(text: str, code: int) -> int:
    print(f"penstock replay: {text}", file=sys.stderr)
    return code
