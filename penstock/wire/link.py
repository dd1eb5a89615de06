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


@dataclass(frozen=True)
class WireOptions:
    """What one end allows the other. The defaults suit a local network.

    Attributes:
        max_frame_bytes: The largest frame that is sent or taken, without its length field.
        authentication_timeout_s: A connection that has not proved itself by then is closed.
        max_unauthenticated: Connections that may be proving themselves at one time; when another
            comes, the oldest of them is dropped (a real peer needs a few milliseconds and tries
            again; a flood must not keep it out until a time-out).
        heartbeat_interval_s: After this long without sending, a `Heartbeat` is sent.
        dead_after_s: A peer from which nothing came for this long is taken for dead, and so is one
            that has begun a frame and takes this long and a moment for each byte to finish it.
        write_limit_bytes: A server drops a peer that leaves more than this unread.
        max_pending_asks: Asks of one peer that may be unanswered at a server; then it reads no
            more from this peer until answers have gone out.
        ask_timeout_s: How long an ask of a client waits for its answer unless it says otherwise.
        give_up_after_s: A client ends for good after this long without a connection; None: never.
        refused_after_s: The same, sooner, where no one listens at the address any more.
    """

    max_frame_bytes: int = 8 << 20
    authentication_timeout_s: float = 5.0
    max_unauthenticated: int = 128
    heartbeat_interval_s: float = 5.0
    dead_after_s: float = 20.0
    write_limit_bytes: int = 32 << 20
    max_pending_asks: int = 4096
    ask_timeout_s: float = 30.0
    give_up_after_s: float | None = None
    refused_after_s: float | None = None
