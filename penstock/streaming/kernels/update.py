"""From one batch's states to the next, in one pass over a partition: `updateStateByKey`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from penstock.streaming.kernels.grouping import Lists, Spill, as_lists, gather
from penstock.streaming.kernels.sections import Section
from penstock.streaming.kernels.shuffle import Pair


@dataclass(frozen=True)
class UpdateStates:
    """Calls the program's function for each key. Sections: the new values, the last states.

    New values are held in memory, or on disk when they do not fit; the states pass by.

    Attributes:
        func: Takes the list of a key's new values and its state, or None; returns the new state,
            or None for none.
        is_grouped: Whether the new pairs have lists of values.
        spill: What is done when memory ends.
    """

    func: Callable[[list[Any], Any], Any]
    is_grouped: bool
    spill: Spill

    def __call__(self, sections: list[Section]) -> Iterator[Pair]:
        came, last = sections
        new: Lists = {}
        if gather(new, came, self.is_grouped, self.spill.memory_mb):
            return chain.from_iterable(self._updated(new, last))
        parts = [
            (0, new.items()),
            (0, as_lists(came, self.is_grouped)),
            (1, as_lists(last, False)),
        ]
        return self._spilled(self.spill.cogroup(parts, 2))

    def _updated(self, new: Lists, last: Section) -> Iterator[list[Pair]]:
        func, take = self.func, new.pop
        for piece in last:
            found = []
            for key, state in piece:
                # The function may keep the list, so each call has one of its own.
                state = func(take(key, []), state)
                if state is not None:
                    found.append((key, state))
            yield found
        first = ((key, func(values, None)) for key, values in new.items())
        yield [pair for pair in first if pair[1] is not None]

    def _spilled(self, found: Iterator[tuple[Any, tuple[list[Any], ...]]]) -> Iterator[Pair]:
        for key, (values, states) in found:
            state = self.func(values, states[0] if states else None)
            if state is not None:
                yield key, state
