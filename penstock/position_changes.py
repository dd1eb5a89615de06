"""Positions that are stored by their changes: a place of each of many parts, stored when it moves.

A position that is a dict may be as large as its source has parts. With each block only what changed
since the last one goes to the driver's log; the ledger keeps the whole. In MessagePack changes are
an extension type, so that they cannot be taken for a position.
"""

from __future__ import annotations

from typing import Any

import msgspec

_CODE = 1
_EXTENSIONS = frozenset((0xC7, 0xC8, 0xC9, 0xD4, 0xD5, 0xD6, 0xD7, 0xD8))
"""The first bytes of extension types (MessagePack specification, "ext format family")."""
_FOLDED_BYTES = 64 << 10


class PositionChanges(dict[Any, Any]):
    """What changed of a position that is a dict: new values by key; None takes a key away.

    Given to `store` in place of a position. The last position is then the dict with all changes in
    it, in their order; before the first it is empty.
    """


def encoded_position(position: Any) -> bytes:
    """Return a position, or changes of one, in MessagePack."""
    encoded = msgspec.msgpack.encode(position)
    if type(position) is PositionChanges:
        return msgspec.msgpack.encode(msgspec.msgpack.Ext(_CODE, encoded))
    return encoded


def decoded_position(position: bytes) -> Any:
    """Return a position, or `PositionChanges`."""
    if not is_change(position):
        return msgspec.msgpack.decode(position)
    return PositionChanges(msgspec.msgpack.decode(msgspec.msgpack.decode(position).data))


def is_change(position: bytes) -> bool:
    """Return whether something in MessagePack is changes of a position."""
    return position[:1] != b"" and position[0] in _EXTENSIONS


def merged(before: bytes | None, position: bytes) -> bytes:
    """Return changes with later ones in them, or a later position."""
    if before is None or not is_change(position):
        return position
    found = decoded_position(before)
    changes = decoded_position(position)
    if type(found) is PositionChanges:
        return encoded_position(PositionChanges({**found, **changes}))
    whole = found if type(found) is dict else {}
    return encoded_position(_with_changes(whole, changes))


def _with_changes(whole: dict[Any, Any], changes: dict[Any, Any]) -> dict[Any, Any]:
    for key, value in changes.items():
        if value is None:
            whole.pop(key, None)
        else:
            whole[key] = value
    return whole


class StandingPosition:
    """Where a source stands: the last position, with the changes since.

    Changes are put in when the position is asked for, or when they are many: so each costs its own
    size, however large the position is.

    Args:
        position: In MessagePack; None: there is none yet.
    """

    __slots__ = ("_changes", "_changes_bytes", "_position")

    def __init__(self, position: bytes | None = None) -> None:
        self._position = position
        self._changes: list[bytes] = []
        self._changes_bytes = 0

    def take(self, position: bytes) -> None:
        """Take a position, or changes of it, in MessagePack."""
        if not is_change(position):
            self._position, self._changes, self._changes_bytes = position, [], 0
            return
        self._changes.append(position)
        self._changes_bytes += len(position)
        if self._changes_bytes > max(_FOLDED_BYTES, len(self._position or b"")):
            self._fold()

    @property
    def value(self) -> bytes | None:
        """The position in MessagePack; None: there is none."""
        if self._changes:
            self._fold()
        return self._position

    def _fold(self) -> None:
        found = None if self._position is None else msgspec.msgpack.decode(self._position)
        whole = found if type(found) is dict else {}
        for change in self._changes:
            _with_changes(whole, decoded_position(change))
        self._position = msgspec.msgpack.encode(whole)
        self._changes, self._changes_bytes = [], 0


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
