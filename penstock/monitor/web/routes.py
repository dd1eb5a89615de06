"""`Routes`: which path shows what, to whom."""

from __future__ import annotations

from collections.abc import Callable

from penstock.monitor.model import Model
from penstock.monitor.web import actions, health
from penstock.monitor.web.access import Access
from penstock.monitor.web.exchange import Answer, Request, json_answer, text_answer
from penstock.monitor.web.metrics import Metrics
from penstock.monitor.web.page import Live, Page
from penstock.monitor.web.rest import JobIds, RestApi
from penstock.monitor.web.status import Status

_LOGIN = "/api/penstock/login"
_PROVE = (
    "this application asks who may look at it (spark.acls.enable or spark.ui.filters): open the "
    "link in the driver's log, or send the token of the run's file in an Authorization header"
)


class Routes:
    """Answers requests: the server's function.

    Args:
        model: What there is to see.
        access: Who may see it.
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
        self._actions = actions.Actions(model, access)
        self._readers: dict[str, Callable[[Request], Answer]] = {
            "/api/penstock/live": lambda _: self._live.answer(),
            "/api/penstock/me": self._me,
            "/metrics": self._metrics.answer,
        }

    def answer(self, request: Request) -> Answer:
        """Answer a request; from any thread."""
        if request.path == "/health/live":
            return health.live()
        if not self._access.is_known_host(request):
            return text_answer("this server has another name (spark.penstock.ui.hosts)", 421)
        if request.path == "/health/ready":
            # Its reasons are read by who may read; a probe needs the status only.
            found = health.ready(self._model)
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
            return text_answer(_PROVE, 403)
        reader = self._readers.get(request.path)
        if reader is not None:
            return reader(request)
        for part in (self._status, self._rest):
            shown = part.answer(request)
            if shown is not None:
                return shown
        return text_answer("there is nothing of that name", 404)

    def stop(self) -> None:
        """End who listens to events."""
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
