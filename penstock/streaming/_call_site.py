"""Where in the user's program a stream's operation was called, for names that people recognise."""

from __future__ import annotations

import os
import sys
import traceback
from types import FrameType

_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep


def made_by() -> str:
    """Return the operation of a stream that is being called, and where: ``map at program.py:12``.

    The operation is the outermost function of this room below the program's frame.
    """
    frame: FrameType | None = sys._getframe(1)
    name = ""
    while frame is not None and frame.f_code.co_filename.startswith(_OWN_FOLDER):
        name = frame.f_code.co_name
        frame = frame.f_back
    if frame is None:
        return name
    return f"{name} at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def call_site(operation: str) -> tuple[str, str]:
    """Return a short and a long description of the call to `operation`.

    The short one is ``foreachRDD at program.py:12``, the long one is the stack, innermost first,
    from the program's frame on.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN_FOLDER):
        frame = frame.f_back
    if frame is None:
        return operation, operation
    lines = [
        f"{entry.name} at {os.path.basename(entry.filename)}:{entry.lineno}"
        for entry in reversed(traceback.extract_stack(frame, limit=10))
    ]
    place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
    return f"{operation} at {place}", "\n".join(lines)
