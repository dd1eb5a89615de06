"""Keys out of one secret, beside the implementation of `cryptography`."""

from __future__ import annotations

import os

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from penstock.hkdf import derived_key


def test_keys_are_those_of_hkdf_expand() -> None:
    for info in (b"", b"penstock key id", os.urandom(300)):
        secret = os.urandom(32)
        assert derived_key(secret, info) == HKDFExpand(SHA256(), 32, info).derive(secret)
