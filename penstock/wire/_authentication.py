"""The mutual challenge: both ends prove that they know the secret; then who sent each frame.

Three messages of fixed size, little-endian:

1. server to client, *greeting*: magic 8 bytes, version u16, server nonce 32 bytes;
2. client to server, *hello*: magic, version, client nonce, client proof 32 bytes;
3. server to client, *verdict*: u8 (1 accepted, 0 refused), server proof 32 bytes (zeros when
   refused).

A proof is HMAC-SHA256 with the secret as key (RFC 2104, FIPS 198-1) over the role of the one who
proves, the service, the version and both nonces. A recorded proof is worthless, since the other
end's nonce is new each time. A reflected one is worthless, since the role differs. One made for
one service (the tracker) is worthless at another (a block server). Proofs are compared in
constant time.

From the secret and the nonces come also the keys that prove all that follows (`Seal`).

The two classes here only turn bytes into bytes; they do not read or write the socket. So the
asyncio ends and the blocking reader of blocks share them.

Each frame after it is also proved: who sent it, in which direction, and in which place (`Seal`).
The handshake proves two ends to each other once. An attacker in the middle could pass it on and
then speak itself. So each end has a key of its own for what it sends, which only one that knows the
secret can compute, and a tag follows all that it sends:

    key = HKDF-Expand(secret, "penstock <service> <role> frames", both nonces)    RFC 5869
    tag = BLAKE2b(key, count u64, what is sent), 16 bytes                         RFC 7693

The nonces are new for each connection, so that nothing of another one fits. The roles have
different keys, so that nothing fits that is sent back. The count of what was sent before is in no
frame: both ends know it, and what is repeated, left out or in another order does not fit.

BLAKE2b is the faster one for small frames: a keyed state is copied, where the HMAC of Python's
library takes more than twice the time.
"""

from __future__ import annotations

import enum
import hmac
import secrets
import struct
from hashlib import blake2b

from penstock.errors import IllegalStateError
from penstock.hkdf import derived_key
from penstock.wire.errors import AuthenticationError, TamperedError

TAG_BYTES = 16

TRACKER = "tracker"
"""The service whose two ends `Client` and `Server` prove; a block server is another one."""

_COUNT = struct.Struct("<Q")

PROTOCOL_VERSION = 2
MIN_SECRET_BYTES = 16
_MAGIC = b"PENSTOCK"
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_GREETING = struct.Struct(f"<{len(_MAGIC)}sH{_NONCE_BYTES}s")
_HELLO = struct.Struct(f"<{len(_MAGIC)}sH{_NONCE_BYTES}s{_PROOF_BYTES}s")
_VERDICT = struct.Struct(f"<B{_PROOF_BYTES}s")
_ACCEPTED = 1
_REFUSED = 0


class Seal:
    """The key and the count of one direction of one connection; for one thread.

    An end has one for what it sends and one for what it receives. What is sealed must show where
    its parts end: by lengths in it, or by a fixed size.
    """

    def __init__(self, key: bytes) -> None:
        self._keyed = blake2b(key=key, digest_size=TAG_BYTES)
        self._count = 0

    def tag(self, *parts: bytes | bytearray | memoryview) -> bytes:
        """Return the tag of what is sent next."""
        mac = self._keyed.copy()
        mac.update(_COUNT.pack(self._count))
        for part in parts:
            mac.update(part)
        self._count += 1
        return mac.digest()

    def check(
        self, peer: str, tag: bytes | memoryview, *parts: bytes | bytearray | memoryview
    ) -> None:
        """Check what was received next.

        Raises:
            TamperedError: It is not what the other end sent next. The connection is worthless.
        """
        # In constant time: how far a guess was right must not show.
        if not hmac.compare_digest(self.tag(*parts), tag):
            raise TamperedError(peer)


class Seals:
    """Both directions of one connection, as one end has them.

    Attributes:
        outgoing: Of what this end sends.
        incoming: Of what it receives.
    """

    __slots__ = ("incoming", "outgoing")

    def __init__(self, outgoing: bytes, incoming: bytes) -> None:
        self.outgoing = Seal(outgoing)
        self.incoming = Seal(incoming)


class HandshakeState(enum.Enum):
    """Where a handshake stands."""

    WAITING = "waiting for the peer"
    ACCEPTED = "the peer knows the secret"
    REFUSED = "the peer does not know the secret"


def _text(label: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    head = struct.pack("<HH", PROTOCOL_VERSION, len(label))
    return b"".join((head, label, server_nonce, client_nonce))


def _proof(
    secret: bytes, role: bytes, service: bytes, server_nonce: bytes, client_nonce: bytes
) -> bytes:
    text = _text(b"penstock %s %s" % (service, role), server_nonce, client_nonce)
    return hmac.digest(secret, text, "sha256")


def _key(
    secret: bytes, role: bytes, service: bytes, server_nonce: bytes, client_nonce: bytes
) -> bytes:
    """Return the key of what `role` sends."""
    text = _text(b"penstock %s %s frames" % (service, role), server_nonce, client_nonce)
    return derived_key(secret, text)


def _checked_secret(secret: bytes) -> bytes:
    if len(secret) < MIN_SECRET_BYTES:
        raise ValueError(
            f"a secret has at least {MIN_SECRET_BYTES} bytes; make one with os.urandom"
        )
    return secret


def _made(seals: Seals | None) -> Seals:
    if seals is None:
        raise IllegalStateError("there are no keys before the other end has proved itself")
    return seals


class ServerHandshake:
    """The server's half. Send `opening`, then give `receive` exactly `expects` bytes."""

    def __init__(self, secret: bytes, service: str) -> None:
        self._secret = _checked_secret(secret)
        self._service = service.encode()
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self._seals: Seals | None = None
        self.state = HandshakeState.WAITING
        self.reason = ""
        """Why the peer was refused."""

    @property
    def expects(self) -> int:
        """How many bytes `receive` needs next; 0 when it is over."""
        return _HELLO.size if self.state is HandshakeState.WAITING else 0

    def opening(self) -> bytes:
        """Return what goes out as soon as the connection stands."""
        return _GREETING.pack(_MAGIC, PROTOCOL_VERSION, self._nonce)

    def receive(self, data: bytes) -> bytes:
        """Judge the client's hello.

        Returns:
            What to send next. When `state` is `REFUSED` then, the connection is to be closed
            after it.
        """
        magic, version, client_nonce, proof = _HELLO.unpack(data)
        expected = _proof(self._secret, b"client", self._service, self._nonce, client_nonce)
        # The proof is compared in any case, so that timing shows nothing about which check failed.
        proved = hmac.compare_digest(expected, proof)
        if magic != _MAGIC:
            return self._refuse("it does not speak this protocol")
        if version != PROTOCOL_VERSION:
            return self._refuse(f"it speaks version {version}, this end {PROTOCOL_VERSION}")
        if client_nonce == self._nonce or not proved:
            return self._refuse("it does not know the secret of this application")
        self.state = HandshakeState.ACCEPTED
        bound_to = self._service, self._nonce, client_nonce
        self._seals = Seals(
            outgoing=_key(self._secret, b"server", *bound_to),
            incoming=_key(self._secret, b"client", *bound_to),
        )
        return _VERDICT.pack(_ACCEPTED, _proof(self._secret, b"server", *bound_to))

    def seals(self) -> Seals:
        """Return what proves all that follows, once the peer is accepted."""
        return _made(self._seals)

    def _refuse(self, reason: str) -> bytes:
        self.state = HandshakeState.REFUSED
        self.reason = reason
        return _VERDICT.pack(_REFUSED, bytes(_PROOF_BYTES))


class ClientHandshake:
    """The client's half. Send `opening` (nothing), then give `receive` exactly `expects` bytes."""

    def __init__(self, secret: bytes, service: str, peer: str) -> None:
        self._secret = _checked_secret(secret)
        self._service = service.encode()
        self._peer = peer
        self._nonce = secrets.token_bytes(_NONCE_BYTES)
        self._server_nonce: bytes | None = None
        self._seals: Seals | None = None
        self.state = HandshakeState.WAITING
        self.reason = ""

    @property
    def expects(self) -> int:
        """How many bytes `receive` needs next; 0 when it is over."""
        if self.state is not HandshakeState.WAITING:
            return 0
        return _GREETING.size if self._server_nonce is None else _VERDICT.size

    def opening(self) -> bytes:
        """Return what goes out as soon as the connection stands: nothing, the server begins."""
        return b""

    def receive(self, data: bytes) -> bytes:
        """Take the server's greeting, then its verdict.

        Returns:
            What to send next.

        Raises:
            AuthenticationError: The server refused, or could not prove itself.
        """
        if self._server_nonce is None:
            return self._answer_greeting(data)
        verdict, proof = _VERDICT.unpack(data)
        if verdict != _ACCEPTED:
            raise self._failed("it does not accept the secret of this process")
        bound_to = self._service, self._server_nonce, self._nonce
        expected = _proof(self._secret, b"server", *bound_to)
        if not hmac.compare_digest(expected, proof):
            raise self._failed("it could not prove that it knows the secret")
        self.state = HandshakeState.ACCEPTED
        self._seals = Seals(
            outgoing=_key(self._secret, b"client", *bound_to),
            incoming=_key(self._secret, b"server", *bound_to),
        )
        return b""

    def seals(self) -> Seals:
        """Return what proves all that follows, once both ends are accepted."""
        return _made(self._seals)

    def _answer_greeting(self, data: bytes) -> bytes:
        magic, version, server_nonce = _GREETING.unpack(data)
        if magic != _MAGIC:
            raise self._failed("what listens there does not speak this protocol")
        if version != PROTOCOL_VERSION:
            raise self._failed(
                f"it speaks version {version} of the protocol and this process {PROTOCOL_VERSION}: "
                "install the same Penstock on all hosts"
            )
        self._server_nonce = server_nonce
        proof = _proof(self._secret, b"client", self._service, server_nonce, self._nonce)
        return _HELLO.pack(_MAGIC, PROTOCOL_VERSION, self._nonce, proof)

    def _failed(self, reason: str) -> AuthenticationError:
        self.state = HandshakeState.REFUSED
        self.reason = reason
        return AuthenticationError(self._peer, reason)
