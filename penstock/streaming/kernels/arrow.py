"""Operations on Arrow record batches: no Python object per record before the last step.

The records of blocks are taken as they are; such a batch is valid until the next one is asked for.
Records of any other RDD become batches first, which costs what Python costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import chain, islice
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD
from pyspark.sql import Row

from penstock.blockstore import Block, BlockKind, BlockRDD
from penstock.blockstore.building.kept_values import check_kept
from penstock.blockstore.building.lines import line_pieces
from penstock.streaming.kernels.combine import MAX_KEYS, exact_sum
from penstock.streaming.kernels.deferred import narrow

_ROWS = 1 << 16
"""Rows of a batch that is made of records."""

_PIECE_BYTES = 1 << 20
"""Approximate size of a batch that is cut from a block: it stays in the processor's cache."""

_PIECES = 16
"""Pieces that are counted together: what each has of the same values is added up in Arrow."""

_LF = 10
_FEW_DIGITS = 38
_DIGITS = 76
"""Of the widest decimals that Arrow has; those of `_FEW_DIGITS` are summed faster."""
_MOST = (1 << 63) - 1
_ALL_DIGITS = Context(prec=2 * _DIGITS)

VALUE = "value"
"""The column of records that are no rows."""


def batches_of(rdd: RDD[Any]) -> RDD[pa.RecordBatch]:
    """Return an RDD of record batches with the records of an RDD."""
    if _is_columns(rdd):
        return rdd.map_parts(_batches_of_block)
    return narrow(rdd, BatchesOfRecords(), is_per_record=True)


def split_records(rdd: RDD[Any], split: SplitColumn) -> RDD[pa.RecordBatch]:
    """Return what `split` makes of the record batches of an RDD."""
    if _is_columns(rdd):
        return rdd.map_parts(_SplitBlock(split))
    return narrow(batches_of(rdd), split)


def count_parts(rdd: RDD[Any], split: SplitColumn) -> RDD[tuple[Any, int]]:
    """Return the parts that `split` makes of an RDD's records, as `CountValues` counts them."""
    if _is_columns(rdd):
        return rdd.map_parts(_CountParts(split))
    return narrow(split_records(rdd, split), CountValues(VALUE))


def _is_columns(rdd: RDD[Any]) -> TypeGuard[BlockRDD]:
    return (
        isinstance(rdd, BlockRDD)
        and rdd.lies_in_blocks
        and all(block.kind != BlockKind.PICKLED.value for block in rdd.blocks)
    )


def _batches_of_block(block: Block) -> Iterator[pa.RecordBatch]:
    for batch in block.batches():
        rows = max(1, batch.num_rows * _PIECE_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


class BatchesOfRecords:
    """Makes batches of Python objects: of mappings and of `Row` rows, else the column ``value``."""

    def __call__(self, split: int, records: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        records = iter(records)
        while chunk := list(islice(records, _ROWS)):
            try:
                batch = _batch_of(chunk)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                kinds = ", ".join(sorted({type(record).__name__ for record in chunk}))
                raise TypeError(
                    f"records do not fit into columns of Arrow ({error}); they are of {kinds}. "
                    "The records of a stream's batch must be of one kind: map them to one first"
                ) from error
            yield batch


def _batch_of(records: list[Any]) -> pa.RecordBatch:
    """Return a batch of records, with the columns of all rows.

    Raises:
        pyarrow.ArrowException, OverflowError, TypeError, ValueError: They are not of one kind.
    """
    if not any(issubclass(kind, (Mapping, Row)) for kind in set(map(type, records))):
        return _of_values(records)
    rows = [_row_of(record) for record in records]
    if all(row is None for row in rows):
        return _of_values(records)
    if None in rows:
        raise TypeError("some are rows with names, others are not")
    # `from_pylist` has the columns of the first row only.
    column = pa.array(rows)
    check_kept(rows, column.type)
    return pa.RecordBatch.from_struct_array(column)


def _of_values(records: list[Any]) -> pa.RecordBatch:
    column = pa.array(records)
    check_kept(records, column.type)
    return pa.RecordBatch.from_arrays([column], [VALUE])


def _row_of(record: Any) -> dict[str, Any] | None:
    """Return a row with names as a dict; None for any other record."""
    if isinstance(record, Mapping):
        return dict(record)
    if isinstance(record, Row) and hasattr(record, "__fields__"):
        return record.asDict(recursive=True)
    return None


def records_of(split: int, batches: Iterable[pa.RecordBatch]) -> Iterator[Any]:
    """Yield the rows of batches as Python objects: values if ``value`` is the only column."""
    return chain.from_iterable(map(_rows, batches))


def _rows(batch: pa.RecordBatch) -> list[Any]:
    if batch.schema.names == [VALUE]:
        values: list[Any] = _with_python_times(batch.column(0)).to_pylist()
        return values
    columns = list(map(_with_python_times, batch.columns))
    rows: list[Any] = pa.RecordBatch.from_arrays(columns, batch.schema.names).to_pylist()
    return rows


def _with_python_times(column: pa.Array) -> pa.Array:
    """Return a column without times of day that Python cuts: it has no nanoseconds of them.

    Raises:
        pyarrow.ArrowInvalid: There are some.
    """
    wanted = _python_type(column.type)
    return column if wanted == column.type else column.cast(wanted)


def _python_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with times of day of microseconds instead of nanoseconds, also within it."""
    if kind == pa.time64("ns"):
        return pa.time64("us")
    if pa.types.is_dictionary(kind):
        wanted = _python_type(kind.value_type)
        return kind if wanted == kind.value_type else wanted
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_python_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_python_type(kind.key_type)),
            kind.item_field.with_type(_python_type(kind.item_type)),
            kind.keys_sorted,
        )
    if not hasattr(kind, "value_field"):
        return kind
    field = kind.value_field.with_type(_python_type(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(field, kind.list_size)
    make = pa.large_list if pa.types.is_large_list(kind) else pa.list_
    return kind if field.type == kind.value_type else make(field)


@dataclass(frozen=True)
class MapBatches:
    """`func` of each batch that has rows."""

    func: Callable[[pa.RecordBatch], Any]

    def __call__(self, split: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield from _as_batches(self.func(batch))


def _as_batches(made: Any) -> Iterable[pa.RecordBatch]:
    if isinstance(made, pa.RecordBatch):
        return (made,)
    if isinstance(made, pa.Table):
        return made.to_batches()  # type: ignore[no-any-return]  # pyarrow has no types
    if isinstance(made, (pa.Array, pa.ChunkedArray)):
        return pa.Table.from_arrays([made], [VALUE]).to_batches()  # type: ignore[no-any-return]
    raise TypeError(
        "a function of Arrow batches must return a RecordBatch, a Table or an Array, not "
        f"{type(made).__name__}"
    )


@dataclass(frozen=True)
class SplitColumn:
    """The parts of a text column's values between separators, as the column ``value``."""

    column: str
    separator: str

    def __call__(self, split: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            parts = _split(_column(batch, self.column), self.separator, self.column)
            yield pa.RecordBatch.from_arrays([parts], [VALUE])


@dataclass(frozen=True)
class _SplitBlock:
    """`split` of a block: of lines at once, as the separator may take the place of their ends."""

    split: SplitColumn

    def __call__(self, block: Block) -> Iterator[pa.RecordBatch]:
        if not _is_split_at_bytes(block, self.split):
            yield from self.split(0, _batches_of_block(block))
            return
        separator = self.split.separator.encode()
        is_text = block.kind is BlockKind.LINES
        for piece in line_pieces(block.data, _PIECE_BYTES):
            lines = bytes(piece[:-1])
            if is_text and not lines.isascii():
                lines = lines.decode("utf-8", "replace").encode()
            words = _words(lines.replace(b"\n", separator), separator)
            column = words.view(pa.string()) if is_text else words
            yield pa.RecordBatch.from_arrays([column], [VALUE])


@dataclass(frozen=True)
class _CountParts:
    """Pairs of what `split` makes of a block and its number.

    Parts of lines are counted as they are, each with the byte that ends it.
    """

    split: SplitColumn

    def __call__(self, block: Block) -> Iterator[tuple[Any, int]]:
        if not _is_split_at_bytes(block, self.split):
            yield from CountValues(VALUE)(0, _SplitBlock(self.split)(block))
            return
        separator = ord(self.split.separator)
        is_text = block.kind is BlockKind.LINES
        pieces = line_pieces(block.data, _PIECE_BYTES)
        while some := list(islice(pieces, _PIECES)):
            parts = pa.chunked_array([_ended_parts(piece, separator) for piece in some])
            # What ends once with the separator and once with a line comes twice.
            counted = pc.value_counts(parts)
            for start in range(0, len(counted), _ROWS):
                rows = counted.slice(start, _ROWS)
                ended, numbers = rows.field(0).to_pylist(), rows.field(1).to_pylist()
                for part, number in zip(ended, numbers, strict=True):
                    value = part[:-1]
                    yield (str(value, "utf-8", "replace") if is_text else value), number


def _is_split_at_bytes(block: Block, split: SplitColumn) -> bool:
    """Return whether a block has lines, whose column is split at a single byte."""
    is_lines = block.kind in (BlockKind.LINES, BlockKind.BYTE_LINES)
    return is_lines and len(split.separator.encode()) == 1 and split.column == VALUE


def _ended_parts(lines: memoryview, separator: int) -> pa.Array:
    """Return the parts of lines, each with the separator or line end behind it; nothing is copied.

    Args:
        lines: Whole lines.
        separator: One byte.
    """
    data = np.frombuffer(lines, np.uint8)
    is_end = data == separator
    is_end |= data == _LF
    at = np.flatnonzero(is_end)
    offsets = np.zeros(len(at) + 1, np.int32)
    np.add(at, 1, out=offsets[1:], casting="unsafe")
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(lines)]
    return pa.Array.from_buffers(pa.binary(), len(at), buffers)


@dataclass(frozen=True)
class CountValues:
    """Pairs of a value and its number, a value not more than a few times in a partition."""

    column: str

    def __call__(self, split: int, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, int]]:
        counts: Counter[Any] = Counter()
        for batch in batches:
            counted = pc.value_counts(_values_of(batch, self.column, "value_counts"))
            values, numbers = counted.field(0).to_pylist(), counted.field(1).to_pylist()
            for value, number in zip(values, numbers, strict=True):
                counts[value] += number
            if len(counts) > MAX_KEYS:
                yield from counts.items()
                counts.clear()
        yield from counts.items()


@dataclass(frozen=True)
class SumValues:
    """Pairs of a key and the sum of its values, a key not more than a few times in a partition."""

    key: str
    column: str

    def __call__(self, split: int, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Any, Any]]:
        sums: dict[Any, Any] = {}
        for batch in batches:
            names = ["key", "value"]
            column = _column(batch, self.column)
            values = _summable(column, self.column)
            is_widened = pa.types.is_integer(column.type) and values.type != column.type
            columns = [_values_of(batch, self.key, "sums"), values]
            options = pc.ScalarAggregateOptions(min_count=0)
            table = pa.Table.from_arrays(columns, names).group_by("key")
            summed = table.aggregate([("value", "sum", options)])
            keys, found = summed.column("key").to_pylist(), summed.column("value_sum").to_pylist()
            for key, value in zip(keys, map(int, found) if is_widened else found, strict=True):
                sums[key] = exact_sum(sums[key], value) if key in sums else value
            if len(sums) > MAX_KEYS:
                yield from sums.items()
                sums.clear()
        yield from sums.items()


def _summable(column: pa.Array, name: str) -> pa.Array:
    """Return numbers of a type in which the sum of them all has room: Arrow's wraps in silence.

    Raises:
        OverflowError: It could have more digits than Arrow's decimals.
        TypeError: They are no numbers.
    """
    kind = column.type
    if pa.types.is_decimal(kind):
        if kind.precision + len(str(len(column))) <= _FEW_DIGITS:
            return column.cast(pa.decimal128(_FEW_DIGITS, kind.scale))
        # As the whole number that Arrow adds up.
        largest = int(_largest(column).scaleb(kind.scale, _ALL_DIGITS))
        if largest * len(column) >= 10**_DIGITS:
            raise OverflowError(
                f"the sum of column {name!r} may have more than {_DIGITS} digits, which decimals "
                "of Arrow cannot have; sum it in Python: stream.arrow.records()"
            )
        return column.cast(pa.decimal256(_DIGITS, kind.scale))
    if pa.types.is_integer(kind):
        may_wrap = kind.bit_width == 64 and _largest(column) * len(column) > _MOST
        return column.cast(pa.decimal128(_FEW_DIGITS)) if may_wrap else column
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column
    raise TypeError(f"sums needs numbers; the column {name!r} is of {kind}")


def _largest(column: pa.Array) -> Any:
    """Return the largest absolute value of numbers; 0 without any."""
    ends = pc.min_max(column)
    found = [ends[name].as_py() for name in ("min", "max")]
    if pa.types.is_decimal(column.type):
        # `abs` rounds to the digits of the thread's context.
        return max((end or Decimal(0)).copy_abs() for end in found)
    return max(abs(end or 0) for end in found)


def _values_of(batch: pa.RecordBatch, name: str, operation: str) -> pa.Array:
    """Return a column whose values can be keys."""
    column = _column(batch, name)
    if pa.types.is_nested(column.type):
        raise TypeError(
            f"{operation} needs values that can be keys; the column {name!r} is of {column.type}"
        )
    return _with_python_times(column)


def _column(batch: pa.RecordBatch, name: str) -> pa.Array:
    names = batch.schema.names
    if name not in names:
        raise KeyError(f"there is no column {name!r}; there are {', '.join(names)}")
    column = batch.column(names.index(name))
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    # Arrow has few functions of views.
    if pa.types.is_string_view(column.type):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_binary_view(column.type) else column


def _split(column: pa.Array, separator: str, name: str) -> pa.Array:
    kinds = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
    if column.type not in kinds and not pa.types.is_null(column.type):
        raise TypeError(f"split needs text or bytes; the column {name!r} is of {column.type}")
    column = column.drop_null()
    if not len(column):
        return column.cast(pa.string()) if pa.types.is_null(column.type) else column
    byte = separator.encode()
    if column.type not in kinds[:2] or len(byte) > 1:
        is_text = column.type in (pa.string(), pa.large_string())
        return pc.split_pattern(column, separator if is_text else byte).flatten()
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    first, last = int(ends[0]), int(ends[-1])
    text = b"" if data is None else bytes(memoryview(data)[first:last])
    return _words(text, byte, ends[1:] - first).view(column.type)


def _words(text: bytes, separator: bytes, ends: npt.NDArray[np.int32] | None = None) -> pa.Array:
    """Return what is between separators, as a binary column.

    Arrow's own splitting takes three times as long: it makes a list for each value first.

    Args:
        text: The values, one after the other.
        separator: One byte.
        ends: Where each of the values ends; None: it is one.
    """
    at = np.flatnonzero(np.frombuffer(text, np.uint8) == separator[0])
    # What is left of the text, and where in it the words end that a separator ends.
    left = text.translate(None, separator)
    found = at - np.arange(len(at))
    if ends is None:
        found = np.append(found, len(left))
    else:
        others = ends - np.searchsorted(at, ends)
        found = np.sort(np.concatenate([found, others]), kind="stable")
    offsets = np.zeros(len(found) + 1, np.int32)
    offsets[1:] = found
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(left)]
    return pa.Array.from_buffers(pa.binary(), len(found), buffers)
