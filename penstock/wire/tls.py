"""TLS between the processes of one application, by a certificate that is made for it alone.

The driver makes a key and a certificate when it starts, and they travel with the application's
secret: inside Spark's closures and pipes, never through a file, an option or an environment. Both
ends of a connection show this certificate and accept no other, so there is no authority to set up
and nothing to renew. The challenge with the secret takes place inside the connection as before.

TLS 1.3 only (RFC 8446): a key that leaks later opens no connection that was recorded before.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import lru_cache

from penstock.errors import MissingPackageError

_NOT_BEFORE = datetime(2000, 1, 1, tzinfo=timezone.utc)
_NOT_AFTER = datetime(9999, 12, 31, tzinfo=timezone.utc)
"""The certificate ends with the application. A clock that is wrong must not end it sooner."""


@dataclass(frozen=True)
class TlsIdentity:
    """The certificate of an application, and its key.

    Attributes:
        certificate: PEM.
        private_key: PEM, not encrypted; never shown.
    """

    certificate: str
    private_key: str = field(repr=False)

    @classmethod
    def make(cls) -> TlsIdentity:
        """Make a new one: a P-256 key and a certificate that it signed itself.

        Raises:
            MissingPackageError: The package ``cryptography`` is missing.
        """
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives import hashes, serialization
            from cryptography.hazmat.primitives.asymmetric import ec
            from cryptography.x509.oid import NameOID
        except ImportError as error:
            raise MissingPackageError(
                "spark.penstock.tls.enabled",
                "the package cryptography in the driver",
                "tls",
                ", or set it to false",
            ) from error
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "penstock application")])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_NOT_BEFORE)
            .not_valid_after(_NOT_AFTER)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(
            certificate.public_bytes(serialization.Encoding.PEM).decode(),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ).decode(),
        )

    def server_context(self) -> ssl.SSLContext:
        """Return what a server of the application listens with; it asks clients for theirs."""
        return self._filled(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def client_context(self) -> ssl.SSLContext:
        """Return what clients of the application connect with: the same one in this process."""
        return _client_context(self)

    def page_context(self) -> ssl.SSLContext:
        """Return what a page for people listens with: they have no certificate, or newer TLS."""
        return self._loaded(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))

    def _filled(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self.certificate)
        return self._loaded(context)

    def _loaded(self, context: ssl.SSLContext) -> ssl.SSLContext:
        with _in_a_file(self.private_key + self.certificate) as path:
            context.load_cert_chain(path)
        return context


@lru_cache(maxsize=4)
def _client_context(identity: TlsIdentity) -> ssl.SSLContext:
    # Outside of the identity, which is pickled. A task that fetches a block would else parse keys
    # for each.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The certificate is the application's, on whatever host.
    context.check_hostname = False
    return identity._filled(context)


@contextmanager
def _in_a_file(text: str) -> Iterator[str]:
    """Yield the path of a file in memory: `ssl` reads keys from files only."""
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("penstock-tls"), "w+") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile("w+") as file:  # Only its owner may read it.
            file.write(text)
            file.flush()
            yield file.name
