"""`Routes`: which path shows what, to whom."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from importlib import resources
from urllib.parse import quote

from prometheus_client.exposition import generate_latest
from prometheus_client.registry import CollectorRegistry

from penstock.monitor.figures import Figures
from penstock.monitor.model import Model
from penstock.monitor.records import BatchStatus
from penstock.monitor.sentence import stops_again
from penstock.monitor.web.access import Access
from penstock.monitor.web.actions import Actions
from penstock.monitor.web.exchange import Answer, Request, as_json, json_answer, text_answer
from penstock.monitor.web.rest import JobIds, RestApi
from penstock.monitor.web.status import Status

_LOGIN = "/api/penstock/login"
_PROVE = (
    "this application asks who may look at it (spark.acls.enable or spark.ui.filters): use the "
    "penstock command as the user who started the program, or with the run's token in "
    "PENSTOCK_TOKEN, open the page by the link that `penstock apps` prints, or send the token in "
    "an Authorization header"
)


class Routes:
    """Answers requests: the server's function.

    Args:
        model: What is shown.
        access: Says who may see it.
        job_ids: Returns Spark's jobs of a batch's output operation.
        shows_samples: Whether contents of discarded records may be shown.
    """

    def __init__(
        self,
        model: Model,
        access: Access,
        job_ids: JobIds = lambda batch, operation: [],
        *,
        shows_samples: bool = False,
    ) -> None:
        self._model = model
        self._access = access
        self._rest = RestApi(model, job_ids)
        self._metrics = Metrics(model)
        self._status = Status(model, shows_samples=shows_samples)
        self._live = Live(model, self._status)
        self._page = Page()
        self._actions = Actions(model, access)
        self._readers: dict[str, Callable[[Request], Answer]] = {
            "/api/penstock/live": lambda _: self._live.answer(),
            "/api/penstock/me": self._me,
            "/metrics": self._metrics.answer,
        }

    def answer(self, request: Request) -> Answer:
        """Answer a request; from any thread."""
        if request.path == "/health/live":
            return live()
        if not self._access.is_known_host(request):
            return text_answer("this server has another name (spark.penstock.ui.hosts)", 421)
        if request.path == "/health/ready":
            # Only those who may read see its reasons; a probe needs only the status.
            found = ready(self._model)
            if self._access.may_read(request):
                return found
            return text_answer("ok" if found.status == 200 else "", found.status)
        if request.path == _LOGIN:
            return self._log_in(request)
        if request.method == "POST":
            return self._actions.answer(request)
        # The page itself has nothing of the program: what it shows it asks for, with the token.
        shown = self._page.answer(request)
        if shown is not None:
            return shown
        if not self._access.may_read(request):
            return text_answer(self._access.what_is_wrong(request) + _PROVE, 403)
        reader = self._readers.get(request.path)
        if reader is not None:
            return reader(request)
        for part in (self._status, self._rest):
            shown = part.answer(request)
            if shown is not None:
                return shown
        return text_answer("there is nothing of that name", 404)

    def stop(self) -> None:
        """End the listeners to events."""
        self._live.stop()

    def _me(self, request: Request) -> Answer:
        return json_answer({"mayAct": self._access.may_act(request)})

    def _log_in(self, request: Request) -> Answer:
        if request.method != "POST" or not self._access.is_same_origin(request):
            return text_answer("only the page of this program asks for this", 403)
        try:
            code = request.json().get("code")
        except ValueError as error:
            return text_answer(str(error), 400)
        if not isinstance(code, str) or not self._access.take_code(code):
            return text_answer("this link was used already, or is of another run", 403)
        return json_answer({"token": self._access.token})


# The page: its files, and what it listens to.
#
# The page itself is made in the browser, from ``/api/penstock``; its files are in ``static``:
# ``page.js`` with ``charts.js``, ``receivers.js`` and ``text.js``. The page asks no other host for
# anything.

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
"""The paths of Spark's own tab, and where ours is relative to them."""


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
    """Sends the status again and again, while there is news (server-sent events).

    All listeners get the same text, made once for all of them: `_lock` guards it.

    Args:
        model: What is shown. status: Makes the text.
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
        """End the listeners."""
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


# ``/health/live`` and ``/health/ready``, fit for the probes of Kubernetes.
#
# Live: the program has streams, and answers. A probe that restarts a slow program makes
# it slower, so slowness is none of this. Ready: data can flow and does: the streams have started,
# every receiver runs and has not failed repeatedly, and batches keep up. Both are 200, or 503 with
# the reasons, one a line.

_LATE_INTERVALS = 10
_LATE_LEAST_MS = 30_000
"""The shortest time without a complete batch after which a program counts as hanging, whatever
its batch interval."""


def live() -> Answer:
    """Answer that the program lives."""
    return text_answer("ok")


def ready(model: Model) -> Answer:
    """Answer whether data flows."""
    reasons = []
    totals = model.totals()
    if totals.started_ms is None:
        reasons.append("the streams have not started")
    elif not model.has_looked:
        reasons.append("the streams have only just started")
    for receiver in model.receivers():
        if receiver.state not in ("running", "idle"):
            why = f": {receiver.last_error.splitlines()[0][:200]}" if receiver.last_error else ""
            reasons.append(f"{receiver.name} does not run{why}")
        elif again := stops_again(receiver):
            # Between two failures it runs: a probe would see now this, now that.
            reasons.append(f"{receiver.name} {again}")
    if totals.waiting > 1:
        reasons.append(f"{totals.waiting} batches wait")
    hanging = _of_hanging(model)
    if hanging:
        reasons.append(hanging)
    return _answer(reasons)


def _of_hanging(model: Model) -> str:
    totals = model.totals()
    batch_ms = model.application.batch_ms
    if totals.started_ms is None or batch_ms is None or not totals.waiting:
        return ""
    ends = [batch.end_ms for batch in model.batches(BatchStatus.COMPLETED) if batch.end_ms]
    since_ms = model.now_ms() - max(ends, default=totals.started_ms)
    if since_ms < max(_LATE_INTERVALS * batch_ms, _LATE_LEAST_MS):
        return ""
    return f"no batch was complete for {since_ms / 1000:.0f} s, and {totals.waiting} wait"


def _answer(reasons: list[str]) -> Answer:
    return text_answer("\n".join(reasons), 503) if reasons else text_answer("ok")


_KIND = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Answers a scrape.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(Figures(model))

    def answer(self, _request: Request) -> Answer:
        """Return all of it as text, which every scraper takes, whatever it would like better.

        The library needs nearly twice the time for OpenMetrics, which has no more of these figures.
        """
        return Answer(200, generate_latest(self._registry), _KIND)
