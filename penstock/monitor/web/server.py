"""`WebServer`: answers HTTP requests, each connection in a thread of its own, within bounds.

=====================  =========================================================================
connections            at most `Bounds.connections`, those that stay open for events included; for
                       another one, anyone who has the least time left is cut off
time                   a request has to arrive within `request_s`, an answer gone within
                       `answer_s`; a stream of events has to take each of them within `answer_s`
size                   first line and headers `head_bytes`, a body `body_bytes`
streams of events      at most `streams`
=====================  =========================================================================

With TLS the handshake also has to be done within `request_s`; a client that speaks plain HTTP gets
an answer that says so.

So a client that holds connections and says nothing keeps no probe from its answer. Where that makes
no room, a new client gets 503 and is asked to retry. A connection carries one request. One thread
accepts (``penstock-ui``) and cuts off anyone who is late; `stop` cuts off all.
"""

from __future__ import annotations

import contextlib
import errno
import http.server
import io
import logging
import re
import socket
import socketserver
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from penstock.errors import SettingError
from penstock.monitor.web.exchange import SAFE_HEADERS, Answer, Request, text_answer
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.runtime.threads import OwnedThread
from penstock.settings import Settings
from penstock.wire.tls import TlsIdentity

_log = logging.getLogger("penstock.monitor")

_POLL_S = 0.5
_ROOM_S = 0.5
_PAUSE_S = 0.5
_LINGER_S = 1.0
_LINGER_BYTES = 1 << 20
_HANDSHAKE = b"\x16"
"""First byte of a TLS handshake."""
_PLAIN = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    b"This speaks HTTPS: ask with https:// in the address.\n"
)
_AGAIN_S = 5


@dataclass(frozen=True)
class Bounds:
    """What one server takes on."""

    connections: int = 64
    streams: int = 32
    request_s: float = 10.0
    answer_s: float = 20.0
    head_bytes: int = 16 << 10
    body_bytes: int = 16 << 10


class WebServer:
    """A server on one address; begun with `start`, ended with `stop`.

    Args:
        host: The address to listen on.
        ports: The ports to try, in this order; 0 is any that is free.
        answer: Answers a request; called by any thread.
        bounds: What it takes upon itself.
        tls: With which it speaks HTTPS; None: plain HTTP.

    Raises:
        OSError: None of the ports can be had.
    """

    def __init__(
        self,
        host: str,
        ports: Iterator[int],
        answer: Callable[[Request], Answer],
        *,
        bounds: Bounds | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._server = _listen(host, ports, answer, bounds or Bounds(), tls)
        self._thread = OwnedThread(self._server.serve_until_stopped, "ui", again=True)

    @property
    def port(self) -> int:
        """The port that it has."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Answer no one any more, and cut off all connections; may be called again."""
        self._server.is_stopping = True
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()
        self._server.cut_off(late_only=False)
        if self._thread.is_alive():
            self._thread.join(timeout_s)


def _listen(
    host: str,
    ports: Iterator[int],
    answer: Callable[[Request], Answer],
    bounds: Bounds,
    tls: ssl.SSLContext | None,
) -> _Server:
    last: OSError | None = None
    for port in ports:
        try:
            return _Server(host, port, answer, bounds, tls)
        except OSError as error:
            last = error
    raise last or OSError("no port to listen on was given")


class _Server(socketserver.TCPServer):
    """`_left` guards the connections and their times, and is notified when one has ended."""

    request_queue_size = 64
    # A port that another program has must not be shared with it; one in TIME_WAIT may be used.
    allow_reuse_address = True
    allow_reuse_port = False

    def __init__(
        self,
        host: str,
        port: int,
        answer: Callable[[Request], Answer],
        bounds: Bounds,
        tls: ssl.SSLContext | None,
    ) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.answer = answer
        self.bounds = bounds
        self.is_stopping = False
        self._tls = tls
        self.limited_log = RateLimitedLog(_log)
        self._left = threading.Condition()
        self._late_at_s: dict[socket.socket, float] = {}
        self.streams = threading.BoundedSemaphore(bounds.streams)
        super().__init__((host, port), _Exchange)

    def serve_until_stopped(self) -> None:
        if not self.is_stopping:
            self.serve_forever(_POLL_S)

    def get_request(self) -> Any:
        try:
            return super().get_request()
        except OSError:
            # As with no descriptor left: the connection goes on to wait, so this is at once again.
            time.sleep(_PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        connection: socket.socket = request
        with self._left:
            is_taken = self._make_room()
            if is_taken:
                self._late_at_s[connection] = time.monotonic() + self.bounds.request_s
        if not is_taken:
            with contextlib.suppress(OSError):
                connection.settimeout(0.0)
                connection.send(
                    b"HTTP/1.1 503 Too many connections\r\nConnection: close\r\n"
                    b"Retry-After: %d\r\nContent-Length: 0\r\n\r\n" % _AGAIN_S
                )
            self.shutdown_request(connection)
            return
        thread = OwnedThread(partial(self._serve, connection, client_address), "ui-connection")
        try:
            thread.start()
        except RuntimeError:  # there are too many threads already
            with self._left:
                del self._late_at_s[connection]
            raise

    def _make_room(self) -> bool:
        def has_room() -> bool:
            return len(self._late_at_s) < self.bounds.connections

        if not has_room():
            slowest = min(self._late_at_s, key=self._late_at_s.__getitem__)
            if self._late_at_s[slowest] < float("inf"):
                _cut_off(slowest)
                self._late_at_s[slowest] = float("inf")  # Where it hangs, the next one is chosen.
                # No more threads than connections: this one's has to be gone first.
                self._left.wait_for(has_room, _ROOM_S)
        return has_room()

    def _serve(self, connection: socket.socket, client_address: Any) -> None:
        try:
            connection.settimeout(self.bounds.request_s)
            if self._tls is not None:
                if connection.recv(1, socket.MSG_PEEK) not in (_HANDSHAKE, b""):
                    connection.send(_PLAIN)
                    _let_arrive(connection)
                    return
                connection = self._wrapped(connection, self._tls)
                connection.do_handshake()
            self.finish_request(connection, client_address)
            self.give_until(connection, _LINGER_S)
            _let_arrive(connection)
        except (OSError, ValueError) as error:
            _log.debug("a connection of %s broke: %s", client_address, error)
        except Exception as error:  # noqa: BLE001  # the next one is answered all the same
            self.limited_log.log(
                f"A request could not be answered: {type(error).__name__}: {error}", error=error
            )
        finally:
            with self._left:
                self._late_at_s.pop(connection, None)
                self._left.notify()
            self.shutdown_request(connection)

    def _wrapped(self, connection: socket.socket, tls: ssl.SSLContext) -> ssl.SSLSocket:
        """Return the connection with TLS: the object replaces the plain one."""
        with self._left:
            late_at_s = self._late_at_s.pop(connection)
            wrapped = tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            self._late_at_s[wrapped] = late_at_s
        return wrapped

    def give_until(self, connection: socket.socket, seconds: float) -> None:
        """Let a connection live for this long from now."""
        with self._left:
            if connection in self._late_at_s:
                self._late_at_s[connection] = time.monotonic() + seconds

    def service_actions(self) -> None:
        self.cut_off(late_only=True)

    def cut_off(self, *, late_only: bool) -> None:
        """End connections, all or those whose time is over."""
        now_s = time.monotonic()
        with self._left:
            ended = [
                connection
                for connection, late_at_s in self._late_at_s.items()
                if not late_only or late_at_s < now_s
            ]
            for connection in ended:
                _cut_off(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("a connection of %s broke", client_address, exc_info=True)


def _cut_off(connection: socket.socket) -> None:
    """End a connection: its thread then fails to read or write, and closes it."""
    with contextlib.suppress(OSError):
        # Not TLS's own, after which another thread would go on in clear.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _let_arrive(connection: socket.socket) -> None:
    """Wait until the answer was taken: closing with something unread would reset it on its way."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(_LINGER_S)
        left = _LINGER_BYTES
        while left > 0 and (part := connection.recv(min(left, 1 << 16))):
            left -= len(part)


class _Bounded(io.RawIOBase):
    """Reads as much of a connection as is allowed; more is an error."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._left = 0

    def allow(self, size: int) -> None:
        """Let that many bytes more be read."""
        self._left += size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            raise OSError(errno.EMSGSIZE, "the head of a request is longer than it may be")
        data = self._source.recv(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)


class _Exchange(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "Penstock"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._arriving = _Bounded(self.connection)
        self._arriving.allow(self.server.bounds.head_bytes)
        self.rfile = io.BufferedReader(self._arriving, 4 << 10)

    def handle(self) -> None:
        # One request for each connection: nothing of a body that was not read is taken for another.
        self.close_connection = True
        try:
            self.handle_one_request()
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            self.send_error(431)

    def parse_request(self) -> bool:
        found = super().parse_request()
        self.close_connection = True
        return found

    def do_GET(self) -> None:
        self._exchange()

    do_HEAD = do_GET
    do_POST = do_GET

    def _exchange(self) -> None:
        server = self.server
        try:
            request = self._request()
        except ValueError as error:
            self._send(text_answer(str(error), 400))
            return
        if request is None:
            return
        server.give_until(self.connection, server.bounds.answer_s)
        try:
            answer = server.answer(request)
        except Exception as error:  # noqa: BLE001  # a defect of ours, which harms no one else
            server.limited_log.log(
                f"A request could not be answered: {type(error).__name__}: {error}", error=error
            )
            answer = text_answer("this cannot be answered; the driver's log says why", 500)
        self.connection.settimeout(server.bounds.answer_s)
        if isinstance(answer.body, bytes):
            self._send(answer)
        elif server.streams.acquire(blocking=False):
            try:
                self._stream(answer, answer.body)
            finally:
                server.streams.release()
        else:
            again = text_answer("too many look at this already; come again", 503)
            self._send(Answer(again.status, again.body, headers={"Retry-After": str(_AGAIN_S)}))

    def _request(self) -> Request | None:
        """Return the request; None when it was answered already.

        Raises:
            ValueError: It is malformed.
        """
        names = [name.lower() for name in self.headers]
        if "transfer-encoding" in names or names.count("content-length") > 1:
            raise ValueError("a body needs one Content-Length")
        if names.count("host") != 1:
            raise ValueError("a request needs one Host")
        text = self.headers.get("Content-Length", "0")
        if not (text.isascii() and text.isdigit()):
            raise ValueError("Content-Length is not a number")
        size = int(text) if len(text) < 10 else self.server.bounds.body_bytes + 1
        if size > self.server.bounds.body_bytes:
            self._send(text_answer("the body is too large", 413))
            return None
        self._arriving.allow(size)
        body = self.rfile.read(size)
        if len(body) < size:
            raise ValueError("the body ended early")
        return Request.of(self.command, self.path, dict(self.headers.items()), body)

    def _send(self, answer: Answer) -> None:
        assert isinstance(answer.body, bytes)
        self._send_head(answer, {"Content-Length": str(len(answer.body))})
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _stream(self, answer: Answer, parts: Iterator[bytes]) -> None:
        self._send_head(answer, {})
        if self.command == "HEAD":
            return
        # All of it may take for ever; for each part there is the time that the socket has.
        self.server.give_until(self.connection, float("inf"))
        for part in parts:
            if self.server.is_stopping:
                return
            self.wfile.write(part)
            self.wfile.flush()

    def _send_head(self, answer: Answer, more: dict[str, str]) -> None:
        self.send_response(answer.status)
        headers = {**SAFE_HEADERS, **answer.headers, **more, "Content-Type": answer.kind}
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what could not even be read; without quoting it."""
        self.command = getattr(self, "command", None) or "GET"
        self.requestline = getattr(self, "requestline", "")
        self.request_version = "HTTP/1.1"
        phrase = self.responses.get(HTTPStatus(code), ("not answered", ""))[0]
        self._send(text_answer(phrase, code))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the library's name
        """Say nothing: what is asked is no news, and what is wrong with it is the asker's."""


_CERTIFICATE = "spark.penstock.ui.certificate"
_PRIVATE_KEY = "spark.penstock.ui.privateKey"
_PEM = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True)
class PageTls:
    """How the page speaks HTTPS.

    Attributes:
        context: What its server listens with.
        certificate: What it shows, PEM, without those above it.
    """

    context: ssl.SSLContext
    certificate: str

    @classmethod
    def of(cls, settings: Settings) -> PageTls | None:
        """Return what the settings say; None: plain HTTP.

        Raises:
            SettingError: A file cannot be read, or is no certificate or key.
            MissingPackageError: One has to be made, and the package ``cryptography`` is missing.
        """
        path = settings.ui_certificate
        if path is not None:
            certificate = _first(path)
            return cls(_context(path, settings.ui_private_key), certificate)
        if settings.ui_private_key is not None:
            raise SettingError(
                _PRIVATE_KEY, settings.ui_private_key, f"only together with {_CERTIFICATE}"
            )
        if not settings.tls_enabled:
            return None
        made = TlsIdentity.make()
        return cls(made.page_context(), made.certificate)


def _first(path: str) -> str:
    """Return the first certificate of a file: commands get it, but no key in the file."""
    try:
        found = _PEM.search(Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise SettingError(_CERTIFICATE, path, f"a PEM file is wanted ({error})") from error
    if found is None:
        raise SettingError(_CERTIFICATE, path, "there is no certificate in that file")
    return f"{found[0]}\n"


def _context(certificate: str, private_key: str | None) -> ssl.SSLContext:
    if private_key is not None:
        try:
            Path(private_key).read_bytes()
        except OSError as error:
            raise SettingError(
                _PRIVATE_KEY, private_key, f"a PEM file is wanted ({error})"
            ) from error
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        # Without a password, OpenSSL would ask for that of an encrypted key on the terminal.
        context.load_cert_chain(certificate, private_key, password="")
    except (ssl.SSLError, ValueError) as error:
        key, value = (
            (_CERTIFICATE, certificate) if private_key is None else (_PRIVATE_KEY, private_key)
        )
        wanted = "the certificate, and the private key that belongs to it, not encrypted, as PEM"
        raise SettingError(key, value, f"{wanted} ({error})") from error
    return context


_TRIES = 16
"""As many tries as Spark makes for its own page (`spark.port.maxRetries`)."""
_LAST_PORT = 65_535


def listen_host(host: str | None, spark_conf: Mapping[str, str], environ: Mapping[str, str]) -> str:
    """Return the address to listen on.

    Args:
        host: `spark.penstock.ui.host`.
        spark_conf: Spark's configuration.
        environ: The environment.

    Returns:
        What the setting says; else the address to which Spark binds the driver. A program on this
        host alone is seen from this host alone.
    """
    if host is not None:
        return host
    if spark_conf.get("spark.master", "").startswith("local"):
        return "127.0.0.1"
    bound = spark_conf.get("spark.driver.bindAddress") or environ.get("SPARK_LOCAL_IP")
    return bound or spark_conf.get("spark.driver.host") or "127.0.0.1"


def ports_near(port: int) -> Iterator[int]:
    """Yield the ports to try: the one that is set, those behind it, and at last any."""
    if port:
        yield from range(port, min(port + _TRIES, _LAST_PORT) + 1)
    yield 0
