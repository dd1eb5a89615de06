"""How it goes, in one sentence: what holds it up first, and what that means for the streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.monitor.records import Batch, Receiver

__all__ = ["Facts", "sentence"]

_MUCH_PERCENT = 30.0
"""A wait that takes at least this share of a receiver's time holds it up."""

_LIMITS = {
    "paused": "because it is paused",
    "estimator": "by backpressure",
    "slowStart": "by backpressure, which knows no rate yet",
    "group": "by its share of the group's rate",
    "user": "by the rate that was set",
    "maxRate": "by the rate in the settings",
    "initial": "by spark.streaming.backpressure.initialRate",
    "shared": "by the rate that it shares with other applications",
    "query": "by the slowest query that reads it",
    "backlog": "until queries have read some of what is there",
}

_WAITS = {
    "queue": "for its turn in the queue of blocks",
    "memory": "for memory, which the batches have not released yet",
    "log": "for its log",
    "replica": "for the replica on another host",
    "driver": "for the driver to take note of its blocks",
}


@dataclass(frozen=True)
class Facts:
    """What the sentence is made of.

    Attributes:
        batch_ms: The batch interval; None: there are no batches.
        has_started: Whether the streams have started.
        completed: How many batches are complete.
        waiting: How many wait.
        batches: The last that are complete, the newest last.
        receivers: The receivers.
        is_dropping: Whether the listener bus dropped events in the last second.
    """

    batch_ms: int | None
    has_started: bool
    completed: int
    waiting: int
    batches: Sequence[Batch]
    receivers: Sequence[Receiver]
    is_dropping: bool = False


def sentence(facts: Facts) -> str:
    """Return one sentence, which begins with what is worst."""
    if not facts.has_started:
        return "It has not started yet."
    found = [
        *_of_failures(facts),
        *_of_batches(facts),
        *_of_stopped(facts.receivers),
        *_of_waits(facts.receivers),
    ]
    if facts.is_dropping:
        found.append("a listener of the program is too slow, and events are dropped")
    if not found:
        found = [_of_flow(facts)]
    text = "; ".join(found)
    if not any(text.startswith(receiver.name) for receiver in facts.receivers):
        text = f"{text[0].upper()}{text[1:]}"
    return f"{text}."


def _of_failures(facts: Facts) -> list[str]:
    failed = [batch for batch in facts.batches if batch.error is not None]
    if not failed:
        return []
    if len(failed) == 1:
        return ["the last batch failed" if failed[0] is facts.batches[-1] else "a batch failed"]
    return [f"{len(failed)} of the last {len(facts.batches)} batches failed"]


def _of_batches(facts: Facts) -> list[str]:
    took = [batch.processing_ms for batch in facts.batches if batch.processing_ms is not None]
    if not took or facts.batch_ms is None:
        if facts.waiting > 1:
            return [f"{facts.waiting} batches wait and none is complete yet"]
        return []
    mean_ms = sum(took) / len(took)
    work = f"{mean_ms / 1000:.1f} s of work for {facts.batch_ms / 1000:g} s of batch"
    if mean_ms > facts.batch_ms:
        more = f", {facts.waiting} batches wait" if facts.waiting > 1 else ""
        return [f"the batches are the bottleneck: {work}{more}"]
    if facts.waiting > 1:
        return [f"{facts.waiting} batches wait and are being caught up with: {work}"]
    return []


def _of_stopped(receivers: Sequence[Receiver]) -> list[str]:
    stopped = [found for found in receivers if found.state != "running"]
    if not stopped:
        return []
    if len(stopped) > 1:
        return [f"{len(stopped)} of {len(receivers)} receivers do not run"]
    (one,) = stopped
    state = "is starting" if one.state == "starting" else "does not run"
    why = f" ({one.last_error.splitlines()[0][:200]})" if one.last_error else ""
    return [f"{one.name} {state}{why}"]


def _of_waits(receivers: Sequence[Receiver]) -> list[str]:
    found: list[str] = []
    for receiver in receivers:
        waits = receiver.waits
        if waits is None or receiver.state != "running":
            continue
        held = {name: part for name, part in waits.parts().items() if name in (*_WAITS, "tokens")}
        name = max(held, key=lambda part: held[part])
        if held[name] < _MUCH_PERCENT:
            continue
        if name == "tokens" and waits.limit == "unlimited":
            continue  # What held it was lifted just now.
        if name == "tokens":
            found.append(f"{receiver.name} is held {_at(receiver)}{_by(waits.limit)}")
        else:
            found.append(f"{receiver.name} waits {_WAITS[name]} {held[name]:.0f} % of the time")
    if len(found) > 2:
        more = len(found) - 2
        return [
            *found[:2],
            f"{more} more {'receiver is' if more == 1 else 'receivers are'} held up",
        ]
    return found


def _at(receiver: Receiver) -> str:
    rate = receiver.rate
    if rate is None or receiver.waits is None:
        return ""
    if receiver.waits.limit == "shared":
        return ""
    if rate.effective and receiver.waits.limit == rate.source:
        return f"at {rate.effective:,.0f} records/s "
    if rate.effective_bytes is not None:
        return f"at {rate.effective_bytes:,.0f} bytes/s "
    return ""


def _by(limit: str) -> str:
    return _LIMITS.get(limit, "by a limit")


def _of_flow(facts: Facts) -> str:
    if facts.batch_ms is not None and not facts.completed:
        return "no batch is complete yet"
    if facts.batch_ms is not None and not facts.receivers:
        mean = sum(batch.records for batch in facts.batches) / max(1, len(facts.batches))
        return f"data flows: {mean * 1000 / facts.batch_ms:,.0f} records/s"
    readings = [found.reading for found in facts.receivers if found.reading is not None]
    rate = sum(reading.records_per_second for reading in readings)
    if rate < 1 and not any(batch.records for batch in facts.batches):
        return "nothing comes in: the receivers wait for their sources"
    return f"data flows: {rate:,.0f} records/s, and nothing holds it up"
