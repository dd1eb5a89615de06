"""`EventStreamParser`: an event stream cut into events, as the WHATWG's HTML standard says (9.2).

Written from section 9.2.6, "Interpreting an event stream". Lines end with CR LF, LF or CR, also
where a chunk ends between the two; the stream begins with a byte order mark or not. What an end of
the stream cuts off is no event. Data stays the bytes that came.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_END = re.compile(rb"\r\n|\n|\r")
_MARK = b"\xef\xbb\xbf"
_LONGEST_RETRY_S = 300.0
_NAME = 64
"""More than the bytes of a field's name."""


class Event(NamedTuple):
    """An event.

    Attributes:
        data: Its data.
        kind: Its type; ``message`` where it names none.
        last_id: The last id that an event up to this one had; empty: none.
        is_cut: Its data was larger than the limit, and this is how it began.
    """

    data: bytes
    kind: str
    last_id: str
    is_cut: bool = False


class EventStreamParser:
    """Parses one stream.

    Args:
        limit: Bytes of the largest event; of a larger one the rest is passed over.
        last_id: The id from which the stream goes on.

    Attributes:
        last_id: The id after what was parsed: the server is asked to go on after it.
        retry_s: How long to wait before the server is asked again, if it says so.
    """

    def __init__(self, limit: int, last_id: str = "") -> None:
        self._limit = limit
        self.last_id = last_id
        self.retry_s: float | None = None
        self._id = last_id
        self._is_first = True
        self._skips_lf = False
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._begin()

    def again(self) -> EventStreamParser:
        """Return the parser of a stream that goes on where this one has come to."""
        found = EventStreamParser(self._limit, self.last_id)
        found.retry_s = self.retry_s
        return found

    def _begin(self) -> None:
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._kind = ""
        self._is_cut = False

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that a chunk ends."""
        if self._skips_lf and chunk:
            # A CR LF was cut in two.
            chunk = chunk.removeprefix(b"\n")
        self._skips_lf = chunk.endswith(b"\r") or (self._skips_lf and not chunk)
        *lines, rest = _END.split(chunk)
        for line in lines:
            self._keep(line)
            event = self._end_line()
            if event is not None:
                yield event
        self._keep(rest)

    def _keep(self, part: bytes) -> None:
        """Take a part of the open line, up to more than an event may have."""
        if part and self._line_bytes <= self._limit + _NAME:
            self._line.append(part)
            self._line_bytes += len(part)

    def _end_line(self) -> Event | None:
        line = self._line[0] if len(self._line) == 1 else b"".join(self._line)
        self._line, self._line_bytes = [], 0
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(_MARK)
        if not line:
            return self._dispatch()
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            room = self._limit - self._data_bytes
            self._is_cut = self._is_cut or len(value) > room
            if room >= 0:
                self._data.append(value[:room])
                self._data_bytes += len(value) + 1
        elif name == b"event":
            self._kind = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit():
            self.retry_s = min(int(value[:9]) / 1000, _LONGEST_RETRY_S)
        return None

    def _dispatch(self) -> Event | None:
        self.last_id = self._id
        data, kind, is_cut = self._data, self._kind, self._is_cut
        self._begin()
        text = b"\n".join(data)
        return Event(text, kind or "message", self.last_id, is_cut) if data else None
