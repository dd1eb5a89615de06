"""``penstock replay`` and ``penstock record``: what a stream's receivers stored, elsewhere."""

from __future__ import annotations

import base64
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import IO, Any

import click
import pyarrow as pa

from penstock.blockstore.arrow_frames import plain_schema
from penstock.commands import Command, Seconds
from penstock.files.parquet import parquet_writer
from penstock.files.whole import whole_file
from penstock.host.encryption import recovery_encryption
from penstock.replay._read import find, first_schema, rows, tables

_EPILOG = """\
exit codes: 0 written, 1 there is no record, 2 wrong usage, no such folder or stream, it cannot be
            read or written, or its records have no columns (JSON needs none, but plain
            values: no objects of the program's own classes), 130 interrupted; then no file is left
"""

_POOL_BYTES = 32 << 20
_POOL_ROWS = 1 << 20


@click.command(cls=Command, epilog=_EPILOG)
@click.argument("folder", metavar="FOLDER")
@click.option("--stream", required=True, help="Its name or number.")
@click.option("--from", "start", metavar="TIME", help="Stored then or later.")
@click.option("--to", "end", metavar="TIME", help="Stored before.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["arrow", "json", "parquet", "raw"]),
    default="json",
    help="json (the default: an object a line), parquet, arrow (an IPC stream), or raw (the bytes "
    "or the text of each record, and a newline).",
)
@click.option(
    "--output",
    metavar="FILE",
    help="One that is not there yet; without it JSON or raw is printed.",
)
def replay(
    folder: str, stream: str, start: str | None, end: str | None, form: str, output: str | None
) -> int:
    """Write what the receivers of a stream stored, as far as their logs still have it, to a file.

    FOLDER is the checkpoint directory or the log folder of the program, which may run, or an
    address hdfs://..., s3://..., gs://... or abfss://... Blocks stay in the logs until their batch
    is cleaned up, or longer with spark.penstock.wal.retention.

    Times such as 2026-11-22T03:00:00 are of this host's zone unless they name one. They are those
    at which blocks were sealed, up to a block interval after their records came. Nothing in FOLDER
    is changed. FILE is there when all of it is written; what is not yet is in FILE.<pid>.part.
    Encrypted logs are read with the key of PENSTOCK_ENCRYPTION_KEY.
    """
    if output is None and form not in ("json", "raw"):
        raise click.UsageError(f"--format {form} needs --output")
    try:
        encryption = recovery_encryption(None, os.environ)
        window, segments = find(folder, stream, start, end, encryption, ("--from", "--to"))
        if form == "json":
            found_rows = (row for found in segments for row in rows(found, window, encryption))
            first = next(found_rows, None)
            write = None if first is None else partial(_write_json, chain((first,), found_rows))
        else:
            schema = first_schema(segments, window, encryption)
            write = None
            if schema is not None:
                schema = plain_schema(schema)
                batches = (
                    batch
                    for found in segments
                    for batch in tables(found, window, encryption, schema)
                )
                write = partial(_WRITERS[form], schema, batches)
        if write is None:
            print(f"penstock replay: no record of stream {stream} is there", file=sys.stderr)
            return 1
        if output is None:
            write(sys.stdout.buffer)
            return 0
        with whole_file(output) as file:
            records = write(file)
    except RecursionError as error:
        raise ValueError(
            "a record holds itself, or too much within each other: JSON has no such"
        ) from error
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error
    print(f"{records} records written to {output}", file=sys.stderr)
    return 0


@click.command(
    cls=Command,
    epilog="""\
exit codes: 0 recorded, 1 no record came, or blocks were let go before they were copied, 2 wrong
            usage, no such folder or stream, it cannot be read or written
""",
)
@click.argument("folder", metavar="FOLDER")
@click.option("--stream", required=True, help="Its name or number.")
@click.option("--output", metavar="DIR", required=True, help="One that is not there yet.")
@click.option("--for", "for_s", type=Seconds(), metavar="SECONDS", help="End after so long.")
def record(folder: str, stream: str, output: str, for_s: float | None) -> int:
    """Copy what the receivers of a stream store, as it comes, into a folder of its own.

    FOLDER is the checkpoint directory or the log folder of a program that runs; nothing in it is
    changed. Recorded are the blocks that are there, and those that come until Ctrl-C, with their
    times and positions. DIR is then read as the folder of a program is: by ReplayReceiver, which
    stores the records again at their pace or faster, and by penstock replay.

    Where blocks were let go before they were copied, have them kept for longer:
    spark.penstock.wal.retention. Encrypted logs are read with the key of PENSTOCK_ENCRYPTION_KEY,
    and DIR is encrypted with it.
    """
    from penstock.replay._read import record as copy_blocks

    stopped = threading.Event()
    before = {
        number: signal.signal(number, lambda number, frame: stopped.set())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        encryption = recovery_encryption(None, os.environ)
        found = copy_blocks(
            folder, stream, output, encryption=encryption, stopped=stopped, for_s=for_s
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    print(f"{found.records} records in {found.blocks} blocks, in {output}", file=sys.stderr)
    if found.missed:
        print(
            f"penstock record: {found.missed} blocks were let go before they were copied; have "
            "them kept for longer (spark.penstock.wal.retention)",
            file=sys.stderr,
        )
    return 0 if found.blocks and not found.missed else 1


_Writer = Callable[[pa.Schema, Iterator[pa.RecordBatch], IO[bytes]], int]


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


def _write_parquet(schema: pa.Schema, batches: Iterator[pa.RecordBatch], file: IO[bytes]) -> int:
    records = 0
    with parquet_writer(file, schema) as writer:
        for table in _pooled(batches):
            writer.write_table(table, row_group_size=table.num_rows)
            records += table.num_rows
    return records


def _write_arrow(schema: pa.Schema, batches: Iterator[pa.RecordBatch], file: IO[bytes]) -> int:
    records = 0
    with pa.ipc.new_stream(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            records += batch.num_rows
    return records


def _write_json(found: Iterator[tuple[dict[Any, Any], bool]], file: IO[bytes]) -> int:
    records = 0
    for row, is_of_arrow in found:
        file.write(_json_line(row if is_of_arrow else _as_plain(row)) + b"\n")
        records += 1
    return records


def _write_raw(schema: pa.Schema, batches: Iterator[pa.RecordBatch], file: IO[bytes]) -> int:
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
    "parquet": _write_parquet,
    "raw": _write_raw,
}


def _json_line(row: dict[Any, Any]) -> bytes:
    try:
        line = json.dumps(row, default=_as_json, ensure_ascii=False, allow_nan=False)
    except ValueError:
        line = json.dumps(_as_plain(row), default=_as_json, ensure_ascii=False)
    try:
        return line.encode()
    except UnicodeEncodeError:
        # A lone surrogate, which JSON has as an escape.
        return json.dumps(json.loads(line)).encode()


def _as_plain(value: Any) -> Any:
    """Return a value as JSON has it: rows as objects, text for numbers that it has not, as Spark.

    Raises:
        ValueError: Two names of a dict are the same as text.
    """
    if isinstance(value, dict):
        named = {_as_name(name): _as_plain(part) for name, part in value.items()}
        if len(named) < len(value):
            raise ValueError(f"two names of {value!r:.200} are the same as text")
        return named
    if hasattr(value, "__fields__"):
        return _as_plain(value.asDict())
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_as_plain(part) for part in value]
    is_number = not isinstance(value, float) or math.isfinite(value)
    return value if is_number else json.dumps(value)


def _as_name(name: Any) -> str:
    named = _as_json(name) if isinstance(name, bytes) else name
    return named if isinstance(named, str) else str(named)


def _as_json(value: Any) -> Any:
    """Return what JSON has for a value: text for times and decimals, and for bytes if it is."""
    if isinstance(value, (bytes, bytearray)):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
