"""What the inputs of a batch report: how many records, and what people may want to see."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.errors import IllegalStateError


@dataclass(frozen=True)
class BatchInput:
    """What one input has for one batch.

    Attributes:
        input_stream_id: The stream.
        num_records: Its records in this batch.
        metadata: More about them; the key ``Description`` is meant for people.
    """

    input_stream_id: int
    num_records: int
    metadata: Mapping[str, object] = field(default_factory=dict)


class InputInfoTracker:
    """Keeps what inputs report, by batch time, until the batch is cleared. Its lock guards all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_time: dict[int, dict[int, BatchInput]] = {}

    def report_info(self, time_ms: int, info: BatchInput) -> None:
        """Take what an input has for a batch; once per batch and input."""
        with self._lock:
            infos = self._by_time.setdefault(time_ms, {})
            if info.input_stream_id in infos:
                raise IllegalStateError(
                    f"input stream {info.input_stream_id} for batch {time_ms} is already added "
                    "into InputInfoTracker, this is an illegal state"
                )
            infos[info.input_stream_id] = info

    def get_info(self, time_ms: int) -> dict[int, BatchInput]:
        """Return what is known of a batch, by stream id."""
        with self._lock:
            return dict(self._by_time.get(time_ms, ()))

    def cleanup(self, threshold_ms: int) -> None:
        """Forget batches before `threshold_ms`."""
        with self._lock:
            for time_ms in [time for time in self._by_time if time < threshold_ms]:
                del self._by_time[time_ms]
