"""`Figures`: what the model has, as families of metrics: for Prometheus and for OpenTelemetry.

Names have their units, counters only grow, and labels are bounded: a stream's name and number, and
words of ours. Anyone who collects reads the model; nothing is counted here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from penstock.monitor.model import Model
from penstock.monitor.records import Totals

_STREAM = ("stream", "stream_id")
_QUERIES = 100
"""Queries of a stream that have a figure of their own."""


class Figures(Collector):
    """Reads the model at each collection.

    Args:
        model: The model.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        totals = self._model.totals()
        yield from self._of_application(totals)
        if self._model.application.batch_ms is not None:
            yield from self._of_batches(totals)
        yield from self._of_streams()
        yield from self._of_kept()
        yield from self._of_epochs()

    def _of_application(self, totals: Totals) -> Iterator[Metric]:
        application = self._model.application
        info = InfoMetricFamily("penstock_application", "The application")
        info.add_metric([], {"name": _text(application.name), "id": application.application_id})
        yield info
        if application.batch_ms is not None:
            yield _gauge(
                "penstock_batch_interval_seconds", "The batch interval", application.batch_ms / 1000
            )
        yield _counter(
            "penstock_blocks_skipped",
            "Blocks that batches left out because no host has them",
            application.skipped_blocks,
        )
        if totals.started_ms is not None:
            yield _gauge(
                "penstock_start_time_seconds",
                "When the streams started, seconds since the epoch",
                totals.started_ms / 1000,
            )

    def _of_batches(self, totals: Totals) -> Iterator[Metric]:
        unfinished = GaugeMetricFamily(
            "penstock_batches", "Batches that are not complete", labels=["state"]
        )
        unfinished.add_metric(["waiting"], totals.waiting)
        unfinished.add_metric(["running"], totals.running)
        yield unfinished
        yield _counter(
            "penstock_batches_completed", "Batches that are complete", totals.completed_batches
        )
        yield _counter(
            "penstock_batches_failed",
            "Complete batches with an output operation that failed",
            totals.failed_batches,
        )
        yield _counter(
            "penstock_records_begun", "Records of batches that began", totals.received_records
        )
        yield _counter(
            "penstock_records_processed",
            "Records of batches that are complete",
            totals.processed_records,
        )
        yield _counter(
            "penstock_events_dropped",
            "Events that no listener was told of, because one was too slow",
            totals.dropped_events,
        )
        for name, what, delays in self._model.delays():
            histogram = HistogramMetricFamily(f"penstock_batch_{name}_seconds", what)
            histogram.add_metric([], delays.buckets(), delays.sum_s)
            yield histogram

    def _of_streams(self) -> Iterator[Metric]:
        receivers = self._model.receivers()

        def gauge(name: str, what: str, *labels: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"penstock_{name}", what, labels=[*_STREAM, *labels])

        def counter(name: str, what: str) -> CounterMetricFamily:
            return CounterMetricFamily(f"penstock_{name}", what, labels=_STREAM)

        up = gauge("receiver_up", "Whether the receiver runs, or has nothing to read")
        attempts = counter("receiver_attempts", "How often the receiver was started")
        records = counter("received_records", "Records that are durable and known to the driver")
        blocks = counter("received_blocks", "The blocks that they are in")
        discarded = counter("discarded_records", "Records that the receiver discarded")
        dropped = counter("dropped_records", "Records that were dropped, as they came too fast")
        waits = gauge(
            "receiver_wait_ratio", "Part of the last second that the receiver waited", "for"
        )
        limit = gauge("rate_limit_records_per_second", "The rate in force", "by")
        passing = gauge("rate_records_per_second", "Records that pass the rate limiter")
        queue = gauge("blocks_waiting", "Blocks on their way to the driver", "at")
        unsealed = gauge("open_records", "Records that are in no sealed block yet")
        latency = Metric(
            "penstock_acknowledgement_latency_seconds",
            "From the sealing of a block to its acknowledgement, of the last blocks",
            "summary",
        )
        lag = gauge("source_lag_records", "Records that the source has and that are not stored")
        lag_s = gauge("source_lag_seconds", "By how long a stream is behind its source's end")
        log_bytes = gauge("log_appended_bytes", "Bytes that this attempt appended to its log")
        log_free = gauge("log_free_bytes", "Free bytes on the log's file system")
        segments = gauge("log_segments", "Segments of this attempt's log")
        slowest = gauge("log_slowest_sync_seconds", "The slowest sync of this attempt's log")
        for receiver in receivers:
            name = self._model.application.streams.get(receiver.stream_id, receiver.name)
            labels = [_text(name), str(receiver.stream_id)]
            up.add_metric(labels, receiver.state in ("running", "idle"))
            attempts.add_metric(labels, receiver.attempts)
            records.add_metric(labels, receiver.records)
            blocks.add_metric(labels, receiver.blocks)
            discarded.add_metric(labels, receiver.discarded)
            dropped.add_metric(labels, receiver.dropped)
            if receiver.rate is not None and receiver.rate.effective is not None:
                limit.add_metric([*labels, receiver.rate.source.value], receiver.rate.effective)
            if receiver.waits is not None:
                for what, percent in receiver.waits.parts().items():
                    waits.add_metric([*labels, what], percent / 100)
            reading = receiver.reading
            if reading is None:
                continue
            pipe = reading.pipe
            passing.add_metric(labels, reading.records_per_second)
            unsealed.add_metric(labels, pipe.open_records)
            queue.add_metric([*labels, "log"], pipe.queued_blocks)
            queue.add_metric([*labels, "driver"], pipe.stored_blocks)
            if pipe.source_lag is not None:
                lag.add_metric(labels, pipe.source_lag)
            if pipe.source_lag_ms is not None:
                lag_s.add_metric(labels, pipe.source_lag_ms / 1000)
            if pipe.latency_ms is not None:
                for quantile, late_ms in zip(("0.5", "0.99"), pipe.latency_ms, strict=True):
                    named = {**dict(zip(_STREAM, labels, strict=True)), "quantile": quantile}
                    latency.add_sample(latency.name, named, late_ms / 1000)
            if pipe.log is not None:
                log_bytes.add_metric(labels, pipe.log.bytes)
                segments.add_metric(labels, pipe.log.segments)
                slowest.add_metric(labels, pipe.log.slowest_sync_s)
                if pipe.log.free_bytes >= 0:
                    log_free.add_metric(labels, pipe.log.free_bytes)
        yield from (up, attempts, records, blocks, discarded, dropped, waits, limit, passing)
        yield from (lag, lag_s, queue, unsealed, latency, log_bytes, log_free, segments, slowest)

    def _labels(self, stream_id: int) -> list[str]:
        return [_text(self._model.application.streams.get(stream_id, "stream")), str(stream_id)]

    def _of_epochs(self) -> Iterator[Metric]:
        found = self._model.epochs()
        if not found:
            return
        epochs = CounterMetricFamily(
            "penstock_epochs_committed", "Epochs of a continuous stream", labels=_STREAM
        )
        records = CounterMetricFamily(
            "penstock_epoch_records", "Records of committed epochs", labels=_STREAM
        )
        age = GaugeMetricFamily(
            "penstock_epoch_age_seconds",
            "How long ago the first block came that is in no committed epoch",
            labels=_STREAM,
        )
        waits = GaugeMetricFamily(
            "penstock_epoch_waiting_tasks",
            "Tasks of a continuous stream by what they wait for",
            labels=[*_STREAM, "for"],
        )
        for stream_id, status in found.items():
            labels = self._labels(stream_id)
            epochs.add_metric(labels, status.committed + 1)
            records.add_metric(labels, status.records)
            age.add_metric(labels, (status.age_ms or 0) / 1000)
            for what, tasks in Counter(status.waits).items():
                waits.add_metric([*labels, what], tasks)
        yield from (epochs, records, age, waits)

    def _of_kept(self) -> Iterator[Metric]:
        found = self._model.kept()
        if not found:
            return
        size = GaugeMetricFamily(
            "penstock_kept_bytes", "Bytes of the blocks that are there for queries", labels=_STREAM
        )
        lag = GaugeMetricFamily(
            "penstock_query_lag_records",
            "Records of a stream that a query has not committed",
            labels=[*_STREAM, "query"],
        )
        for stream in found:
            labels = self._labels(stream.stream_id)
            size.add_metric(labels, stream.size_bytes)
            for query in stream.consumers[:_QUERIES]:
                lag.add_metric([*labels, _text(query.consumer)], query.records_behind)
        yield from (size, lag)


def _text(label: str) -> str:
    """Return a label that can be encoded: a name may be of a file whose name is no text."""
    return label.encode(errors="backslashreplace").decode()


def _gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, what, value=value)


def _counter(name: str, what: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, what, value=value)
