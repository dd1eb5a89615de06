"""Messages of syslog: cut out of a stream (RFC 6587), and read (RFC 3164, RFC 5424)."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any, NamedTuple

import msgspec

_PRIORITY = re.compile(r"<(\d{1,3})>")
_MOST_PRIORITY = 191
_TIME = r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d)"
_RFC3339 = re.compile(_TIME)
_RFC5424 = re.compile(
    r"1 (\S{1,64}) (\S{1,255}) (\S+) (\S+) (\S+)"
    r'(?: (-|(?:\[[^\s=\]"]+(?: [^\s=\]"]+="(?:[^"\\\]]|\\.)*")*\])+)(?=\Z| ))?(?: (.*))?',
    re.DOTALL,
)
"""Some senders leave out the structured data, or have their own instead: then it is content."""
_RFC3164 = re.compile(
    r"(?:([A-Z][a-z]{2} [ \d]?\d)(?: (\d{4}))? (\d\d:\d\d:\d\d)(\.\d{1,6})?(?: (\d{4}))?"
    rf"|({_TIME})):? "
    r"(?:([^\s:\[\]]+|[\dA-Fa-f]*:[\dA-Fa-f]*:[\dA-Fa-f:.]*) (?:: )?)?(.*)",
    re.DOTALL,
)
_TAG = re.compile(r"([^\s:\[\]]{1,64})(?:\[([^\]\s]*)\])?:(?: |$)(.*)", re.DOTALL)
_COUNT_DIGITS = 9
_SHOWN = 64 << 10
_END = re.compile(rb"[\n\0]")
"""What ends a message that has no length: a LF, or the NUL that Python's `SysLogHandler` sends."""


class Message(NamedTuple):
    """A message; None for what it does not say."""

    facility: int
    severity: int
    time: datetime | None
    hostname: str | None
    app_name: str | None
    procid: str | None
    msgid: str | None
    structured_data: str | None
    message: str | None


def read_message(text: str, zone: tzinfo, now: datetime) -> Message:
    """Read a message of either RFC.

    Args:
        text: It, without what framed it.
        zone: For times that have none.
        now: Gives the year of a time that has none.

    Raises:
        ValueError: It is none.
    """
    found = _PRIORITY.match(text)
    if found is None:
        raise ValueError("it does not begin with a priority, such as <13>")
    priority = int(found[1])
    if priority > _MOST_PRIORITY:
        raise ValueError(f"its priority is {priority}, and {_MOST_PRIORITY} is the highest")
    facility, severity = divmod(priority, 8)
    at = found.end()
    parts = _new(text, at) or _old(text, at, zone, now)
    return Message(facility, severity, *parts)


def _new(text: str, at: int) -> tuple[Any, ...] | None:
    """Return the parts of a message of RFC 5424; None: it is none."""
    found = _RFC5424.fullmatch(text, at)
    if found is None:
        return None
    written, *names, message = (None if part == "-" else part for part in found.groups())
    time = None
    if written is not None and (time := _rfc3339(written)) is None:
        return None
    if found[7] is not None:
        message = found[7].removeprefix("\ufeff")
    return time, *names, message


def _old(text: str, at: int, zone: tzinfo, now: datetime) -> tuple[Any, ...]:
    found = _RFC3164.fullmatch(text, at)
    if found is None:
        # As RFC 3164 has it for relays: what has no time is content from its beginning on.
        return None, None, None, None, None, None, text[at:]
    day, before, clock, fraction, behind, rfc3339, _, _, _, hostname, content = found.groups()
    if rfc3339:
        time = _rfc3339(rfc3339)
    else:
        time = _of_year(f"{day} {clock}", before or behind, zone, now.date().toordinal())
    if time is not None and fraction:
        time += timedelta(microseconds=int(f"{fraction[1:]:0<6}"))
    tag = _TAG.fullmatch(content)
    if tag is None:
        return time, hostname, None, None, None, None, content
    return time, hostname, tag[1], tag[2] or None, None, None, tag[3]


def _rfc3339(text: str) -> datetime | None:
    found = _RFC3339.fullmatch(text)
    if found is None:
        return None
    time, fraction, zone = found.groups("")
    try:
        return msgspec.convert(f"{time}{fraction[:7]}{zone}", datetime).astimezone(timezone.utc)
    except (msgspec.ValidationError, OverflowError):
        return None


@functools.lru_cache(maxsize=4096)
def _of_year(text: str, written: str | None, zone: tzinfo, today: int) -> datetime | None:
    """Return a time; one without a year in the year in which it is nearest to today."""
    day = datetime.fromordinal(today)
    nearest = None
    for year in (day.year - 1, day.year, day.year + 1) if written is None else (written,):
        try:
            time = datetime.strptime(f"{year} {text}", "%Y %b %d %H:%M:%S")
        except ValueError:
            continue  # such as the 29th of February
        if nearest is None or abs(time - day) < abs(nearest - day):
            nearest = time
    return None if nearest is None else nearest.replace(tzinfo=zone).astimezone(timezone.utc)


class Frame(NamedTuple):
    """A message that was cut out of a stream.

    Attributes:
        data: Its bytes; of one that is refused, the first of them.
        reason: Why it is refused; None: it is not.
    """

    data: bytes
    reason: str | None = None


class Frames:
    """Cuts messages out of one stream: behind their length (octet counting), or before their end.

    Which of the two is seen by each message: a length is a number, a space, and then a ``<``. A
    line that only begins with a number, as one of a stack trace may, would take the place of
    others.

    Args:
        most_bytes: A larger message is refused, and passed over.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._buffer = bytearray()
        self._pass_bytes = 0
        self._pass_line = False

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """Yield the messages that are whole now."""
        buffer = self._buffer
        buffer += data
        at = 0
        while True:
            if self._pass_bytes:
                step = min(self._pass_bytes, len(buffer) - at)
                at += step
                self._pass_bytes -= step
            if self._pass_line:
                end = self._end(at)
                self._pass_line = end < 0
                at = len(buffer) if end < 0 else end + 1
            if at >= len(buffer):
                break
            size, start = self._length(at)
            if size is None:
                break
            if size > self._most:
                reason = f"its frame has {size} bytes, and {self._most} are accepted"
                yield Frame(bytes(buffer[start : start + min(size, _SHOWN)]), reason)
                self._pass_bytes, at = size, start
            elif size >= 0:
                if len(buffer) - start < size:
                    break
                yield Frame(bytes(buffer[start : start + size]))
                at = start + size
            else:
                end = self._end(at)
                reason = f"its line is longer than the {self._most} bytes that are accepted"
                if end < 0:
                    if len(buffer) - at <= self._most:
                        break
                    yield Frame(bytes(buffer[at : at + _SHOWN]), reason)
                    self._pass_line, at = True, len(buffer)
                elif end - at > self._most:
                    yield Frame(bytes(buffer[at : at + _SHOWN]), reason)
                    at = end + 1
                else:
                    if end > at:
                        yield Frame(bytes(buffer[at:end]))
                    at = end + 1
        del buffer[:at]

    def _end(self, at: int) -> int:
        found = _END.search(self._buffer, at)
        return -1 if found is None else found.start()

    def _length(self, at: int) -> tuple[int | None, int]:
        """Return the length before a message and where it begins.

        A length of -1: there is none, it ends with a LF or NUL. None: that is not known yet.
        """
        buffer = self._buffer
        if not 0x31 <= buffer[at] <= 0x39:
            return -1, at
        digits, _, begin = bytes(buffer[at : at + _COUNT_DIGITS + 2]).partition(b" ")
        if not digits.isdigit() or len(digits) > _COUNT_DIGITS or begin[:1] not in (b"", b"<"):
            return -1, at
        return (int(digits), at + len(digits) + 1) if begin else (None, at)

    def rest(self) -> Frame | None:
        """Return the message that the stream ended in, refused; None: it ended behind one."""
        if not self._buffer:
            return None
        reason = "its connection ended before it did"
        return Frame(bytes(self._buffer[:_SHOWN]), reason)
