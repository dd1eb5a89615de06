"""What each batch of a program must give, from what was received: plain Python, no batches kept.

A step of a program is a tuple of its name, the steps before it, and numbers. `build` makes the
streams of it, `Model` says what they give. Batches are counted from 1. Slides, windows and other
durations are in batches.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from penstock.streaming import State, StateSpec
from penstock.streaming.durations import time_milliseconds
from tests.streaming.restarts.world import START_MS, current_world

__all__ = ["Model", "Step", "build", "number_of", "slide_of"]

Step = tuple[Any, ...]
"""``(name, *steps before, *numbers)``; an input is ``(name,)``."""

Records = list[Any]


def pair_of(record: tuple[str, str, int]) -> tuple[str, int]:
    return record[1], record[2]


def add_one(pair: tuple[str, int]) -> tuple[str, int]:
    return pair[0], pair[1] + 1


def is_not_a(pair: tuple[str, int]) -> bool:
    return pair[0] != "a"


def has_value(pair: tuple[str, int]) -> bool:
    return pair[1] != 0


def sum_of_both(both: tuple[int, int]) -> int:
    return both[0] + both[1]


def total(values: Iterable[int], state: int | None) -> int | None:
    """A running total; some keys go, and may come again."""
    found = sum(values) + (state or 0)
    return None if found % 7 == 6 else found


def tally(key: str, value: int | None, state: State[int]) -> tuple[str, int]:
    if state.isTimingOut() or value is None:
        return key, 1
    found = value + (state.getOption() or 0)
    if found % 5 == 4:
        if state.exists():
            state.remove()
    else:
        state.update(found)
    return key, found


def swapped(rdd: Any) -> Any:
    return rdd.map(add_one)


def is_quiet(number: int) -> bool:
    """Tell whether a stream that is quiet now and then has no RDD in a batch."""
    return number % 7 in (2, 3, 5)


def quiet(time: datetime, rdd: Any) -> Any:
    number = number_of(time_milliseconds(time), current_world().batch_ms)
    return None if is_quiet(number) else rdd


def summed(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for key, value in pairs:
        sums[key] = sums.get(key, 0) + value
    return sums


def number_of(time_ms: int, batch_ms: int) -> int:
    """Return which batch of a world that is of a time; the first one is 1."""
    return time_ms // batch_ms - START_MS // batch_ms


# -- the streams of a step ---------------------------------------------------------------------


def build(step: Step, inputs: Mapping[str, Any], batch_s: float, cache: dict[Step, Any]) -> Any:
    """Return the stream of a step; a step that comes twice is one stream."""
    if step not in cache:
        cache[step] = (
            _BUILDERS[step[0]](
                *(
                    build(part, inputs, batch_s, cache)
                    if isinstance(part, tuple)
                    else part * batch_s
                    for part in step[1:]
                )
            )
            if step[0] in _BUILDERS
            else inputs[step[0]].map(pair_of)
        )
    return cache[step]


def _saved(stream: Any, every: float) -> Any:
    return stream.checkpoint(every) if every else stream


def _with_timeout(every_s: float, timeout_s: float) -> StateSpec:
    spec = StateSpec.function(tally)
    return spec.timeout(timeout_s) if timeout_s else spec


_BUILDERS: dict[str, Callable[..., Any]] = {
    "map": lambda s: s.map(add_one),
    "filter": lambda s: s.filter(is_not_a),
    "reduce": lambda s: s.reduceByKey(operator.add),
    "transform": lambda s: s.transform(swapped),
    "quiet": lambda s: s.transform(quiet),
    "cache": lambda s: s.map(add_one).cache(),
    "save": lambda s, every: s.map(add_one).checkpoint(every),
    "window": lambda s, window, slide: s.window(window, slide),
    "sums": lambda s, window, slide: s.reduceByKeyAndWindow(operator.add, None, window, slide),
    "inverse": lambda s, window, slide, every: _saved(
        s.reduceByKeyAndWindow(operator.add, operator.sub, window, slide, filterFunc=has_value),
        every,
    ),
    "state": lambda s, every: _saved(s.updateStateByKey(total), every),
    "mapped": lambda s, every, timeout: _saved(
        s.reduceByKey(operator.add).mapWithState(_with_timeout(every, timeout)), every
    ),
    "snapshots": lambda s, every, timeout: _saved(
        s.reduceByKey(operator.add).mapWithState(_with_timeout(every, timeout)), every
    ).stateSnapshots(),
    "union": lambda a, b: a.union(b),
    "join": lambda a, b: (
        a.reduceByKey(operator.add).join(b.reduceByKey(operator.add)).mapValues(sum_of_both)
    ),
}


def slide_of(step: Step) -> int:
    """Return how many batches lie between two results of a step."""
    if len(step) == 1:
        return 1
    found: int = step[3] if step[0] in ("window", "sums", "inverse") else slide_of(step[1])
    return found


# -- what they give ----------------------------------------------------------------------------


class Model:
    """What steps give.

    Args:
        inputs: The records of each input, by batch.
    """

    def __init__(self, inputs: Mapping[str, Mapping[int, Records]]) -> None:
        self._inputs = inputs
        self._known: dict[tuple[Step, int], Records] = {}
        self._states: dict[tuple[Step, int], tuple[dict[str, Any], Records]] = {}

    def expected(self, step: Step, number: int) -> Records | None:
        """Return the records of a batch, sorted; None when the step has none at that time."""
        return None if number % slide_of(step) else sorted(self._of(step, number))

    def _of(self, step: Step, number: int) -> Records:
        known = self._known.get((step, number))
        if known is None:
            known = self._known[step, number] = self._found(step, number)
        return known

    def _found(self, step: Step, number: int) -> Records:
        name = step[0]
        if len(step) == 1:
            return [pair_of(record) for record in self._inputs[name].get(number, ())]
        if name in ("window", "sums", "inverse"):
            records = [
                record
                for time in range(max(number - step[2] + 1, 1), number + 1)
                if not time % slide_of(step[1])
                for record in self._of(step[1], time)
            ]
            return records if name == "window" else list(summed(records).items())
        if name in ("state", "mapped", "snapshots"):
            states, mapped = self._state(step, number)
            if name == "mapped":
                return mapped
            return [(k, v) for k, (v, _) in states.items()]
        first = self._of(step[1], number)
        if name in ("map", "transform", "cache", "save"):
            return [add_one(pair) for pair in first]
        if name == "quiet":
            return [] if is_quiet(number) else first
        if name == "filter":
            return [pair for pair in first if is_not_a(pair)]
        if name == "reduce":
            return list(summed(first).items())
        second = self._of(step[2], number)
        if name == "union":
            return first + second
        left, right = summed(first), summed(second)
        return [(key, left[key] + right[key]) for key in left if key in right]

    def _state(self, step: Step, number: int) -> tuple[dict[str, Any], Records]:
        slide = slide_of(step)
        begin = number
        while begin > 0 and (step, begin) not in self._states:
            begin -= slide
        states = self._states[step, begin][0] if begin > 0 else {}
        mapped: Records = []
        for time in range(begin + slide if begin > 0 else slide, number + 1, slide):
            new = summed(self._of(step[1], time))
            if step[0] == "state":
                states = _totals(states, new)
            else:
                states, mapped = _tallies(states, new, time, step[3])
            self._states[step, time] = states, mapped
        return self._states[step, number]


def _totals(states: dict[str, Any], new: dict[str, int]) -> dict[str, Any]:
    found = {}
    for key in {**states, **new}:
        value = total([new.get(key, 0)], states[key][0] if key in states else None)
        if value is not None:
            found[key] = value, 0
    return found


def _tallies(
    states: dict[str, Any], new: dict[str, int], time: int, timeout: int
) -> tuple[dict[str, Any], Records]:
    states, mapped = dict(states), []
    for key, value in new.items():
        found = value + (states[key][0] if key in states else 0)
        if found % 5 == 4:
            states.pop(key, None)
        else:
            states[key] = found, time
        mapped.append((key, found))
    if timeout:
        for key in [key for key, (_, last) in states.items() if last < time - timeout]:
            del states[key]
            mapped.append((key, 1))
    return states, mapped
