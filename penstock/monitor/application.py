"""`Application`: what the monitor asks a running context."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.host.receiver_readings import ReceiverReading
from penstock.streaming import ReceiverStatus, SchedulerStatistics, StreamRate

__all__ = ["Application"]


@dataclass(frozen=True)
class Application:
    """A running context, as the monitor sees it. Every function may be called by any thread.

    Attributes:
        name: What the program is called.
        application_id: Spark's id of it.
        batch_ms: The batch interval.
        streams: The inputs' names by their numbers, those without receivers as well.
        statistics: Returns how many batches wait, run and are done.
        receivers: Returns the receivers as they are.
        readings: Returns what receivers told last, by stream.
        rates: Returns the rates of the streams that have one.
    """

    name: str
    application_id: str
    batch_ms: int
    streams: Mapping[int, str]
    statistics: Callable[[], SchedulerStatistics]
    receivers: Callable[[], tuple[ReceiverStatus, ...]]
    readings: Callable[[], Mapping[int, ReceiverReading]]
    rates: Callable[[], Mapping[int, StreamRate]]
