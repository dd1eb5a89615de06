"""A room's door behind which a module is imported when somebody asks for what it has."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_door(door: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a room's ``__init__``.

    Args:
        door: The room's name.
        modules: The module of each public name, within the room.
    """

    def get(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {door!r} has no attribute {name!r}")
        found = getattr(import_module(f"{door}.{modules[name]}"), name)
        setattr(sys.modules[door], name, found)
        return found

    return get
