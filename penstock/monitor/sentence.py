"""How it goes, in one sentence: what holds it up first, and what that means for the streams."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.monitor.records import Batch, Receiver
from penstock.tracker import EpochStatus

_MUCH_PERCENT = 30.0
"""A wait that takes at least this share of a receiver's time holds it up."""

_OFTEN = 3
"""A receiver that stopped this often in ten minutes does so again and again."""
_LITTLE_BYTES = 1_000_000_000
"""With less than this on its disk a log is nearly full."""
_LAG_S = 10
"""A lag counts from this many seconds of what comes in."""
_LONG_LEAST_MS = 3_000
_LATE_EPOCH_MS = 5_000
"""An epoch that is this much older than its time is late."""
_LONG_MEANS = 2
"""A batch may run this long, or this many times the mean of batches, before it runs for too
long."""
_RESTARTING = re.compile(r"^Restarting receiver with delay \d+ ms: ")

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
    "backlog": "until its queries, or its function, have read some of it",
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
        running_ms: How long the running batch that began first has run.
        epochs: Where the epochs of continuous streams are, by the stream's name.
    """

    batch_ms: int | None
    has_started: bool
    completed: int
    waiting: int
    batches: Sequence[Batch]
    receivers: Sequence[Receiver]
    is_dropping: bool = False
    running_ms: int = 0
    epochs: Mapping[str, EpochStatus] = field(default_factory=dict)


def sentence(facts: Facts) -> str:
    """Return one sentence, which begins with what is worst."""
    if not facts.has_started:
        return "It has not started yet."
    found = [
        *_of_failures(facts),
        *_of_batches(facts),
        *_of_epochs(facts.epochs),
        *_of_stopped(facts.receivers),
        *(_of_troubles(facts.receivers) or _of_waits(facts.receivers)),
    ]
    if facts.is_dropping:
        found.append("a listener of the program is too slow, and events are dropped")
    if not found:
        found = [_of_flow(facts)]
    text = "; ".join(found)
    names = (*facts.epochs, *(receiver.name for receiver in facts.receivers))
    if not any(text.startswith(name) for name in names):
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
    mean_ms = sum(took) / len(took) if took else 0.0
    if facts.batch_ms is None:
        return []
    more = f", {facts.waiting} batches wait" if facts.waiting > 1 else ""
    of_batch = f"for {facts.batch_ms / 1000:g} s of batch"
    work = f"{mean_ms / 1000:.1f} s of work {of_batch}"
    if facts.running_ms > max(facts.batch_ms, _LONG_LEAST_MS, _LONG_MEANS * mean_ms):
        return [f"a batch has been running for {facts.running_ms / 1000:,.0f} s, {of_batch}{more}"]
    if mean_ms > facts.batch_ms:
        return [f"the batches are the bottleneck: {work}{more}"]
    if facts.waiting > 1:
        if not took:
            return [f"{facts.waiting} batches wait and none is complete yet"]
        return [f"{facts.waiting} batches wait and are being caught up with: {work}"]
    return []


def _of_epochs(epochs: Mapping[str, EpochStatus]) -> list[str]:
    late = {
        name: found.age_ms
        for name, found in epochs.items()
        if found.age_ms is not None and found.age_ms > found.epoch_ms + _LATE_EPOCH_MS
    }
    if not late:
        return []
    name = max(late, key=late.__getitem__)
    more = f", and {len(late) - 1} more are late" if len(late) > 1 else ""
    since = f"its first record that is in no epoch came {late[name] / 1000:,.0f} s ago"
    return [f"{name} waits for {epochs[name].waits_for}: {since}{more}"]


def _of_stopped(receivers: Sequence[Receiver]) -> list[str]:
    stopped = [
        found
        for found in receivers
        if found.state not in ("running", "idle") and not stops_again(found)
    ]
    if not stopped:
        return []
    if len(stopped) > 1:
        if all(found.state == "starting" for found in stopped):
            return [f"{len(stopped)} of {len(receivers)} receivers are starting"]
        return [f"{len(stopped)} of {len(receivers)} receivers do not run"]
    (one,) = stopped
    state = "is starting" if one.state == "starting" else "does not run"
    return [f"{one.name} {state}{_why(one)}"]


def troubles(receiver: Receiver) -> list[str]:
    """Return what a person should act on, to follow a receiver's name."""
    return [text for text in (found(receiver) for found in _TROUBLES) if text]


def _of_troubles(receivers: Sequence[Receiver]) -> list[str]:
    found = []
    for trouble, how_bad in _TROUBLES.items():
        having = [receiver for receiver in receivers if trouble(receiver)]
        if not having:
            continue
        having.sort(key=how_bad, reverse=True)
        more = len(having) - 1
        others = f"; so it is with {more} more" if more else ""
        found.append(f"{having[0].name} {trouble(having[0])}{others}")
    return found


def stops_again(receiver: Receiver) -> str:
    """Return that it has stopped again and again, to follow its name; empty: it has not."""
    count = receiver.lately.stops
    if count < _OFTEN:
        return ""
    return f"stopped {count} times in the last ten minutes{_why(receiver)}"


def _full(receiver: Receiver) -> str:
    free = _free_bytes(receiver)
    if not 0 <= free < _LITTLE_BYTES:
        return ""
    return f"has {free / 1e6:,.0f} MB left on the disk of its log"


def _behind(receiver: Receiver) -> str:
    lag, before, reading = receiver.lately.lag, receiver.lately.lag_before, receiver.reading
    if lag is None or before is None or reading is None:
        return ""
    if lag < _LAG_S * reading.records_per_second:
        return ""
    return f"falls behind its source: {lag:,} records, and {before:,} a minute ago"


def _discards(receiver: Receiver) -> str:
    return _lately("discarded", receiver.lately.discarded)


def _drops(receiver: Receiver) -> str:
    return _lately("dropped", receiver.lately.dropped)


def _lately(what: str, count: int) -> str:
    records = "record" if count == 1 else "records"
    return f"{what} {count:,} {records} in the last five minutes" if count else ""


def _free_bytes(receiver: Receiver) -> int:
    log = None if receiver.reading is None else receiver.reading.pipe.log
    return -1 if log is None else log.free_bytes


_TROUBLES: dict[Callable[[Receiver], str], Callable[[Receiver], int]] = {
    stops_again: lambda receiver: receiver.lately.stops,
    _full: lambda receiver: -_free_bytes(receiver),
    _behind: lambda receiver: receiver.lately.lag or 0,
    _drops: lambda receiver: receiver.lately.dropped,
    _discards: lambda receiver: receiver.lately.discarded,
}
"""What a person should act on, the worst first, and how bad it is."""


def _why(receiver: Receiver) -> str:
    lines = _RESTARTING.sub("", receiver.last_error).splitlines()
    return f" ({lines[0][:200]})" if lines else ""


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
    if rate.effective and receiver.waits.limit == rate.source.value:
        return f"at {rate.effective:,.0f} records/s "
    if rate.effective_bytes is not None:
        return f"at {rate.effective_bytes:,.0f} bytes/s "
    return ""


def _by(limit: str) -> str:
    return _LIMITS.get(limit, "by a limit")


def _of_flow(facts: Facts) -> str:
    if facts.batch_ms is not None and not facts.completed:
        return "no batch is complete yet"
    readings = [found.reading for found in facts.receivers if found.reading is not None]
    rate = sum(reading.records_per_second for reading in readings)
    if rate < 1 and facts.batch_ms is not None:
        # Not in the last second, or without receivers: as the last batches had it.
        mean = sum(batch.records for batch in facts.batches) / max(1, len(facts.batches))
        rate = mean * 1000 / facts.batch_ms
    if facts.batch_ms is not None and not facts.receivers:
        return f"data flows: {_rate(rate)}"
    if not rate:
        return "nothing comes in: the receivers wait for their sources"
    return f"data flows: {_rate(rate)}, and nothing holds it up"


def _rate(rate: float) -> str:
    return f"{rate:,.0f} records/s" if rate >= 1 or not rate else f"{rate:.2g} records/s"
