"""`Request` and `Answer`: one exchange over HTTP, apart from its connection."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

OURS = "X-Penstock"
"""By this header the commands tell a program of Penstock from anything else that answers at an
address; proxies hand it on."""

SAFE_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    OURS: "1",
}
"""With every answer: a page of ours runs no script but its own, and is shown in no other page."""


@dataclass(frozen=True)
class Request:
    """What is asked.

    Attributes:
        method: ``GET``, ``HEAD`` or ``POST``.
        path: The path, decoded, without the query; begins with a slash.
        query: The first value of each name in the query.
        queries: All values of each.
        headers: By their names in small letters.
        body: What came with it.
    """

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    queries: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Request:
        """Take one apart; `target` is from the first line.

        Raises:
            ValueError: It is no path of a server.
        """
        if not target.startswith("/"):
            raise ValueError("what is asked for is not a path")
        parts = urlsplit("http://here" + target)
        found = parse_qs(parts.query, max_num_fields=50)
        return cls(
            method,
            unquote(parts.path),
            {name: values[0] for name, values in found.items()},
            {name.lower(): value for name, value in headers.items()},
            body,
            found,
        )

    def json(self) -> dict[str, Any]:
        """Return the body, which must be an object of JSON.

        Raises:
            ValueError: It is none.
        """
        try:
            found = json.loads(self.body)
        except RecursionError as error:
            raise ValueError("the body is nested too deeply") from error
        if not isinstance(found, dict):
            raise ValueError("the body is not an object of JSON")
        return found


@dataclass(frozen=True)
class Answer:
    """What is answered.

    Attributes:
        status: The HTTP status.
        body: All of it, or what it goes on with for as long as the connection lives.
        kind: Its media type.
        headers: More headers.
    """

    status: int
    body: bytes | Iterator[bytes]
    kind: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


def text_answer(text: str, status: int = 200, **headers: str) -> Answer:
    """Return an answer of one line of text."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    # An error may name a file whose name is no text.
    return Answer(status, f"{text}\n".encode(errors="backslashreplace"), headers=named)


def json_answer(value: object) -> Answer:
    """Return an answer of JSON."""
    return Answer(200, as_json(value), "application/json; charset=utf-8")


def as_json(value: object) -> bytes:
    """Return JSON of a value, in which some may be JSON already (`msgspec.Raw`)."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError):
        # It takes no integers beyond 64 bits, and no text that is none, as in names of files.
        text = json.dumps(value, separators=(",", ":"), allow_nan=False, default=_of_raw)
        return text.encode()


def _of_raw(value: object) -> object:
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    raise TypeError(f"JSON has nothing for {type(value).__name__}")
