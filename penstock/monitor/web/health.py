"""``/health/live`` and ``/health/ready``, fit for the probes of Kubernetes.

Live: the program has streams, and somebody answers. A probe that starts a program anew because it
is slow makes it slower, so slowness is none of this. Ready: data can flow and does: the streams
have started, every receiver runs and has not failed again and again, and batches keep up. Both are
200, or 503 with the reasons, one a line.
"""

from __future__ import annotations

from penstock.monitor.model import Model
from penstock.monitor.records import BatchStatus
from penstock.monitor.sentence import stops_again
from penstock.monitor.web.exchange import Answer, text_answer

_LATE_INTERVALS = 10
_LATE_LEAST_MS = 30_000
"""The shortest time without a complete batch after which a program counts as hanging, whatever
its batch interval."""


def live() -> Answer:
    """Answer that somebody answers."""
    return text_answer("ok")


def ready(model: Model) -> Answer:
    """Answer whether data flows."""
    reasons = []
    totals = model.totals()
    if totals.started_ms is None:
        reasons.append("the streams have not started")
    elif not model.has_looked:
        reasons.append("the streams have only just started")
    for receiver in model.receivers():
        if receiver.state != "running":
            why = f": {receiver.last_error.splitlines()[0][:200]}" if receiver.last_error else ""
            reasons.append(f"{receiver.name} does not run{why}")
        elif again := stops_again(receiver):
            # Between two failures it runs: a probe would see now this, now that.
            reasons.append(f"{receiver.name} {again}")
    if totals.waiting > 1:
        reasons.append(f"{totals.waiting} batches wait")
    hanging = _of_hanging(model)
    if hanging:
        reasons.append(hanging)
    return _answer(reasons)


def _of_hanging(model: Model) -> str:
    totals = model.totals()
    batch_ms = model.application.batch_ms
    if totals.started_ms is None or batch_ms is None or not totals.waiting:
        return ""
    ends = [batch.end_ms for batch in model.batches(BatchStatus.COMPLETED) if batch.end_ms]
    since_ms = model.now_ms() - max(ends, default=totals.started_ms)
    if since_ms < max(_LATE_INTERVALS * batch_ms, _LATE_LEAST_MS):
        return ""
    return f"no batch was complete for {since_ms / 1000:.0f} s, and {totals.waiting} wait"


def _answer(reasons: list[str]) -> Answer:
    return text_answer("\n".join(reasons), 503) if reasons else text_answer("ok")
