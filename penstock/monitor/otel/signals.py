"""`Signal`: figures or traces on their way to the collector, each by itself.

What OpenTelemetry says of an answer (https://opentelemetry.io/docs/specs/otlp/, "Failures"): 429,
502, 503 and 504 are for now, and `Retry-After` says until when; any other error is for good, and
what was sent is dropped. A redirection is no success, though OpenTelemetry's exporter takes it for
one.
"""

from __future__ import annotations

import enum
import logging
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, Protocol

from penstock.errors import typed_text
from penstock.monitor.records import bounded

_log = logging.getLogger("penstock.monitor")

_FOR_NOW = (429, 502, 503, 504)
_LONGEST_S = 86_400.0
"""The longest wait that a collector may ask for."""
_REASON = 500
"""Characters of why something could not be sent."""


class Outcome(enum.Enum):
    """What became of what was sent."""

    TAKEN = "taken"
    LATER = "later"
    REFUSED = "refused"


class Exporter(Protocol):
    """What OpenTelemetry's exporters have in common."""

    def export(self, data: Any, /) -> Any: ...


class _Refusal(NamedTuple):
    """An answer that is no success."""

    status: int
    text: str
    retry_after_s: float | None


class Signal:
    """Sends one kind of thing, and says once that it cannot, and once that it can again.

    For one thread.

    Args:
        name: What it is, for the log.
        where: The collector, for the log.
        switch: The variable that switches it off.
        interval_s: How often it is sent.
        said: Returns what the exporter said of why it failed.
        now_s: The time now, on a monotonic clock.
    """

    def __init__(
        self,
        name: str,
        where: str,
        switch: str,
        interval_s: float,
        said: Callable[[], str],
        now_s: float,
    ) -> None:
        self._name = name
        self._where = where
        self._switch = switch
        self._interval_s = interval_s
        self._said = said
        self._at_s = now_s + interval_s
        self._fails = False
        self._refusals: list[_Refusal] = []
        self._failure = ""

    def session(self) -> Any:
        """Return a session for the exporter, by which answers and failures are seen."""
        import requests

        signal = self

        class Watched(requests.Session):
            def send(self, request: Any, **options: Any) -> Any:
                try:
                    return super().send(request, **options)
                except (requests.RequestException, OSError) as error:
                    # The exporter says in the end that it has tried for long enough, and not why.
                    signal._failure = _cause_of(error)
                    raise

        session = Watched()
        session.hooks["response"].append(self._look_at)
        return session

    def is_due(self, now_s: float, *, is_last: bool = False) -> bool:
        """Return whether it is time to send.

        Args:
            now_s: The time now.
            is_last: Whether there is no later time: then it is, but not to a collector that did
                not take the last.
        """
        return not self._fails if is_last else now_s >= self._at_s

    def send(self, exporter: Exporter, data: Any, now_s: float) -> Outcome:
        """Send something; what becomes of it is said."""
        self._refusals.clear()
        self._failure = ""
        self._at_s = now_s + self._interval_s
        try:
            is_taken = exporter.export(data).name == "SUCCESS"
            said = self._said()
            reason = "" if is_taken else self._failure or said or "it was not taken"
        except Exception as error:  # noqa: BLE001  # the program does not depend on it
            reason = typed_text(error)
        if not self._refusals:
            tried = f"tried again every {self._interval_s:g} s"
            self._tell(f"cannot be sent to {self._where} by OpenTelemetry", reason, tried)
            return Outcome.LATER if reason else Outcome.TAKEN
        refusal = self._refusals[-1]
        if refusal.status in _FOR_NOW:
            tried = f"tried again every {self._interval_s:g} s"
            if refusal.retry_after_s is not None:
                wait_s = max(self._interval_s, min(refusal.retry_after_s, _LONGEST_S))
                self._at_s = now_s + wait_s
                tried = f"tried again in {wait_s:,.0f} s, as it asks"
            self._tell(f"cannot be sent to {self._where} by OpenTelemetry", refusal.text, tried)
            return Outcome.LATER
        tried = f"dropped until it takes some ({self._switch}=none switches them off)"
        self._tell(f"are not taken by {self._where}", refusal.text, tried)
        return Outcome.REFUSED

    def failed(self, reason: str, now_s: float) -> None:
        """Say that something cannot even be made ready to be sent."""
        self._at_s = now_s + self._interval_s
        self._tell(
            f"cannot be sent to {self._where} by OpenTelemetry",
            reason,
            f"tried again every {self._interval_s:g} s",
        )

    def _look_at(self, response: Any, *_: Any, **__: Any) -> None:
        if response.status_code >= 300:
            again_s = _seconds_of(response.headers.get("Retry-After", ""))
            text = f"{response.status_code} {response.reason or ''}".strip()
            self._refusals.append(_Refusal(response.status_code, text, again_s))
            raise RuntimeError(text)  # Within the exporter, so that it does not ask again.

    def _tell(self, what: str, reason: str, tried: str) -> None:
        if reason and not self._fails:
            _log.warning(
                "%s %s: %s; the program goes on, and they are %s",
                *(self._name, what, bounded(reason, _REASON), tried),
            )
        elif self._fails and not reason:
            _log.warning("%s are sent by OpenTelemetry again", self._name)
        self._fails = bool(reason)


def _cause_of(error: Exception) -> str:
    """Return what is behind an error of the HTTP client, without the attempts around it."""
    inner = error.args[0] if error.args else error
    return str(getattr(inner, "reason", None) or error)


def _seconds_of(text: str) -> float | None:
    """Return what a `Retry-After` asks for: seconds, or a date; None for nonsense."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return float(text[:12])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None
