"""`ServerSentEventsReceiver`: the events that a server sends over HTTP.

What must hold
--------------

* The id of the last event becomes durable together with the events, as the stream's position, and
  the server is asked to go on after it (``Last-Event-ID``). So each event is stored once, if every
  event has an id and the server keeps to it; without ids, what is sent while there is no
  connection is lost.
* What carries no record (comments, events without data) stores nothing; an event that is cut off
  by the end of its connection is none.
* While the stream is held nothing is read: TCP slows the server down, and memory stays bounded.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import pyarrow as pa
from pyspark import StorageLevel

from penstock._arguments import as_count, refused
from penstock.receiver import RecordTooLargeError
from penstock.receiver.door import acknowledge_nothing
from penstock.sources._common import Messages, Reconnecting, in_halves
from penstock.sources._on_loop import Batches, LoopReceiver, within
from penstock.sources._urls import check_tls_files, check_url, shown_url, trusting
from penstock.sources.formats import ValueFormat

if TYPE_CHECKING:
    import aiohttp

_CONNECT_S = 30.0
_RETRY_S = 1.0
_STEADY_S = 5.0
_NO_CONTENT = 204
_EXCERPT = 200
_ENVELOPE = pa.schema(
    [("event", pa.string()), ("id", pa.string()), ("time", pa.timestamp("us", "UTC"))]
)


class _Taken(NamedTuple):
    events: list[Event]
    """None of them: only the id moved."""
    last_id: str
    time: datetime


class _Position(TypedDict):
    url: str
    id: str


class ServerSentEventsReceiver(LoopReceiver):
    """Asks for a stream of server-sent events, and stores the data of each.

    Args:
        url: What to ask for.
        headers: Sent with the request, such as ``Authorization``; never shown.
        lastEventId: Where a new stream begins; empty: where the server does.
        columns: Whether ``event`` (its type), ``id`` (the last one) and ``time`` are stored, as
            columns beside ``value``.
        values: Makes typed columns of the data, such as `JsonFormat`.
        maxEvent: Bytes of the largest event; of a larger one the beginning is a dead letter.
        silence: Seconds without a byte, a comment's included, after which the server is asked
            again; None: it may be silent for ever.
        authorities: The file of the authorities that sign the server's certificate (PEM), on the
            executor's host; None for the host's.
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: aiohttp is not installed.
        ValueError, TypeError: An argument is not accepted.
    """

    extra = "http"
    requires = ("aiohttp",)
    _position_type = _Position

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        lastEventId: str = "",
        columns: bool = False,
        values: ValueFormat | None = None,
        maxEvent: int = 16 << 20,
        silence: float | None = 300.0,
        authorities: str | None = None,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(storageLevel)
        check_url(url, "http", "https")
        check_tls_files(url.startswith("https:"), "https", authorities=authorities)
        if silence is not None and not silence > 0:
            raise ValueError(refused("silence", silence, "seconds above 0, or None"))
        self.url, self.headers, self.lastEventId = url, dict(headers or {}), lastEventId
        self.maxEvent = as_count(maxEvent, "maxEvent", "bytes", least=1)
        self.silence, self.authorities = silence, authorities
        self.messages = Messages(_ENVELOPE, columns=columns, values=values)
        self.schema = self.messages.schema
        # Ids are of one URL; the position does not show what may be secret in it.
        self._source = hashlib.blake2b(url.encode(), digest_size=8).hexdigest()

    def first_id(self, position: _Position | None) -> str:
        """Return the id after which a stream with that last position goes on."""
        if position is None or position["url"] != self._source:
            return self.lastEventId
        return position["id"]

    async def _main(self) -> None:
        import aiohttp

        reconnecting = Reconnecting(self.reportError, f"server of events at {shown_url(self.url)}")
        context = trusting(self.authorities) if self.url.startswith("https:") else None
        async with (
            Batches(self._store, f"server-sent-store-{self.streamId}") as batches,
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                connector=aiohttp.TCPConnector(ssl=context or True),
            ) as session,
        ):
            parser = EventStreamParser(self.maxEvent, self.first_id(self.lastPosition))
            while True:
                parser = parser.again()
                try:
                    if not await self._take(session, parser, batches, reconnecting):
                        return
                    pause_s = parser.retry_s or _RETRY_S
                except (aiohttp.ClientError, OSError, asyncio.TimeoutError) as error:
                    pause_s = max(parser.retry_s or 0.0, reconnecting.failed(_shown(error)))
                await asyncio.sleep(pause_s)

    async def _take(
        self,
        session: aiohttp.ClientSession,
        parser: EventStreamParser,
        batches: Batches[_Taken],
        reconnecting: Reconnecting,
    ) -> bool:
        """Take the events of one connection. False: the server says that there are no more."""
        headers = {**self.headers, "Accept": "text/event-stream", "Cache-Control": "no-store"}
        if parser.last_id:
            headers["Last-Event-ID"] = parser.last_id
        asking = session.get(self.url, headers=headers)
        async with await within(asking, _CONNECT_S) as response:
            if response.status == _NO_CONTENT:
                return False
            if response.status != 200 or response.content_type != "text/event-stream":
                said = (await response.content.read(_EXCERPT)).decode("utf-8", "replace")
                raise ConnectionError(
                    f"it answered {response.status} with {response.content_type}: {said!r}"
                )
            reconnecting.connected()
            began_s, is_empty, size = time.monotonic(), True, 0
            while chunk := await self._chunk(response):
                is_empty, size = False, size + len(chunk)
                before = parser.last_id
                events = list(parser.feed(chunk))
                if events or parser.last_id != before:
                    taken = _Taken(events, parser.last_id, datetime.now(timezone.utc))
                    if batches.add(taken, size):
                        await batches.room()
                    size = 0
            # One that ends behind an event is a server that answers so, and is asked again.
            if is_empty and time.monotonic() < began_s + _STEADY_S:
                raise ConnectionError("it ended the stream at once")
        return True

    async def _chunk(self, response: aiohttp.ClientResponse) -> bytes:
        if self.silence is None:
            return await response.content.readany()
        # Not `within`: a task for each chunk would cost what a hundred events cost.
        silent = ConnectionError(f"nothing came for {self.silence:g} s")
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self.silence, response.content.set_exception, silent)
        try:
            return await response.content.readany()
        finally:
            timer.cancel()

    # -- the thread that stores ------------------------------------------------------------------

    def _store(self, taken: list[_Taken]) -> None:
        try:
            self._store_together(taken)
        except RecordTooLargeError:
            parts = [_Taken([e], e.last_id, each.time) for each in taken for e in each.events]
            in_halves(self._store_together, [*parts, taken[-1]._replace(events=[])])

    def _store_together(self, taken: list[_Taken]) -> None:
        """Store what came; all of one call is in one block together with the last id."""
        whole = [event for each in taken for event in each.events]
        letters = []
        if cut := [event for event in whole if event.is_cut]:
            why = f"it is larger than maxEvent={self.maxEvent}"
            letters = [(event.data, why) for event in cut]
            whole = [event for event in whole if not event.is_cut]
        envelope: dict[str, list[Any]] = {}
        if self.messages.has_envelope:
            times = [each.time for each in taken for event in each.events if not event.is_cut]
            envelope = {
                "event": [event.kind for event in whole],
                "id": [event.last_id or None for event in whole],
                "time": times,
            }
        position = {"url": self._source, "id": taken[-1].last_id}
        payloads = [event.data for event in whole]
        self.messages.store(self, payloads, envelope, position, acknowledge_nothing, letters)


def _shown(error: BaseException) -> BaseException:
    """Return an error that has a text, without the URL."""
    if hasattr(error, "request_info"):
        return ConnectionError(f"{type(error).__name__}: it answered {getattr(error, 'status', 0)}")
    return error if str(error) else ConnectionError("it did not answer in time")


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
    """Cuts an event stream into events, as the WHATWG's HTML standard says.

    Written from its section 9.2.6, "Interpreting an event stream". Lines end with CR LF, LF or CR,
    also where a chunk ends between the two; the stream begins with a byte order mark or not. What
    an end of the stream cuts off is no event. Data stays the bytes that came.

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
        line = b"".join(self._line)
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
