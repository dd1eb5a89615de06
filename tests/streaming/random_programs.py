"""Random programs of streams: what they are made of, and how they are drawn.

A program is a `Step`: an operation with its arguments, on the steps before it. It can be printed,
compared and pickled, and builds itself on the streams of any context. The functions in it do not
depend on the order of records or on partitions, in which two engines may differ.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

__all__ = ["Program", "Step", "inputs", "programs"]

NUMBERS = "numbers"
PAIRS = "pairs"
OTHERS = "others"


def double(x: int) -> int:
    return x * 2 + 1


def up_to(x: int) -> list[int]:
    return list(range(abs(x) % 3))


def is_odd(x: int) -> bool:
    return x % 2 == 1


def keyed(x: int) -> tuple[str, int]:
    return "abc"[x % 3], x


def value_of(pair: tuple[str, int]) -> int:
    return pair[1]


def number_of(pair: tuple[Any, int]) -> int:
    return len(str(pair[0])) + pair[1]


def named(pair: tuple[Any, int]) -> tuple[str, int]:
    return str(pair[0])[:1], pair[1]


def has_value(pair: tuple[str, int]) -> bool:
    return pair[1] != 0


def total(values: Any) -> int:
    return sum(values)


def total_of_both(both: Any) -> int:
    return sum(1 if x is None else x for x in both)


def total_of_groups(groups: Any) -> int:
    left, right = groups
    return sum(left) - 2 * sum(right)


def same(records: Any) -> Any:
    return iter(records)


def same_with_index(_: int, records: Any) -> Any:
    return iter(records)


def double_all(rdd: Any) -> Any:
    return rdd.map(double)


def other_keys_only(a: Any, b: Any) -> Any:
    return a.subtractByKey(b)


def as_list(x: int) -> list[int]:
    return [x]


def with_value(xs: list[int], x: int) -> list[int]:
    return [*xs, x]


def running_total(values: Any, state: Any) -> Any:
    found = sum(values) + (state or 0)
    # Some keys go, and may come again.
    return None if found % 5 == 4 else found


def last_seen(values: Any, state: Any) -> Any:
    return max(values) if len(values) else state


# Of each kind of stream: what can be done with it, and what kind comes out.
_OF_NUMBERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "map(double)": (NUMBERS, lambda s: s.map(double)),
    "flatMap(up_to)": (NUMBERS, lambda s: s.flatMap(up_to)),
    "filter(is_odd)": (NUMBERS, lambda s: s.filter(is_odd)),
    "mapPartitions(same)": (NUMBERS, lambda s: s.mapPartitions(same)),
    "mapPartitionsWithIndex(same)": (NUMBERS, lambda s: s.mapPartitionsWithIndex(same_with_index)),
    "transform(double_all)": (NUMBERS, lambda s: s.transform(double_all)),
    "repartition(3)": (NUMBERS, lambda s: s.repartition(3)),
    "repartition(1)": (NUMBERS, lambda s: s.repartition(1)),
    "cache()": (NUMBERS, lambda s: s.map(double).cache()),
    "count()": (NUMBERS, lambda s: s.count()),
    "reduce(add)": (NUMBERS, lambda s: s.reduce(operator.add)),
    "map(keyed)": (PAIRS, lambda s: s.map(keyed)),
    "countByValue()": (PAIRS, lambda s: s.countByValue().map(named)),
}
_OF_PAIRS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "mapValues(double)": (PAIRS, lambda s: s.mapValues(double)),
    "flatMapValues(up_to)": (PAIRS, lambda s: s.flatMapValues(up_to)),
    "filter(has_value)": (PAIRS, lambda s: s.filter(has_value)),
    "reduceByKey(add)": (PAIRS, lambda s: s.reduceByKey(operator.add)),
    "reduceByKey(max, 3)": (PAIRS, lambda s: s.reduceByKey(max, 3)),
    "groupByKey()": (PAIRS, lambda s: s.groupByKey().mapValues(total)),
    "groupByKey(1)": (PAIRS, lambda s: s.groupByKey(1).mapValues(total)),
    "combineByKey": (
        PAIRS,
        lambda s: s.combineByKey(as_list, with_value, operator.add).mapValues(total),
    ),
    "partitionBy(3)": (PAIRS, lambda s: s.partitionBy(3)),
    "updateStateByKey(running_total)": (PAIRS, lambda s: s.updateStateByKey(running_total)),
    "updateStateByKey(last_seen, 3)": (PAIRS, lambda s: s.updateStateByKey(last_seen, 3)),
    "updateStateByKey with initial states": (
        PAIRS,
        lambda s: s.updateStateByKey(running_total, initialRDD=[("a", 5), ("z", 6)]),
    ),
    "map(value_of)": (NUMBERS, lambda s: s.map(value_of)),
    "map(number_of)": (NUMBERS, lambda s: s.map(number_of)),
    "cache()": (PAIRS, lambda s: s.reduceByKey(operator.add).cache()),
}
_OF_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "union": lambda a, b: a.union(b),
    "context().union": lambda a, b: a.context().union(a, b, a),
    "join": lambda a, b: a.join(b).mapValues(total_of_both),
    "leftOuterJoin": lambda a, b: a.leftOuterJoin(b, 3).mapValues(total_of_both),
    "rightOuterJoin": lambda a, b: a.rightOuterJoin(b).mapValues(total_of_both),
    "fullOuterJoin": lambda a, b: a.fullOuterJoin(b).mapValues(total_of_both),
    "cogroup": lambda a, b: a.cogroup(b).mapValues(total_of_groups),
    "transformWith(other_keys_only)": lambda a, b: a.transformWith(other_keys_only, b),
}
# The third and fourth argument are window and slide in seconds.
_WINDOWS_OF_NUMBERS: dict[str, tuple[str, Callable[[Any, float, float], Any]]] = {
    "window": (NUMBERS, lambda s, w, d: s.window(w, d)),
    "countByWindow": (NUMBERS, lambda s, w, d: s.countByWindow(w, d)),
    "reduceByWindow(max)": (NUMBERS, lambda s, w, d: s.reduceByWindow(max, None, w, d)),
    "reduceByWindow(add, sub)": (
        NUMBERS,
        lambda s, w, d: s.reduceByWindow(operator.add, operator.sub, w, d),
    ),
    "countByValueAndWindow": (
        PAIRS,
        lambda s, w, d: s.countByValueAndWindow(w, d).map(named),
    ),
}
_WINDOWS_OF_PAIRS: dict[str, tuple[str, Callable[[Any, float, float], Any]]] = {
    "window": (PAIRS, lambda s, w, d: s.window(w, d)),
    "reduceByKeyAndWindow(add)": (
        PAIRS,
        lambda s, w, d: s.reduceByKeyAndWindow(operator.add, None, w, d),
    ),
    "reduceByKeyAndWindow(add, sub)": (
        PAIRS,
        lambda s, w, d: s.reduceByKeyAndWindow(operator.add, operator.sub, w, d, 3),
    ),
    "reduceByKeyAndWindow(add, sub) of what is not 0": (
        PAIRS,
        lambda s, w, d: s.reduceByKeyAndWindow(
            operator.add, operator.sub, w, d, filterFunc=has_value
        ),
    ),
}


@dataclass(frozen=True)
class Step:
    """An operation on what came before it.

    Attributes:
        name: The operation, or the name of an input.
        kind: What its records are.
        before: The steps that it works on; none for an input.
        slide: Batches between two of its RDDs.
        window: Slides of the step before in its window; 0 when it is none.
    """

    name: str
    kind: str
    before: tuple[Step, ...] = ()
    slide: int = 1
    window: int = 0

    def __repr__(self) -> str:
        if not self.before:
            return self.name
        first, *rest = self.before
        what = self.name
        if self.window:
            what += f" over {self.window} every {self.slide // first.slide}"
        if rest:
            what += f" with ({rest[0]!r})"
        return f"{first!r}.{what}"

    def build(self, streams: dict[str, Any], batch_s: float) -> Any:
        """Return the stream of this program."""
        if not self.before:
            return streams[self.name]
        built = [step.build(streams, batch_s) for step in self.before]
        first = self.before[0]
        if self.window:
            table = _WINDOWS_OF_NUMBERS if first.kind == NUMBERS else _WINDOWS_OF_PAIRS
            window_s = self.window * first.slide * batch_s
            return table[self.name][1](built[0], window_s, self.slide * batch_s)
        if len(built) == 2:
            return _OF_TWO[self.name](*built)
        return (_OF_NUMBERS if first.kind == NUMBERS else _OF_PAIRS)[self.name][1](built[0])


Program = Step

_MOST_WINDOWS = 2
"""In a chain; more of them see nothing within the batches of a test."""


@st.composite
def programs(draw: st.DrawFn, longest: int = 5) -> Program:
    """Draw a program."""
    step = draw(st.sampled_from([Step(NUMBERS, NUMBERS), Step(PAIRS, PAIRS), Step(OTHERS, PAIRS)]))
    windows = 0
    for _ in range(draw(st.integers(1, longest))):
        kind = draw(st.sampled_from(["one", "one", "window", "two"]))
        if kind == "window" and windows < _MOST_WINDOWS:
            windows += 1
            step = draw(_windows(step))
        elif kind == "two" and step.kind == PAIRS and step.slide == 1:
            other = draw(st.sampled_from([Step(PAIRS, PAIRS), Step(OTHERS, PAIRS)]))
            if draw(st.booleans()):
                other = draw(_single(other).filter(lambda found: found.kind == PAIRS))
            step = Step(draw(st.sampled_from(sorted(_OF_TWO))), PAIRS, (step, other))
        else:
            step = draw(_single(step))
    return step


def _single(step: Step) -> st.SearchStrategy[Step]:
    table = _OF_NUMBERS if step.kind == NUMBERS else _OF_PAIRS
    return st.sampled_from(sorted(table)).map(
        lambda name: Step(name, table[name][0], (step,), step.slide)
    )


@st.composite
def _windows(draw: st.DrawFn, step: Step) -> Step:
    table = _WINDOWS_OF_NUMBERS if step.kind == NUMBERS else _WINDOWS_OF_PAIRS
    name = draw(st.sampled_from(sorted(table)))
    # From five slides on, the inverse function is used.
    window = draw(st.sampled_from([1, 2, 3, 5, 6]))
    slide = draw(st.sampled_from([1, 1, 2]))
    return Step(name, table[name][0], (step,), step.slide * slide, window)


_number = st.integers(-4, 9)
_pair = st.tuples(st.sampled_from("abcd"), _number)


def inputs(batches: int) -> st.SearchStrategy[dict[str, list[list[Any]]]]:
    """Draw the records of each input and batch."""

    def of(records: st.SearchStrategy[Any]) -> st.SearchStrategy[list[list[Any]]]:
        return st.lists(st.lists(records, max_size=5), min_size=batches, max_size=batches)

    return st.fixed_dictionaries({NUMBERS: of(_number), PAIRS: of(_pair), OTHERS: of(_pair)})
