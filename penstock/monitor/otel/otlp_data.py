"""The figures as OpenTelemetry has them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
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
from prometheus_client.core import Metric as Family

from penstock import __version__

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
        # An enormous value or none says nothing to anybody.
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
