"""What stands between a receiver and AWS's double: a server that a test lets answer otherwise.

Each call goes to `hook` first. What it does not answer goes to the server behind, if there is one.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.bounds import HANG_S


@dataclass(frozen=True)
class Answer:
    """An answer in AWS's JSON.

    Attributes:
        body: Its members.
        status: Of HTTP.
        query_error: SQS's name of the error for older clients.
        is_cut: Whether the connection ends in the middle of it.
        page: What is sent instead of the members.
    """

    body: dict[str, Any]
    status: int = 200
    query_error: str = ""
    is_cut: bool = False
    page: bytes | None = None


def error(code: str, message: str = "", status: int = 400, query_error: str = "") -> Answer:
    """Return the answer that an error of AWS's is."""
    return Answer({"__type": code, "message": message}, status, query_error)


def _as_it_is(name: str, members: dict[str, Any], answer: Answer) -> Answer:
    return answer


class AwsFront:
    """A server on loopback.

    Args:
        backend_port: Of the server behind; None: the hook answers everything.

    Attributes:
        hook: Called with the name of an operation and its members; None: pass it on.
        after: Called with the name, the members and the answer that the server behind gave.
        calls: How often each operation was called.
    """

    def __init__(self, backend_port: int | None = None) -> None:
        self.hook: Callable[[str, dict[str, Any]], Answer | None] = lambda name, members: None
        self.after: Callable[[str, dict[str, Any], Answer], Answer] = _as_it_is
        self.calls: Counter[str] = Counter()
        self.changed = threading.Condition()
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                name = self.headers["X-Amz-Target"].rpartition(".")[2]
                members = json.loads(body or b"{}")
                answer = front.hook(name, members)
                if answer is None:
                    assert backend_port is not None, name
                    answer = self.passed_on(backend_port, body)
                    answer = front.after(name, members, answer)
                with front.changed:
                    front.calls[name] += 1
                    front.changed.notify_all()
                data = answer.page
                if data is None:
                    data = json.dumps(answer.body).encode()
                self.send_response(answer.status)
                self.send_header("Content-Type", "application/x-amz-json-1.1")
                self.send_header("Content-Length", str(len(data)))
                if answer.query_error:
                    self.send_header("x-amzn-query-error", f"{answer.query_error};Sender")
                self.end_headers()
                if answer.is_cut:
                    self.wfile.write(data[: len(data) // 2])
                    self.close_connection = True
                else:
                    self.wfile.write(data)

            def passed_on(self, port: int, body: bytes) -> Answer:
                server = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_S)
                with contextlib.closing(server):
                    server.request("POST", self.path, body, dict(self.headers))
                    found = server.getresponse()
                    text = found.read()
                    query_error = found.headers.get("x-amzn-query-error", "").partition(";")[0]
                    return Answer(json.loads(text or b"{}"), found.status, query_error)

            def log_message(self, *args: Any) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False

            def handle_error(self, *args: object) -> None:
                pass  # A client may be killed while it is answered.

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def wait_for_calls(self, name: str, count: int) -> None:
        """Wait until an operation was called that often."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.calls[name] >= count, HANG_S), self.calls

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._thread.join(HANG_S)
        self._server.server_close()


@contextlib.contextmanager
def aws_front(backend_port: int | None = None) -> Iterator[AwsFront]:
    """Give one until the `with` ends."""
    front = AwsFront(backend_port)
    try:
        yield front
    finally:
        front.close()


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Wait until something holds that only a server can say."""
    end_s = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < end_s, f"not within {HANG_S:g} s: {what}"
        time.sleep(0.02)
