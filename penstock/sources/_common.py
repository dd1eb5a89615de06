"""What sources of messages share: how they ask again after an outage, and what they store."""

from __future__ import annotations

import importlib.util
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Protocol, TypeVar

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import refused
from penstock.errors import MissingPackageError, PenstockError, text_of
from penstock.receiver import (
    ReceiverContext,
    ReceiverStoppedError,
    RecordTooLargeError,
    WithLetters,
)
from penstock.receiver.forms.threaded import ThreadedReceiver
from penstock.runtime.backoff import Backoff
from penstock.sources.formats import ValueFormat
from penstock.worker import collect_less

T = TypeVar("T")

HEADERS = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])))
"""The column of a message's headers, which may have a name more than once."""

_FIRST_S = 0.1
_LONGEST_S = 30.0
_STEADY_S = 5.0
"""A connection that held that long ends an outage."""

_REFUSED_S = 30.0
"""The pause after what will not pass by itself, such as a wrong password."""

_MOST_AT_ONCE = 10_000

_log = logging.getLogger("penstock.sources")


def check_installed(package: str, what: str, extra: str) -> None:
    """Check in the driver that a source's client can be imported.

    Args:
        package: The package, as it is imported.
        what: The source, for people: ``"a RedisListReceiver"``.
        extra: The extra of ``penstock`` that has it.

    Raises:
        MissingPackageError: It is not installed.
    """
    if importlib.util.find_spec(package) is None:
        packages = f"the package {package} on the driver and on every executor"
        raise MissingPackageError(what, packages, extra)


class SourceReceiver(ThreadedReceiver):
    """A receiver of this room that needs a client.

    Args:
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: The client is not installed.
    """

    extra: ClassVar[str]
    """The extra of ``penstock`` that has what it requires."""
    STOP_BOUND_S: ClassVar[float | None] = 4.0

    def __init__(self, storageLevel: StorageLevel | str | None) -> None:
        super().__init__(storageLevel)
        for package in self.requires:
            check_installed(package, f"a {type(self).__name__}", self.extra)

    def _run(self, context: ReceiverContext) -> None:
        # Messages wait by the thousands, and the collector would look through all of them.
        collect_less()
        super()._run(context)


def as_records(found: Any) -> list[bytes]:
    """Return what a user's function made of a message or a body.

    Raises:
        TypeError: These are no records; also one alone, whose characters would be taken for them.
    """
    records = [] if isinstance(found, (bytes, str)) else list(found)
    if isinstance(found, (bytes, str)) or not set(map(type, records)) <= {bytes}:
        raise TypeError(f"the function returns a list of bytes, and not {found!r:.80}")
    return records


class ServerError(PenstockError):
    """A server does not give what is asked of it, or cannot be reached; it is asked again.

    Attributes:
        code: Its number of the error; 0 where it has none.
        is_refused: The server refuses it; asking again soon does not help.
    """

    def __init__(self, message: str, code: int = 0, *, is_refused: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_refused = is_refused


class Reconnecting:
    """Says how long to wait before a server is asked again, and reports each outage once.

    An outage ends when a connection has held for some seconds. Within one, an error is reported
    again only if it is another: a refused password after a refused connection.

    Args:
        report: `Receiver.reportError`.
        server: Names the server for people, without secrets: ``"MQTT broker at host:1883"``.
    """

    def __init__(self, report: Callable[[str, BaseException], None], server: str) -> None:
        self._report = report
        self._server = server
        self._backoff = Backoff(_FIRST_S, _LONGEST_S)
        self._connected_s: float | None = None
        self._reported: set[str] = set()

    def connected(self) -> None:
        """Take note of a connection on which the server does what it is asked for."""
        self._connected_s = time.monotonic()
        if self._reported:
            _log.info("Connected to the %s again", self._server)

    def run(
        self,
        serve: Callable[[], object],
        stopped: threading.Event,
        errors: tuple[type[Exception], ...],
    ) -> None:
        """Call a function again and again, with a pause after each of some errors, until a stop."""
        with suppress(ReceiverStoppedError):
            while not stopped.is_set():
                try:
                    serve()
                except errors as error:
                    if stopped.is_set():
                        return
                    stopped.wait(self.failed(error))

    def failed(self, error: BaseException) -> float:
        """Report an error unless it is known, and return how many seconds to wait."""
        if self._connected_s is not None:
            if time.monotonic() - self._connected_s >= _STEADY_S:
                self._backoff.reset()
                self._reported.clear()
            self._connected_s = None
        why = text_of(error) or type(error).__name__
        is_refused = isinstance(error, ServerError) and error.is_refused
        if why not in self._reported:
            self._reported.add(why)
            when = f" every {_REFUSED_S:g} s" if is_refused else ""
            self._report(f"The {self._server} is asked again{when}, after: {why}", error)
        if is_refused:
            return _REFUSED_S
        # So that many receivers do not come back at the same moment.
        return self._backoff.next_s() * random.uniform(0.5, 1.0)


class Storing(Protocol):
    """A `Receiver`, or the context of a short form."""

    @property
    def store(self) -> Callable[..., Any]: ...


class Messages:
    """Stores the messages of a source as its user asked for.

    ================  ==========================  =============================================
    columns, values   stored is                   what `values` cannot read
    ================  ==========================  =============================================
    False, None       the payload, as `bytes`     nothing: none is read
    False, a format   its fields, as columns      is a dead letter
    True, None        the envelope, and `value`   nothing
    True, a format    the same; `value` typed     is a dead letter
    ================  ==========================  =============================================

    Args:
        envelope: What a message has beside its payload.
        columns: Whether the envelope is stored.
        values: Makes typed values of payloads.

    Raises:
        TypeError: `values` is no format.
    """

    def __init__(
        self, envelope: pa.Schema, *, columns: bool = False, values: ValueFormat | None = None
    ) -> None:
        given: object = values
        if given is not None and not isinstance(given, ValueFormat):
            accepted = "a format of penstock.sources.formats, such as JsonFormat(schema)"
            raise TypeError(refused("values", values, accepted))
        self._names = envelope.names if columns else []
        self._values = values
        self.schema: pa.Schema | None = None
        """For `Receiver.schema`; None where payloads are stored as they are."""
        if columns:
            kind = pa.binary() if values is None else values.type
            self.schema = envelope.append(pa.field("value", kind))
        elif values is not None:
            self.schema = pa.schema(list(values.type))

    @property
    def has_envelope(self) -> bool:
        """Whether the envelope is stored."""
        return bool(self._names)

    def store(
        self,
        to: Storing,
        payloads: Sequence[bytes],
        envelope: Mapping[str, Sequence[Any]],
        position: Any = None,
        ack: Callable[[], None] | None = None,
        letters: Sequence[tuple[Any, str]] = (),
    ) -> Any:
        """Store messages; position and acknowledgement are for all of them.

        Args:
            to: What they are stored to.
            payloads: The messages.
            envelope: A value of each message for each field.
            position: As for `Receiver.store`.
            ack: As for `Receiver.store`.
            letters: What the source could not read: dead letters, each with its reason.

        Returns:
            What ``to.store`` does: on an event loop an awaitable.
        """
        if self.schema is None:
            records = list(payloads)
            return to.store(WithLetters(records, letters) if letters else records, position, ack)
        data = pa.array(payloads, pa.binary())
        rows = None
        if self._values is not None:
            read = self._values.read(data)
            if read.errors.null_count < len(read.errors):
                rows = read.errors.is_null()
                why = read.errors.drop_null().to_pylist()
                bad = read.corrupt.drop_null().to_pylist()
                letters = [*letters, *zip(bad, why, strict=True)]
            data = read.values
        if self._names:
            columns = [
                pa.array(envelope[name], self.schema.field(name).type) for name in self._names
            ]
            batch = pa.RecordBatch.from_arrays([*columns, data], schema=self.schema)
        else:
            batch = pa.RecordBatch.from_struct_array(data)
        if rows is not None:
            batch = batch.filter(rows)
        return to.store(WithLetters(batch, letters) if letters else batch, position, ack)


def in_halves(store: Callable[[list[T]], object], messages: list[T]) -> None:
    """Store messages; where they do not fit into one block together, each half by itself.

    Raises:
        RecordTooLargeError: One does not fit alone.
    """
    try:
        store(messages)
    except RecordTooLargeError:
        if len(messages) == 1:
            raise
        half = len(messages) // 2
        in_halves(store, messages[:half])
        in_halves(store, messages[half:])


class Pace:
    """How many messages are asked for at once: about that many bytes of them.

    Args:
        size: The bytes.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.count = 16

    def note(self, number: int, size: int, most: int) -> None:
        """Take note of what came, and of how many may be asked for at most."""
        if size > self._size:
            self.count = max(1, number * self._size // size)
        elif number >= self.count and 2 * size <= self._size:
            self.count = min(2 * self.count, most, _MOST_AT_ONCE)
