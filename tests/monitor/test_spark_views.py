"""Spark's gauges of streams, while its JVM does not always take them."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark import SparkContext

from penstock.monitor import monitor
from penstock.monitor.model import Model
from penstock.monitor.monitor import SparkViews, gauges
from tests.monitor.asking import until
from tests.monitor.feeding import Program


def test_gauges_go_on_after_updates_that_failed_and_are_told_once(
    sc: SparkContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0

    def failing_twice(model: Model) -> dict[str, int]:
        nonlocal calls
        calls += 1
        if calls in (2, 3):  # The first one registers them.
            raise RuntimeError("the JVM is busy")
        return gauges(model)

    monkeypatch.setattr(monitor, "gauges", failing_twice)
    monkeypatch.setattr(monitor, "_EVERY_S", 0.01)
    program = Program()
    model: Any = program.start()
    program.batch(1, waits_ms=20, takes_ms=300)
    views = SparkViews(sc, model, None)
    with caplog.at_level("WARNING", logger="penstock.monitor"):
        views.start()
        try:
            until(lambda: views._gauges and completed(views) == 1)
        finally:
            views.stop(5.0)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["Spark's gauges of streams stand still: the JVM is busy"]


def test_a_host_has_no_gauges_of_batches(sc: SparkContext) -> None:
    for batch_ms, has_gauges in ((None, False), (1000, True)):
        model: Any = Program(batch_ms=batch_ms).start()
        views = SparkViews(sc, model, None)
        views.start()
        views.stop(30.0)
        assert bool(views._gauges) is has_gauges


def completed(views: SparkViews) -> int:
    """Return what the gauge says in the JVM."""
    value: int = views._gauges["totalCompletedBatches"].getValue()
    return value
