"""Keys out of one secret: HKDF-Expand with SHA-256 (RFC 5869)."""

from __future__ import annotations

import hmac


def derived_key(secret: bytes, info: bytes) -> bytes:
    """Return a key of 32 bytes, which reveals nothing of the secret or of others made from it.

    Its first block is enough, and one call of the standard library: receivers and batch tasks need
    it also where the package ``cryptography`` is not installed.

    Args:
        secret: 16 random bytes or more.
        info: What the key is for; never the same for two things.
    """
    return hmac.digest(secret, info + b"\x01", "sha256")
