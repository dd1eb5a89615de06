"""Grouping the values of keys, in one stream or in two: `groupByKey`, `cogroup` and the joins.

Each partition's values are grouped before they are shuffled, into lists by key. What is placed
already is not shuffled again. Where the lists of a partition do not fit into memory, PySpark's
`ExternalGroupBy` takes over, which spills to disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import RDD
from pyspark import serializers as _untyped_serializers
from pyspark.resultiterable import ResultIterable
from pyspark.shuffle import Aggregator, ExternalGroupBy

from penstock.streaming.kernels.combine import WriteCombined
from penstock.streaming.kernels.sections import Section, is_placed, over_sections
from penstock.streaming.kernels.shuffle import PIECES, Pair, is_beyond, shuffle

# PySpark does not type these.
_serializers: Any = _untyped_serializers

Lists = dict[Any, list[Any]]
_Tagged = tuple[Any, list[tuple[int, Any]]]


@dataclass(frozen=True)
class GroupedSection:
    """An RDD that is placed, and what its pieces are.

    Attributes:
        rdd: The RDD.
        is_grouped: Whether the pairs have lists of values, and not values.
    """

    rdd: RDD[Any]
    is_grouped: bool


def grouped(rdd: RDD[Any], partitions: int, *, is_lenient: bool = False) -> GroupedSection:
    """Return an RDD's pairs, placed by key; grouped within each piece if they were shuffled.

    As in PySpark, what has more than two items is an error, unless lenient: then key and value are
    its first two.
    """
    if is_placed(rdd, partitions):
        return GroupedSection(rdd, False)
    append = _append_items if is_lenient else _append
    write = WriteCombined(append, rdd._memory_limit() * 0.9, partitions)
    return GroupedSection(shuffle(rdd, write, partitions), True)


def group_by_key(rdd: RDD[Any], partitions: int, *, is_lenient: bool = False) -> RDD[Any]:
    """Return each key with all its values, like `RDD.groupByKey`. Lenient: see `grouped`."""
    section = grouped(rdd, partitions, is_lenient=is_lenient)
    func = _Group(section.is_grouped, Spill.of(rdd), is_lenient)
    return over_sections(rdd.context, [[section.rdd]], partitions, func)


def cogroup(left: RDD[Any], right: RDD[Any], partitions: int) -> RDD[Any]:
    """Return each key of either RDD with its values in both, like `RDD.cogroup`."""
    sections = [grouped(rdd, partitions, is_lenient=True) for rdd in (left, right)]
    func = _Cogroup((sections[0].is_grouped, sections[1].is_grouped), Spill.of(left))
    return over_sections(left.context, [[s.rdd] for s in sections], partitions, func)


def join(
    left: RDD[Any], right: RDD[Any], partitions: int, *, keeps_left: bool, keeps_right: bool
) -> RDD[Any]:
    """Return each key of both RDDs with every pair of its values.

    Args:
        left: Pairs.
        right: Pairs; a partition's are held in memory.
        partitions: Of the result.
        keeps_left: Whether the result has a key that only `left` has, with None.
        keeps_right: Whether the result has a key that only `right` has, with None.
    """
    sections = [grouped(rdd, partitions, is_lenient=True) for rdd in (right, left)]
    are_grouped = (sections[0].is_grouped, sections[1].is_grouped)
    func = _Join(are_grouped, Spill.of(left), keeps_left, keeps_right)
    return over_sections(left.context, [[s.rdd] for s in sections], partitions, func)


def _append(lists: Lists, pairs: Iterable[Pair]) -> None:
    for key, value in pairs:
        if key in lists:
            lists[key].append(value)
        else:
            lists[key] = [value]


def _append_items(lists: Lists, pairs: Iterable[Any]) -> None:
    for pair in pairs:
        key = pair[0]
        if key in lists:
            lists[key].append(pair[1])
        else:
            lists[key] = [pair[1]]


def _extend(lists: Lists, pairs: Iterable[Pair]) -> None:
    for key, values in pairs:
        if key in lists:
            lists[key].extend(values)
        else:
            lists[key] = values


def gather(
    lists: Lists,
    section: Section,
    is_grouped: bool,
    memory_mb: float,
    *,
    is_lenient: bool = False,
) -> bool:
    """Group all values of a section by key; return False when memory ended first."""
    add = _extend if is_grouped else _append_items if is_lenient else _append
    for piece in section:
        add(lists, piece)
        if is_beyond(memory_mb):
            return False
    return True


def as_lists(section: Section, is_grouped: bool, *, is_lenient: bool = False) -> Iterator[Pair]:
    """Yield the pairs of a section with lists of values; a key may come more than once."""
    if is_grouped:
        for piece in section:
            yield from piece
    elif is_lenient:
        for piece in section:
            for pair in piece:
                yield pair[0], [pair[1]]
    else:
        for piece in section:
            for key, value in piece:
                yield key, [value]


@dataclass(frozen=True)
class Spill:
    """What is done when memory ends.

    Attributes:
        memory_mb: The memory that a Python worker may use.
        serializer: Of what is written to disk.
    """

    memory_mb: float
    serializer: Any

    @staticmethod
    def of(rdd: RDD[Any]) -> Spill:
        """Return how RDDs of a context spill."""
        return Spill(rdd._memory_limit() * 0.9, _serializers.AutoBatchedSerializer(PIECES))

    def group(self, pairs: Iterable[Iterable[Pair]]) -> Iterator[tuple[Any, Iterable[Any]]]:
        """Yield each key with all values of its lists, which may come from disk."""
        # It is given lists only: no other function than the last is called.
        aggregator: Any = Aggregator(list, _with_list, _with_list)
        merger: Any = ExternalGroupBy(aggregator, self.memory_mb, self.serializer)
        for some in pairs:
            merger.mergeCombiners(some)
        found: Iterator[tuple[Any, Iterable[Any]]] = merger.items()
        return found

    def cogroup(
        self, parts: Sequence[tuple[int, Iterable[Pair]]], count: int
    ) -> Iterator[tuple[Any, tuple[list[Any], ...]]]:
        """Yield each key with its values in each of `count` parts.

        Args:
            parts: The number of a part, and pairs of a key and a list of values.
            count: Number of parts.
        """
        for key, tagged in self.group(_tagged(number, pairs) for number, pairs in parts):
            values: tuple[list[Any], ...] = tuple([] for _ in range(count))
            for number, value in tagged:
                values[number].append(value)
            yield key, values


def _tagged(number: int, pairs: Iterable[Pair]) -> Iterator[_Tagged]:
    return ((key, [(number, value) for value in values]) for key, values in pairs)


def _with_list(values: list[Any], more: list[Any]) -> list[Any]:
    values.extend(more)
    return values


class _Values(ResultIterable[Any]):
    """The values of a key; pickled as what it is made of, which is faster."""

    def __reduce__(self) -> tuple[Any, ...]:
        return ResultIterable, (self.data,)


@dataclass(frozen=True)
class _Group:
    is_grouped: bool
    spill: Spill
    is_lenient: bool = False

    def __call__(self, sections: list[Section]) -> Iterator[Pair]:
        lists: Lists = {}
        [section] = sections
        memory_mb = self.spill.memory_mb
        if gather(lists, section, self.is_grouped, memory_mb, is_lenient=self.is_lenient):
            return zip(lists, map(_Values, lists.values()), strict=True)
        rest = as_lists(section, self.is_grouped, is_lenient=self.is_lenient)
        found = self.spill.group((lists.items(), rest))
        return ((key, ResultIterable(values)) for key, values in found)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Cogroup:
    are_grouped: tuple[bool, bool]
    spill: Spill

    def __call__(self, sections: list[Section]) -> Iterator[Any]:
        first, second = sections
        left: Lists = {}
        right: Lists = {}
        memory_mb = self.spill.memory_mb
        if not gather(left, first, self.are_grouped[0], memory_mb, is_lenient=True) or not gather(
            right, second, self.are_grouped[1], memory_mb, is_lenient=True
        ):
            parts = [
                (0, left.items()),
                (0, as_lists(first, self.are_grouped[0], is_lenient=True)),
                (1, right.items()),
                (1, as_lists(second, self.are_grouped[1], is_lenient=True)),
            ]
            for key, (vs, ws) in self.spill.cogroup(parts, 2):
                yield key, (_Values(vs), _Values(ws))
            return
        for key, vs in left.items():
            yield key, (_Values(vs), _Values(right.pop(key, [])))
        for key, ws in right.items():
            yield key, (_Values([]), _Values(ws))


@dataclass(frozen=True)
class _Join:
    are_grouped: tuple[bool, bool]
    spill: Spill
    keeps_left: bool
    keeps_right: bool

    def __call__(self, sections: list[Section]) -> Iterator[Any]:
        second, first = sections
        right: Lists = {}
        if gather(right, second, self.are_grouped[0], self.spill.memory_mb, is_lenient=True):
            return self._in_memory(right, first)
        parts = [
            (1, right.items()),
            (1, as_lists(second, self.are_grouped[0], is_lenient=True)),
            (0, as_lists(first, self.are_grouped[1], is_lenient=True)),
        ]
        return self._spilled(self.spill.cogroup(parts, 2))

    def _in_memory(self, right: Lists, first: Section) -> Iterator[Any]:
        get = right.get
        keeps_left = self.keeps_left
        is_grouped = self.are_grouped[1]
        matched: set[Any] | None = set() if self.keeps_right else None
        for piece in first:
            found: list[Any] = []
            add = found.append
            for pair in piece:
                key = pair[0]
                ws = get(key)
                if ws is None:
                    if not keeps_left:
                        continue
                    ws = _NOTHING
                elif matched is not None:
                    matched.add(key)
                for v in pair[1] if is_grouped else (pair[1],):
                    for w in ws:
                        add((key, (v, w)))
                    # Values that meet very many others must not be held all at once.
                    if len(found) >= _PAIRS:
                        yield from found
                        found.clear()
            yield from found
        if matched is not None:
            for key, ws in right.items():
                if key not in matched:
                    for w in ws:
                        yield key, (None, w)

    def _spilled(self, found: Iterator[tuple[Any, tuple[list[Any], ...]]]) -> Iterator[Any]:
        for key, (vs, ws) in found:
            lefts = vs or (_NOTHING if self.keeps_right else ())
            rights = ws or (_NOTHING if self.keeps_left else ())
            for v in lefts:
                for w in rights:
                    yield key, (v, w)


_NOTHING = [None]

_PAIRS = 1 << 14
"""Pairs of a join that are made before they are passed on."""
