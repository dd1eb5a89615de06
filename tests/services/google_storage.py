"""Google Cloud Storage as far as obstore speaks to it, over versitygw.

A stand-in, for no server here is Google's: fake-gcs-server 1.56.1 refuses the client's PUT
("invalid uploadType"), knows conditions of its JSON interface only, and gives a list in one page
whatever it is asked. Google documents its XML interface as that of S3 with other headers. So
requests are passed on to versitygw, whose conditions are true, and what Google does otherwise is
done here:

* "create if absent" is ``x-goog-if-generation-match: 0``;
* an object that is deleted and is not there is 404 ``NoSuchKey``;
* there is no deletion of many;
* who asks is known by a token: one that is given, or one that a service account signed, which ends.
"""

from __future__ import annotations

import base64
import json
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from tests.services.http_faults import Answered, FaultyHttp
from tests.services.versitygw import BUCKET, KEYS, REGION, VersityServer

_ACCOUNT = "tests@project.iam.gserviceaccount.com"


class _Front(FaultyHttp):
    """What Google does otherwise. See the module."""

    def __init__(self, port: int, key: Any) -> None:
        self.tokens: set[str] = set()
        self._public = key.public_key()
        super().__init__(port)

    def _ask(
        self, request: BaseHTTPRequestHandler, body: bytes, *, is_cut: bool = False
    ) -> Answered | None:
        if not self._knows(request.headers.get("Authorization", "").removeprefix("Bearer ")):
            return _error(401, "AuthenticationRequired", "Authentication required.")
        parts = urlsplit(request.path)
        path = quote(unquote(parts.path), safe="/~-_.")
        query = parse_qsl(parts.query, keep_blank_values=True)
        wanted = {"range": "Range"}
        headers = {
            name: request.headers[given]
            for given, name in wanted.items()
            if given in request.headers
        }
        condition = request.headers.get("x-goog-if-generation-match")
        if condition is not None:
            assert condition == "0"
            headers["If-None-Match"] = "*"
        if request.command == "DELETE" and not is_cut:
            found = self._sign_and_ask("HEAD", path, query, {}, b"")
            if found is None or found[0] == 404:
                return found and _error(404, "NoSuchKey", "The specified key does not exist.")
        return self._sign_and_ask(request.command, path, query, headers, body, is_cut=is_cut)

    def _sign_and_ask(
        self,
        method: str,
        path: str,
        query: list[tuple[str, str]],
        headers: dict[str, str],
        body: bytes,
        *,
        is_cut: bool = False,
    ) -> Answered | None:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        address = f"127.0.0.1:{self._port}"
        target = path + (f"?{urlencode(query, quote_via=quote)}" if query else "")
        signed = AWSRequest(method, f"http://{address}{target}", headers=headers, data=body)
        S3SigV4Auth(Credentials(*KEYS.values()), "s3", REGION).add_auth(signed)
        length = str(len(body) * 2 if is_cut else len(body))
        given = {**dict(signed.headers.items()), "Host": address, "Content-Length": length}
        answered = self._send(method, target, given, body, is_cut=is_cut)
        if answered is None or method != "PUT":
            return answered
        return answered[0], {**answered[1], "x-goog-generation": "1"}, answered[2]

    def _knows(self, token: str) -> bool:
        if token in self.tokens:
            return True
        try:
            head, said, signature = token.split(".")
            self._public.verify(_bytes(signature), f"{head}.{said}".encode(), *_scheme())
            return float(json.loads(_bytes(said))["exp"]) > time.time()
        except Exception:  # noqa: BLE001  # Whatever is wrong with it.
            return False


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _scheme() -> tuple[Any, Any]:
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    return PKCS1v15(), SHA256()


def _error(status: int, code: str, text: str) -> Answered:
    body = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code>"
    return status, {}, f"{body}<Message>{text}</Message></Error>".encode()


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric import rsa

    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _write(file: Path, key: Any) -> None:
    from cryptography.hazmat.primitives import serialization as form

    pem = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    account = {"type": "service_account", "client_email": _ACCOUNT, "private_key_id": "1"}
    file.write_text(json.dumps({**account, "private_key": pem.decode()}))


class GoogleServer(VersityServer):
    """One server with one bucket. What was acknowledged is there after a kill.

    Attributes:
        front: Where clients ask.
        account: The file of a service account that may do everything.
    """

    scheme = "gs"

    def __init__(self, folder: Path, binary: str) -> None:
        super().__init__(folder, binary)
        key = _new_key()
        self.front = _Front(self.port, key)
        # What listens for clients is the front; `start` waits for the server behind it.
        self.url = self.front.url
        self.account = folder / "account.json"
        self._stranger = folder / "stranger.json"
        _write(self.account, key)
        _write(self._stranger, _new_key())

    @property
    def authority(self) -> str:
        return f"gs://{BUCKET}"

    @property
    def client_port(self) -> int:
        return self.front.port

    def environment(self, url: str = "") -> dict[str, str]:
        return {
            "GOOGLE_BASE_URL": url or self.url,
            "GOOGLE_APPLICATION_CREDENTIALS": str(self.account),
        }

    def of_a_stranger(self) -> dict[str, str]:
        return {"GOOGLE_APPLICATION_CREDENTIALS": str(self._stranger)}

    def store(self, url: str = "", prefix: str | None = None) -> Any:
        from obstore.store import GCSStore

        return GCSStore(
            BUCKET,
            prefix=prefix,
            base_url=url or self.url,
            service_account=str(self.account),
            client_options={"allow_http": True, "timeout": "60s"},
            retry_config={"max_retries": 0},
        )

    def stop(self) -> None:
        super().stop()
        self.front.close()
