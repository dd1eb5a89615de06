"""The ledger of a case behind a real connection, for tests without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from penstock.blockstore import BlockAccess
from penstock.tracker._endpoint import TrackerEndpoint
from penstock.wire import ApplicationLink, WireOptions
from tests.tracker.place_cases import Case

__all__ = ["serving"]

SECRET = b"a secret of this test alone"


@contextlib.contextmanager
def serving(case: Case) -> Iterator[BlockAccess]:
    """Let a ledger be asked, and give what opens a connection to it."""
    endpoint = TrackerEndpoint(SECRET, case.ledger, host="127.0.0.1", port=0, options=WireOptions())
    endpoint.places = case.service
    address = endpoint.start()
    try:
        yield BlockAccess({}, ApplicationLink(SECRET, address), fetch_timeout_s=10.0)
    finally:
        endpoint.stop()
