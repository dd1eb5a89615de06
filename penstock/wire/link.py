"""`ApplicationLink`: what a process of an application needs to talk to the others."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from penstock.errors import IllegalStateError
from penstock.wire.tls import TlsIdentity


@dataclass(frozen=True)
class ApplicationLink:
    """Where the tracker is, and what proves that a process belongs to its application (I9).

    It travels in Spark's closures and through pipes, and is never shown.

    Attributes:
        secret: The application's secret; not in the repr.
        tracker: Host and port of the tracker's server; None where none can be asked.
        tls: The application's certificate and key; None for connections without TLS.
    """

    secret: bytes = field(default=b"", repr=False)
    tracker: tuple[str, int] | None = None
    tls: TlsIdentity | None = None

    @property
    def tracker_address(self) -> tuple[str, int]:
        """Host and port of the tracker's server.

        Raises:
            IllegalStateError: None can be asked.
        """
        if self.tracker is None:
            raise IllegalStateError("the address of the tracker is not known")
        return self.tracker

    def client_context(self) -> ssl.SSLContext | None:
        """Return what connections to others of the application are made with; None: no TLS."""
        return None if self.tls is None else self.tls.client_context()

    def server_context(self) -> ssl.SSLContext | None:
        """Return what a server of the application listens with; None: no TLS."""
        return None if self.tls is None else self.tls.server_context()
