"""The three services of object storage, each as true as one machine has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.wal import ObjectFileSystem
from penstock.wal._objects.client import ObjectsClient
from tests.services import azurite, versitygw
from tests.services.azurite import AzuriteServer
from tests.services.google_storage import GoogleServer
from tests.services.versitygw import BUCKET, VersityServer

__all__ = ["BUCKET", "KINDS", "MOSTLY_S3", "ObjectServer", "files_of", "make_server"]

ObjectServer = VersityServer | AzuriteServer
"""A `GoogleServer` is a `VersityServer` with something before it."""

KINDS = ("s3", "gs", "abfss")
MOSTLY_S3 = (
    "s3",
    pytest.param("gs", marks=pytest.mark.exhaustive),
    pytest.param("abfss", marks=pytest.mark.exhaustive),
)
"""For tests that take long."""


def make_server(kind: str, folder: Path) -> ObjectServer:
    """Return a server, not started; where there is none the test is skipped.

    Args:
        kind: The scheme of its addresses.
        folder: What it keeps.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "abfss":
        return azurite.make_server(folder)
    return versitygw.make_server(folder, GoogleServer if kind == "gs" else VersityServer)


def files_of(server: ObjectServer) -> ObjectFileSystem:
    """Return the files of a server for the test itself; `locate` gives those of the first one."""
    return ObjectFileSystem(ObjectsClient(server.store(), server.authority), server.authority)
