"""A way to an HTTP server on which answers are lost, requests are held and repeated."""

from __future__ import annotations

import contextlib
import http.client
import random
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.bounds import HANG_S

Answered = tuple[int, dict[str, str], bytes]
"""Status, headers, body."""

_BUSY = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
_ENDED = b"<Error><Code>ExpiredToken</Code><Message>The token has expired.</Message></Error>"


class FaultyHttp:
    """Passes requests on to a server, and does what `faults` says to some of them.

    Args:
        port: The server's.
        seed: Of the choice.

    Attributes:
        faults: How likely each fault is: ``lost`` (done, and not answered), ``busy`` (503, not
            done), ``twice`` (done twice, the second answer is given), ``cut`` (half of the request
            reaches the server), ``short`` (done, half of the answer comes back), ``slow`` (done
            after `least_slow_s` to `slow_s`), ``refused`` (403, as of a key that has ended).
        slow_s: How long a slow request takes at most, in seconds.
        least_slow_s: How long it takes at least.
        done: How many of each happened.
        url: Where clients ask, on `port`.
    """

    def __init__(self, port: int, seed: int = 0) -> None:
        self.faults: dict[str, float] = {}
        self.slow_s = 2.0
        self.least_slow_s = 0.0
        self.done: Counter[str] = Counter()
        self._port = port
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._busy_until_s = 0.0
        self._held: tuple[str, str] | None = None
        self._held_is_done = False
        self._pass_first = 0
        self.holds = threading.Event()
        self._let_go = threading.Event()
        faults = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Else the body waits until the client says that it has the headers.
            disable_nagle_algorithm = True

            def _pass(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                if len(body) < length:
                    self.close_connection = True  # It was cut on its way here.
                else:
                    faults.answer(self, body)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *args: object) -> None:
                pass  # A client may be killed while it is answered.

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=[0.05])
        self._thread.start()

    def hold(
        self, text: str, method: str = "PUT", *, is_done: bool = False, after: int = 0
    ) -> None:
        """Hold a request whose path has this text, until `let_go`; `holds` says that it does.

        Args:
            text: A part of the path.
            method: The request's; empty for any.
            is_done: Whether the request is done first, and its answer is held.
            after: How many such requests pass before.
        """
        self.holds.clear()
        self._let_go.clear()
        self._held_is_done = is_done
        self._pass_first = after
        self._held = method, text

    def let_go(self) -> None:
        """Pass on what is held."""
        self._let_go.set()

    def be_busy(self, time_s: float) -> None:
        """Answer 503 to each request from now on, for so many seconds."""
        self._busy_until_s = time.monotonic() + time_s

    def _choose(self) -> str:
        with self._lock:
            if time.monotonic() < self._busy_until_s:
                self.done["busy"] += 1
                return "busy"
            for fault, chance in self.faults.items():
                if self._chance.random() < chance:
                    self.done[fault] += 1
                    return fault
        return ""

    def answer(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        """Answer one request."""
        held = self._takes(request)
        if held and not self._held_is_done:
            self._wait()
        fault = self._choose()
        if fault == "busy":
            return self._reply(request, 503, {}, _BUSY)
        if fault == "refused":
            return self._reply(request, 403, {}, _ENDED)
        if fault == "cut" and body:
            self._ask(request, body[: len(body) // 2], is_cut=True)
        elif fault == "twice":
            self._ask(request, body)
        elif fault == "slow":
            time.sleep(self._chance.uniform(self.least_slow_s, self.slow_s))
        found = None if fault == "cut" and body else self._ask(request, body)
        if held and self._held_is_done:
            self._wait()
        if fault in ("lost", "cut") or found is None:
            request.close_connection = True
            return None
        if fault == "short" and not found[2]:
            self.done["short"] -= 1  # There is no half of nothing.
        return self._reply(request, *found, is_short=fault == "short")

    def _takes(self, request: BaseHTTPRequestHandler) -> bool:
        """Tell whether this is the request to hold, of which there is one."""
        with self._lock:
            if self._held is None:
                return False
            method, text = self._held
            if method not in ("", request.command) or text not in request.path:
                return False
            if self._pass_first:
                self._pass_first -= 1
                return False
            self._held = None
            return True

    def _wait(self) -> None:
        self.holds.set()
        assert self._let_go.wait(HANG_S)

    def _ask(
        self, request: BaseHTTPRequestHandler, body: bytes, *, is_cut: bool = False
    ) -> Answered | None:
        headers = dict(request.headers.items())
        return self._send(request.command, request.path, headers, body, is_cut=is_cut)

    def _send(
        self, method: str, path: str, headers: dict[str, str], body: bytes, *, is_cut: bool = False
    ) -> Answered | None:
        server = http.client.HTTPConnection("127.0.0.1", self._port, timeout=HANG_S)
        with contextlib.closing(server):
            try:
                server.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
                for name, value in headers.items():
                    server.putheader(name, value)
                server.endheaders(body)
                if is_cut:
                    return None
                response = server.getresponse()
                return response.status, dict(response.getheaders()), response.read()
            except (OSError, http.client.HTTPException):
                return None

    @staticmethod
    def _reply(
        request: BaseHTTPRequestHandler,
        status: int,
        headers: dict[str, str],
        body: bytes,
        *,
        is_short: bool = False,
    ) -> None:
        request.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                request.send_header(name, value)
        length = headers.get("Content-Length") if request.command == "HEAD" else None
        request.send_header("Content-Length", length or str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body[: len(body) // 2] if is_short else body)
        if is_short:
            request.close_connection = True

    def close(self) -> None:
        """End it."""
        self.let_go()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(HANG_S)
