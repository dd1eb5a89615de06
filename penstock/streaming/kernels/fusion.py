"""Narrow operations, fused: one function per partition, built from iterators that run in C.

PySpark wraps each function that is called per record, so that a `StopIteration` that it lets out
is not taken for the end of the data. The wrapper costs as much as a small function. Here a chain
of `map`, `filter` and `flatMap` is checked once per partition instead: a mark at the end of its
input is passed only when the input was really read to its end, and a check after its output
raises when the output ended without that. So a leaked `StopIteration` is a `RuntimeError`, and
never silently drops records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import isgeneratorfunction
from itertools import chain, count
from typing import Any, ClassVar

from penstock.worker import collect_less

_MOST_INLINED = 8
"""Python nests no more than 20 loops."""


@dataclass(frozen=True)
class NarrowOperation:
    """One operation on the records of a partition.

    Attributes:
        func: The user's function.
        preserves_partitioning: True when keys stay where the partitioner put them.
    """

    func: Callable[..., Any]
    preserves_partitioning: bool = False

    guarded = True
    """Whether a `StopIteration` of `func` would be taken for the end of the data."""

    is_per_record = True
    """Whether it makes nothing of a partition without records."""

    code: ClassVar[tuple[str, ...]] = ()
    """The same as lines of Python: they make `{new}` of `{old}` with `{func}`. The last one that
    ends with a colon has what follows in it. Empty: it cannot be written so."""

    def apply(self, split: int, records: Iterator[Any]) -> Iterable[Any]:
        raise TypeError(f"{type(self).__name__} does nothing by itself")


class MapOperation(NarrowOperation):
    """`func` of each record."""

    code = ("{new} = {func}({old})",)

    def apply(self, split: int, records: Iterator[Any]) -> Iterable[Any]:
        return map(self.func, records)


class FlatMapOperation(NarrowOperation):
    """All that `func` of each record yields."""

    code = ("for {new} in {func}({old}):",)

    def apply(self, split: int, records: Iterator[Any]) -> Iterable[Any]:
        return chain.from_iterable(map(self.func, records))


class FilterOperation(NarrowOperation):
    """The records for which `func` is true."""

    code = ("if {func}({old}):", "{new} = {old}")

    def apply(self, split: int, records: Iterator[Any]) -> Iterable[Any]:
        return filter(self.func, records)


class MapValuesOperation(NarrowOperation):
    """`func` of each pair's value. A generator turns `StopIteration` into an error by itself.

    As in PySpark, key and value are the first two items of a record of any kind.
    """

    guarded = False
    code = ("{new} = ({old}[0], {func}({old}[1]))",)

    def apply(self, split: int, records: Iterator[Any]) -> Iterable[Any]:
        func = self.func
        return ((pair[0], func(pair[1])) for pair in records)


class FlatMapValuesOperation(NarrowOperation):
    """Each pair's key with all that `func` of its value yields."""

    guarded = False
    code = ("for {new} in {func}({old}[1]):", "{new} = ({old}[0], {new})")

    def apply(self, split: int, records: Iterator[Any]) -> Iterable[Any]:
        func = self.func
        return ((pair[0], result) for pair in records for result in func(pair[1]))


class PartitionOperation(NarrowOperation):
    """`func` of the partition's index and its records; it may read them only in part."""

    guarded = False
    is_per_record = False

    def apply(self, split: int, records: Iterator[Any]) -> Iterable[Any]:
        return self.func(split, records)  # type: ignore[no-any-return]  # the user's own


def split_inlined(
    operations: Sequence[NarrowOperation],
) -> tuple[tuple[NarrowOperation, ...], tuple[NarrowOperation, ...]]:
    """Return all operations but the last few that have `code`, and these.

    A generator function may make pairs of one record for ever, so it is not inlined: memory is
    looked at between the pairs that come from it.
    """
    first = len(operations)
    while (
        first > max(0, len(operations) - _MOST_INLINED)
        and operations[first - 1].code
        and not isgeneratorfunction(operations[first - 1].func)
    ):
        first -= 1
    return tuple(operations[:first]), tuple(operations[first:])


class _EndGuard:
    """Notes whether a chain of iterators ended because its input did."""

    def __init__(self, functions: tuple[Callable[..., Any], ...]) -> None:
        self._functions = functions
        self._ended = False

    def mark(self) -> Iterator[Any]:
        """Yield nothing; note that the input was read to its end."""
        self._ended = True
        yield from ()

    def check(self) -> Iterator[Any]:
        """Yield nothing; raise if the chain ended early."""
        if not self._ended:
            raise leaked_stop_iteration(self._functions)
        yield from ()


def leaked_stop_iteration(functions: Iterable[Callable[..., Any]]) -> RuntimeError:
    """Return the error for a `StopIteration` that one of the functions let out."""
    names = ", ".join(map(_name, functions))
    return RuntimeError(
        f"StopIteration left one of the functions {names} and would have ended the "
        "partition early; return, or raise another exception"
    )


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))


class FusedFunction:
    """Consecutive narrow operations as one function of a partition, for `RDD` methods.

    Args:
        operations: The operations, the first to be applied first.
    """

    def __init__(self, operations: Iterable[NarrowOperation]) -> None:
        self.operations = tuple(operations)
        self.preserves_partitioning = all(op.preserves_partitioning for op in self.operations)
        self.is_per_record = all(op.is_per_record for op in self.operations)

    def __call__(self, split: int, records: Iterable[Any]) -> Iterator[Any]:
        collect_less()
        current = iter(records)
        guard: _EndGuard | None = None
        for index, operation in enumerate(self.operations):
            if operation.guarded and guard is None:
                guard = _EndGuard(self._guarded_functions(index))
                current = chain(current, guard.mark())
            elif not operation.guarded and guard is not None:
                current = chain(current, guard.check())
                guard = None
            current = iter(operation.apply(split, current))
        return current if guard is None else chain(current, guard.check())

    def _guarded_functions(self, first: int) -> tuple[Callable[..., Any], ...]:
        """Return the functions of the run of guarded operations that begins at `first`."""
        functions = []
        for operation in self.operations[first:]:
            if not operation.guarded:
                break
            functions.append(operation.func)
        return tuple(functions)


def count_records(_: int, records: Iterable[Any]) -> list[int]:
    """Return a list with the number of records; for `mapPartitionsWithIndex`."""
    # `zip` takes a number for every record, the deque of no length drops both.
    numbers = count()
    deque(zip(records, numbers), maxlen=0)  # noqa: B905  # the counter has no end
    return [next(numbers)]
