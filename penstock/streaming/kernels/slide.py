"""From one batch's states or windows to the next, in one pass over a partition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from penstock.streaming.kernels.combine import Combiner, MergeCombiners
from penstock.streaming.kernels.grouping import Lists, Spill, as_lists, gather
from penstock.streaming.kernels.sections import Section
from penstock.streaming.kernels.shuffle import Pair, is_beyond


@dataclass(frozen=True)
class MergeWindow:
    """Reduces all batches of a window. One section: the values of the batches."""

    merge: MergeCombiners
    wanted: Callable[[Pair], bool] | None

    def __call__(self, sections: list[Section]) -> Iterator[Pair]:
        merged = self.merge(0, chain.from_iterable(sections[0]))
        return merged if self.wanted is None else (pair for pair in merged if self.wanted(pair))


@dataclass(frozen=True)
class SlideWindow:
    """Corrects the last window's values. Sections: what came, what left, the last values.

    The last values are not held in memory; they pass by.

    Attributes:
        combiner: How values are reduced.
        invert: Takes away what left, if that is not None.
        wanted: Which pairs stay; None for all.
        spill: What is done when what came or left does not fit into memory.
    """

    combiner: Combiner
    invert: Callable[[Any, Any], Any]
    wanted: Callable[[Pair], bool] | None
    spill: Spill

    def __call__(self, sections: list[Section]) -> Iterator[Pair]:
        came, left, last = sections
        added: dict[Any, Any] = {}
        removed: dict[Any, Any] = {}
        if self._reduce(added, came) and self._reduce(removed, left):
            return chain.from_iterable(self._corrected(last, added, removed))
        parts = [
            (0, _listed(added.items())),
            (0, _listed(chain.from_iterable(came))),
            (1, _listed(removed.items())),
            (1, _listed(chain.from_iterable(left))),
            (2, _listed(chain.from_iterable(last))),
        ]
        return self._spilled(self.spill.cogroup(parts, 3))

    def _reduce(self, found: dict[Any, Any], section: Section) -> bool:
        """Reduce a section; return False when memory ended first."""
        for piece in section:
            self.combiner.add_combiners(found, piece)
            if is_beyond(self.spill.memory_mb):
                return False
        return True

    def _corrected(
        self, last: Section, added: dict[Any, Any], removed: dict[Any, Any]
    ) -> Iterator[list[Pair]]:
        invert, merge, wanted = self.invert, self.combiner.merge_combiners, self.wanted
        for piece in last:
            found = []
            for key, value in piece:
                gone = removed.get(key)
                if gone is not None:
                    value = invert(value, gone)
                if key in added:
                    value = merge(value, added.pop(key))
                found.append((key, value))
            yield found if wanted is None else [pair for pair in found if wanted(pair)]
        yield [pair for pair in added.items() if wanted is None or wanted(pair)]

    def _spilled(self, found: Iterator[tuple[Any, tuple[list[Any], ...]]]) -> Iterator[Pair]:
        for key, (came, left, last) in found:
            values: dict[Any, Any] = {}
            if last:
                values[key] = last[0]
                if left:
                    removed: dict[Any, Any] = {}
                    self.combiner.add_combiners(removed, ((key, value) for value in left))
                    if removed[key] is not None:
                        values[key] = self.invert(values[key], removed[key])
            self.combiner.add_combiners(values, ((key, value) for value in came))
            for pair in values.items():
                if self.wanted is None or self.wanted(pair):
                    yield pair


def _listed(pairs: Iterable[Pair]) -> Iterator[Pair]:
    return ((key, [value]) for key, value in pairs)


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
