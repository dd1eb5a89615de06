"""The page: its files, and what it listens to.

The page itself is made in the browser, of what ``/api/penstock`` tells; its files lie in
``static``: ``page.js`` with ``charts.js``, ``receivers.js`` and ``text.js``. The page asks no other
host for anything.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib import resources
from urllib.parse import quote

from penstock.monitor.model import Model
from penstock.monitor.web.exchange import Answer, Request, as_json
from penstock.monitor.web.status import Status

_KINDS = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
_FILES = ("page.css", "page.js", "charts.js", "receivers.js", "text.js")

_INTERVAL_S = 1.0
_SILENT = 15
"""Intervals without news after which a comment is sent, so that both ends notice a lost
connection."""

_SPARK_PATHS = {
    "/streaming": ".",
    "/streaming/": "..",
    "/streaming/batch": "..",
    "/streaming/batch/": "../..",
}
"""The paths of Spark's own tab, and where ours lies from there."""


class Page:
    """Answers for the page and its files."""

    def __init__(self) -> None:
        folder = resources.files("penstock.monitor.web") / "static"
        self._index = (folder / "index.html").read_bytes()
        self._files = {f"/static/{name}": (folder / name).read_bytes() for name in _FILES}

    def answer(self, request: Request) -> Answer | None:
        """Answer a request; None when its path is none of these."""
        if request.path == "/":
            return Answer(200, self._index, _KINDS[".html"])
        if request.path in _SPARK_PATHS:
            batch = request.query.get("id")
            query = "" if batch is None else f"?batch={quote(batch, safe='')}"
            return Answer(302, b"", headers={"Location": f"{_SPARK_PATHS[request.path]}/{query}"})
        body = self._files.get(request.path)
        if body is None:
            return None
        kind = _KINDS[request.path[request.path.rindex(".") :]]
        return Answer(200, body, kind, {"Cache-Control": "no-cache"})


class Live:
    """Tells how it is, again and again, while there is news (server-sent events).

    All who listen are told the same, which is made once for all of them: `_lock` guards it.

    Args:
        model: What there is.
        status: Makes what is told.
        interval_s: How often at most.
    """

    def __init__(self, model: Model, status: Status, interval_s: float = _INTERVAL_S) -> None:
        self._model = model
        self._status = status
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._made_of = -1
        self._made = b""
        self._ended = threading.Event()

    def stop(self) -> None:
        """End who listens."""
        self._ended.set()

    def answer(self) -> Answer:
        """Answer with events that go on until the connection ends."""
        return Answer(200, self._events(), "text/event-stream")

    def _events(self) -> Iterator[bytes]:
        told, silent = -1, 0
        yield b"retry: 3000\n\n"
        while not self._ended.is_set():
            changes = self._model.changes
            if changes != told:
                told, silent = changes, 0
                yield self._news(changes)
            else:
                silent += 1
                # A connection that is gone is found out by what is written to it.
                yield b":\n\n" if silent % _SILENT == 0 else b""
            self._ended.wait(self._interval_s)

    def _news(self, changes: int) -> bytes:
        with self._lock:
            if self._made_of < changes:
                told = as_json(self._status.snapshot())
                self._made_of, self._made = changes, b"data: %b\n\n" % told
            return self._made
