"""`Listeners`: tells the user's listeners of receivers, and survives what they raise."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from penstock.tracker.receiver_tracking_info import ReceiverTrackingInfo, TrackedReceiver

__all__ = ["Listeners", "ReceiverTrackerEvents"]

_log = logging.getLogger("penstock.tracker")


class ReceiverTrackerEvents(Protocol):
    """Who is told of receivers. Called on the tracker's threads: must not block for long."""

    def receiver_started(self, info: TrackedReceiver, /) -> None:
        """A receiver registered."""

    def receiver_error(self, info: TrackedReceiver, /) -> None:
        """A receiver, or its job, had an error; it may go on."""

    def receiver_stopped(self, info: TrackedReceiver, /) -> None:
        """A receiver stopped; unless the tracker stops too, it starts again."""

    def permanent_error(self, stream_id: int, message: str, error: str, /) -> None:
        """A receiver cannot be started, however often it is tried; it is given up."""


class Listeners:
    """Calls a `ReceiverTrackerEvents`; what it raises is logged and harms nobody."""

    def __init__(self, events: ReceiverTrackerEvents) -> None:
        self._events = events

    def started(self, info: ReceiverTrackingInfo) -> None:
        """A receiver registered."""
        self._call(lambda: self._events.receiver_started(info.info))

    def error(self, info: ReceiverTrackingInfo) -> None:
        """A receiver had an error."""
        self._call(lambda: self._events.receiver_error(info.info))

    def stopped(self, info: ReceiverTrackingInfo) -> None:
        """A receiver stopped."""
        self._call(lambda: self._events.receiver_stopped(info.info))

    def gave_up(self, stream_id: int, message: str, error: str) -> None:
        """A receiver is given up."""
        _log.error("%s; it is given up", message)
        self._call(lambda: self._events.permanent_error(stream_id, message, error))

    @staticmethod
    def _call(event: Callable[[], None]) -> None:
        try:
            event()
        except Exception:  # noqa: BLE001 - the user's code; the tracker goes on
            _log.exception("a listener failed")
