"""The ledger of a case behind a real connection, for tests without Spark."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.types import BinaryType, StructField, StructType

from penstock.blockstore import BlockAccess
from penstock.sql.source.host_client import HostClient
from penstock.tracker import Retention
from penstock.tracker._endpoint import TrackerEndpoint
from penstock.wire import ApplicationLink, WireOptions
from penstock.wire.messages import ListBlocks
from tests.tracker.place_cases import Case

__all__ = ["COLUMNS", "START_MS", "Racing", "logged", "of_seconds", "places", "release", "serving"]

COLUMNS = StructType([StructField("value", BinaryType())])
"""Of records that are bytes."""

SECRET = b"a secret of this test alone"

START_MS = 1_700_000_000_000
"""When a ledger of `of_seconds` begins."""


@contextlib.contextmanager
def serving(case: Case) -> Iterator[BlockAccess]:
    """Let a ledger be asked, and give what opens a connection to it."""
    endpoint = TrackerEndpoint(
        ApplicationLink(SECRET), case.ledger, host="127.0.0.1", port=0, options=WireOptions()
    )
    endpoint.places = case.service
    address = endpoint.start()
    try:
        yield BlockAccess({}, ApplicationLink(SECRET, address), fetch_timeout_s=10.0)
    finally:
        endpoint.stop()


def places(partitions: Any) -> list[int]:
    return [place for part in partitions for place in part.places]


def logged(offset: Any) -> Any:
    """Return an offset as it comes back from Spark's log."""
    return json.loads(json.dumps(offset))


def of_seconds(tmp_path: Path, count: int = 6) -> Case:
    """Return a ledger with a block each second."""
    case = Case(tmp_path, count=0, retention=Retention(None, 0))
    for _ in range(count):
        case.add(1)
        case.clock.advance(1000)
    return case


def release(case: Case, before: int) -> None:
    case.commit(before)
    case.release()
    assert case.ledger.places.stream(0).first == before


class Racing(HostClient):
    """Does something before each question for blocks."""

    def __init__(self, access: Any, meanwhile: Callable[[], None]) -> None:
        super().__init__(access)
        self._meanwhile = meanwhile

    def ask(self, message: Any, kind: Any) -> Any:
        if isinstance(message, ListBlocks):
            self._meanwhile()
        return super().ask(message, kind)
