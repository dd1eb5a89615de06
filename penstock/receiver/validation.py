"""`Validation`: the program's own say in which records fit its stream."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from penstock._arguments import refused
from penstock.errors import PenstockError

_ACCEPTED = "a function of a record, or of a pyarrow.RecordBatch where such are stored"


class InvalidRecordError(PenstockError, ValueError):
    """A receiver discarded a record, or its `validate` refused one, with no error of its own.

    Or what is read cannot be taken for records; the cause, if any, is what the converter raised.
    """


def check_validate(validate: Any) -> None:
    """Check that a function can be called with one record, and that a call runs it.

    Raises:
        TypeError: It is no function, takes other arguments, is async, or has a ``yield``.
    """
    if validate is None:
        return
    if not callable(validate):
        raise TypeError(refused("validate", validate, _ACCEPTED))
    for called in (validate, getattr(validate, "__call__", None)):  # noqa: B004 - the method
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            raise TypeError(refused("validate", validate, f"{_ACCEPTED}, that is not async"))
        if inspect.isgeneratorfunction(called):
            raise TypeError(refused("validate", validate, f"{_ACCEPTED}, without a yield"))
    try:
        signature = inspect.signature(validate)
    except (TypeError, ValueError):
        return  # A builtin without a signature.
    try:
        signature.bind(None)
    except TypeError:
        accepted = f"{_ACCEPTED}, which is its only argument"
        raise TypeError(refused("validate", validate, accepted)) from None


class Validation:
    """Calls a receiver's `validate`; from any thread.

    Args:
        func: The function.
    """

    def __init__(self, func: Callable[[Any], Any]) -> None:
        self._func = func
        self._name = getattr(func, "__qualname__", type(func).__name__)

    def failure(self, record: Any) -> Exception | None:
        """Return why a record is refused; None: it is not.

        Raises:
            MemoryError: There is none, which says nothing of the record.
        """
        try:
            found = self._func(record)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - the program's own
            return error
        if found is True or found is None:
            return None
        if isinstance(found, (bool, np.bool_)):
            return None if found else self._refused()
        return self._nonsense(found, "neither True, False nor None")

    def failures(self, batch: pa.RecordBatch) -> Exception | tuple[pa.Array, Exception] | None:
        """Return which rows of a batch are refused, and why.

        Returns:
            None for none; an error for all; else a mask of those that are not refused, and the
            error of the others.

        Raises:
            MemoryError: See `failure`.
        """
        try:
            found = self._func(batch)
            if found is None or isinstance(found, (bool, np.bool_)):
                return self._refused() if found is not None and not found else None
            mask = _mask(found)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - the program's own
            return error
        if mask is None or len(mask) != batch.num_rows:
            rows = f"nor a bool for each of {batch.num_rows} rows"
            return self._nonsense(found, f"neither True, False, None {rows}")
        if mask.true_count == batch.num_rows:
            return None
        return mask.fill_null(False), self._refused()

    def _refused(self) -> Exception:
        return InvalidRecordError(f"validate={self._name} returned False")

    def _nonsense(self, found: Any, expected: str) -> Exception:
        return TypeError(f"validate={self._name} returned {found!r:.200}, {expected}")


def _mask(found: Any) -> pa.BooleanArray | None:
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    if not isinstance(found, pa.Array):
        if not isinstance(found, (list, tuple, np.ndarray)):
            return None
        found = pa.array(found)
    return found if pa.types.is_boolean(found.type) else None
