"""`StreamRates`: the rates of a host's streams, of all who have a say in them.

Queries (`QueryRates`), who asks for a rate from outside, and a pause: what a receiver is told is
the lowest of them together, so that none of them undoes another. The settings hold beside it: a
receiver keeps to `spark.streaming.receiver.maxRate` by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock._arguments import as_rate
from penstock.settings import Settings
from penstock.wire.messages import ReportRateStatus

if TYPE_CHECKING:
    from penstock.tracker.receiver_tracker import SendRates


@dataclass(frozen=True)
class HostRate:
    """The rate of a stream of a host at one moment; in records or bytes per second.

    Attributes:
        stream_id: The stream.
        asked: What somebody asked for from outside, or None.
        effective: The rate in force, or None when there is no limit; 0 while nothing passes.
        source: Whose it is: ``paused``, ``backlog``, ``user``, ``query``, ``slowStart``,
            ``initial``, ``maxRate`` or ``unlimited``.
        effective_bytes: The bytes per second in force, or None when there is no limit.
    """

    stream_id: int
    asked: float | None
    effective: float | None
    source: str
    effective_bytes: float | None


@dataclass
class _Stream:
    follows_queries: bool
    of_queries: float | None
    """What its queries can do; of one that does not follow them, the rate in the settings."""
    asked: float | None = None
    is_paused: bool = False
    taken_over: int = 0
    """Version of the last rates by which a pause of the receiver's own was taken over."""

    @property
    def of_others(self) -> float | None:
        """The rate that holds beside what was asked for; the settings' gives way to that."""
        return self.of_queries if self.follows_queries or self.asked is None else None


class StreamRates:
    """Keeps what each of them says, and sends what follows. Any thread may come.

    `_lock` guards all of it; sending happens under it, so that rates leave in the order in which
    they were decided.

    Args:
        streams: The streams, and whether each follows its queries.
        settings: The settings.
        send: Sends rates.
        waits_for_consumers: Whether a stream waits for its queries (`maxBacklog`).
    """

    def __init__(
        self,
        streams: Mapping[int, bool],
        settings: Settings,
        send: SendRates,
        waits_for_consumers: Callable[[int], bool] = lambda stream_id: False,
    ) -> None:
        self._send = send
        self._waits_for_consumers = waits_for_consumers
        self._byte_rate = settings.max_bytes_per_second
        self._max_rate = settings.max_records_per_second
        initial = settings.backpressure_initial_rate
        # As receivers have it while they are told of nothing.
        first = None if initial is None else float(initial)
        self._lock = threading.Lock()
        self._streams = {
            stream_id: _Stream(follows, first) for stream_id, follows in streams.items()
        }

    # -- who has a say ---------------------------------------------------------------------------

    def set_of_queries(self, stream_id: int, records_per_second: float | None) -> int:
        """Take what the queries of a stream can do; return the version of what was sent."""
        with self._lock:
            stream = self._streams[stream_id]
            stream.of_queries = records_per_second
            return self._send_of(stream_id, stream)

    def set_rate(self, stream_id: int, rate: str | float | None) -> None:
        """Take the rate that somebody asks for; None: none of their own.

        Raises:
            ValueError, TypeError: It is no rate above 0.
        """
        asked = as_rate(rate)
        with self._lock:
            stream = self._streams[stream_id]
            stream.asked = asked
            self._send_of(stream_id, stream)

    def set_paused(self, stream_id: int, is_paused: bool) -> None:
        """Let nothing of a stream pass, or go on with the rate that it has otherwise.

        It is not kept: a stream that is paused goes on when the host is started again.
        """
        with self._lock:
            stream = self._streams[stream_id]
            stream.is_paused = is_paused
            self._send_of(stream_id, stream)

    def take_report(self, report: ReportRateStatus) -> None:
        """Take over the pause of a receiver that has paused itself: its budget is exceeded."""
        with self._lock:
            stream = self._streams.get(report.stream_id)
            if stream is None or not report.is_held:
                return
            # A report from before it was taken over may come after the stream was resumed.
            if report.rate_version >= stream.taken_over:
                stream.is_paused = True
                stream.taken_over = self._send_of(report.stream_id, stream, takes_over=True)

    # -- what holds ------------------------------------------------------------------------------

    def rate(self, stream_id: int, of_queries: tuple[float | None, str] | None = None) -> HostRate:
        """Return the rate of a stream as it is now.

        Args:
            stream_id: The stream.
            of_queries: What its queries can do, and whose rate that is; None: it does not follow
                them.
        """
        with self._lock:
            stream = self._streams[stream_id]
            limits = [
                (stream.asked, "user"),
                of_queries or (stream.of_others, "initial"),
                (self._max_rate, "maxRate"),
            ]
            known = [(limit, source) for limit, source in limits if limit is not None]
            effective: float | None
            effective, source = min(known, default=(None, "unlimited"), key=lambda each: each[0])
            is_paused = stream.is_paused
            asked = stream.asked
        if is_paused:
            effective, source = 0.0, "paused"
        elif self._waits_for_consumers(stream_id):
            effective, source = 0.0, "backlog"
        return HostRate(stream_id, asked, effective, source, self._byte_rate)

    def _send_of(self, stream_id: int, stream: _Stream, *, takes_over: bool = False) -> int:
        limits = [limit for limit in (stream.asked, stream.of_others) if limit is not None]
        return self._send(
            *(stream_id, min(limits, default=None), self._byte_rate),
            is_paused=stream.is_paused,
            takes_over=takes_over,
        )
