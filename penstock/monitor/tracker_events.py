"""`TrackerEvents`: feeds a model where there is no listener bus, in a `ReceiverHost`."""

from __future__ import annotations

from penstock.monitor.model import Model
from penstock.streaming.listeners.events import (
    ReceiverError,
    ReceiverInfo,
    ReceiverStarted,
    ReceiverStopped,
    StreamingStarted,
)
from penstock.tracker import TrackedReceiver


class TrackerEvents:
    """A tracker's `ReceiverTrackerEvents` that feed a model.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    def started(self) -> None:
        """Take note that the receivers are being started."""
        self._model.onStreamingStarted(StreamingStarted(self._model.now_ms()))

    def receiver_started(self, info: TrackedReceiver, /) -> None:
        self._model.onReceiverStarted(ReceiverStarted(ReceiverInfo.of(info)))

    def receiver_error(self, info: TrackedReceiver, /) -> None:
        self._model.onReceiverError(ReceiverError(ReceiverInfo.of(info)))

    def receiver_stopped(self, info: TrackedReceiver, /) -> None:
        self._model.onReceiverStopped(ReceiverStopped(ReceiverInfo.of(info)))

    def permanent_error(self, stream_id: int, message: str, error: str, /) -> None:
        self._model.given_up(stream_id, message, error)
