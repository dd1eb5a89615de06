"""Which numbers are in the ledger, and where those that are missing may lie."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.tracker.ledger._block_numbers import BlockNumbers

FIRST = BlockNumbers.first_number(1)


@given(st.data())
def test_numbers_in_any_order_are_known_once_and_those_that_miss_lie_between_their_neighbours(
    data: st.DataObject,
) -> None:
    segments = sorted(data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=12)))
    numbers = BlockNumbers(FIRST)
    known: dict[int, int] = {}
    for at in data.draw(st.permutations(range(len(segments)))):
        numbers.accept(FIRST + at, segments[at], max(known.values(), default=-1))
        known[at] = segments[at]
        places: set[int] = set()
        for missing in set(range(max(known))) - set(known):
            below = max((known[n] for n in known if n < missing), default=-1)
            above = min(known[n] for n in known if n > missing)
            places.update(range(below, above + 1))
        for number in range(len(segments) + 1):
            assert numbers.is_known(FIRST + number) == (number in known)
        for segment in range(8):
            assert numbers.may_lie_in(segment) == (segment in places)
    assert numbers.next == FIRST + len(segments)
    assert numbers.gaps == ()
