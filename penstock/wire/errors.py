"""The errors of the control protocol. Each names the peer and what to do about it."""

from __future__ import annotations

from penstock.errors import PenstockError


class WireError(PenstockError):
    """Base class of the errors of the control protocol.

    Attributes:
        peer: The other end, as ``host:port``.
    """

    def __init__(self, peer: str, message: str) -> None:
        super().__init__(message)
        self.peer = peer


class ConnectionLostError(WireError):
    """The connection broke, was closed, could not be made in time, or the peer fell silent.

    Attributes:
        may_have_it: Whether the peer, which is away for now, may have what is asked for.
    """

    def __init__(self, peer: str, message: str, *, may_have_it: bool = False) -> None:
        super().__init__(peer, message)
        self.may_have_it = may_have_it


class AuthenticationError(WireError):
    """The two ends do not share the application's secret, or speak different versions.

    It is permanent: the same two processes will never agree, so nothing is tried again.

    Attributes:
        reason: What did not fit.
    """

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(
            peer,
            f"authentication with {peer} failed: {reason}. The secret is made by the driver of one "
            "application and travels with its tasks; check that the address belongs to the same "
            "application, and that no process of an ended application listens there",
        )
        self.reason = reason


class ProtocolError(WireError):
    """The peer sent something that is not the protocol; its connection is closed.

    Attributes:
        reason: What was wrong with it.
    """

    def __init__(self, peer: str, reason: str) -> None:
        super().__init__(peer, f"{peer} broke the protocol: {reason}")
        self.reason = reason


class TamperedError(WireError):
    """What came over an authenticated connection is not what the other end sent.

    It was changed, repeated, left out, put in, or sent back by someone between the two ends who
    does not know the secret, or the network damaged it. The connection is closed before anything of
    it is read; a new one may do better.
    """

    def __init__(self, peer: str) -> None:
        super().__init__(
            peer,
            f"what came from {peer} is not what it sent: somebody in between changed it, or the "
            "network damaged it; the connection is closed. If it comes again, look for a proxy on "
            "the way, or set spark.penstock.tls.enabled",
        )


class FrameTooLargeError(WireError):
    """A frame is larger than the limit. On the sending side nothing was sent.

    Attributes:
        size_bytes: What the frame says or has.
        limit_bytes: What is allowed (``spark.penstock.maxFrameSize``).
    """

    def __init__(self, peer: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            peer,
            f"a frame of {size_bytes} bytes to or from {peer} is larger than the limit of "
            f"{limit_bytes} bytes: raise spark.penstock.maxFrameSize",
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class AskTimeoutError(WireError, TimeoutError):
    """No answer came in time. The message may have been acted on all the same.

    Attributes:
        message_type: The name of the message that was asked.
        timeout_s: How long an answer was waited for, in seconds.
        connection: The state of the connection when the wait ended, in words.
    """

    def __init__(self, peer: str, message_type: str, timeout_s: float, connection: str) -> None:
        super().__init__(
            peer,
            f"{message_type} was not answered by {peer} within {timeout_s:g} s ({connection}); "
            "it may have been acted on all the same, so ask again only what may be asked twice",
        )
        self.message_type = message_type
        self.timeout_s = timeout_s
        self.connection = connection
