"""Signatures of webhooks, as GitHub, Stripe and Standard Webhooks make them.

A signature is HMAC-SHA256 with a secret that both sides know. That of Stripe and of Standard
Webhooks covers a time, so that a request that someone has seen is good for some minutes only;
GitHub's does not. All of them name the message, which stays the same when it is sent again.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

import msgspec

from penstock._arguments import refused
from penstock.errors import PenstockError

_TOLERANCE_S = 300.0


class Refusal(PenstockError):
    """A request is refused.

    Attributes:
        status: The status of the answer.
        ends: Whether it ends the connection.
    """

    def __init__(self, status: int, reason: str, *, ends: bool = False) -> None:
        super().__init__(reason)
        self.status = status
        self.ends = ends


class SignatureError(Refusal):
    """A request is not signed with the secret, or was signed too long ago."""

    def __init__(self, reason: str) -> None:
        super().__init__(401, reason)


class _Named(msgspec.Struct):
    id: str


class Signature(ABC):
    """Checks requests. Its secrets are never shown.

    Args:
        secret: The secret, or several while one takes another's place.
        tolerance: For how many seconds a signature is good, either way, where it has a time.

    Raises:
        TypeError, ValueError: The secret is none.
    """

    def __init__(self, secret: str | Iterable[str], *, tolerance: float = _TOLERANCE_S) -> None:
        secrets: list[object] = [secret] if isinstance(secret, str) else list(secret)
        keys = [self._key(each) for each in secrets if isinstance(each, str) and each]
        if not keys or len(keys) < len(secrets):
            raise ValueError("secret is not accepted: a text that is not empty, or several of them")
        if not tolerance > 0:
            raise ValueError(refused("tolerance", tolerance, "seconds above 0"))
        self._keys = keys
        self._tolerance_s = tolerance

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    @abstractmethod
    def check(self, headers: Mapping[str, str], body: bytes, now_s: float) -> str:
        """Return the name of the message, or an empty text where it has none.

        Args:
            headers: The request's, whatever the case of their names.
            body: The whole body.
            now_s: Seconds since the epoch.

        Raises:
            SignatureError: It is not signed, or not lately.
        """

    def _key(self, secret: str) -> bytes:
        return secret.encode()

    def _check(self, signed: bytes, given: Iterable[bytes]) -> None:
        made = [hmac.digest(key, signed, "sha256") for key in self._keys]
        # Every pair is compared, so that the time does not say which one fits.
        matches = [hmac.compare_digest(one, other) for one in made for other in given]
        if not any(matches):
            raise SignatureError("the signature does not fit the body")

    def _check_time(self, time: str, now_s: float) -> None:
        if not re.fullmatch(r"[0-9]{1,12}", time):
            raise SignatureError("the time of the signature is missing, or none")
        if abs(now_s - int(time)) > self._tolerance_s:
            raise SignatureError(f"it was signed more than {self._tolerance_s:g} s from now")


class GitHubSignature(Signature):
    """Checks ``X-Hub-Signature-256``; the message's name is ``X-GitHub-Delivery``.

    That signature covers neither a time nor the name: anyone who has seen a request can send it
    again under another one. Use TLS.
    """

    def check(self, headers: Mapping[str, str], body: bytes, now_s: float) -> str:
        given = headers.get("X-Hub-Signature-256", "")
        if not given.startswith("sha256="):
            raise SignatureError("it has no X-Hub-Signature-256")
        self._check(body, [_from_hex(given[7:])])
        return headers.get("X-GitHub-Delivery", "")


class StripeSignature(Signature):
    """Checks ``Stripe-Signature``; the message's name is the ``id`` of the event."""

    def check(self, headers: Mapping[str, str], body: bytes, now_s: float) -> str:
        given = headers.get("Stripe-Signature")
        if given is None:
            raise SignatureError("it has no Stripe-Signature")
        parts = [part.strip().partition("=") for part in given.split(",")]
        time = next((value for name, _, value in parts if name == "t"), "")
        self._check_time(time, now_s)
        signatures = [_from_hex(value) for name, _, value in parts if name == "v1"]
        self._check(time.encode() + b"." + body, signatures)
        try:
            return msgspec.json.decode(body, type=_Named).id
        except (msgspec.DecodeError, RecursionError):
            return ""


class StandardWebhooksSignature(Signature):
    """Checks ``webhook-signature``; the message's name is ``webhook-id``.

    Args:
        secret: ``whsec_`` and the key in Base64, as the sender shows it.
        tolerance: As for `Signature`.
    """

    def check(self, headers: Mapping[str, str], body: bytes, now_s: float) -> str:
        name, time = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not name:
            raise SignatureError("it has no webhook-id")
        self._check_time(time, now_s)
        given = [part.partition(",") for part in headers.get("webhook-signature", "").split()]
        signatures = [_from_base64(value) for version, _, value in given if version == "v1"]
        self._check(_raw(f"{name}.{time}.") + body, signatures)
        return name

    def _key(self, secret: str) -> bytes:
        with contextlib.suppress(binascii.Error):
            if key := base64.b64decode(secret.removeprefix("whsec_"), validate=True):
                return key
        raise ValueError("secret is not accepted: whsec_ and the key in Base64")


def _raw(text: str) -> bytes:
    """Return the bytes of a header's value, whatever they are."""
    return text.encode("utf-8", "surrogateescape")


def _from_hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""
