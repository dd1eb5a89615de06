"""`QueryProgress`: what Spark tells of the queries of a session, for `QueryRates`."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.sql._query_rates import BatchOfQuery, QueryRates

_log = logging.getLogger("penstock.sql")


class QueryProgress(StreamingQueryListener):
    """Hands batches of queries on.

    It is called in a thread that the JVM waits for, so nothing is raised and nothing waited for.

    Args:
        session: The session whose queries these are.
        rates: Is told.
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
                # The first batch: its offset does not tell how many there were before it.
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
