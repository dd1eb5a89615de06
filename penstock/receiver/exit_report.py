"""How an attempt ended, and its error as text."""

from __future__ import annotations

import enum
import os
import traceback
from dataclasses import dataclass

from penstock.errors import PenstockError, encodable, typed_text

TEXT_LIMIT = 32_000
"""Characters of a traceback that travel to the driver: far more than is read, far less than a
frame."""


_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""Where the files of this package are."""
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
"""Where the files of Python's own library are."""
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_PICKLER = os.path.join("cloudpickle", "cloudpickle.py")


class ExitKind(enum.Enum):
    """Why an attempt ended. The value completes "the receiver …"."""

    DRIVER = "was stopped by the driver"
    FINISHED = "reached the end of its source"
    REFUSED = "was refused by the driver"
    PERMANENT = "cannot be started, however often it is tried"
    RECEIVER = "stopped itself"
    FAILED = "failed"
    LOST = "lost the driver"

    @property
    def is_for_good(self) -> bool:
        """Whether the driver must not start another attempt because of it."""
        return self in (
            ExitKind.DRIVER,
            ExitKind.FINISHED,
            ExitKind.REFUSED,
            ExitKind.PERMANENT,
        )


@dataclass(frozen=True)
class ExitReport:
    """How an attempt ended."""

    kind: ExitKind
    message: str
    error: BaseException | None = None


class ReceiverFailedError(PenstockError):
    """An attempt ended in a way after which the driver starts another one.

    Attributes:
        stream_id: The stream.
        kind: What happened.
        detail: The message that went with it; the error itself is the cause.
    """

    def __init__(self, stream_id: int, kind: ExitKind, detail: str) -> None:
        super().__init__(f"receiver {stream_id} {kind.value}: {detail}")
        self.stream_id = stream_id
        self.kind = kind
        self.detail = detail


def described(error: BaseException) -> str:
    """Return the type of `error`, what it says, and where in the author's code it came from."""
    text = typed_text(error).removesuffix(": ")
    places = traceback.extract_tb(error.__traceback__)
    # A generator's StopIteration is the cause of an error that begins where it was called.
    causes = [] if error.__cause__ is None else traceback.extract_tb(error.__cause__.__traceback__)
    theirs = [place for place in (*causes, *places) if not _is_machinery(place.filename)]
    if not (theirs or places):
        return text
    # Where the library that it called raised says less: the traceback has that.
    own = [place for place in theirs if _is_own(place.filename)]
    place = (own or theirs or places)[-1]
    return f"{text} ({place.filename}:{place.lineno} in {place.name})"


def _is_machinery(filename: str) -> bool:
    return filename.startswith(_OURS) or filename.endswith(_PICKLER)


def _is_own(filename: str) -> bool:
    # Modules in Python itself are "<frozen importlib._bootstrap>" and the like.
    is_library = filename.startswith((_LIBRARY, "<frozen ")) or any(
        name in filename for name in _PACKAGES
    )
    return not (is_library or _is_machinery(filename))


def error_text(error: BaseException | None) -> str:
    """Return the traceback of `error` as text that fits into a message; empty for None.

    It begins with the author's code, not with what called that.
    """
    if error is None:
        return ""
    trace = error.__traceback__
    while trace is not None and not _is_own(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    lines = traceback.format_exception(type(error), error, trace or error.__traceback__)
    text = encodable("".join(lines))
    if len(text) <= TEXT_LIMIT:
        return text
    half = TEXT_LIMIT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
