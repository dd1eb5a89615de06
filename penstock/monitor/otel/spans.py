"""The spans of a block's way: what all its records waited for, one behind the other.

======================  ========================================================================
``penstock.block``      all of it
``store``               the block takes records, until it is sealed
``queue``               it waits for its turn at the log
``log``                 it is appended, and replicated to other hosts
``driver``              the driver writes its metadata down
``allocated``           it waits for its batch
``batch``               the batch, from its submission to its end
======================  ========================================================================

Until ``driver`` the times are by the clock of the receiver's host, from then on by the driver's.
No span begins before the one in front of it has ended, however far apart the two clocks are.
"""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.trace import Status, StatusCode, Tracer, set_span_in_context

from penstock.monitor.otel.ways import Way
from penstock.monitor.records import last_line


def add_spans(tracer: Tracer, way: Way, streams: Mapping[int, str]) -> None:
    """Have a tracer tell the way of a block.

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
"""Characters of what a batch failed of."""


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
