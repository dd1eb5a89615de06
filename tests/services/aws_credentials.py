"""A double of where AWS gives credentials: STS, the metadata of an instance, the agent of a pod.

It speaks their protocols over HTTP, or HTTPS as STS must, and gives what a test says. The server
that the credentials are for is another one, which checks them. What is given has no session token:
versitygw refuses those.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.bounds import HANG_S

ROLE = "arn:aws:iam::123456789012:role/penstock"
_SESSION = "session-of-instance"


class CredentialsServer:
    """What gives credentials; made by `credentials_server`.

    Attributes:
        keys: The access key and its secret that are given.
        token: What proves who asks: the web identity's or the pod's token.
        lifetime_s: How long what is given holds. The client asks again five minutes before the end.
        asked: The tokens that were given, those that were refused, too.
    """

    def __init__(self, keys: tuple[str, str], token: str) -> None:
        self.keys = keys
        self.token = token
        self.lifetime_s = 60.0
        self.asked: list[str] = []
        self.url = ""

    def _given(self) -> dict[str, str]:
        ends = datetime.now(timezone.utc) + timedelta(seconds=self.lifetime_s)
        return {
            "AccessKeyId": self.keys[0],
            "SecretAccessKey": self.keys[1],
            "Expiration": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def answer(self, method: str, path: str, headers: dict[str, str], body: str) -> tuple[int, str]:
        """Return status and body."""
        parts = urlsplit(path)
        form = dict(parse_qsl(parts.query) + parse_qsl(body))
        if form.get("Action") == "AssumeRoleWithWebIdentity":
            self.asked.append(form["WebIdentityToken"])
            if (form["WebIdentityToken"], form["RoleArn"]) != (self.token, ROLE):
                return 400, (
                    "<ErrorResponse><Error><Code>ExpiredTokenException</Code>"
                    "<Message>Token expired</Message></Error></ErrorResponse>"
                )
            given = {**self._given(), "SessionToken": ""}
            members = "".join(f"<{name}>{text}</{name}>" for name, text in given.items())
            name = "AssumeRoleWithWebIdentity"
            return 200, (
                f"<{name}Response><{name}Result><Credentials>{members}</Credentials>"
                f"</{name}Result></{name}Response>"
            )
        if (method, parts.path) == ("PUT", "/latest/api/token"):
            return 200, _SESSION
        if parts.path.startswith("/latest/meta-data/iam/security-credentials/"):
            if headers.get("x-aws-ec2-metadata-token") != _SESSION:
                return 401, ""
            if parts.path.endswith("/"):
                return 200, "penstock"
            return 200, json.dumps({**self._given(), "Code": "Success", "Token": ""})
        if parts.path == "/v1/credentials":
            self.asked.append(headers.get("authorization", ""))
            if headers.get("authorization") != self.token:
                return 400, "the token is not of this pod"
            return 200, json.dumps({**self._given(), "Token": ""})
        return 404, ""


@contextmanager
def credentials_server(
    keys: tuple[str, str], token: str = "", pem: Path | None = None
) -> Iterator[CredentialsServer]:
    """Run one on loopback; with key and certificate it speaks HTTPS."""
    made = CredentialsServer(keys, token)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            headers = {name.lower(): text for name, text in self.headers.items()}
            status, text = made.answer(self.command, self.path, headers, body)
            data = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_PUT = do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if pem is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    made.url = f"http{'' if pem is None else 's'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join(HANG_S)
        server.server_close()
