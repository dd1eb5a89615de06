"""Positions of sources as JSON, for people and for columns."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.position_changes import decoded_position


def position_as_json(position: bytes) -> str:
    """Return a position as JSON.

    JSON has less than a position: bytes become base64, and a key of a dict that is no text, number
    or bytes becomes its own JSON.

    Args:
        position: It, in MessagePack.
    """
    return msgspec.json.encode(_with_plain_keys(decoded_position(position))).decode()


def _with_plain_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {_plain_key(key): _with_plain_keys(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(_with_plain_keys, value))
    return value


def _plain_key(key: Any) -> Any:
    if type(key) in (str, bytes, int, float):
        return key
    return msgspec.json.encode(_with_plain_keys(key)).decode()
