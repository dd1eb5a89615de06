"""Short forms of a receiver: a generator function, or a class with `run`.

`as_receiver` turns each of them into a `Receiver`; the decorator `receiver` declares what a
subclass would set as attributes. How each form is run stands in `forms`.
"""

from __future__ import annotations

import copy
import dis
import functools
import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, overload

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import as_storage_level, check_flag, check_share, refused
from penstock.errors import PenstockError
from penstock.receiver.base import Receiver
from penstock.receiver.blocks.intake import check_policy
from penstock.receiver.forms.function_receivers import FunctionReceiver, RunReceiver
from penstock.receiver.splits import check_splits
from penstock.receiver.validation import check_validate

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger("penstock.receiver")

Schema: TypeAlias = "pa.Schema | StructType | str"

_ACCEPTED = (
    'a pyarrow.Schema, a pyspark.sql.types.StructType, or DDL such as "sensor STRING, value DOUBLE"'
)


def check_schema(schema: Any) -> None:
    """Check that a schema is of a type that is accepted; DDL is not read yet.

    Raises:
        TypeError: It is not.
    """
    if schema is None or isinstance(schema, (pa.Schema, str)):
        return
    from pyspark.sql.types import StructType

    if not isinstance(schema, StructType):
        raise TypeError(refused("schema", schema, _ACCEPTED))


def arrow_schema(schema: Any) -> pa.Schema | None:
    """Return a schema as Arrow has it. Reading DDL needs a SparkContext.

    Raises:
        TypeError: It is of another type.
        ValueError: The DDL cannot be read, a column has a type that Arrow does not have, or the
            columns have not one name each.
    """
    check_schema(schema)
    if schema is None:
        return None
    found = schema if isinstance(schema, pa.Schema) else _from_spark(schema)
    names: list[str] = found.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice or not names:
        reason = f"two columns have the name {twice[0]!r}" if twice else "it has no columns"
        raise ValueError(f"{refused('schema', schema, _ACCEPTED)} ({reason})")
    return found


def _from_spark(schema: StructType | str) -> pa.Schema:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from penstock.blockstore.arrow_frames import to_arrow_schema

    try:
        return to_arrow_schema(_from_ddl(schema) if isinstance(schema, str) else schema)
    except (PySparkException, Py4JJavaError) as error:
        # Without a SparkSession it is the JVM's own error, with fifty frames of it.
        java = getattr(error, "java_exception", None)
        text = str(error) if java is None else str(java.getMessage())
        reason = text.strip().splitlines()[0]
        if "SESSION_OR_CONTEXT_NOT_EXISTS" in reason:
            raise ValueError(
                f"schema={schema!r} cannot be read yet, as Spark reads DDL: make the SparkContext "
                "first, or give a pyarrow.Schema or a StructType, as in tests without Spark"
            ) from None
        raise ValueError(f"{refused('schema', schema, _ACCEPTED)} ({reason})") from None


def _from_ddl(text: str) -> StructType:
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(text)
    if not isinstance(found, StructType):
        # DDL such as "int" is one type without a name.
        raise ValueError(refused("schema", text, _ACCEPTED))
    return found


_DECLARED = "__penstock_receiver__"
_Declared = TypeVar("_Declared", bound=Callable[..., Any])
_Class = TypeVar("_Class")
_Arguments = ParamSpec("_Arguments")


class NotAReceiverError(PenstockError, TypeError):
    """An object was given as a receiver that has none of the accepted forms."""

    def __init__(self, found: object, detail: str) -> None:
        super().__init__(
            f"{found!r} is not a receiver: {detail}. Accepted are an instance of a subclass of "
            "penstock.receiver.Receiver; a generator function or async generator function that "
            "takes no argument or the context, and yields records, or another callable that "
            "returns what such a one returns; and a class, or an instance, with a method run() "
            "that takes no argument or the context. Other arguments are given by "
            "lambda ctx: source(ctx, ...), or by functools.partial"
        )
        self.found = repr(found)
        self.detail = detail


@dataclass(frozen=True)
class _Declaration:
    """What `receiver` was called with."""

    schema: Any = None
    storage_level: StorageLevel | None = None
    preferred_location: str | None = None
    positions: bool = False
    finite: bool = False
    is_reopened: bool = False
    validate: Callable[[Any], Any] | None = None
    when_full: str | None = None
    splits: Callable[[], Iterable[str]] | None = None
    slots: float | None = None


class _DeclaresPairs(Protocol):
    """Declares a source of pairs with positions, whose records have a type of their own."""

    @overload
    def __call__(self, source: type[_Class], /) -> type[_Class]: ...

    @overload
    def __call__(self, source: Callable[_Arguments, Any], /) -> Callable[_Arguments, Any]: ...


@overload
def receiver(source: _Declared, /) -> _Declared: ...


@overload
def receiver(
    *,
    schema: Schema | None = None,
    storageLevel: StorageLevel | str | None = None,
    preferredLocation: str | None = None,
    positions: Literal[True],
    finite: bool = False,
    restart: Literal["always"] | None = None,
    validate: Callable[[Any], Any] | None = None,
    whenFull: str | None = None,
    splits: Callable[[], Iterable[str]] | None = None,
    slots: float | None = None,
) -> _DeclaresPairs: ...


@overload
def receiver(
    *,
    schema: Schema | None = None,
    storageLevel: StorageLevel | str | None = None,
    preferredLocation: str | None = None,
    positions: Literal[False] = False,
    finite: bool = False,
    restart: Literal["always"] | None = None,
    validate: Callable[[Any], Any] | None = None,
    whenFull: str | None = None,
    splits: Callable[[], Iterable[str]] | None = None,
    slots: float | None = None,
) -> Callable[[_Declared], _Declared]: ...


def receiver(
    source: Any = None,
    /,
    *,
    schema: Schema | None = None,
    storageLevel: StorageLevel | str | None = None,
    preferredLocation: str | None = None,
    positions: bool = False,
    finite: bool = False,
    restart: Literal["always"] | None = None,
    validate: Callable[[Any], Any] | None = None,
    whenFull: str | None = None,
    splits: Callable[[], Iterable[str]] | None = None,
    slots: float | None = None,
) -> Any:
    """Declare how a generator function, or a class with `run`, is to be run as a receiver.

    ::

        @receiver(positions=True)
        def orders(ctx):
            for message in log.read(after=ctx.last_position):
                yield message.value, message.offset

        ssc.receiverStream(orders)

    Args:
        source: The function, class or object, when used without parentheses. It is left as it is;
            what is returned is like it, can be called and tested as before, and has what was
            declared. So one function can be declared twice.
        schema: Every record must fit this schema: a `pyarrow.Schema`, a `StructType`, or DDL such
            as ``"sensor STRING, value DOUBLE"``.
        storageLevel: Which copies of a block must exist, or the level's name; as for `Receiver`.
        preferredLocation: Host, or ``executor_<host>_<executor id>``, to run on.
        positions: Everything that is yielded is a pair ``(records, position)``. Without it a
            yielded pair is a record like any other.
        finite: The source may end: that is no warning.
        restart: ``"always"``: when the source ends, it is opened again, after
            ``spark.streaming.receiverRestartDelay``. None: the stream goes on without it.
        validate: Called with each record, or with each Arrow batch, before it is taken: a record
            for which it raises or returns False is discarded and kept as a dead letter; see
            `Receiver.validate`.
        whenFull: What becomes of records that come faster than they pass; see `Receiver.whenFull`.
        splits: Returns the names of the parts of the source, which the receivers of the stream
            share; see `Receiver.splits`.
        slots: How much of a Spark task it takes, such as 0.1; see `Receiver.slots`.

    Raises:
        TypeError: An argument is of a type that is not accepted.
        ValueError: There is no storage level, or policy, of that name.
    """
    check_schema(schema)
    check_flag(positions, "positions")
    check_flag(finite, "finite")
    if restart not in (None, "always"):
        raise ValueError(refused("restart", restart, '"always" or None'))
    if finite and restart:
        raise ValueError('finite=True and restart="always" contradict each other')
    if preferredLocation is not None and not isinstance(preferredLocation, str):
        raise TypeError(refused("preferredLocation", preferredLocation, "a host's name as text"))
    check_validate(validate)
    check_policy(whenFull)
    check_splits(splits)
    check_share(slots, "slots")
    level = None if storageLevel is None else as_storage_level(storageLevel)
    declaration = _Declaration(
        *(schema, level, preferredLocation, positions, finite, restart == "always", validate),
        whenFull,
        splits,
        slots,
    )

    def declare(declared: _Declared) -> _Declared:
        like: _Declared = _like(declared, declaration)
        return like

    return declare if source is None else declare(source)


def _like(source: Any, declaration: _Declaration) -> Any:
    """Return what is like `source` and has a declaration."""
    if isinstance(source, type):
        body = {
            "__module__": source.__module__,
            "__qualname__": source.__qualname__,
            "__doc__": source.__doc__,
            _DECLARED: declaration,
        }
        return type(source)(source.__name__, (source,), body)
    if inspect.ismethod(source) or inspect.isbuiltin(source):
        like: Any = functools.partial(source)
    elif inspect.isfunction(source):
        like = FunctionType(
            source.__code__,
            source.__globals__,
            source.__name__,
            source.__defaults__,
            source.__closure__,
        )
        like.__kwdefaults__ = source.__kwdefaults__
        functools.update_wrapper(like, source)
        del like.__wrapped__
    else:
        like = copy.copy(source)
    try:
        setattr(like, _DECLARED, declaration)
    except AttributeError:
        raise NotAReceiverError(source, f"it is {type(source).__name__!r}") from None
    return like


def as_receiver(source: object, storageLevel: StorageLevel | str | None = None) -> Receiver:
    """Return `source` as a `Receiver`; see `NotAReceiverError` for what it may be.

    **A generator function** runs in a thread of its own. What it yields is stored: one record, or
    many (a `list`, a `pyarrow.RecordBatch` or `Table`), or with ``@receiver(positions=True)``
    pairs of these and a position. While the rate limiter or the queue of blocks makes it wait, it
    is not resumed. When it returns, the source has ended: what it yielded is made durable, and the
    stream goes on without this receiver, which is a warning unless it is declared
    (``finite=True``, or ``restart="always"`` to have it called again). When it raises, the error is
    reported, and it is called again after the restart delay. At a stop it is closed
    (`GeneratorExit` at its ``yield``); one that is blocked in a read is left behind after a few
    seconds, with a message that names it.

    **An async generator function** runs on an event loop of its own, or of all receivers that share
    its process; storing never blocks it. At a stop it is cancelled where it waits.

    **Another callable** is called like these, and what it returns is stored: a generator, an async
    generator or another iterator. So ``lambda ctx: source(ctx, url)`` gives a generator function
    more arguments.

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
        TypeError: It is a `Receiver` that is not complete.
        TypeError, ValueError: Its schema or its storage level is not accepted.
    """
    if isinstance(source, Receiver):
        _check_methods(source)
        level = as_storage_level(source.storageLevel)
        if level is not source.storageLevel:
            source.storageLevel = level
        if source.schema is not None:
            source.schema = arrow_schema(source.schema)
        check_validate(source.validate)
        check_policy(source.whenFull)
        check_splits(source.splits)
        check_share(source.slots, "slots")
        return source
    given = None if storageLevel is None else as_storage_level(storageLevel)
    declaration = getattr(source, _DECLARED, None) or _Declaration()
    made = _make(source, declaration)
    made.schema = arrow_schema(declaration.schema)
    made.storageLevel = declaration.storage_level or given or made.storageLevel
    made.location = declaration.preferred_location
    made.validate = declaration.validate
    made.whenFull = declaration.when_full
    made.splits = declaration.splits
    made.slots = declaration.slots
    made._is_reliable = declaration.positions
    made.is_finite = declaration.finite
    made.is_reopened = declaration.is_reopened
    return made


def _check_methods(source: Receiver) -> None:
    """Refuse a receiver that lacks a method which each subclass must define."""
    for method in (Receiver.onStart, Receiver.onStop):
        name = method.__name__
        if getattr(getattr(source, name), "__func__", None) is not method:
            continue
        names = dir(source)
        like = tuple(other for other in names if other.lower() == name.lower() and other != name)
        raise TypeError(
            f"{type(source).__name__} must define {name}(), as each subclass of "
            "penstock.receiver.Receiver does"
            + "".join(f"; {other}() is another method" for other in like)
        )


def _make(source: Any, declaration: _Declaration) -> FunctionReceiver | RunReceiver:
    if isinstance(source, type) and issubclass(source, Receiver):
        raise NotAReceiverError(source, f"it is a class; give an instance: {source.__name__}(…)")
    if hasattr(source, "run"):
        if not callable(source.run):
            raise NotAReceiverError(source, "its attribute run is not a method")
        if declaration.positions and not _yields(source.run):
            raise NotAReceiverError(
                source, "positions=True needs a run() that yields; else store(…, position) it"
            )
        if isinstance(source, type):
            _check_constructor(source)
        _warn_of_schema(source, declaration)
        takes_context = _takes_context(source, source.run, bound=not isinstance(source, type))
        return RunReceiver(source, takes_context, declaration.positions)
    if isinstance(source, (Generator, AsyncGenerator, Coroutine)):
        name = getattr(source, "__name__", "source")
        raise NotAReceiverError(source, f"it was called already; give {name}, without ()")
    if not callable(source):
        raise NotAReceiverError(source, f"it is {type(source).__name__!r}")
    if isinstance(source, type):
        raise NotAReceiverError(source, "it is a class without run()")
    function = _underlying(source)
    if inspect.isasyncgenfunction(function):
        kind = "async generator"
    elif inspect.isgeneratorfunction(function):
        kind = "generator"
    elif inspect.iscoroutinefunction(function):
        kind = "coroutine"
    elif _returns_nothing(function):
        raise NotAReceiverError(source, "it is a function without yield")
    else:
        kind = "function"
    return FunctionReceiver(source, _takes_context(source, source), declaration.positions, kind)


def _check_constructor(source: type) -> None:
    """Refuse a class that cannot be instantiated without arguments."""
    try:
        inspect.signature(source).bind()
    except TypeError as error:
        raise NotAReceiverError(
            source,
            f"its constructor cannot be called without arguments ({error}); give an instance",
        ) from None
    except ValueError:
        pass  # Its arguments cannot be known, as of some classes that are not Python's.


def _warn_of_schema(source: Any, declaration: _Declaration) -> None:
    """Report that an attribute is not the declaration that it looks like."""
    try:
        check_schema(schema := getattr(source, "schema", None))
    except TypeError:
        return  # Something of its own, of that name.
    name = getattr(source, "__name__", type(source).__name__)
    if schema is not None and declaration.schema is None:
        _log.warning(
            "the attribute schema of %s declares nothing, since it is no subclass of Receiver; "
            "@receiver(schema=...) declares the columns of its records",
            name,
        )
    for attribute, declared in (
        ("whenFull", declaration.when_full),
        ("splits", declaration.splits),
    ):
        if getattr(source, attribute, None) is not None and declared is None:
            _log.warning(
                "the attribute %s of %s declares nothing, since it is no subclass of Receiver; "
                "@receiver(%s=...) does",
                attribute,
                name,
                attribute,
            )


def _returns_nothing(function: Any) -> bool:
    """Whether a function of Python returns None wherever it returns."""
    if not inspect.isfunction(function):
        return False
    last = None
    for step in dis.get_instructions(function):
        if step.opname == "RETURN_VALUE" and (
            last is None or last.opname != "LOAD_CONST" or last.argval is not None
        ):
            return False
        if step.opname == "RETURN_CONST" and step.argval is not None:
            return False
        last = step
    return True


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
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        raise NotAReceiverError(source, "its arguments are not known") from None
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
