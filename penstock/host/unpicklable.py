"""Finds what in a program's function cannot be pickled, so that an error can name it.

Pickling says "cannot pickle '_thread.lock' object" and nothing of where that lock is. Here the
object is taken apart like pickling does it, and each part is tried alone, down to the first one
none of whose parts fails.
"""

from __future__ import annotations

import dis
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from penstock.errors import text_of

_MAX_DEPTH = 40
_MAX_PARTS = 10_000
_OWN = ("penstock.streaming", "penstock.host")
_SELF = "self"


@dataclass(frozen=True)
class Unpicklable:
    """What cannot be pickled.

    Attributes:
        function: The program's function that leads to it, or None.
        variable: The way from that, empty for the function itself.
        reason: The type of the thing and what pickling said.
    """

    function: str | None
    variable: str
    reason: str


def find_unpicklable(thing: Any, dump: Callable[[Any], object]) -> Unpicklable:
    """Return what in `thing`, which cannot be pickled, is the cause.

    Args:
        thing: An object for which `dump` raises.
        dump: Pickles. Its error may have an attribute `thing`: the object that it is about.
    """
    function: str | None = None
    path: list[str] = []
    seen: set[int] = set()
    while len(path) < _MAX_DEPTH:
        seen.add(id(thing))
        if _is_callable_of_program(thing) and path[-1:] != [_SELF]:
            function, path = describe_callable(thing), []
        if getattr(_error(thing, dump), "thing", None) is thing:
            break  # It was refused itself, whatever it is made of.
        failing = next(
            (
                (name, part)
                for number, (name, part) in enumerate(_parts(thing))
                if number < _MAX_PARTS and id(part) not in seen and _error(part, dump) is not None
            ),
            None,
        )
        if failing is None:
            break
        name, thing = failing
        if name:
            path.append(name)
    error = _error(thing, dump)
    said = None if error is None else text_of(error)
    return Unpicklable(function, " -> ".join(path), f"{type(thing).__qualname__}: {said}")


def _error(thing: Any, dump: Callable[[Any], object]) -> Exception | None:
    try:
        dump(thing)
    except Exception as error:  # noqa: BLE001  # whatever pickling runs into; it is the answer
        return error
    return None


def describe_callable(func: Any) -> str:
    """Return a callable's qualified name and its place: ``Job.save (program.py:12)``."""
    inner = func
    while isinstance(inner, (partial, MethodType)):
        inner = inner.func if isinstance(inner, partial) else inner.__func__
    if not isinstance(inner, FunctionType):
        kind = inner if isinstance(inner, type) else type(inner)
        return f"{kind.__module__}.{kind.__qualname__}"
    code = inner.__code__
    return f"{inner.__qualname__} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"


def _is_callable_of_program(thing: Any) -> bool:
    if isinstance(thing, (partial, MethodType)):
        return True
    if isinstance(thing, FunctionType):
        return not (thing.__module__ or "").startswith(_OWN)
    return callable(thing) and not type(thing).__module__.startswith(_OWN)


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield what `thing` is pickled with, and how it is reached."""
    if isinstance(thing, FunctionType):
        yield from _function_parts(thing)
    elif isinstance(thing, MethodType):
        yield _SELF, thing.__self__
    elif isinstance(thing, partial):
        yield "", thing.func
        for index, value in enumerate(thing.args):
            yield f"argument {index} of the partial", value
        for name, value in thing.keywords.items():
            yield f"argument {name!r} of the partial", value
    elif isinstance(thing, Mapping):
        for key, value in thing.items():
            yield f"key {_short(key)}", key
            yield f"[{_short(key)}]", value
    elif isinstance(thing, (list, tuple, set, frozenset)) or type(thing).__name__ == "deque":
        yield from ((f"[{index}]", value) for index, value in enumerate(thing))
    elif isinstance(thing, type):
        yield from ((f"class attribute {name!r}", value) for name, value in vars(thing).items())
    elif not isinstance(thing, ModuleType):
        yield from _object_parts(thing)


def _function_parts(func: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True):
        try:
            yield _named("closure variable", name, cell.cell_contents), cell.cell_contents
        except ValueError:  # It has no value yet.
            continue
    for name in _globals_of(func.__code__):
        if name in func.__globals__:
            value = func.__globals__[name]
            yield _named("global variable", name, value), value
    for index, value in enumerate(func.__defaults__ or ()):
        yield f"default of argument {index}", value
    for name, value in (func.__kwdefaults__ or {}).items():
        yield f"default of argument {name!r}", value
    for name, value in vars(func).items():
        yield f"attribute {name!r}", value


def _named(kind: str, name: str, value: Any) -> str:
    # What Penstock's own functions hold is not what the program's author looks for.
    return (
        "" if _is_callable_of_program(value) and not inspect.isclass(value) else f"{kind} {name!r}"
    )


def _globals_of(code: CodeType) -> Iterable[str]:
    names = {step.argval for step in dis.get_instructions(code) if step.opname.endswith("_GLOBAL")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names.update(_globals_of(constant))
    return sorted(names)


def _object_parts(thing: Any) -> Iterator[tuple[str, Any]]:
    try:
        reduced = thing.__reduce_ex__(4)
    except Exception:  # noqa: BLE001  # it cannot be taken apart so; its attributes may show it
        reduced = None
    state = reduced[2] if isinstance(reduced, tuple) and len(reduced) > 2 else None
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
        state = {**(state[0] or {}), **state[1]}
    if state is None and reduced is None:
        state = getattr(thing, "__dict__", None)
    if isinstance(state, dict):
        yield from ((f"attribute {name!r}", value) for name, value in state.items())
    elif state is not None:
        yield "state", state
    if isinstance(reduced, tuple) and len(reduced) > 1 and isinstance(reduced[1], tuple):
        yield from (("", value) for value in reduced[1] if not isinstance(value, type))


def _short(key: Any) -> str:
    text = repr(key)
    return text if len(text) <= 40 else text[:37] + "..."
