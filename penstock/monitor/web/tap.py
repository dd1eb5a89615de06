"""`Tap`: some records as they pass, for who may act.

It reads the first records of a stream's newest block, one block at a time for all who ask: neither
receivers nor batches wait for it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

from penstock.errors import encodable
from penstock.monitor.application import Application

_MOST_RECORDS = 1000
_MOST_CHARACTERS = 2000
_DEPTH = 20


class Tap:
    """Shows records of an application's streams.

    Args:
        application: Whose.
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self._reading = threading.Lock()

    def records(self, stream_id: int, count: object) -> dict[str, Any]:
        """Return the newest block's id, None where there is none, and its first records.

        Raises:
            ValueError: The count is not accepted, or somebody else reads just now.
            IllegalStateError: The stream has no receiver.
        """
        if type(count) is not int or not 1 <= count <= _MOST_RECORDS:
            raise ValueError(f"count={count!r:.100} is not accepted: 1 to {_MOST_RECORDS}")
        if not self._reading.acquire(timeout=1.0):
            raise ValueError("somebody else reads a block just now; ask again")
        try:
            found = self._application.newest_records(stream_id, count)
        finally:
            self._reading.release()
        if found is None:
            return {"block": None, "records": []}
        block, records = found
        return {"block": block, "records": [_as_json(record, _DEPTH) for record in records]}


def _as_json(value: Any, depth: int) -> Any:
    """Return what JSON has for a record; what it has nothing for becomes text."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value[:_MOST_CHARACTERS]).decode("utf-8", "backslashreplace")
    if depth and isinstance(value, Mapping):
        pairs = list(value.items())[:_MOST_RECORDS]
        return {_text(key): _as_json(item, depth - 1) for key, item in pairs}
    if depth and isinstance(value, (list, tuple)):
        return [_as_json(item, depth - 1) for item in value[:_MOST_RECORDS]]
    return _text(value)


def _text(value: Any) -> str:
    return encodable(value if isinstance(value, str) else str(value))[:_MOST_CHARACTERS]
