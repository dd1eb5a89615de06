"""What real clients send: taken down by a relay that stands before a server."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Iterator
from types import TracebackType

from penstock.wire import TAG_BYTES, Seal, TlsIdentity
from tests.bounds import HANG_S

WAIT_S = HANG_S
HELLO_BYTES = 74
"""Of a client's half of the handshake; what follows is what it says."""


class Relay:
    """Passes connections on to a server and keeps what the clients sent.

    Args:
        server: Where it stands before.
        tls: The application's; then both sides of the relay are TLS.
    """

    def __init__(self, server: tuple[str, int], tls: TlsIdentity | None) -> None:
        self._server = server
        self._tls = tls
        self._sent: list[bytearray] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._start(self._accept)

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(WAIT_S)
        for end in self._sockets:
            end.close()

    def conversations(self) -> list[bytes]:
        """Return what each client sent after its handshake, without tags, if it sent anything."""
        said = [bytes(sent[HELLO_BYTES:]) for sent in self._sent if len(sent) > HELLO_BYTES]
        return [b"".join(frames(sent, TAG_BYTES)) for sent in said]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server, WAIT_S)
                server.settimeout(None)
                if self._tls is not None:
                    client = self._tls.server_context().wrap_socket(client, server_side=True)
                    server = self._tls.client_context().wrap_socket(server)
                sent = bytearray()
                self._sent.append(sent)
                self._sockets += [client, server]
                self._start(self._pass, client, server, sent)
                self._start(self._pass, server, client, None)

    def _pass(self, source: socket.socket, target: socket.socket, kept: bytearray | None) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            while data := source.recv(65536):
                if kept is not None:
                    kept += data
                target.sendall(data)
        with contextlib.suppress(OSError, ssl.SSLError):
            target.shutdown(socket.SHUT_RDWR)

    def _start(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, name="relay", daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()


def frames(conversation: bytes, tag_bytes: int = 0) -> Iterator[bytes]:
    """Cut what was sent into its parts, each with its length field and without its tag."""
    at = 0
    while at + 4 <= len(conversation):
        (length,) = struct.unpack_from("<I", conversation, at)
        yield conversation[at : at + 4 + length]
        at += 4 + length + tag_bytes


def sealed(seal: Seal, said: bytes) -> bytes:
    """Return it with a tag after each part that is whole by its length."""
    made = b""
    for part in frames(said):
        is_whole = len(part) == 4 + struct.unpack_from("<I", part)[0]
        made += part + (seal.tag(part) if is_whole else b"")
        said = said[len(part) :]
    return made + said
