"""Functions that every word count has, recognised by their code.

`lambda word: (word, 1)` and `lambda a, b: a + b` are called once per word and do next to nothing:
the calls are what costs. `lambda line: line.split(" ")` can be done for many lines at once. A
function is taken for one of them only if it is a plain function whose
instructions are exactly these, so recognising it cannot change a result; one that is not
recognised is simply called.
"""

from __future__ import annotations

import dis
import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

__all__ = ["Split", "is_addition", "paired_constant", "split_of"]

_ADDITION = (lambda a, b: a + b).__code__
_NO_EFFECT = frozenset({"RESUME", "NOP", "CACHE", "PRECALL"})
_CONSTANTS = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})
_METHODS = frozenset({"LOAD_METHOD", "LOAD_ATTR"})
_CALLS = frozenset({"CALL", "CALL_METHOD"})
_OTHER_KINDS = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)


def is_addition(func: Callable[..., Any]) -> bool:
    """Return True when `func(a, b)` is ``a + b`` and nothing else."""
    if func is operator.add:
        return True
    code = _plain_code(func, arguments=2)
    return code is not None and code.co_code == _ADDITION.co_code


def paired_constant(func: Callable[..., Any]) -> int | None:
    """Return the int `n` when `func(x)` is ``(x, n)`` and nothing else, or None."""
    code = _plain_code(func, arguments=1)
    if code is None:
        return None
    steps = [step for step in dis.get_instructions(code) if step.opname not in _NO_EFFECT]
    names = tuple(step.opname for step in steps)
    if len(steps) != 4 or names[2:] != ("BUILD_TUPLE", "RETURN_VALUE"):
        return None
    load, constant, build, _ = steps
    if not load.opname.startswith("LOAD_FAST") or constant.opname not in _CONSTANTS:
        return None
    value = constant.argval
    return value if build.arg == 2 and type(value) is int else None


@dataclass(frozen=True)
class Split:
    """`str.split` with one argument or none.

    Attributes:
        separator: One ASCII character that is no line end; None for blanks of any kind.
    """

    separator: str | None


def split_of(func: Callable[..., Any]) -> Split | None:
    """Return how `func(line)` splits when it is ``line.split()`` or that with a character."""
    if func is str.split:
        return Split(None)
    code = _plain_code(func, arguments=1)
    if code is None:
        return None
    steps = [step for step in dis.get_instructions(code) if step.opname not in _NO_EFFECT]
    if len(steps) not in (4, 5):
        return None
    load, method, *constants, call, end = steps
    if not (
        load.opname.startswith("LOAD_FAST")
        and method.opname in _METHODS
        and method.argval == "split"
        and call.opname in _CALLS
        and call.arg == len(constants)
        and end.opname == "RETURN_VALUE"
    ):
        return None
    if not constants:
        return Split(None)
    separator = constants[0].argval
    if constants[0].opname not in _CONSTANTS or type(separator) is not str:
        return None
    # More characters could begin at the end of one line and go on in the next.
    known = len(separator) == 1 and separator.isascii() and separator != "\n"
    return Split(separator) if known else None


def _plain_code(func: Callable[..., Any], arguments: int) -> CodeType | None:
    """Return the code of a Python function of just that many arguments that closes over nothing."""
    if not isinstance(func, FunctionType):
        return None
    code = func.__code__
    plain = (
        code.co_argcount == arguments
        and code.co_kwonlyargcount == 0
        and not code.co_flags & _OTHER_KINDS
        and not code.co_freevars
        and not code.co_cellvars
    )
    return code if plain else None
