"""Any position that may be stored can be shown as JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.position_changes import position_as_json
from penstock.receiver.blocks.storing import _check_position

plain = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.binary(max_size=5)
)
keys = plain | st.tuples(plain, plain)
positions = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3)
)


@given(positions)
def test_every_position_that_is_accepted_can_be_shown(position: Any) -> None:
    _check_position(position, position)
    json.loads(position_as_json(msgspec.msgpack.encode(position)))


@pytest.mark.parametrize(
    ("position", "text"),
    [
        ({"offset": 7}, '{"offset":7}'),
        ({("orders", 0): 7, 1: [b"k"]}, '{"[\\"orders\\",0]":7,"1":["aw=="]}'),
        ([{None: 1, True: (2,)}], '[{"null":1,"true":[2]}]'),
    ],
)
def test_what_json_has_not_becomes_text(position: Any, text: str) -> None:
    assert position_as_json(msgspec.msgpack.encode(position)) == text
