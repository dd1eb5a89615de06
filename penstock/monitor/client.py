"""`AppClient`: asks a running program over HTTP, for the commands."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any
from urllib.parse import urlencode, urlsplit

from penstock.errors import PenstockError
from penstock.monitor.tables import clean
from penstock.monitor.web.exchange import OURS

_TIMEOUT_S = 10.0
_MOST_BYTES = 64 << 20


class AppUnreachableError(PenstockError):
    """The program does not answer.

    Attributes:
        url: Where it was asked.
        reason: Why not.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{url} does not answer: {reason}")
        self.url = url
        self.reason = reason


class AppRefusedError(PenstockError):
    """The program says no.

    Attributes:
        status: The HTTP status.
        reason: What it said.
    """

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason or f"it answered {status}")
        self.status = status
        self.reason = reason


class AppClient:
    """Asks one program; a connection for each question.

    Args:
        url: Where it can be looked at, such as ``http://127.0.0.1:4140/``.
        token: What proves the right to act; None without.
        certificate: The only one that it may show, PEM; empty: one that this host trusts.

    Raises:
        ValueError: It is no URL of HTTP.
    """

    def __init__(self, url: str, token: str | None = None, certificate: str = "") -> None:
        refused = f"{url!r} is not a URL such as http://host:4140/"
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValueError(refused) from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(refused)
        self.url = url
        self._is_tls = parts.scheme == "https"
        self._certificate = certificate
        self._host, self._port = parts.hostname, port
        self._root = parts.path.rstrip("/")
        self._token = token

    def get(self, path: str, **query: object) -> Any:
        """Return the JSON at a path.

        Raises:
            AppUnreachableError: It does not answer.
            AppRefusedError: It says no.
        """
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def act(self, action: str, **what: object) -> Any:
        """Have something done; return what was done, mostly a text.

        Raises:
            AppUnreachableError: It does not answer.
            AppRefusedError: It says no.
        """
        return self._ask("POST", f"/api/penstock/actions/{action}", what)["done"]

    def _ask(self, method: str, path: str, what: object) -> Any:
        headers = {"Accept": "application/json"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        body = None
        if what is not None:
            body = json.dumps(what).encode()
            headers["Content-Type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(method, self._root + path, body, headers)
            answer = connection.getresponse()
            data = answer.read(_MOST_BYTES)
            if answer.length and len(data) < _MOST_BYTES:
                raise http.client.IncompleteRead(data, answer.length)
            text = data.decode(errors="replace")
        except http.client.IncompleteRead as error:
            raise AppUnreachableError(self.url, "it ended in the middle of an answer") from error
        except (OSError, http.client.HTTPException) as error:
            raise AppUnreachableError(self.url, str(error) or type(error).__name__) from error
        finally:
            connection.close()
        is_ours = answer.getheader(OURS) is not None
        if answer.status != 200:
            # In one line, and without what a terminal would take for a command.
            said = clean(text[:1000])
            if not is_ours:  # A proxy, or who knows who; or a port of ours that speaks TLS.
                said = f"{self.url} answered {answer.status}: {said}"
            raise AppRefusedError(answer.status, said)
        if not is_ours:
            raise AppUnreachableError(self.url, "what answers there is no program of Penstock")
        try:
            return json.loads(text)
        except ValueError as error:
            raise AppUnreachableError(self.url, "its answer is not whole") from error

    def _connection(self) -> http.client.HTTPConnection:
        if not self._is_tls:
            return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        context = ssl.create_default_context(cadata=self._certificate or None)
        if self._certificate:
            # It is known by itself, whatever names it has and whoever signed it.
            context.check_hostname = False
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", ssl.VerifyFlags(0))
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=_TIMEOUT_S, context=context
        )
