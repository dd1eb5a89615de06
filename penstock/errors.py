"""The errors of Penstock: one small tree, the facts as attributes and in the message.

Every error that Penstock raises on purpose is a `PenstockError`. Each room adds its own
below it, next to the code that raises them (`penstock.wal.WalError`, `penstock.wire.WireError`,
…). A message names the thing that failed and the way out.
"""

from __future__ import annotations

from typing import Any


class PenstockError(Exception):
    """Base class of every error that Penstock raises on purpose.

    It is pickled with its message and attributes, and unpickled without its constructor: that of a
    subclass may take whatever it needs to make them of.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.args), vars(self)


def _unpickled(kind: type[PenstockError], arguments: tuple[Any, ...]) -> PenstockError:
    error = kind.__new__(kind, *arguments)
    # That of the built-in error: of `ImportError`, for example, it sets the message.
    super(PenstockError, error).__init__(*arguments)
    return error


class IllegalStateError(PenstockError):
    """An operation was called in a state that does not allow it."""


class StreamGraphError(PenstockError, ValueError):
    """The streams of a program do not make up a graph that can run."""


class SettingError(PenstockError, ValueError):
    """A setting has an unknown key or a value that is not accepted.

    Attributes:
        key: The configuration key, for example ``spark.streaming.blockInterval``.
        value: The value that was found, as text.
        accepted: What would have been accepted, in words.
    """

    def __init__(self, key: str, value: str, accepted: str) -> None:
        super().__init__(f"{key}={value!r} is not accepted: {accepted}")
        self.key = key
        self.value = value
        self.accepted = accepted


class MissingPackageError(PenstockError, ImportError):
    """What was asked for needs packages that are not installed.

    Attributes:
        what: What was asked for.
        packages: What it needs, and where.
        extra: The extra of the package ``penstock`` that has them.
    """

    def __init__(self, what: str, packages: str, extra: str, otherwise: str = "") -> None:
        super().__init__(f"{what} needs {packages}: pip install 'penstock[{extra}]'{otherwise}")
        self.what = what
        self.packages = packages
        self.extra = extra


def text_of(error: BaseException) -> str:
    """Return what an error says; never raises, though the error may be a program's own.

    Its ``__str__`` may raise or return no text, and the text may hold what no encoding has.
    """
    try:
        return encodable(str(error))
    except BaseException as failure:  # noqa: BLE001  # the program's, also SystemExit
        return f"(its text cannot be shown: {type(failure).__name__} in __str__)"


def typed_text(error: BaseException) -> str:
    """Return the type of an error, and what it says; never raises."""
    return f"{type(error).__name__}: {text_of(error)}"


def encodable(text: str) -> str:
    """Return a text that can be written and sent: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
