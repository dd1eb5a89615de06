"""`Access`: who may look, and who may act.

Anyone who knows the run's token may do both. It is in the run's file (`penstock.monitor.registry`),
which only its user can read, and the page gets it for a code that works once; the driver's log has
a link with such a code. The page keeps it for its origin, port included, and sends it as a header:
a cookie would go to every port of the host, also to another user's. Without the token, reading is
as Spark's own page has it: open, unless `spark.acls.enable` or `spark.ui.filters` says that people
must prove who they are, which they cannot do here; and acting is refused.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import threading
from collections.abc import Iterable
from urllib.parse import urlsplit

from penstock.monitor.web.exchange import Request

_CODES = 16
"""Unused links that are valid at a time; one more invalidates the oldest."""


class Access:
    """The token of one run, and what may be done without it.

    `_lock` guards the codes.

    Args:
        is_open: Whether reading needs no token.
        names: Under which names a browser may ask for this server, beside addresses.
    """

    def __init__(self, *, is_open: bool, names: Iterable[str] = ()) -> None:
        self.is_open = is_open
        self.token = secrets.token_urlsafe(32)
        self._names = {"localhost", *(name.lower().rstrip(".") for name in names if name)}
        self._lock = threading.Lock()
        self._codes: list[str] = []

    def new_code(self) -> str:
        """Return a code that is worth the token, once."""
        code = secrets.token_urlsafe(24)
        with self._lock:
            self._codes = [*self._codes[-(_CODES - 1) :], code]
        return code

    def take_code(self, code: str) -> bool:
        """Return whether a code is worth the token; it is no more after that."""
        with self._lock:
            fits = [hmac.compare_digest(_bytes(known), _bytes(code)) for known in self._codes]
            left = [known for known, is_it in zip(self._codes, fits, strict=True) if not is_it]
            self._codes = left
        return any(fits)

    def is_known_host(self, request: Request) -> bool:
        """Return whether the request was meant for this server.

        A page of another site can have its own name lead here, and would then count as of the same
        origin. It cannot do so with an address.
        """
        name = _host_name(request.headers.get("host", ""))
        if name is None:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._names
        return True

    def is_same_origin(self, request: Request) -> bool:
        """Return whether a browser sent it for a page of this server, or no browser sent it."""
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        origin = request.headers.get("origin")
        if origin is None:
            return True
        try:
            place = urlsplit(origin).netloc.lower()
        except ValueError:
            return False
        return bool(place) and place == request.headers.get("host", "").lower()

    def may_read(self, request: Request) -> bool:
        """Return whether it may see what the model has."""
        return self.is_open or self.has_token(request)

    def may_act(self, request: Request) -> bool:
        """Return whether it may change something."""
        return self.is_same_origin(request) and self.has_token(request)

    def has_token(self, request: Request) -> bool:
        """Return whether it proves to know the token."""
        given = _bearer(request.headers.get("authorization", ""))
        return hmac.compare_digest(_bytes(self.token), _bytes(given))

    def what_is_wrong(self, request: Request) -> str:
        """Return what to say of a token that came with a refused request; empty without one."""
        if not request.headers.get("authorization") or self.has_token(request):
            return ""
        return "the token that was sent is not this run's (each run has another one); "


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _bearer(authorization: str) -> str:
    kind, _, token = authorization.partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _host_name(host: str) -> str | None:
    """Return the name in a ``Host`` header, without its port; None for nonsense."""
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return None
    if not name or any(character in host for character in "/?#@\\ "):
        return None
    return name.lower().rstrip(".")
