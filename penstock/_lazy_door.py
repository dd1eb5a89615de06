"""A room's door behind which a module is imported when what it has is asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module


def lazy_door(door: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a room's ``__init__``.

    Args:
        door: The room's name.
        modules: The public names of each module, within the room or anywhere (``a.b``).
    """
    places = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> object:
        if name not in places:
            raise AttributeError(f"module {door!r} has no attribute {name!r}")
        place = places[name]
        found = getattr(import_module(place if "." in place else f"{door}.{place}"), name)
        setattr(sys.modules[door], name, found)
        return found

    return get
