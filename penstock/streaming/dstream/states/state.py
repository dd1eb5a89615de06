"""`State` and `StateSpec`: what `mapWithState` keeps for a key, and how a program asks for it.

They do what Spark's classes of these names do (`State.scala`, `StateSpec.scala`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from pyspark import RDD
from pyspark.core.rdd import portable_hash

from penstock.errors import IllegalStateError
from penstock.streaming.dstream.arity import TimedFunction, with_time
from penstock.streaming.durations import to_milliseconds

S = TypeVar("S")


class State(Generic[S]):
    """The state of one key, for one call of the function of a `StateSpec`.

    It is of no use after the call. What it holds may be changed in place, but is kept only after
    `update`.
    """

    __slots__ = ("_exists", "_is_removed", "_is_timing_out", "_is_updated", "_value")

    def __init__(self) -> None:
        self._value: Any
        self._exists: bool
        self._is_timing_out: bool
        self._is_updated: bool
        self._is_removed: bool
        self._wrap(None, exists=False)

    def exists(self) -> bool:
        """Return whether the key has a state."""
        return self._exists

    def get(self) -> S:
        """Return the state.

        Raises:
            IllegalStateError: There is none.
        """
        if not self._exists:
            raise IllegalStateError("State is not set")
        value: S = self._value
        return value

    def getOption(self) -> S | None:
        """Return the state, or None."""
        value: S | None = self._value
        return value

    def update(self, newState: S) -> None:
        """Set the state.

        Raises:
            IllegalStateError: It was removed in this call, or is timing out.
        """
        if self._is_removed:
            raise IllegalStateError("Cannot update the state after it has been removed")
        if self._is_timing_out:
            raise IllegalStateError("Cannot update the state that is timing out")
        self._value = newState
        self._exists = self._is_updated = True

    def remove(self) -> None:
        """Let the key have no state.

        Raises:
            IllegalStateError: It was removed in this call already, or is timing out.
        """
        if self._is_timing_out:
            raise IllegalStateError("Cannot remove the state that is timing out")
        if self._is_removed:
            raise IllegalStateError("Cannot remove the state that has already been removed")
        self._value = None
        self._exists = self._is_updated = False
        self._is_removed = True

    def isTimingOut(self) -> bool:
        """Return whether the state goes after this call, as its key was idle for too long."""
        return self._is_timing_out

    def __repr__(self) -> str:
        return f"State({self._value!r})" if self._exists else "State()"

    def _wrap(self, value: Any, *, exists: bool, is_timing_out: bool = False) -> None:
        """Begin a call; `value` is None when there is no state."""
        self._value = value
        self._exists = exists
        self._is_timing_out = is_timing_out
        self._is_updated = self._is_removed = False


class StateSpec:
    """How `DStream.mapWithState` keeps state; made by `StateSpec.function`.

    ::

        def count(key, value, state):
            total = state.getOption() or 0
            total += value or 0
            if not state.isTimingOut():
                state.update(total)
            return (key, total)

        totals = pairs.mapWithState(StateSpec.function(count).timeout(30))

    Each method changes the specification and returns it.
    """

    def __init__(self, func: Callable[..., Any]) -> None:
        self._func = func
        self._timed: TimedFunction = with_time(func, 3)
        self._initial: RDD[Any] | list[Any] | None = None
        self._partitions: int | None = None
        self._partition_func: Callable[[Any], int] = portable_hash
        self._timeout_ms: int | None = None

    @staticmethod
    def function(mappingFunction: Callable[..., Any]) -> StateSpec:
        """Return a specification with a function of a key, a value and the key's state.

        Args:
            mappingFunction: Called in the executors for each pair, in the order of the pairs of
                a key. It takes the key, the value and the `State`; what it returns is in the
                mapped stream. Or it takes the batch time (naive local `datetime`) before these;
                then None is not in the mapped stream. The value is None when the state is timing
                out.

        Raises:
            TypeError: It takes neither three nor four arguments.
        """
        return StateSpec(mappingFunction)

    def initialState(self, rdd: RDD[Any] | Iterable[tuple[Any, Any]]) -> StateSpec:
        """Set the states before the first batch, as pairs of a key and its state."""
        self._initial = rdd if isinstance(rdd, RDD) else list(rdd)
        return self

    def numPartitions(self, numPartitions: int) -> StateSpec:
        """Set the number of partitions of the state."""
        return self.partitioner(numPartitions, portable_hash)

    def partitioner(
        self, numPartitions: int, partitionFunc: Callable[[Any], int] = portable_hash
    ) -> StateSpec:
        """Set how keys are placed, as for `RDD.partitionBy`."""
        if numPartitions < 1:
            raise ValueError(f"numPartitions must be at least 1, not {numPartitions}")
        self._partitions = numPartitions
        self._partition_func = partitionFunc
        return self

    def timeout(self, idleDuration: float) -> StateSpec:
        """Let a state go when its key had no value for more than `idleDuration` seconds.

        The function is then called once more, with no value. It happens in the first batch that
        is more than that time later than the batch of the key's last value.
        """
        self._timeout_ms = to_milliseconds(idleDuration, "idleDuration")
        return self

    @property
    def _emits_none(self) -> bool:
        """Whether a result of None is in the mapped stream."""
        return self._timed is not self._func
