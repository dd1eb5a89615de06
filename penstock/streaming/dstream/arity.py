"""With or without the batch time: how many arguments a user's function wants.

PySpark looks at ``func.__code__.co_argcount``, which fails for partials and callable objects and
counts `self` of a bound method. Plain functions are counted as in PySpark (defaults also count, so
that programs keep their meaning); everything else by its signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from types import FunctionType
from typing import Any

TimedFunction = Callable[..., Any]
"""A function of the batch time (`datetime`) and one or more RDDs."""


class _WithoutTime:
    """A function that does not want the batch time; a class, so that it can be pickled."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self.func = func

    def __call__(self, _: datetime, *rdds: Any) -> Any:
        return self.func(*rdds)


def with_time(func: Callable[..., Any], rdds: int) -> TimedFunction:
    """Return `func` as a function of the batch time and `rdds` RDDs.

    Raises:
        TypeError: It is not callable, or takes neither `rdds` nor `rdds` + 1 arguments.
    """
    if not callable(func):
        raise TypeError(f"a function is needed, not {type(func).__name__}")
    count = _argument_count(func, rdds)
    if count == rdds + 1:
        return func
    if count == rdds:
        return _WithoutTime(func)
    words = {1: "one or two arguments", 2: "two or three arguments", 3: "three or four arguments"}
    raise TypeError(
        f"func={_shown(func)} is not accepted: func should take "
        f"{words.get(rdds, f'{rdds} or {rdds + 1} arguments')}"
    )


def check_arguments(func: Any, what: str, count: int, name: str = "func") -> None:
    """Check that a function can be called with `count` arguments, which are `what`.

    Args:
        func: Which.
        what: The arguments, in words.
        count: Their number.
        name: The parameter that it was given as.

    Raises:
        TypeError: It cannot, or it is no function.
    """
    if not callable(func):
        raise TypeError(f"a function is needed, not {type(func).__name__}")
    try:
        signature = inspect.signature(func)
    except (TypeError, ValueError):
        return  # A builtin without a signature, or an object whose signature is nonsense.
    try:
        signature.bind(*range(count))
    except TypeError:
        arguments = "argument" if count == 1 else "arguments"
        raise TypeError(
            f"{name}={_shown(func)} is not accepted: it is called with {count} {arguments}, {what}"
        ) from None


def check_runs(func: Any) -> None:
    """Check that a call runs the function; what an ``async def`` or a ``yield`` returns would not.

    Raises:
        TypeError: It does not.
    """
    for called in (func, getattr(func, "__call__", None)):  # noqa: B004
        if inspect.iscoroutinefunction(called):
            hint = "is async; take a plain function, which may call asyncio.run"
        elif inspect.isgeneratorfunction(called) or inspect.isasyncgenfunction(called):
            hint = "has a yield, so that a call would run nothing of it; take a plain function"
        else:
            continue
        raise TypeError(f"func={_shown(func)} is not accepted: it {hint}")


def _shown(func: Callable[..., Any]) -> str:
    return f"{getattr(func, '__name__', type(func).__name__)}{inspect.signature(func)}"


def _argument_count(func: Callable[..., Any], rdds: int) -> int:
    if isinstance(func, FunctionType) and not func.__code__.co_flags & inspect.CO_VARARGS:
        count = func.__code__.co_argcount
        if count <= rdds + 1:
            return count
        return count - len(func.__defaults__ or ())
    try:
        parameters = inspect.signature(func).parameters.values()
    except ValueError:
        return rdds  # A builtin without a signature, such as `print`: it gets the RDD.
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return max(required, rdds)
    return required if required in (rdds, rdds + 1) else min(len(positional), rdds + 1)
