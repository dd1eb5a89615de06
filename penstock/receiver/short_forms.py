"""Short forms of a receiver: a generator function, or a class with `run`.

`as_receiver` turns each of them into a `Receiver`; the decorator `receiver` declares what a
subclass would set as attributes. How each form is run stands in `_generator_forms` and
`_run_form`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pyspark import StorageLevel

from penstock.errors import PenstockError
from penstock.receiver._generator_forms import AsyncGeneratorReceiver, GeneratorReceiver
from penstock.receiver._receiver import Receiver
from penstock.receiver._run_form import RunReceiver

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["NotAReceiverError", "as_receiver", "receiver"]

_DECLARED = "__penstock_receiver__"
_Declared = TypeVar("_Declared", bound=Callable[..., Any])


class NotAReceiverError(PenstockError, TypeError):
    """An object was given as a receiver that has none of the accepted forms."""

    def __init__(self, found: object, detail: str) -> None:
        super().__init__(
            f"{found!r} is not a receiver: {detail}. Accepted are an instance of a subclass of "
            "penstock.receiver.Receiver; a generator function or async generator function that "
            "takes no argument or the context, and yields records; and a class, or an instance, "
            "with a method run() that takes no argument or the context"
        )
        self.found = repr(found)
        self.detail = detail

    def __reduce__(self) -> tuple[type[NotAReceiverError], tuple[str, str]]:
        return type(self), (self.found, self.detail)


@dataclass(frozen=True)
class _Declaration:
    """What `receiver` was called with."""

    schema: pa.Schema | None = None
    storage_level: StorageLevel | None = None
    preferred_location: str | None = None
    positions: bool = False


@overload
def receiver(source: _Declared, /) -> _Declared: ...


@overload
def receiver(
    *,
    schema: pa.Schema | None = None,
    storageLevel: StorageLevel | None = None,
    preferredLocation: str | None = None,
    positions: bool = False,
) -> Callable[[_Declared], _Declared]: ...


def receiver(
    source: Any = None,
    /,
    *,
    schema: pa.Schema | None = None,
    storageLevel: StorageLevel | None = None,
    preferredLocation: str | None = None,
    positions: bool = False,
) -> Any:
    """Declare how a generator function, or a class with `run`, is to be run as a receiver.

    ::

        @receiver(positions=True)
        def orders(ctx):
            for message in log.read(after=ctx.last_position):
                yield message.value, message.offset

        ssc.receiverStream(orders)

    Args:
        source: The function or class, when used without parentheses. It is returned as it is, and
            can be called and tested as before.
        schema: Every record must fit this Arrow schema.
        storageLevel: Which copies of a block must exist; as for `Receiver`.
        preferredLocation: Host, or ``executor_<host>_<executor id>``, to run on.
        positions: Everything that is yielded is a pair ``(records, position)``. Without it a
            yielded pair is a record like any other.
    """
    declaration = _Declaration(schema, storageLevel, preferredLocation, positions)

    def declare(declared: _Declared) -> _Declared:
        setattr(declared, _DECLARED, declaration)
        return declared

    return declare if source is None else declare(source)


def as_receiver(source: object, storageLevel: StorageLevel | None = None) -> Receiver:
    """Return `source` as a `Receiver`; see `NotAReceiverError` for what it may be.

    **A generator function** runs in a thread of its own. What it yields is stored: one record, or
    many (a `list`, a `pyarrow.RecordBatch` or `Table`), or with ``@receiver(positions=True)``
    pairs of these and a position. While the rate limiter or the queue of blocks makes it wait, it
    is not resumed. When it returns, the source has ended: what it yielded is made durable, and the
    stream goes on without this receiver. When it raises, the error is reported, and it is called
    again after the restart delay. At a stop it is closed (`GeneratorExit` at its ``yield``); one
    that is blocked in a read is left behind after a few seconds, with a message that names it.

    **An async generator function** runs on an event loop of its own, which storing never blocks.
    At a stop it is cancelled where it waits.

    **A class with run()** runs it in a thread of its own. `run` may block, and stores with
    ``ctx.store`` (or ``self.store``, which is set if `run` takes no argument). When it returns the
    source has ended. `stop()`, or else `close()`, if it has one, is called at a stop, from another
    thread. A class, instead of an instance, is instantiated without arguments in the executor, so
    that its constructor may open what cannot be pickled. `run` may also be a generator.

    The argument ``ctx`` is a `ReceiverContext`.

    Args:
        source: What to run.
        storageLevel: Used unless the source declares its own.

    Raises:
        NotAReceiverError: It has none of the accepted forms.
    """
    if isinstance(source, Receiver):
        return source
    declaration = getattr(source, _DECLARED, None) or _Declaration()
    made = _make(source, declaration)
    made.schema = declaration.schema
    made.storageLevel = declaration.storage_level or storageLevel or made.storageLevel
    made.location = declaration.preferred_location
    return made


def _make(
    source: Any, declaration: _Declaration
) -> GeneratorReceiver | AsyncGeneratorReceiver | RunReceiver:
    if isinstance(source, type) and issubclass(source, Receiver):
        raise NotAReceiverError(source, f"it is a class; give an instance: {source.__name__}(…)")
    if hasattr(source, "run"):
        if not callable(source.run):
            raise NotAReceiverError(source, "its attribute run is not a method")
        if declaration.positions and not _yields(source.run):
            raise NotAReceiverError(
                source, "positions=True needs a run() that yields; else store(…, position) it"
            )
        takes_context = _takes_context(source, source.run, bound=not isinstance(source, type))
        return RunReceiver(source, takes_context, declaration.positions)
    if not callable(source):
        raise NotAReceiverError(source, f"it is {type(source).__name__!r}")
    function = _underlying(source)
    if inspect.isasyncgenfunction(function):
        return AsyncGeneratorReceiver(source, _takes_context(source, source), declaration.positions)
    if inspect.isgeneratorfunction(function):
        return GeneratorReceiver(source, _takes_context(source, source), declaration.positions)
    if isinstance(source, type):
        raise NotAReceiverError(source, "it is a class without run()")
    raise NotAReceiverError(source, "it is a function without yield")


def _underlying(source: Any) -> Any:
    """Return the function in a partial, or in an object that is callable."""
    while isinstance(source, functools.partial):
        source = source.func
    if inspect.isfunction(source) or inspect.ismethod(source) or isinstance(source, type):
        return source
    return getattr(source, "__call__", source)  # noqa: B004 - the method, not whether there is one


def _yields(function: Any) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _takes_context(source: object, function: Any, *, bound: bool = True) -> bool:
    """Whether `function` is to be given the context. `bound`: its ``self`` is not counted."""
    parameters = list(inspect.signature(function).parameters.values())
    if not bound:
        parameters = parameters[1:]
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(required) > 1 or any(item.kind is item.KEYWORD_ONLY for item in required):
        names = ", ".join(item.name for item in required)
        raise NotAReceiverError(source, f"it needs the arguments {names}")
    return bool(required)
