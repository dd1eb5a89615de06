"""`HttpReceiver`: an HTTP server for webhooks, log shippers and bulk loads.

What must hold
--------------

* A request is answered with 200 only when its records are durable and known to the driver's log
  (I1). A sender that got no answer, or 503, sends it again; nothing is lost.
* A body is stored whole or not at all: cut, too large or wrong bodies are refused, and no record
  of them is stored.
* A request with a key is stored once: its key becomes durable with its records, as part of the
  stream's position. What is sent again is answered, as long as the key is among those that are
  remembered: the last `keys` of the stream, also after a kill. Without a key a request whose answer
  was lost is stored twice.
* While the stream is held, by its rate or by a full queue, requests are refused with 503 and
  ``Retry-After``; what is in memory stays bounded, whatever is sent and however slowly.

The server is aiohttp's: it parses HTTP in C, is asynchronous, and needs no second process and no
framework above it, as one of ASGI would.

===============  =================================================================================
`_server`        the server, and the thread that stores
`_bodies`        bodies, unpacked and cut into records
`_keys`          which requests are stored already
`_signatures`    signatures of webhooks
===============  =================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import msgspec
from pyspark import StorageLevel

from penstock._arguments import as_count, refused
from penstock.receiver import ports_of
from penstock.sources._common import Messages
from penstock.sources._on_loop import LoopReceiver
from penstock.sources._selecting import ServerTls
from penstock.sources.formats import ValueFormat
from penstock.sources.http._bodies import ENVELOPE, KINDS
from penstock.sources.http._signatures import (
    GitHubSignature,
    Signature,
    SignatureError,
    StandardWebhooksSignature,
    StripeSignature,
)

__all__ = [
    "GitHubSignature",
    "HttpReceiver",
    "Signature",
    "SignatureError",
    "StandardWebhooksSignature",
    "StripeSignature",
]


class HttpReceiver(LoopReceiver):
    """Stores what is sent to it by POST or PUT, and answers when it is durable.

    A request is answered with 200 and ``{}``, or with what is wrong: 400 (the body), 401 (token or
    signature), 404, 405, 408 (too slow), 413 (too large), 415 (encoding or type), 422 (its key was
    used with another body), and 503 with ``Retry-After`` while the stream is held or the receiver
    stops. An answer waits for no block interval (see `Receiver.seal`). A GET of the path is
    answered with 200, or 503 while requests are refused: for the health check of a load balancer.

    Args:
        port: Where it listens: a port, 0 for any, or a range such as ``"8080-8089"``, of which the
            first is taken that is free.
        host: The address of the executor's host; ``"0.0.0.0"`` for all of them.
        path: Requests to it and below are taken; others are 404.
        body: What a body holds: ``"bytes"``, one record; ``"lines"``, a record in each line, as in
            NDJSON; ``"json"``, one record, or an array of them; ``"otlp-logs"``, logs of
            OpenTelemetry as protobuf or JSON (path ``/v1/logs``), a record for each as JSON with
            its resource and scope; ``"auto"``, lines, JSON or bytes, as ``Content-Type`` says. Or a
            function of the body's bytes that returns the records' bytes, called in a thread.
        columns: Whether ``path``, ``headers`` (but credentials), ``time``, ``key`` and ``remote``
            of each request are stored, as columns beside ``value``.
        values: Makes typed columns of the records, such as `JsonFormat`.
        keyHeader: The header that names a request which may be sent again.
        keys: How many of the last of these names are remembered, also after a kill; 16 bytes each.
        signature: Checks the sender's signature, and names the request; see `GitHubSignature`,
            `StripeSignature` and `StandardWebhooksSignature`.
        token: What a sender must give as ``Authorization: Bearer``; never shown.
        maxBody: Bytes of a body, also when it is unpacked (gzip, zstd).
        maxWaiting: Bytes in memory above which requests are refused.
        bodyTimeout: Seconds in which a body must have come.
        storeTimeout: Seconds in which it must be durable, before 503 is the answer.
        certificate: The file of the server's certificate chain (PEM), for TLS. It and the others
            are on the executor's host.
        privateKey: The file of its key, if that is another one.
        clientAuthorities: The file of those that must have signed a client's certificate.
        share: Whether several receivers of a host listen at one port (``SO_REUSEPORT``).
        storageLevel: Which copies of a block must exist.

    Raises:
        MissingPackageError: aiohttp is not installed.
        ValueError, TypeError: An argument is not accepted.
    """

    extra = "http"
    requires = ("aiohttp",)
    _position_type = dict[Annotated[str, msgspec.Meta(pattern="^[0-9]+$")], bytes]

    def __init__(
        self,
        port: int | str = 8080,
        host: str = "0.0.0.0",  # a server is for others
        *,
        path: str = "/",
        body: str | Callable[[bytes], Sequence[bytes]] = "auto",
        columns: bool = False,
        values: ValueFormat | None = None,
        keyHeader: str = "Idempotency-Key",
        keys: int = 10_000,
        signature: Signature | None = None,
        token: str | None = None,
        maxBody: int = 16 << 20,
        maxWaiting: int = 64 << 20,
        bodyTimeout: float = 30.0,
        storeTimeout: float = 30.0,
        certificate: str | None = None,
        privateKey: str | None = None,
        clientAuthorities: str | None = None,
        share: bool = False,
        storageLevel: StorageLevel | str | None = None,
    ) -> None:
        super().__init__(storageLevel)
        ports_of(port)
        given: object = host
        if not isinstance(given, str):
            raise TypeError(refused("host", given, "an address of the executor's host"))
        if not path.startswith("/") or set(path) & set("?#"):
            raise ValueError(refused("path", path, 'a path such as "/hooks"'))
        token = token if token is None else str(token).strip()
        if token == "":
            raise ValueError("token is not accepted: a text that is not empty, or None")
        if not callable(body) and body not in KINDS:
            raise ValueError(refused("body", body, f"one of {', '.join(KINDS)}, or a function"))
        if not isinstance(signature, (Signature, type(None))):
            raise TypeError(refused("signature", signature, "a Signature or None"))
        for name, value in (("bodyTimeout", bodyTimeout), ("storeTimeout", storeTimeout)):
            if not value > 0:
                raise ValueError(refused(name, value, "seconds above 0"))
        self.port, self.host, self.path, self.share = port, host, path, share
        self.body, self.keyHeader = body, keyHeader
        self.keys = as_count(keys, "keys", "keys", least=1)
        self.signature, self.token = signature, token
        self.maxBody = as_count(maxBody, "maxBody", "bytes", least=1)
        self.maxWaiting = as_count(maxWaiting, "maxWaiting", "bytes", least=1)
        self.bodyTimeout, self.storeTimeout = bodyTimeout, storeTimeout
        self.tls = ServerTls(certificate, privateKey, clientAuthorities)
        self.messages = Messages(ENVELOPE, columns=columns, values=values)
        self.schema = self.messages.schema

    async def _main(self) -> None:
        from penstock.sources.http._server import HttpServer

        await HttpServer(self).serve()
