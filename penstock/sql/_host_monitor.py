"""A `ReceiverHost` as the monitor sees it: page, metrics, health and commands of its streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.host.errors import ContinuousStreamError, PermanentReceiverError
from penstock.host.receiver_readings import ReceiverReadings
from penstock.host.receivers import HostedReceivers
from penstock.host.terminal import TerminalLines, started_line, stopped_line
from penstock.runtime.clock import Clock
from penstock.settings import Settings

if TYPE_CHECKING:
    from pyspark import SparkContext

    from penstock.dead_letters import LetterTail
    from penstock.monitor import Application, Monitor, TrackerEvents
    from penstock.tracker import KeptStream, ReceiverTrackingInfo

_NEWEST_BLOCKS = 100
"""How many of the newest blocks are looked through for one that has records."""


@dataclass(frozen=True)
class WatchedHost:
    """What the monitor asks a host, and may have it do.

    Attributes:
        spark_context: Where its receivers run.
        streams: The streams' names by their numbers.
        hosted: The receivers and their tracker.
        letter_tail: Opens what reads its dead letters; None: this driver sees none.
        stop: Begins to stop the host: gracefully, or at once; does not wait.
    """

    spark_context: SparkContext
    streams: Mapping[int, str]
    hosted: HostedReceivers
    letter_tail: Callable[[], LetterTail] | None
    stop: Callable[[bool], None]

    def set_rate(self, stream_id: int, rate: str | float | None) -> None:
        """See `ReceiverHost.setRate`."""
        self.hosted.check_not_over(stream_id)
        self.hosted.readings.rates.set_rate(stream_id, rate)

    def set_paused(self, stream_id: int, is_paused: bool) -> None:
        """See `ReceiverHost.pause` and `ReceiverHost.resume`."""
        self.hosted.check_not_over(stream_id)
        self.hosted.readings.rates.set_paused(stream_id, is_paused)

    def kept(self) -> dict[int, KeptStream]:
        """Return what is kept of each stream, and its readers."""
        places = self.hosted.tracker.ledger.places
        return {stream_id: places.stream(stream_id) for stream_id in self.streams}

    def newest_records(self, stream_id: int, count: int) -> tuple[str, list[Any]] | None:
        """See `Application.newest_records`."""
        places = self.hosted.tracker.ledger.places
        end = places.stream(stream_id).next
        _, blocks, _ = places.between(stream_id, end - _NEWEST_BLOCKS, end)
        return self.hosted.first_records(blocks, count)

    def application(self) -> Application:
        """Return what the monitor is given."""
        # See `start_host_monitor`.
        from penstock.monitor import Application

        spark = self.spark_context
        return Application(
            name=spark.appName or "",
            application_id=spark.applicationId,
            batch_ms=None,
            streams=self.streams,
            receivers=self.hosted.status,
            readings=self.hosted.readings.readings,
            rates=self.hosted.readings.rates.rates,
            hosted=self.hosted,
            spark_conf=dict(spark.getConf().getAll()),
            kept=self.kept,
            spark_ui=spark.uiWebUrl,
            spark_context=spark,
            newest_records=self.newest_records,
            letter_tail=self.letter_tail,
            set_rate=self.set_rate,
            set_paused=self.set_paused,
            stop=self.stop,
        )


def start_host_monitor(
    host: WatchedHost,
    settings: Settings,
    events: HostEvents,
    say: Callable[[str], None],
    clock: Clock,
) -> Monitor | None:
    """Begin to watch a host whose receivers are about to start; see `start_monitor`.

    Args:
        host: The host.
        settings: Its settings.
        events: Notify the monitor of the receivers from now on.
        say: Shows a line to the person who started the program, and logs it.
        clock: Time.
    """
    # The one place of this room where the room above is named: it has to be begun from somewhere.
    from penstock.monitor import Model, TrackerEvents, start_monitor

    def tell(model: Model) -> None:
        events.monitor = told = TrackerEvents(model)
        told.started()

    return start_monitor(host.application(), settings, tell, say, clock)


class HostEvents:
    """Hands on what the tracker reports: to the host, to the terminal, and to the monitor.

    Args:
        on_error: Is notified of what is final.
        readings: What receivers report.
        lines: Say of receivers what a person wants to see.

    Attributes:
        monitor: Is notified of everything; None: no one looks.
    """

    def __init__(
        self,
        on_error: Callable[[PermanentReceiverError | ContinuousStreamError], None],
        readings: ReceiverReadings,
        lines: TerminalLines,
    ) -> None:
        self._on_error = on_error
        self.rate_status = readings.take
        self._readings = readings
        self._lines = lines
        self.monitor: TrackerEvents | None = None

    def receiver_started(self, info: ReceiverTrackingInfo, /) -> None:
        self._readings.started(info.stream_id)
        self._lines.say(
            started_line(info.name, info.location, info.executor_id), ("started", info.stream_id)
        )
        if self.monitor is not None:
            self.monitor.receiver_started(info)

    def receiver_error(self, info: ReceiverTrackingInfo, /) -> None:
        # It is in the tracker's log.
        if self.monitor is not None:
            self.monitor.receiver_error(info)

    def receiver_stopped(self, info: ReceiverTrackingInfo, /) -> None:
        self._readings.ended(info.stream_id)
        line = stopped_line(info.name, info.last_error_message, info.last_error)
        if line:
            self._lines.say(line, ("stopped", info.stream_id))
        if self.monitor is not None:
            self.monitor.receiver_stopped(info)

    def continuous_error(self, stream_id: int, message: str, error: str, /) -> None:
        self._on_error(ContinuousStreamError(stream_id, message, error))
        if self.monitor is not None:
            self.monitor.permanent_error(stream_id, message, error)

    def permanent_error(self, stream_id: int, message: str, error: str, /) -> None:
        self._on_error(PermanentReceiverError(stream_id, message, error))
        if self.monitor is not None:
            self.monitor.permanent_error(stream_id, message, error)
