"""What a program's streams were made with, so that a restart can say what has changed since.

A checkpoint holds functions, streams and settings as they were, and the function that made them
is not called again. So beside them it has a note of that function and of all of the program that it
leads to: functions, classes, and plain values. Compared are bytecode and values; the text is for
people. What is read when the program runs (environment, files, a database) is not seen.
"""

from __future__ import annotations

import dataclasses
import difflib
import dis
import functools
import hashlib
import inspect
import logging
import os
import re
import sys
import sysconfig
import types
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any

import msgspec
from pyspark import SparkConf

_log = logging.getLogger("penstock.streaming.checkpoint")

_MANY = 1000
"""How many parts of a program, or entries of a value, are looked at."""

_SETUP = "setupFunc"
_SHOWN = 10
_SHOWN_LINES = 3
_WIDTH = 90
_SECRET = re.compile("secret|password|passwd|token|credential|access.?key", re.IGNORECASE)
"""As the default of `spark.redaction.regex`, and a little more."""

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_COLLECTIONS = (tuple, list, set, frozenset)
_FOLDERS = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_INSTALLED = frozenset({"site-packages", "dist-packages", "pyspark", "pyspark.zip"})
"""Folders of packages, wherever they are: executors and ``spark-submit`` have them elsewhere."""

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


class ProgramPart(msgspec.Struct, frozen=True, kw_only=True):
    """A function, or a value, that a program's streams were made with.

    Attributes:
        key: Identifies it: its module and its name in that.
        name: What people call it.
        file: Where it stands; empty for a value.
        line: Its first line; 0 for a value.
        digest: Of what it does.
        source: Its text, where there is one.
        is_imported: Streams hold its name and not its code: a restart runs the code of its time.
    """

    key: str
    name: str
    file: str = ""
    line: int = 0
    digest: str
    source: str = ""
    is_imported: bool = False

    @property
    def place(self) -> str:
        """Its name, and where it is."""
        return f"{self.name} ({self.file}:{self.line})" if self.file else self.name


def parts_of(setup: Callable[..., Any]) -> tuple[ProgramPart, ...]:
    """Return what a function that makes streams leads to, itself first.

    Never raises: objects of a program may do as they please when they are looked at.
    """
    search = _Search()
    try:
        search.look_at(setup, _SETUP, _SETUP)
    except Exception as error:  # noqa: BLE001  # the objects' own; only a warning depends on it
        _log.info("The program cannot be compared with later ones: %s", error)
    return tuple(search.parts.values())


def changes(before: Iterable[ProgramPart], now: Iterable[ProgramPart]) -> list[str]:
    """Return what differs, in lines for people; none when nothing does."""
    old = {part.key: part for part in before}
    new = {part.key: part for part in now}
    found = []
    for key, part in new.items():
        was = old.get(key)
        if was is None:
            found.append([f"{part.place} is new"])
        elif was.digest != part.digest:
            found.append(_change(was, part))
    found += [[f"{part.place} is gone"] for key, part in old.items() if key not in new]
    lines = [line for change in found[:_SHOWN] for line in change]
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN} more")
    return lines


def shown_setting(key: str, now: str | None, was: str | None) -> str:
    """Return what is said of a setting that differs from a checkpoint's."""
    if _SECRET.search(key):
        return f"{key} (not shown)"
    before = "not in the checkpoint" if was is None else f"{was} in the checkpoint"
    return f"{key} is {'not set' if now is None else now}, {before}"


def _change(was: ProgramPart, now: ProgramPart) -> list[str]:
    if not now.file:
        return [f"{now.name} has another value"]
    runs = ", which runs as it is now, for it is imported" if now.is_imported else ""
    lines = [f"{now.place} has changed{runs}"]
    before, after = was.source.splitlines(), now.source.splitlines()
    if not before or not after:
        return lines
    matcher = difflib.SequenceMatcher(None, _stripped(before), _stripped(after), autojunk=False)
    pairs: list[tuple[int, str, str]] = []
    for tag, begin, end, at, until in matcher.get_opcodes():
        if tag != "equal":
            for number in range(max(end - begin, until - at)):
                old = before[begin + number].strip() if begin + number < end else ""
                new = after[at + number].strip() if at + number < until else ""
                if old or new:
                    pairs.append((now.line + min(at + number, len(after) - 1), old, new))
    for line, old, new in pairs[:_SHOWN_LINES]:
        place = f"line {line} is"
        lines.append(f"    {place} {_shown(new, old)}")
        lines.append(f"    {'was':>{len(place)}} {_shown(old, new)}")
    if len(pairs) > _SHOWN_LINES:
        lines.append(f"    and {len(pairs) - _SHOWN_LINES} more lines of it")
    return lines


def _stripped(lines: Iterable[str]) -> list[str]:
    return [line.strip() for line in lines]


def _shown(line: str, other: str) -> str:
    if not line:
        return "not there"
    if _SECRET.search(line):
        return "(not shown: it may name a secret)"
    same = takewhile(lambda pair: pair[0] == pair[1], zip(line, other, strict=False))
    begin = max(0, len(list(same)) - 30) if len(line) > _WIDTH else 0
    end = begin + _WIDTH
    return f"{'...' if begin else ''}{line[begin:end]}{'...' if end < len(line) else ''}"


class _Search:
    """Finds the parts that a function leads to.

    Attributes:
        parts: What was found, by key.
    """

    def __init__(self) -> None:
        self.parts: dict[str, ProgramPart] = {}
        # By id, and kept, so that no other thing gets the id.
        self._seen: dict[int, object] = {}
        # A program may also be installed.
        self._packages = {"__main__"}

    def look_at(self, thing: object, key: str, name: str) -> None:
        """Take a thing that the program refers to by a name, when it is one of its parts."""
        if isinstance(thing, functools.partial):
            self.look_at(thing.func, key, name)
            self._values(f"{name} argument", dict(enumerate(thing.args, start=1)))
            self._values(f"{name} argument", thing.keywords)
        elif isinstance(thing, types.MethodType):
            self.look_at(thing.__func__, key, name)
            self._class(type(thing.__self__))
        elif isinstance(thing, types.FunctionType):
            if key == _SETUP:
                self._packages.add((thing.__module__ or "").partition(".")[0])
            self._function(thing, key)
        elif isinstance(thing, type):
            self._class(thing)
        elif isinstance(thing, SparkConf):
            self._values(name, dict(thing.getAll()))
        elif isinstance(thing, (Namespace, types.SimpleNamespace)) or dataclasses.is_dataclass(
            thing
        ):
            self._values(name, vars(thing))
        elif _is_plain(thing):
            self._take(ProgramPart(key=key, name=name, digest=_digest(_text_of(thing))))
        else:
            self._class(type(thing))

    def _take(self, part: ProgramPart) -> None:
        if len(self.parts) < _MANY:
            self.parts.setdefault(part.key, part)

    def _values(self, name: str, values: Mapping[Any, object]) -> None:
        for key, value in values.items():
            if _is_plain(value):
                self.look_at(value, f"{name}: {key}", f"{name}: {key}")

    def _is_to_be_seen(self, thing: types.FunctionType | type) -> bool:
        if id(thing) in self._seen or not self._is_of_program(thing):
            return False
        self._seen[id(thing)] = thing
        return True

    def _is_of_program(self, thing: types.FunctionType | type) -> bool:
        package = (thing.__module__ or "").partition(".")[0]
        if package in self._packages:
            return True
        if isinstance(thing, types.FunctionType):
            # Those of named tuples and the like were made from a text.
            file: str | None = thing.__code__.co_filename
            return file != "<string>" and not _is_of_library(file)
        return not _is_of_library(getattr(sys.modules.get(thing.__module__), "__file__", None))

    def _class(self, kind: type) -> None:
        if not self._is_to_be_seen(kind):
            return
        for base in kind.__bases__:
            self._class(base)
        for name, value in vars(kind).items():
            for function in _functions_of(value):
                self._function(function, "")
            if _is_plain(value) and not name.startswith("__"):
                whole = f"{kind.__qualname__}.{name}"
                self.look_at(value, f"{kind.__module__}.{whole}", whole)

    def _function(self, function: types.FunctionType, key: str) -> None:
        if not self._is_to_be_seen(function):
            return
        code = function.__code__
        module, qualified = function.__module__, function.__qualname__
        is_setup = key == _SETUP
        key = key if is_setup else f"{module}.{qualified}"
        self._take(
            ProgramPart(
                key=key,
                name=qualified.rpartition("<locals>.")[2],
                file=os.path.basename(code.co_filename),
                line=code.co_firstlineno,
                digest=_digest(_text_of_function(function)),
                source=_source_of(function),
                is_imported=not is_setup and module != "__main__" and "<" not in qualified,
            )
        )
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                self.look_at(cell.cell_contents, f"{key}: {name}", f"{name} of {qualified}")
            except ValueError:
                continue  # It has none yet.
        for name, value in _globals_of(function):
            self.look_at(value, f"{module}.{name}", name)


def _functions_of(attribute: object) -> Iterator[types.FunctionType]:
    found: tuple[object, ...] = (attribute,)
    if isinstance(attribute, (staticmethod, classmethod)):
        found = (attribute.__func__,)
    elif isinstance(attribute, property):
        found = (attribute.fget, attribute.fset)
    yield from (value for value in found if isinstance(value, types.FunctionType))


def _globals_of(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Yield what its code, with the functions in it, takes by name from outside."""
    of_module = function.__globals__
    for code in _codes(function.__code__):
        modules: list[types.ModuleType] = []
        for step in dis.get_instructions(code):
            name = step.argval
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and name in of_module:
                value = of_module[name]
                if not isinstance(value, types.ModuleType):
                    yield name, value
                elif not _is_of_library(getattr(value, "__file__", None)):
                    modules.append(value)
            elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                for module in modules:
                    if name in vars(module):
                        yield f"{module.__name__}.{name}", vars(module)[name]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            yield from _codes(value)


def _is_of_library(file: str | None) -> bool:
    """Return whether a file is of Python, or of a package that was installed."""
    if file is None or file.startswith("<frozen"):
        return True
    file = os.path.realpath(file)
    return file.startswith((*_FOLDERS, _OURS)) or not _INSTALLED.isdisjoint(file.split(os.sep))


def _is_plain(value: object) -> bool:
    kind = type(value)
    if isinstance(value, dict):
        return kind is dict and len(value) <= _MANY and all(map(_is_plain, value.items()))
    if isinstance(value, (tuple, list, set, frozenset)):
        return kind in _COLLECTIONS and len(value) <= _MANY and all(map(_is_plain, value))
    return kind in _PLAIN


def _text_of(value: object) -> str:
    """Return a text of a plain value that is the same in each process."""
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(_text_of, value)))}}}"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_text_of, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_text_of(k)}: {_text_of(v)}' for k, v in value.items())}}}"
    if isinstance(value, types.CodeType):
        return _text_of_code(value, None)
    return repr(value)


def _text_of_function(function: types.FunctionType) -> str:
    given = (function.__defaults__ or (), function.__kwdefaults__ or {})
    defaults = [
        _text_of(value) if _is_plain(value) else type(value).__qualname__ for value in given
    ]
    return f"{_text_of_code(function.__code__, function.__doc__)} {defaults}"


def _text_of_code(code: types.CodeType, doc: str | None) -> str:
    constants = code.co_consts
    if doc is not None and constants and constants[0] == doc:
        constants = constants[1:]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    # In the bytecode constants go by their place, which a text that is no code does not change.
    return f"{code.co_code.hex()} {names} {code.co_flags} {_text_of(constants)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _source_of(function: types.FunctionType) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError, SyntaxError):
        return ""
