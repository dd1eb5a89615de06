"""The figures, and the spans of blocks, as OpenTelemetry has them."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Status, StatusCode, Tracer, set_span_in_context
from prometheus_client.core import Metric as Family

from penstock import __version__
from penstock.monitor.application import Application
from penstock.monitor.records import Batch, last_line
from penstock.wire.messages import BlockTrace, ReceivedBlockInfo

SCOPE = "penstock"

_UNITS = {"_seconds": "s", "_bytes": "By", "_ratio": "1", "_per_second": "{record}/s"}
"""Units by the end of a name; a collector that makes Prometheus names of them makes the same
ones."""


def metrics_data(
    families: Iterable[Family], resource: Resource, start_ms: int, now_ms: int
) -> MetricsData:
    """Return the figures, under the names that Prometheus has for them, but ``_total``.

    Args:
        families: The figures.
        resource: Of what they are.
        start_ms: Since when counters count, ms since the epoch.
        now_ms: When it is.
    """
    since, now = start_ms * 1_000_000, now_ms * 1_000_000
    metrics = [_metric(family, since, now) for family in families if family.samples]
    scope = ScopeMetrics(InstrumentationScope(SCOPE, __version__), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(family: Family, since: int, now: int) -> Metric:
    name, data = family.name, _data(family, since, now)
    if family.type == "info":
        name = f"{name}_info"
    unit = next((unit for end, unit in _UNITS.items() if name.endswith(end)), "")
    return Metric(name, family.documentation, unit, data)


def _data(family: Family, since: int, now: int) -> Sum | Gauge | Histogram:
    if family.type == "histogram":
        points = [_distribution(*each, since, now) for each in _distributions(family)]
        return Histogram(points, AggregationTemporality.CUMULATIVE)
    is_counter = family.type == "counter"
    numbers = [
        NumberDataPoint(dict(sample.labels), since if is_counter else 0, now, float(sample.value))
        for sample in family.samples
        # An enormous value or none says nothing to anyone.
        if math.isfinite(sample.value)
    ]
    if is_counter:
        return Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return Gauge(numbers)


def _distributions(family: Family) -> list[tuple[dict[str, str], dict[float, float], float]]:
    """Return, for each set of labels, how many were at most how much, and their sum."""
    found: dict[frozenset[tuple[str, str]], tuple[dict[float, float], list[float]]] = {}
    for sample in family.samples:
        labels = {name: text for name, text in sample.labels.items() if name != "le"}
        counts, sums = found.setdefault(frozenset(labels.items()), ({}, []))
        if sample.name.endswith("_bucket"):
            counts[float(sample.labels["le"])] = sample.value
        elif sample.name.endswith("_sum"):
            sums.append(sample.value)
    return [(dict(labels), counts, sum(sums)) for labels, (counts, sums) in found.items()]


def _distribution(
    labels: Mapping[str, str], at_most: Mapping[float, float], total: float, since: int, now: int
) -> HistogramDataPoint:
    bounds = sorted(at_most)
    counts = [int(at_most[bound]) for bound in bounds]
    each = [count - before for count, before in zip(counts, [0, *counts], strict=False)]
    unknown = cast(Any, None)  # The smallest and the largest of them.
    return HistogramDataPoint(
        dict(labels), since, now, counts[-1], total, each, bounds[:-1], unknown, unknown
    )


# The spans of a block's way: what all its records waited for, one behind the other.
#
# ======================  ========================================================================
# ``penstock.block``      all of it
# ``store``               the block takes records, until it is sealed
# ``queue``               it waits for its turn at the log
# ``log``                 it is appended, and replicated to other hosts
# ``driver``              the driver writes its metadata down
# ``allocated``           it waits for its batch
# ``batch``               the batch, from its submission to its end
# ======================  ========================================================================
#
# Until ``driver`` the times are by the clock of the receiver's host, from then on by the driver's.
# No span begins before the one in front of it has ended, however far apart the two clocks are.


def add_spans(tracer: Tracer, way: Way, streams: Mapping[int, str]) -> None:
    """Have a tracer record the way of a block.

    Args:
        tracer: Makes the spans.
        way: The way.
        streams: The streams' names by their numbers.
    """
    trace, block, batch = way.trace, way.block, way.batch
    submitted_s = (batch.submission_ms or batch.time_ms) / 1000
    parts = {
        "store": trace.sealed_s,
        "queue": trace.taken_s,
        "log": trace.stored_s,
        "driver": trace.known_s,
        "allocated": submitted_s,
        "batch": submitted_s if batch.end_ms is None else batch.end_ms / 1000,
    }
    root = tracer.start_span(
        "penstock.block",
        start_time=_nanoseconds(trace.since_s),
        attributes={
            "penstock.block.id": block.block_id,
            "penstock.block.records": block.num_records,
            "penstock.block.bytes": block.num_bytes,
            "penstock.stream": streams.get(block.stream_id, ""),
            "penstock.stream.id": block.stream_id,
            "penstock.receiver.host": block.host,
            "penstock.batch.time_ms": batch.time_ms,
        },
    )
    inside = set_span_in_context(root)
    begun = _nanoseconds(trace.since_s)
    for name, end_s in parts.items():
        ended = max(begun, _nanoseconds(end_s))
        span = tracer.start_span(name, inside, start_time=begun)
        if name == "batch":
            span.set_attribute("penstock.batch.records", batch.records)
            if batch.scheduling_delay_ms is not None:
                span.set_attribute("penstock.batch.scheduling_delay_ms", batch.scheduling_delay_ms)
            if batch.error is not None:
                failed = Status(StatusCode.ERROR, last_line(batch.error)[:_TEXT])
                span.set_status(failed)
                root.set_status(failed)
        span.end(ended)
        begun = ended
    root.end(begun)


_TEXT = 500
"""Characters of a batch's failure."""


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


_MOST = 2_000
"""Blocks that may wait for their batch or their receiver's times; beyond that, the oldest are
dropped."""


@dataclass(frozen=True)
class Way:
    """The way of a block to the end of its batch.

    Attributes:
        trace: Its times until the driver knew it.
        block: The block.
        batch: Its batch, which is complete.
    """

    trace: BlockTrace
    block: ReceivedBlockInfo
    batch: Batch


class Ways:
    """Waits until both parts of a block's way are known. For one thread.

    Args:
        application: Gives traces, and the blocks of a batch.
        every: One block in this many is traced.
    """

    def __init__(self, application: Application, every: int) -> None:
        self._application = application
        self._every = every
        self._looked_at: OrderedDict[int, None] = OrderedDict()
        self._traces: OrderedDict[str, BlockTrace] = OrderedDict()
        self._blocks: OrderedDict[str, tuple[ReceivedBlockInfo, int]] = OrderedDict()

    def take(self, batches: Iterable[Batch]) -> list[Way]:
        """Return the ways that are complete by now, each once.

        A lost report of a receiver loses its traces; what misses a part is given up in time.

        Args:
            batches: Those that the model keeps.
        """
        for trace in self._application.take_traces():
            self._traces[trace.block_id] = trace
        known = {batch.time_ms: batch for batch in batches}
        for time_ms in sorted(known):
            if time_ms not in self._looked_at:
                self._looked_at[time_ms] = None
                self._look_at(time_ms)
        found = []
        for block_id in [block_id for block_id in self._traces if block_id in self._blocks]:
            block, time_ms = self._blocks[block_id]
            batch = known.get(time_ms)
            if batch is not None and batch.end_ms is None:
                continue
            trace = self._traces.pop(block_id)
            del self._blocks[block_id]
            if batch is not None:
                found.append(Way(trace, block, batch))
        for kept in (self._traces, self._blocks):
            while len(kept) > _MOST:
                kept.popitem(last=False)
        while len(self._looked_at) > max(_MOST, len(known)):
            self._looked_at.popitem(last=False)
        return found

    def _look_at(self, time_ms: int) -> None:
        for block in self._application.blocks_of_batch(time_ms):
            if BlockTrace.is_due(block.block_id, self._every):
                self._blocks[block.block_id] = block, time_ms
