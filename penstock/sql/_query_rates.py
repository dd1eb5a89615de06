"""`QueryRates`: receivers' rates that follow the queries of their streams.

An estimator takes batches of a batch interval. A query need not have one: without a trigger
interval it begins its next batch at once, however much or little has come. So it gets such a batch
as if it had an interval, of a second or more. (Where batches take longer than that however few
records they have, the rate would fall for good, and to no avail: the interval becomes twice what a
batch takes that has only what comes at the lowest rate.) So:

* its records are those that come in an interval, at the speed at which this batch's came;
* its processing delay is that of this batch. One that took less than the interval leaves room, and
  the rate rises until batches take about as long as the interval, as they do with DStreams;
* its scheduling delay is what is unread when it ends: the time that this takes at the batch's
  speed, beyond an interval. It counts up to a bound, so that a query that catches up with much
  does not hold its receiver up for good.

What must hold: the slowest query of those that run decides; with none left its streams have the
rate that they had before (`spark.streaming.backpressure.initialRate`, or no limit).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock._html import table_of
from penstock.rates import RateBook, RateEstimator, RateSource, create_rate_estimator
from penstock.runtime.clock import Clock
from penstock.runtime.rate_limited_log import RateLimitedLog
from penstock.settings import Settings
from penstock.settings.values import rate_per_second


class QueryProgress(StreamingQueryListener):
    """Hands batches of queries on.

    It is called in a thread that the JVM waits for, so nothing is raised and nothing waited for.

    Args:
        session: The session whose queries these are.
        rates: Is notified.
    """

    def __init__(self, session: SparkSession, rates: QueryRates) -> None:
        self._session = session
        self._rates = rates

    def onQueryStarted(self, event: Any) -> None:
        """Take note that a query has begun."""
        self._tell(lambda: self._rates.began(str(event.runId)))

    def onQueryProgress(self, event: Any) -> None:
        """Hand a batch on."""
        self._tell(lambda: self._completed(event.progress))

    def onQueryIdle(self, event: Any) -> None:
        """Take note that there is nothing to do."""
        self._tell(lambda: self._rates.has_nothing(str(event.runId)))

    def onQueryTerminated(self, event: Any) -> None:
        """Take note that a query has ended."""
        self._tell(lambda: self._rates.ended(str(event.runId)))

    def _completed(self, progress: Any) -> None:
        self._rates.completed(batch_of(progress), lambda: self._trigger_ms(str(progress.id)))

    def _trigger_ms(self, query_id: str) -> int | None:
        """Return a query's trigger interval, or None: it has none, or it cannot be asked."""
        try:
            query: Any = self._session.streams.get(query_id)
            return int(query._jsq.streamingQuery().trigger().intervalMs()) or None
        except (Py4JError, AttributeError, TypeError, ValueError):
            return None

    def _tell(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:  # noqa: BLE001  # it would reach Spark, which can do nothing about it
            _log.exception("What a query does is not known, and the receivers' rates stay")


def follow(session: SparkSession, rates: QueryRates) -> Callable[[], None]:
    """Let rates follow the queries of a session, and return what ends that."""
    listener = QueryProgress(session, rates)
    session.streams.addListener(listener)

    def end() -> None:
        try:
            session.streams.removeListener(listener)
        except (Py4JError, AttributeError, OSError) as error:
            _log.info("Spark is gone, and with it what it told of queries: %s", error)

    return end


def batch_of(progress: Any) -> BatchOfQuery:
    """Return a batch out of Spark's ``StreamingQueryProgress``."""
    durations = progress.durationMs
    took_ms = int(durations.get("triggerExecution", 0))
    begun = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00"))
    reads: dict[str, tuple[int, int]] = {}
    for source in progress.sources:
        starts, ends = _offsets(source.startOffset), _offsets(source.endOffset)
        for name, end in ends.items():
            start = starts.get(name)
            if start is not None and start["consumer"] == end["consumer"]:
                resumed = end.get("resumed") or start
                records = end["records"] - max(start["records"], resumed["records"])
            elif len(ends) == 1:
                # The first batch: its offset does not say how many there were before it.
                records = int(source.numInputRows)
            else:
                continue
            known = reads.get(end["stream"])
            # A query may read a stream more than once.
            reads[end["stream"]] = (
                (records, end["records"])
                if known is None
                else (max(records, known[0]), min(end["records"], known[1]))
            )
    return BatchOfQuery(
        str(progress.runId),
        progress.name or str(progress.id),
        round(begun.timestamp() * 1000),
        took_ms,
        max(0, took_ms - int(durations.get("addBatch", took_ms))),
        reads,
    )


def _offsets(text: str | None) -> dict[str, dict[str, Any]]:
    """Return an offset's parts by their streams; none if it is another source's, or there is none.

    That of a query of one stream is its only part, without a name.
    """
    try:
        found = json.loads(text or "")
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    parts = found.get("streams", {"": found})
    if not isinstance(parts, dict):
        return {}
    return {name: part for name, part in parts.items() if _is_ours(part)}


def _is_ours(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and isinstance(part.get("stream"), str)
        and isinstance(part.get("consumer"), str)
        and isinstance(part.get("records"), int)
    )


_INTERVAL_MS = 1000
"""The interval that is assumed of a query without a trigger interval."""
_TIMES_BESIDE = 4
"""The interval in multiples of what Spark needs beside the batch, so that most time is used."""
_TIMES_SMALLEST = 2
"""The interval in multiples of what the smallest batches take, so that half of it is for
records."""
_TIMES_LOWEST = 1.5
"""Batches up to this many times what comes at the lowest rate count as the smallest ones."""
_LONGEST_MS = 60_000
"""The longest interval that results."""
_MOST_WAITING = 2.5
"""Intervals of unread records that count: with PID's own weights half of the speed is left."""

_MOST_APART = 10
"""Intervals since the batch before that count. An estimator gets whole records and milliseconds of
one interval: of what came in a night too few are left to know the speed from."""

_log = logging.getLogger("penstock.sql")


@dataclass(frozen=True)
class QueryRate:
    """The rate of a stream that follows its queries, at one moment; in records per second.

    Attributes:
        stream: The stream's name.
        effective: The rate in force, or None when there is no limit.
        source: Whose it is: ``query``, ``slowStart`` (of a query that has just begun), ``initial``,
            ``maxRate``, ``user`` (asked for by ``penstock rate``), ``paused``, ``backlog`` or
            ``unlimited``.
        query: The name or the id of the slowest query; empty while none has a rate.
        estimates: What each query that runs can do, by its name or id.
    """

    stream: str
    effective: float | None
    source: str
    query: str
    estimates: Mapping[str, float]

    def _repr_html_(self) -> str:
        return table_of("Rate", [self])


@dataclass(frozen=True)
class BatchOfQuery:
    """A batch that a query has completed.

    Attributes:
        run: The run of the query.
        query: Its name, or its id.
        begun_ms: When it was triggered, ms since the epoch.
        took_ms: How long it took.
        beside_ms: What of that was not the batch's own jobs.
        reads: By the epoch of a stream: the records of the batch, and of the stream before its end.
    """

    run: str
    query: str
    begun_ms: int
    took_ms: int
    beside_ms: int
    reads: Mapping[str, tuple[int, int]]


@dataclass
class _Follower:
    """A run of a query, as one stream sees it."""

    query: str
    trigger_ms: int | None
    estimator: RateEstimator
    begun_ms: int | None = None
    rate: float | None = None
    smallest_ms: int | None = None
    """What its smallest batches take, where that is more than the interval."""

    def interval_ms(self, batch: BatchOfQuery, is_small: bool) -> int:
        """Return the interval that a batch counts for.

        Args:
            batch: The batch.
            is_small: It has no more than what comes at the lowest rate.
        """
        if self.trigger_ms is not None:
            return self.trigger_ms
        took_ms = batch.took_ms
        if self.smallest_ms is not None:
            self.smallest_ms = min(self.smallest_ms, took_ms)
        if is_small and took_ms > self._free_interval_ms(batch):
            self.smallest_ms = took_ms
        return self._free_interval_ms(batch)

    def _free_interval_ms(self, batch: BatchOfQuery) -> int:
        smallest_ms = min(_TIMES_SMALLEST * (self.smallest_ms or 0), _LONGEST_MS)
        return max(_INTERVAL_MS, _TIMES_BESIDE * batch.beside_ms, smallest_ms)


@dataclass
class FollowedStream:
    """A stream whose rate follows its queries.

    Attributes:
        stream_id: Its number.
        name: Its name.
        followers: The queries, by their runs.
    """

    stream_id: int
    name: str
    followers: dict[str, _Follower] = field(default_factory=dict)

    @property
    def estimates(self) -> list[tuple[float, str]]:
        return [
            (found.rate, found.query) for found in self.followers.values() if found.rate is not None
        ]


class QueryRates:
    """Reports to the rate book what queries can do. Any thread may come; `_lock` guards all of it.

    Args:
        streams: The streams that follow their queries, by epoch.
        settings: The settings: the estimator, and what holds beside it.
        records: Returns how many records a stream has.
        book: Has the rates of the streams, and sends them; does not wait.
        clock: Time, for the log.
    """

    def __init__(
        self,
        streams: Mapping[str, FollowedStream],
        settings: Settings,
        records: Callable[[int], int],
        book: RateBook,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._records = records
        self._book = book
        self._limited_log = RateLimitedLog(_log, clock)
        self._lock = threading.Lock()
        self._streams = streams
        self._beginning: set[str] = set()
        self._decide()

    # -- queries -------------------------------------------------------------------------------

    def began(self, run: str) -> None:
        """Take note that a query has begun; what it reads is not known yet."""
        with self._lock:
            self._beginning.add(run)
            self._decide()

    def has_nothing(self, run: str) -> None:
        """Take note that a query has nothing to do: nothing waits for it."""
        with self._lock:
            self._beginning.discard(run)
            self._decide()

    def ended(self, run: str) -> None:
        """Forget a query."""
        with self._lock:
            self._beginning.discard(run)
            for followed in self._streams.values():
                followed.followers.pop(run, None)
            self._decide()

    def completed(self, batch: BatchOfQuery, trigger_ms: Callable[[], int | None]) -> None:
        """Take what a batch reports.

        Args:
            batch: The batch.
            trigger_ms: Returns the trigger interval of the query, or None; asked once.
        """
        reads = {
            epoch: (*read, self._records(self._streams[epoch].stream_id))
            for epoch, read in batch.reads.items()
            if epoch in self._streams
        }
        is_new = any(batch.run not in self._streams[epoch].followers for epoch in reads)
        interval_ms = trigger_ms() if is_new else None
        with self._lock:
            if not reads or any(records for records, _, _ in reads.values()):
                self._beginning.discard(batch.run)
            for epoch, (records, end, there) in reads.items():
                followed = self._streams[epoch]
                follower = followed.followers.get(batch.run)
                if follower is None:
                    follower = followed.followers[batch.run] = _Follower(
                        batch.query,
                        interval_ms,
                        create_rate_estimator(self._settings, interval_ms or _INTERVAL_MS),
                    )
                self._estimate(followed, follower, batch, records, max(0, there - end))
            self._decide()

    def _estimate(
        self,
        followed: FollowedStream,
        follower: _Follower,
        batch: BatchOfQuery,
        records: int,
        unread: int,
    ) -> None:
        begun_ms, follower.begun_ms = follower.begun_ms, batch.begun_ms
        took_ms = batch.took_ms
        if records <= 0 or took_ms <= 0:
            return
        # Of the estimator, which cannot change; that of this batch may be longer.
        own_ms = follower.trigger_ms or _INTERVAL_MS
        # Its records came for this long: since the batch before. Of the first it is not known.
        came_ms = took_ms if begun_ms is None else max(1, batch.begun_ms - begun_ms)
        is_aimd = self._settings.rate_estimator == "aimd"
        lowest = self._settings.aimd_min_rate if is_aimd else self._settings.pid_min_rate
        is_small = records * 1000 <= _TIMES_LOWEST * lowest * came_ms
        interval_ms = follower.interval_ms(batch, is_small)
        came_ms = min(came_ms, max(took_ms, _MOST_APART * interval_ms))
        waits_ms = unread * took_ms / records - interval_ms
        waits_ms = min(max(0.0, waits_ms), _MOST_WAITING * interval_ms)
        rate = follower.estimator.compute(
            batch.begun_ms + took_ms,
            max(1, round(records * own_ms / came_ms)),
            max(1, round(took_ms * own_ms / max(interval_ms, came_ms))),
            round(waits_ms * own_ms / interval_ms),
            self._book.take_queue_fill(followed.stream_id),
        )
        if rate is None:
            if follower.rate is not None:
                return
            # The first batch only shows its speed, and may have been slow by starting up.
            rate = max(records * 1000 / took_ms, rate_per_second(self._settings.slow_start_rate))
        if int(rate) <= 0:
            return
        follower.rate = float(int(rate))
        if follower.rate <= lowest and took_ms > interval_ms:
            key = (
                "spark.penstock.backpressure.aimd.minRate"
                if is_aimd
                else "spark.streaming.backpressure.pid.minRate"
            )
            self._limited_log.log(
                f"stream {followed.name} has the lowest rate, {lowest:g} records per "
                f"second, because batches of query {follower.query} take {took_ms} ms, and their "
                f"interval is {interval_ms} ms: give the query a trigger interval several times "
                f'as long, as trigger(processingTime="10 seconds"), or lower {key}',
                about=followed.stream_id,
            )

    # -- receivers -----------------------------------------------------------------------------

    def rates(self) -> dict[str, QueryRate]:
        """Return the rates as they are now, by the streams' names."""
        with self._lock:
            return {found.name: self._rate(found) for found in self._streams.values()}

    def _rate(self, followed: FollowedStream) -> QueryRate:
        rate = self._book.rate(followed.stream_id)
        _, slowest = min(followed.estimates, default=(0.0, ""))
        estimates = {query: found for found, query in followed.estimates}
        return QueryRate(followed.name, rate.effective, rate.source.value, slowest, estimates)

    def _wanted(self, followed: FollowedStream) -> tuple[float | None, RateSource]:
        if rates := [rate for rate, _ in followed.estimates]:
            return min(rates), RateSource.QUERY
        initial = self._settings.backpressure_initial_rate
        if initial is not None:
            return float(initial), RateSource.INITIAL
        if self._beginning and self._settings.max_records_per_second is None:
            return rate_per_second(self._settings.slow_start_rate), RateSource.SLOW_START
        return None, RateSource.UNLIMITED

    def _decide(self) -> None:
        for followed in self._streams.values():
            self._book.follow_queries(followed.stream_id, *self._wanted(followed))
