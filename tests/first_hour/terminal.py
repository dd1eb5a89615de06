"""What a terminal showed, without what differs from run to run and from machine to machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

__all__ = ["as_read"]

_FRAME = re.compile(r'^  File "(?P<path>[^"]+)", line \d+')
_PACKAGE = re.compile(r"(?:.*/)?(penstock|pyspark|py4j|pyarrow)/.*\.(?:py|pxi)$")
_LIBRARY = re.compile(r".*/lib/python[0-9.]+/|<frozen ")
_MARKS = re.compile(r"^\s*[~^]+\s*$")
_LEFT_OUT = re.compile(
    r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (INFO|WARN) |WARNING: Using incubator modules|"
    r"Using Spark's default log4j|Setting default log level|To adjust logging level|"
    # A progress bar; and a cluster in this one process that ends while it starts executors.
    r"\[Stage \d+:|"
    r"\d\d/\d\d/\d\d [\d:]+ ERROR (Worker|TaskSchedulerImpl|TransportRequestHandler|Inbox): |"
    r"java\.lang\.IllegalStateException: Shutdown hooks |\tat |Caused by: |"
    r"java\.util\.concurrent\.RejectedExecutionException: |"
    r"org\.apache\.spark\.SparkException: Could not find AppClient|"
    # That the machine is slow says nothing of the program.
    r"\d+ batches wait to be processed: "
)

_SAME = (
    (re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?"), "<time>"),
    (re.compile(r"\b1[0-9]{12}\b"), "<milliseconds>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"\b0x[0-9a-f]+\b"), "0x…"),
    (re.compile(r"\blocal-\d{13}\b"), "<application>"),
    (re.compile(r"\b(127\.0\.0\.1|localhost):\d{4,5}\b"), r"\1:<port>"),
    (re.compile(r"\bon host \S+"), "on host <host>"),
    (re.compile(r"\bPython \d+\.\d+(\.\d+)?"), "Python <version>"),
    (re.compile(r"… \d+ times in the last .*$"), "… several times in the last minute"),
    (re.compile(r"\((\w+\.py):\d+\)"), r"(\1:<line>)"),
)


def as_read(text: str, places: Mapping[str, str]) -> str:
    """Return what a person reads in it.

    What Spark says at its start is left out, with its log lines of levels INFO and WARN, its
    progress bar and what a local cluster says at its end; and so are warnings that the machine is
    slow, the marks below the lines of a traceback, which some versions of Python make, empty lines
    behind a command, and all but one of several others. Frames in a row that are a package's are
    one line, those of Python's own library none. `places` has folders of this run, with what stands
    for them.
    """
    lines: list[str] = []
    for line in _folded(text.replace("\r", "\n").split("\n")):
        if _LEFT_OUT.match(line) or _MARKS.match(line):
            continue
        if not line.strip() and lines and (not lines[-1] or lines[-1].startswith("$ ")):
            continue
        for place in sorted(places, key=len, reverse=True):
            line = line.replace(place, places[place])
        for pattern, same in _SAME:
            line = pattern.sub(same, line)
        lines.append(line.rstrip())
    return "\n".join(lines)


def _folded(lines: list[str]) -> Iterator[str]:
    """Put one line in the place of a package's frames, with their lines of source."""
    is_in_frame = False
    last = ""
    for line in lines:
        frame = _FRAME.match(line)
        if frame is not None:
            package = _PACKAGE.match(frame["path"])
            is_in_frame = package is not None or _LIBRARY.match(frame["path"]) is not None
            if not is_in_frame:
                last = ""
                yield line
            elif package is not None and last != package[1]:
                last = package[1]
                yield f"  [{last}]"
        elif not (is_in_frame and line.startswith(("    ", "  [Previous"))):
            is_in_frame, last = False, ""
            yield line
