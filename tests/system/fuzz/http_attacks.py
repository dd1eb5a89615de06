"""What the HTTP door is sent: requests that are malformed, oversized, slow, or one upon another."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

PATHS = (
    *("/", "/metrics", "/health/live", "/health/ready", "/streaming", "/static/page.js"),
    *("/streaming/batch/?id=1", "/api/v1/applications", "/api/penstock/me", "/api/penstock/live"),
    "/api/penstock/login",
    *("/api/penstock/status", "/api/penstock/errors", "/api/penstock/batches?count=5&offset=1"),
    *("/api/penstock/history?seconds=60", "/api/penstock/batch?id=1700000001000"),
    *(f"/api/v1/applications/local-1/streaming/{what}" for what in ("statistics", "receivers")),
    *(f"/api/v1/applications/local-1/streaming/batches{what}" for what in ("", "/1/operations/0")),
    *(f"/api/penstock/actions/{what}" for what in ("rate", "pause", "stop", "login", "nothing")),
)


class HttpEnding(enum.Enum):
    """What becomes of the connection after what was sent."""

    READ = "read"
    CLOSE = "close"
    RESET = "reset"
    HALF_OPEN = "half open"
    HOLD = "hold, and read nothing"


@dataclass(frozen=True)
class HttpAttack:
    """One connection's worth.

    Attributes:
        way: How it was made.
        pieces: What is sent, piece by piece.
        slow: With pauses between them.
        ending: What becomes of it then.
    """

    way: str
    pieces: tuple[bytes, ...]
    slow: bool
    ending: HttpEnding


_methods = st.sampled_from((b"GET", b"HEAD", b"POST", b"PUT", b"get", b"", b"GET\x00", b"X" * 300))
_paths = st.sampled_from(PATHS).map(str.encode)
_versions = st.sampled_from((b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b"", b"HTTP/1.1 x"))
_odd = st.sampled_from(
    (b"\x00", b"%00", b"%", b"%zz", b"..", b"//", b"\xff\xfe", b"?", b"#", b"%ff", b"\r", b"\t")
)
_header_names = st.sampled_from(
    (
        *(b"Host", b"Origin", b"Authorization", b"Cookie", b"Content-Length", b" Host"),
        *(b"Transfer-Encoding", b"Content-Type", b"Accept", b"Range", b"Expect", b"Upgrade"),
    )
)
_header_values = st.one_of(
    st.sampled_from(
        (
            *(b"localhost", b"evil.example", b"127.0.0.1:1", b"[::1", b"\xff", b"", b"null"),
            *(b"Bearer x", b"Bearer \xff", b"penstock=x; penstock=y", b"-1", b"0", b"9" * 40),
            *(b"1e3", b"chunked", b"100-continue", b"a\x00b", b"x" * 3000),
            b"application/openmetrics-text; version=1.0.0",
        )
    ),
    st.binary(max_size=40),
)
_bodies = st.one_of(
    st.sampled_from((b"", b"{}", b"[]", b"null", b'{"stream": 0, "rate": "5"}', b"[" * 9_000)),
    st.binary(max_size=200),
)


def _head(method: bytes, path: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join((method + b" " + path + b" HTTP/1.1", *headers, b"", b""))


@st.composite
def _random_bytes(draw: Callable[..., Any]) -> bytes:
    return draw(st.binary(max_size=2000)) + draw(st.sampled_from((b"", b"\r\n\r\n")))


@st.composite
def _malformed(draw: Callable[..., Any]) -> bytes:
    path = draw(_paths)
    at = draw(st.integers(0, len(path)))
    path = path[:at] + draw(_odd) + path[at:]
    headers = draw(st.lists(st.tuples(_header_names, _header_values), max_size=6))
    lines = [name + draw(st.sampled_from((b": ", b":", b" "))) + value for name, value in headers]
    first = b" ".join((draw(_methods), path, draw(_versions)))
    end = draw(st.sampled_from((b"\r\n", b"\n", b"\r")))
    return end.join((first, *lines, b"", b"")) + draw(_bodies)


@st.composite
def _oversized(draw: Callable[..., Any]) -> bytes:
    size = draw(st.sampled_from((5_000, 16_384, 70_000, 1_000_000)))
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return _head(b"GET", b"/" + b"a" * size, b"Host: localhost")
    if kind == 1:
        return _head(b"GET", b"/", b"Host: localhost", b"X: " + b"b" * size)
    if kind == 2:
        return _head(b"GET", b"/", b"Host: localhost", *(b"X%d: 1" % n for n in range(size // 10)))
    length = draw(st.sampled_from((size, size + 1, 1 << 40)))
    head = _head(b"POST", draw(_paths), b"Host: localhost", b"Content-Length: %d" % length)
    return head + b"c" * size


@st.composite
def _right(draw: Callable[..., Any]) -> bytes:
    method = draw(st.sampled_from((b"GET", b"HEAD", b"POST")))
    body = draw(_bodies) if method == b"POST" else b""
    headers = (b"Host: localhost", b"Content-Length: %d" % len(body))
    return _head(method, draw(_paths), *headers) + body


@st.composite
def _odd_queries(draw: Callable[..., Any]) -> bytes:
    names = ("seconds", "since", "count", "offset", "id", "status", "code")
    values = ("-1", "0", "1e9", "9" * 30, "%00", "%ff", "nan", "", "\u0661", "completed", "1 2")
    pairs = draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(values)), max_size=60))
    query = "&".join(f"{name}={value}" for name, value in pairs)
    path = draw(st.sampled_from(PATHS)).partition("?")[0]
    return _head(b"GET", f"{path}?{query}".encode(), b"Host: localhost")


@st.composite
def _pipelined(draw: Callable[..., Any]) -> bytes:
    parts = st.one_of(_right(), _right(), _malformed())
    return b"".join(draw(st.lists(parts, min_size=2, max_size=20)))


_events = st.just(_head(b"GET", b"/api/penstock/live", b"Host: localhost"))

WAYS: dict[str, st.SearchStrategy[bytes]] = {
    "random bytes": _random_bytes(),
    "malformed": _malformed(),
    "oversized": _oversized(),
    "right": _right(),
    "odd queries": _odd_queries(),
    "pipelined": _pipelined(),
    "events": _events,
}


@st.composite
def http_attacks(draw: Callable[..., Any]) -> HttpAttack:
    """Return any attack."""
    way = draw(st.sampled_from(sorted(WAYS)))
    data = draw(WAYS[way])
    slow = draw(st.booleans())
    count = draw(st.integers(2, 20)) if slow else 1
    size = max(1, -(-len(data) // count))
    pieces = tuple(data[at : at + size] for at in range(0, len(data), size))
    return HttpAttack(way, pieces, slow, draw(st.sampled_from(HttpEnding)))
