"""`QueriesOfRun`: the queries that `ReceiverHost.run` starts, watches and stops."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from penstock._arguments import refused
from penstock.host.spark.ending import run_bounded, stop_bounded
from penstock.sql._query_rates import batch_of
from penstock.tracker import KeptStream
from penstock.tracker.ledger.places import CONTINUOUS

_TOO_LATE = "Python worker failed to connect back"
"""What Spark says of a Python process that did not begin within its ten seconds."""

_TRIES = 6
_PAUSE_S = 10.0
"""At most this long before the first of them, and longer each time: processes that came too late
begin all the same, and several queries' would keep each other from it."""

_STOP_S = 30.0
_LOOK_S = 0.1

_log = logging.getLogger("penstock.sql")


class _Query:
    def __init__(self, given: DataStreamWriter | StreamingQuery) -> None:
        self._writer = given if isinstance(given, DataStreamWriter) else None
        self._query = None if isinstance(given, DataStreamWriter) else given
        self._tries = 0
        self._again_s: float | None = None
        self.is_over = False

    def start(self) -> None:
        if self._writer is not None:
            self._query, self._again_s = self._writer.start(), None

    def look(self, now_s: float) -> None:
        """Take note of its end, or start it again where it came too late.

        Raises:
            StreamingQueryException: It has failed.
        """
        if self._again_s is not None:
            if now_s >= self._again_s:
                self.start()
            return
        query = self._query
        if self.is_over or query is None or query.isActive:
            return
        error = query.exception()
        if error is None:
            self.is_over = True
            return
        # What has done a batch might do it twice: it may have no checkpoint of its own.
        if _TOO_LATE not in str(error) or query.lastProgress is not None:
            raise error
        told = (
            "Query %s has failed at its start: Spark gives its Python process ten seconds to "
            "begin, and this machine had no processor for it"
        )
        if self._writer is None or self._tries == _TRIES:
            _log.error(
                f"{told}. Start it again; host.run(writer), with what writeStream returns, does "
                "that by itself",
                self.name,
            )
            raise error
        self._tries += 1
        pause_s = random.uniform(0.0, _PAUSE_S * self._tries)
        self._again_s = now_s + pause_s
        _log.warning(f"{told}. It is started again in %.0f s", self.name, pause_s)

    def drain(self, end_s: float) -> None:
        """Let it read all that is stored, also when it comes too late and is started again.

        Raises:
            StreamingQueryException: It has failed.
        """
        while time.monotonic() < end_s:
            self.look(time.monotonic())
            if self.is_over:
                return
            query = self.active
            if query is not None:
                try:
                    query.processAllAvailable()
                except StreamingQueryException as error:
                    # The next look raises it, unless it came too late.
                    _log.debug("Query %s has not read all of its stream: %s", self.name, error)
                else:
                    return
            time.sleep(_LOOK_S)

    @property
    def active(self) -> StreamingQuery | None:
        query = self._query
        return query if self._again_s is None and query is not None and query.isActive else None

    @property
    def name(self) -> str:
        query = self._query
        return "" if query is None else str(query.name or query.id)

    def reached(self) -> Mapping[str, int]:
        """Return how many records it has read of each stream, by the stream's epoch."""
        progress = None if self._query is None else self._query.lastProgress
        if progress is None:
            return {}
        return {epoch: records for epoch, (_, records) in batch_of(progress).reads.items()}


class QueriesOfRun:
    """Not for several threads: one runs them.

    Args:
        given: What the program gave.

    Raises:
        TypeError: One is no query, and nothing that starts one.
    """

    def __init__(self, given: Sequence[Any]) -> None:
        for one in given:
            if not isinstance(one, (DataStreamWriter, StreamingQuery)):
                accepted = "what writeStream returns, or its query after start()"
                raise TypeError(refused("queries", one, accepted))
        self._queries = [_Query(one) for one in given]

    @property
    def has_queries(self) -> bool:
        """Whether there are any."""
        return bool(self._queries)

    def start(self) -> None:
        """Start those that are not."""
        for query in self._queries:
            query.start()

    def look(self) -> bool:
        """Look after all of them; whether there were some, and all have come to their end.

        Raises:
            StreamingQueryException: One has failed.
        """
        now_s = time.monotonic()
        for query in self._queries:
            query.look(now_s)
        return bool(self._queries) and all(query.is_over for query in self._queries)

    def drain(self, timeout_s: float) -> bool:
        """Let all read what their streams have; whether they have within the time."""
        end_s = time.monotonic() + timeout_s

        def process() -> None:
            for query in self._queries:
                query.drain(end_s)

        return run_bounded("drain", process, timeout_s)

    def stop(self) -> None:
        """Stop those that run."""

        def stop() -> None:
            try:
                for query in self._queries:
                    active = query.active
                    if active is not None:
                        active.stop()
            except (Py4JError, OSError) as error:
                _log.info("Spark is gone, and its queries with it: %s", error)

        stop_bounded("the queries", stop, _STOP_S)

    def told(self, streams: Mapping[str, KeptStream]) -> str:
        """Return how many records streams have, and how far each query has come, in words."""
        names = {stream.epoch: name for name, stream in streams.items()}
        parts = []
        for name, stream in streams.items():
            parts.append(f"{name} has {stream.records:,} records")
            behind = {each.consumer: each.records_behind for each in stream.consumers}
            if CONTINUOUS in behind:
                committed = stream.records - behind[CONTINUOUS]
                parts.append(f"its continuous function has committed {committed:,} of them")
        for query in self._queries:
            of_streams = [
                f"{records:,} of {names[epoch]}"
                for epoch, records in query.reached().items()
                if epoch in names
            ]
            parts.append(f"query {query.name} has read {', '.join(of_streams) or 'none'}")
        return "; ".join(parts)
