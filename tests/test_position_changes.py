"""Positions that are told by their changes: the last one is the dict with all of them in it."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.position_changes import (
    PositionChanges,
    StandingPosition,
    decoded_position,
    encoded_position,
    merged,
    position_as_json,
)
from penstock.receiver import ReceiverContext
from penstock.receiver.splits import PositionError
from penstock.testing import run_receiver

KEYS = st.sampled_from("abcdef")
CHANGES = st.dictionaries(KEYS, st.none() | st.integers(0, 99) | st.text(max_size=200))
POSITIONS = st.dictionaries(KEYS, st.integers(0, 99)) | st.integers(0, 99)


@given(st.lists(st.tuples(st.booleans(), CHANGES, POSITIONS)), st.integers(0, 20))
def test_the_last_position_has_all_changes_however_they_are_put_together(
    told: list[tuple[bool, dict[str, Any], Any]], cut: int
) -> None:
    model: Any = None
    standing = StandingPosition()
    together: bytes | None = None
    for number, (is_change, changes, position) in enumerate(told):
        if is_change:
            model = dict(model) if isinstance(model, dict) else {}
            model.update(changes)
            model = {key: value for key, value in model.items() if value is not None}
        else:
            model = position
        encoded = encoded_position(PositionChanges(changes) if is_change else position)
        together = merged(together, encoded)
        if number % 3 == cut % 3:  # a block ends
            standing.take(together)
            together = None
    if together is not None:
        standing.take(together)
    assert _value(standing) == model


def _value(standing: StandingPosition) -> Any:
    return None if standing.value is None else msgspec.msgpack.decode(standing.value)


def test_changes_are_seen_as_what_they_are() -> None:
    encoded = encoded_position(PositionChanges({"a": 1, "b": None}))
    assert decoded_position(encoded) == PositionChanges({"a": 1, "b": None})
    assert position_as_json(encoded) == '{"a":1,"b":null}'


def test_a_position_of_many_parts_is_told_by_what_changed() -> None:
    count = 3000

    class Parts:
        def run(self, ctx: ReceiverContext) -> None:
            for number in range(count):
                place = PositionChanges({f"part {number:0100}": number})
                ctx.store(f"record {number}", position=place)
            ctx.store("last", position=PositionChanges({f"part {0:0100}": None, "more": [1, 2]}))
            ctx.stopped.wait()

    with run_receiver(Parts, settings={"spark.streaming.blockInterval": "10ms"}) as running:
        assert len(running.wait_for_records(count + 1)) == count + 1
        expected = {f"part {number:0100}": number for number in range(1, count)}
        assert running.position == {**expected, "more": [1, 2]}


def test_one_call_takes_changes_up_to_the_size_of_a_position() -> None:
    class Large:
        def run(self, ctx: ReceiverContext) -> None:
            try:
                ctx.store("taken", position=PositionChanges({"a": "x" * 70_000}))
            except PositionError as error:
                ctx.store(f"refused: {error}")
            ctx.stopped.wait()

    with run_receiver(Large) as running:
        [refused] = running.wait_for_records(1)
        assert "larger than the 65536 bytes that are accepted" in refused
