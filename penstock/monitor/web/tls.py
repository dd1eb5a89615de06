"""`PageTls`: the certificate with which the page is served over HTTPS."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import SettingError
from penstock.settings import Settings
from penstock.wire.tls import TlsIdentity

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
            TlsNotInstalledError: One has to be made, and the package ``cryptography`` is missing.
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
    """Return the first certificate of a file: commands are told of it, and of no key there."""
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
