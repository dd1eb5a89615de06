"""Whether a column of Arrow has the Python values that it is made of.

Arrow takes what is almost of a column's type and changes it in silence: 1.5 becomes 1 among whole
numbers, a `datetime` among dates loses its time of day, a `time` its zone, b"a" becomes "a".
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timezone
from decimal import Decimal
from itertools import chain
from operator import attrgetter, itemgetter, methodcaller
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

_EXACT = frozenset((str, bytes, int, bool, date))
"""Types whose values, all of one type, are in a column of any type but halves, or in none; but True
is 1.0 in one of floats."""
_BOOL = (bool, np.bool_)
_EDGES = (1, 9999)
"""The first and the last year of Python's times."""
_DIGITS = {32: 9, 64: 18, 128: 38, 256: 76}
"""Of decimals, by their bits."""
_FRACTIONS = (float, np.floating, Decimal)
"""No counts of a column's unit: they are likely seconds, as of ``time.time()``."""
_Changes = Callable[[Any], bool]


def check_kept(
    values: Sequence[Any],
    kind: pa.DataType,
    *,
    is_declared: bool = False,
    leaves_out: bool = False,
) -> None:
    """Refuse values that Arrow would change in a column made of them.

    Args:
        values: What the column is made of; None is null.
        kind: Its type.
        is_declared: The type was chosen, not found. It may then say what a value means: fractions
            have its digits, times its unit, times without a zone are of UTC, text is UTF-8.
        leaves_out: Fields that a struct lacks are left out of it.

    Raises:
        TypeError: A value would be another one.
    """
    found = set(map(type, values)) - {NoneType}
    is_exact = found <= _EXACT or (found == {float} and types.is_float64(kind))
    is_truth_as_float = bool in found and types.is_floating(kind)
    if len(found) <= 1 and is_exact and not (types.is_float16(kind) or is_truth_as_float):
        return
    if any(issubclass(each, pa.Scalar) for each in found):
        return  # Arrow takes its own for what they are, or not at all.
    if found == {datetime} and types.is_timestamp(kind) and (is_declared or kind.tz is None):
        zones = set(map(attrgetter("tzinfo"), filter(None, values)))
        if zones == {None}:
            return
        years = set(map(attrgetter("year"), filter(None, values)))
        if kind.tz is not None and years.isdisjoint(_EDGES):
            return
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        check_kept(values, kind.value_type, is_declared=is_declared, leaves_out=leaves_out)
        return
    some = [value for value in values if value is not None]
    if types.is_nested(kind):
        if not is_declared and not types.is_struct(kind):
            for row in (value for value in some if hasattr(value, "__fields__")):
                raise _changed(row, kind)  # Its names would be lost.
        for parts, part in _parts(some, kind, leaves_out):
            check_kept(parts, part, is_declared=is_declared, leaves_out=leaves_out)
        return
    changes = (_changes_declared if is_declared else _changes_found)(kind)
    if changes is not None:
        for value in filter(changes, some):
            raise _changed(value, kind)


def check_cast(found: pa.DataType, wanted: pa.DataType, *, leaves_out: bool = False) -> None:
    """Refuse casts that Arrow takes for safe though they lose something.

    Args:
        found: What is cast.
        wanted: To what.
        leaves_out: Fields that a struct lacks are left out of it.

    Raises:
        TypeError: It is such a cast, or one of a part is.
    """
    if types.is_dictionary(found):
        found = found.value_type
    if types.is_dictionary(wanted):
        wanted = wanted.value_type
    if found == wanted:
        return
    is_time_of_day = types.is_timestamp(found) and (types.is_date(wanted) or types.is_time(wanted))
    is_number = types.is_integer(found) or types.is_floating(found)
    fields = {field.name for field in found} if types.is_struct(found) else set()
    if leaves_out and types.is_struct(wanted):
        fields.clear()
    if types.is_struct(wanted):
        fields -= {field.name for field in wanted}
        for field in wanted:
            at = found.get_field_index(field.name) if types.is_struct(found) else -1
            if at >= 0:
                check_cast(found.field(at).type, field.type, leaves_out=leaves_out)
    elif types.is_map(found) and types.is_map(wanted):
        check_cast(found.key_type, wanted.key_type, leaves_out=leaves_out)
        check_cast(found.item_type, wanted.item_type, leaves_out=leaves_out)
    elif hasattr(found, "value_field") and hasattr(wanted, "value_field"):
        check_cast(found.value_type, wanted.value_type, leaves_out=leaves_out)
    if is_time_of_day or (is_number and types.is_boolean(wanted)) or fields:
        raise TypeError(f"{found} loses something as {wanted}; cast it before it is stored")


def check_made(found: pa.Array, made: pa.Array) -> None:
    """Refuse what a cast has changed, though `check_cast` passed it: it depends on the values.

    Args:
        found: What was cast.
        made: What came of it.

    Raises:
        TypeError: A number is another one, or infinite.
    """
    if types.is_dictionary(found.type):
        found = found.dictionary_decode()
    if types.is_dictionary(made.type):
        made = made.dictionary_decode()
    kind, wanted = found.type, made.type
    if kind == wanted:
        return
    if types.is_struct(kind) and types.is_struct(wanted):
        for at, field in enumerate(wanted):
            if (was_at := kind.get_field_index(field.name)) >= 0:
                check_made(found.field(was_at), made.field(at))
    elif types.is_map(kind) and types.is_map(wanted):
        for before, after in zip(_parts_of_map(found), _parts_of_map(made), strict=True):
            check_made(before, after)
    elif hasattr(kind, "value_field") and hasattr(wanted, "value_field"):
        check_made(found.flatten(), made.flatten())
    elif types.is_floating(wanted) or (types.is_floating(kind) and types.is_decimal(wanted)):
        after = made.cast(pa.float64())
        before = found.cast(pa.float64(), safe=False)
        if types.is_decimal(wanted) or types.is_integer(kind):
            is_another = pc.not_equal(before, after)
        else:
            is_another = pc.and_not(pc.is_inf(after), pc.is_inf(before))
        if pc.any(is_another).as_py():
            raise TypeError(f"{kind} loses something as {wanted}; cast it before it is stored")


def _parts_of_map(column: pa.Array) -> list[pa.Array]:
    """Return the keys and the items of a column of maps, which may be a slice of another."""
    offsets = column.offsets
    first, length = offsets[0].as_py(), offsets[-1].as_py() - offsets[0].as_py()
    return [part.slice(first, length) for part in (column.keys, column.items)]


def _parts(
    values: list[Any], kind: pa.DataType, leaves_out: bool
) -> list[tuple[list[Any], pa.DataType]]:
    """Return the values of each part of a nested type."""
    if types.is_struct(kind):
        names = {field.name for field in kind}
        rows = values
        if set(map(type, rows)) != {dict}:
            rows = [_as_dict(row, kind) for row in values]
        elif set(map(len, rows)) == {len(names)}:
            # So there is no other field where each has the type's fields.
            with contextlib.suppress(KeyError):
                return [(list(map(itemgetter(field.name), rows)), field.type) for field in kind]
        if not leaves_out and not names.issuperset(chain.from_iterable(rows)):
            raise _changed(next(row for row in rows if not names.issuperset(row)), kind)
        return [(list(map(methodcaller("get", field.name), rows)), field.type) for field in kind]
    items = [
        item
        for value in values
        for item in (value.items() if isinstance(value, Mapping) else value)
    ]
    if types.is_map(kind):
        return [
            ([key for key, _ in items], kind.key_type),
            ([item for _, item in items], kind.item_type),
        ]
    return [] if types.is_union(kind) else [(items, kind.value_type)]


def _as_dict(row: Any, kind: pa.DataType) -> Mapping[Any, Any]:
    if isinstance(row, Mapping):
        return row
    names = getattr(row, "__fields__", getattr(row, "_fields", None))
    if names is not None and list(names) != [field.name for field in kind]:
        raise _changed(row, kind)  # Arrow takes its values in their order.
    if isinstance(row, list):
        return dict(row)  # Arrow takes a list for pairs of names and values.
    return {field.name: row[at] for at, field in enumerate(kind)}


def _changes_declared(kind: pa.DataType) -> _Changes | None:
    if types.is_integer(kind):
        return lambda value: isinstance(value, _FRACTIONS) and value % 1 != 0
    if types.is_floating(kind):
        of_kind = kind.to_pandas_dtype()
        most = float(np.finfo(of_kind).max)
        return lambda value: (
            isinstance(value, _BOOL)
            or (most < abs(value) and not math.isinf(value) and _is_too_large(value, of_kind))
            or (type(value) is int and float(of_kind(value)) != value)
        )
    if types.is_date(kind):
        return lambda value: (
            isinstance(value, _FRACTIONS)
            or (isinstance(value, datetime) and value.time() != time())
        )
    if types.is_time(kind):
        return lambda value: isinstance(value, _FRACTIONS) or _is_aware(value)
    if types.is_timestamp(kind) and kind.tz is None:
        return lambda value: (
            isinstance(value, _FRACTIONS) or (_is_aware(value) and bool(value.utcoffset()))
        )
    if types.is_timestamp(kind):
        return lambda value: isinstance(value, _FRACTIONS) or _is_outside(value)
    if types.is_duration(kind):
        return lambda value: isinstance(value, _FRACTIONS)
    if types.is_decimal(kind):
        finest = kind.scale + _DIGITS[kind.bit_width]
        return lambda value: _exponent(value) < -finest
    return None


def _changes_found(kind: pa.DataType) -> _Changes | None:
    if types.is_floating(kind):
        return lambda value: isinstance(value, _BOOL)
    if types.is_date(kind):
        return lambda value: isinstance(value, datetime)
    if types.is_time(kind):
        return _is_aware
    if types.is_timestamp(kind):
        return lambda value: (
            _is_aware(value) is (kind.tz is None) or (kind.unit == "us" and _has_ns(value))
        )
    if types.is_duration(kind) and kind.unit == "us":
        return _has_ns
    if types.is_string(kind):
        return lambda value: not isinstance(value, str)
    if types.is_binary(kind):
        return lambda value: isinstance(value, str)
    return None


def _is_too_large(value: float, of_kind: Any) -> bool:
    """Return whether a float becomes infinite; one next to the largest has the largest's text."""
    with np.errstate(over="ignore"):
        return bool(np.isinf(of_kind(value)))


def _exponent(value: Any) -> int:
    """Return a `Decimal`'s exponent, from which Arrow goes to a column's by a finite table.

    It crashes on numbers far below.
    """
    exponent = value.as_tuple().exponent if isinstance(value, Decimal) else 0
    return exponent if isinstance(exponent, int) else 0


def _is_outside(value: Any) -> bool:
    """Return whether a time is in a year of UTC that no `datetime` is in."""
    if getattr(value, "year", None) not in _EDGES or not _is_aware(value):
        return False
    try:
        value.astimezone(timezone.utc)
    except OverflowError:
        return True
    return False


def _is_aware(value: Any) -> bool:
    return getattr(value, "tzinfo", None) is not None


def _has_ns(value: Any) -> bool:
    """Return whether a time of pandas has nanoseconds beyond its microseconds."""
    return bool(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0))


def _changed(value: object, kind: pa.DataType) -> TypeError:
    return TypeError(
        f"{value!r:.80} of type {type(value).__name__} would be changed in a column of {kind}"
    )
