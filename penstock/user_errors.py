"""What went wrong in the program's own functions, with the frames of the program only.

An error of a task reaches the driver as text: the worker's traceback among hundreds of lines of
Java. An error of a function in the driver comes with the frames of its caller.
"""

from __future__ import annotations

import os
import re
import traceback
from types import TracebackType
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from penstock.errors import PenstockError, text_of

_TRACEBACK = "Traceback (most recent call last):\n"
_FRAME = re.compile(r'  File "(?P<file>[^"]*)", line (?P<line>\d+), in (?P<function>.*)\n')
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}\s*$")
_MACHINERY = re.compile(r"[/\\](?:pyspark(?:\.zip)?|py4j(?:-[^/\\]*\.zip)?|penstock)[/\\]")
_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


class FailedTaskError(PenstockError):
    """A function of the program failed in a task of Spark.

    Attributes:
        what: The worker's error: its type and its text.
        frames: The worker's traceback, as far as it is the program's.
        error: What Spark raised in the driver; None in another process.
    """

    def __init__(self, what: str, frames: str, error: BaseException | None = None) -> None:
        super().__init__(f"{what}\n{frames.rstrip()}" if frames else what)
        self.what = what
        self.frames = frames
        self.error = error

    def __reduce__(self) -> tuple[Any, ...]:
        # What Spark raised belongs to this process: it leads into the JVM.
        make, arguments, attributes = super().__reduce__()
        return make, arguments, {**attributes, "error": None}


def as_user_sees_it(error: BaseException) -> BaseException:
    """Return the error without the frames of Penstock, PySpark and Java, as far as it has others.

    Errors of tasks become a `FailedTaskError`; others are returned as they are.
    """
    trimmed = _own_frames(error.__traceback__)
    if isinstance(error, (Py4JJavaError, PySparkException)):
        found = worker_error(text_of(error))
        if found is not None:
            return FailedTaskError(*found, error).with_traceback(trimmed)
    return error.with_traceback(trimmed) if trimmed is not None else error


def place_of(error: BaseException) -> str:
    """Return where in the program an error came from, such as `` (program.py:7 in parse)``."""
    if isinstance(error, FailedTaskError):
        frames = list(_FRAME.finditer(error.frames))
        if not frames:
            return ""
        last = frames[-1]
        return f" ({last['file']}:{last['line']} in {last['function']})"
    entries = traceback.extract_tb(error.__traceback__)
    theirs = [entry for entry in entries if not _is_machinery(entry.filename)]
    if not theirs:
        return ""
    return f" ({theirs[-1].filename}:{theirs[-1].lineno} in {theirs[-1].name})"


def _is_machinery(file: str) -> bool:
    return file.startswith(_OURS) or _MACHINERY.search(file) is not None


def _own_frames(trace: TracebackType | None) -> TracebackType | None:
    frames = []
    while trace is not None:
        if not _is_machinery(trace.tb_frame.f_code.co_filename):
            frames.append(trace)
        trace = trace.tb_next
    own: TracebackType | None = None
    for found in reversed(frames):
        own = TracebackType(own, found.tb_frame, found.tb_lasti, found.tb_lineno)
    return own


def worker_error(text: str) -> tuple[str, str] | None:
    """Return what a worker's error says, and its frames in the program."""
    begin = text.rfind(_TRACEBACK)
    if begin < 0:
        return None
    body = text[begin + len(_TRACEBACK) :]
    # The stack of Java comes after it.
    body = re.split(r"\n\s*\n?\tat |\n\nDriver stacktrace:|\nJVM stacktrace:", body, maxsplit=1)[0]
    frames: list[tuple[str, str]] = []
    last = 0
    matches = list(_FRAME.finditer(body))
    for match, following in zip(matches, [*matches[1:], None], strict=True):
        end = following.start() if following is not None else _end_of_frame(body, match.end())
        frames.append((match["file"], body[match.start() : end]))
        last = end
    what = _SQLSTATE.sub("", body[last:]).strip()
    own = [lines for file, lines in frames if not _is_machinery(file)]
    return what, "".join(own)


def _end_of_frame(body: str, at: int) -> int:
    """Return the end of the source lines of a frame, which are indented further than it."""
    while body.startswith("    ", at):
        end = body.find("\n", at)
        if end < 0:
            return len(body)
        at = end + 1
    return at
