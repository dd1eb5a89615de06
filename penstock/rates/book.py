"""`RateBook`: the rates of all streams of a context or a host."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from penstock._arguments import as_rate
from penstock.errors import IllegalStateError, StreamGraphError
from penstock.rates.decision import Decision, RateLimits, StreamRate, decide
from penstock.rates.division import Division, Usage
from penstock.rates.estimators import RateEstimator, create_rate_estimator
from penstock.rates.memory import GroupPlan, GroupRate, RateMemory, RateSource
from penstock.runtime.clock import Clock
from penstock.settings import Settings
from penstock.wire.messages import ReportRateStatus

if TYPE_CHECKING:
    from penstock.tracker.receiver_tracker import SendRates

_DIVISION_S = 0.1
"""A group is divided again at most this often."""
_USED = 0.5
"""Slow start doubles when a batch has at least this part of what the rate allowed."""
_NOTHING_PASSES = (RateSource.BACKLOG, RateSource.PAUSED)


@dataclass
class _Running:
    """The state between start and stop."""

    limits: RateLimits
    batch_ms: int | None
    send: SendRates
    waits_for_consumers: Callable[[int], bool]
    usages: dict[int, Usage] = field(default_factory=dict)
    sent: dict[int, tuple[Decision, int]] = field(default_factory=dict)
    living: set[int] = field(default_factory=set)
    paused: set[int] = field(default_factory=set)
    taken_over: dict[int, int] = field(default_factory=dict)
    """Versions of the last rates by which a pause of each stream's own was taken over."""


class RateBook:
    """Decides every stream's rates, sends those that changed, and says what is in force.

    One lock guards all of it and the streams' `RateMemory`. Sending happens under the lock, so that
    rates leave in the order in which they were decided; it does not wait.

    Args:
        memories: Returns the memory of each stream that has a rate, by its number.
        limits: Reads what the settings say, before the start.
        clock: Monotonic time.
    """

    def __init__(
        self,
        memories: Callable[[], dict[int, RateMemory]],
        limits: Callable[[], RateLimits],
        clock: Clock,
    ) -> None:
        self._memories = memories
        self._read_limits = limits
        self._clock = clock
        self._lock = threading.RLock()
        self._running: _Running | None = None
        self._divisions: dict[int, tuple[GroupPlan, Division]] = {}
        self._divided_s: dict[int, float] = {}

    # -- what a program asks -------------------------------------------------------------------

    def set_rate(self, stream_id: int, rate: str | float | None) -> None:
        """See `ReceiverDStream.set_rate`."""
        asked = as_rate(rate)
        with self._lock:
            self._memory(stream_id).records_per_second = asked
            self._decide(stream_id)

    def set_byte_rate(self, stream_id: int, rate: str | float | None) -> None:
        """See `ReceiverDStream.set_byte_rate`."""
        asked = as_rate(rate)
        with self._lock:
            self._memory(stream_id).bytes_per_second = asked
            self._decide(stream_id)

    def set_paused(self, stream_id: int, is_paused: bool) -> None:
        """Let nothing of a stream pass, or go on with the rates that it has otherwise.

        It is not kept: a stream that is paused goes on when the program is started again.

        Raises:
            StreamGraphError: The stream has no receiver.
            IllegalStateError: Nothing runs.
        """
        with self._lock:
            if not self._memory(stream_id).has_receiver:
                raise StreamGraphError(f"stream {stream_id} has no receiver that could be paused")
            if self._running is None:
                raise IllegalStateError("the streams do not run")
            (self._running.paused.add if is_paused else self._running.paused.discard)(stream_id)
            self._decide(stream_id)

    def rate(self, stream_id: int) -> StreamRate:
        """Return a stream's rates as they are now."""
        running = self._running
        waits = running is not None and running.waits_for_consumers(stream_id)
        with self._lock:
            memory = self._memory(stream_id)
            running = self._running
            limits = self._read_limits() if running is None else running.limits
            decision = self._decided(stream_id, memory, limits)
            usage = None if running is None else running.usages.get(stream_id)
            version = 0 if running is None else running.sent[stream_id][1]
            if waits and decision.source is not RateSource.PAUSED:
                decision = replace(decision, source=RateSource.BACKLOG)
            return StreamRate(
                stream_id,
                memory.records_per_second,
                0.0 if decision.source in _NOTHING_PASSES else decision.records,
                decision.source,
                memory.bytes_per_second,
                decision.bytes,
                decision.byte_source,
                memory.estimate,
                None if usage is None else usage.rate,
                not memory.has_receiver or (usage is not None and usage.version >= version),
            )

    def rates(self) -> dict[int, StreamRate]:
        """Return the rates of all streams that have one, by their numbers."""
        with self._lock:
            return {stream_id: self.rate(stream_id) for stream_id in self._memories()}

    # -- groups --------------------------------------------------------------------------------

    def make_group(
        self, rate: str | float, stream_ids: Iterable[int], *, in_bytes: bool = False
    ) -> RateGroup:
        """See `StreamingContext.rateGroup`."""
        total = as_rate(rate)
        streams = tuple(dict.fromkeys(stream_ids))
        if total is None or not streams:
            raise ValueError("a group needs a total rate and at least one stream")
        plan = GroupPlan(total, streams, in_bytes)
        with self._lock:
            for stream_id in streams:
                if not self._memory(stream_id).has_receiver:
                    raise StreamGraphError(f"stream {stream_id} has no receiver; a group needs one")
                if self._memory(stream_id).group is not None:
                    raise StreamGraphError(f"stream {stream_id} belongs to another group already")
            for stream_id in streams:
                self._memory(stream_id).group = plan
            for stream_id in streams:
                self._decide(stream_id)
        return RateGroup(self, plan)

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Take it that streams have other numbers, before the start."""
        with self._lock:
            plans = {id(m.group): m.group for m in self._memories().values() if m.group is not None}
            for plan in plans.values():
                plan.streams = tuple(numbers[stream_id] for stream_id in plan.streams)
            self._divisions.clear()

    def set_group_rate(self, plan: GroupPlan, rate: str | float) -> None:
        """See `RateGroup.set_rate`."""
        total = as_rate(rate)
        if total is None:
            raise ValueError("a group needs a total rate")
        with self._lock:
            plan.total = total
            division = self._division(plan)
            division.set_total(total)
            self._send_shares(division)

    def group_rate(self, plan: GroupPlan) -> GroupRate:
        """See `RateGroup.rate`."""
        with self._lock:
            usages = {} if self._running is None else self._running.usages
            known = {stream: usages[stream] for stream in plan.streams if stream in usages}
            used = {
                stream: (usage.byte_rate if plan.in_bytes else usage.rate) or 0.0
                for stream, usage in known.items()
            }
            return GroupRate(plan.total, self._division(plan).shares, used)

    def _division(self, plan: GroupPlan) -> Division:
        known = self._divisions.get(id(plan))
        if known is None:
            # The plan is kept with it, so that its id stays its own.
            division = Division(plan.total, plan.streams, in_bytes=plan.in_bytes)
            if self._running is not None:
                for stream_id in self._running.living.intersection(plan.streams):
                    division.began(stream_id)
            known = self._divisions[id(plan)] = (plan, division)
        return known[1]

    def _decided(self, stream_id: int, memory: RateMemory, limits: RateLimits) -> Decision:
        plan = memory.group
        if plan is None:
            decision = decide(memory, limits, None)
        else:
            share = self._division(plan).shares[stream_id]
            decision = decide(memory, limits, share, share_in_bytes=plan.in_bytes)
        if self._running is not None and stream_id in self._running.paused:
            # The rates stay with it, for it gets them when it goes on.
            return replace(decision, source=RateSource.PAUSED)
        return decision

    # -- running -------------------------------------------------------------------------------

    def start(
        self,
        settings: Settings,
        batch_ms: int | None,
        send: SendRates,
        waits_for_consumers: Callable[[int], bool] = lambda stream_id: False,
    ) -> dict[int, RateEstimator]:
        """Send every stream's first rates; call before any receiver starts.

        Args:
            settings: The settings.
            batch_ms: The interval of the batches that rates may follow; None: there are none.
            send: Sends rates.
            waits_for_consumers: Whether nothing of a stream passes before it has been read; others
                notify the receiver of that.

        Returns:
            With backpressure, an estimator per stream, to be notified of batches.
        """
        limits = RateLimits.of(settings)
        if batch_ms is None:
            limits = replace(limits, has_backpressure=False)
        estimators = {}
        with self._lock:
            self._running = _Running(limits, batch_ms, send, waits_for_consumers)
            self._divisions.clear()
            for stream_id, memory in self._memories().items():
                if batch_ms is not None and limits.has_backpressure:
                    if memory.estimator is None:
                        memory.estimator = create_rate_estimator(settings, batch_ms)
                    estimators[stream_id] = memory.estimator
                else:
                    memory.estimate = None
                self._decide(stream_id)
        return estimators

    def stop(self) -> None:
        """Send nothing more."""
        with self._lock:
            self._running = None
            self._divisions.clear()

    def publish(self, stream_id: int, records_per_second: float) -> None:
        """Take what the estimator found."""
        with self._lock:
            self._memory(stream_id).estimate = records_per_second
            self._decide(stream_id)

    def follow_queries(self, stream_id: int, rate: float | None, source: RateSource) -> None:
        """Take what the queries of a stream can do together, and whose rate that is."""
        with self._lock:
            self._memory(stream_id).of_queries = rate, source
            self._decide(stream_id)

    def no_estimate(self, stream_id: int, elements: int) -> None:
        """Let slow start double when the batch used at least half of it."""
        with self._lock:
            running, memory = self._running, self._memory(stream_id)
            if running is None or running.batch_ms is None:
                return
            decision, _ = running.sent[stream_id]
            if decision.source is not RateSource.SLOW_START or decision.records is None:
                return
            if elements * 1000 >= _USED * decision.records * running.batch_ms:
                memory.slow_start = 2 * decision.records
                self._decide(stream_id)

    def take_queue_fill(self, stream_id: int) -> float:
        """Return how full the queue was at most since the last call."""
        with self._lock:
            usage = None if self._running is None else self._running.usages.get(stream_id)
            if usage is None:
                return 0.0
            fill, usage.queue_fill = usage.queue_fill, 0.0
            return fill

    def on_rate_status(self, report: ReportRateStatus) -> None:
        """Take a receiver's report; its group may be divided again."""
        with self._lock:
            running = self._running
            if running is None or report.stream_id not in self._memories():
                return
            now_s = self._clock.monotonic_s()
            usage = running.usages.setdefault(report.stream_id, Usage())
            usage.take(report, now_s)
            taken_over = running.taken_over.get(report.stream_id, 0)
            if report.is_held and report.rate_version >= taken_over:
                # It has paused itself since, and goes on when it is resumed. A report from before
                # that says nothing new: it may come after the stream was resumed.
                running.paused.add(report.stream_id)
                self._decide(report.stream_id, takes_over=True)
            plan = self._memory(report.stream_id).group
            if plan is None:
                return
            division = self._division(plan)
            division.confirmed(report.stream_id, report.rate_version)
            if now_s - self._divided_s.get(id(plan), -math.inf) >= _DIVISION_S:
                self._divided_s[id(plan)] = now_s
                usages = {stream: running.usages.get(stream, Usage()) for stream in plan.streams}
                division.divide(usages, self._caps(plan, running), now_s)
            self._send_shares(division)

    def receiver_started(self, stream_id: int) -> None:
        """Take note that a stream's receiver begins, with the rates that were sent last."""
        with self._lock:
            if self._running is None:
                return
            self._running.living.add(stream_id)
            plan = self._memory(stream_id).group
            if plan is not None:
                self._division(plan).began(stream_id)

    def receiver_stopped(self, stream_id: int) -> None:
        """Take note that a stream's receiver has ended; another one may come."""
        with self._lock:
            if self._running is None:
                return
            self._running.usages.pop(stream_id, None)
            self._running.living.discard(stream_id)
            plan = self._memory(stream_id).group
            if plan is not None:
                self._division(plan).ended(stream_id)

    def _caps(self, plan: GroupPlan, running: _Running) -> dict[int, float]:
        caps = {}
        for stream in plan.streams:
            alone = decide(self._memory(stream), running.limits, None)
            limit = alone.bytes if plan.in_bytes else alone.records
            if stream in running.paused:
                # It waits, and yet can use nothing: the others have its part until it goes on.
                limit = 0.0
            caps[stream] = math.inf if limit is None else limit
        return caps

    def _send_shares(self, division: Division) -> None:
        for stream_id in division.step():
            self._decide(stream_id)

    def _decide(self, stream_id: int, *, takes_over: bool = False) -> None:
        """Decide a stream's rates again, and send them if they changed or take over a pause."""
        running = self._running
        if running is None:
            return
        memory = self._memory(stream_id)
        decision = self._decided(stream_id, memory, running.limits)
        known = running.sent.get(stream_id)
        is_paused = decision.source is RateSource.PAUSED
        is_same = known is not None and (
            known[0].records,
            known[0].bytes,
            known[0].source is RateSource.PAUSED,
        ) == (decision.records, decision.bytes, is_paused)
        if known is not None and is_same and not takes_over:
            version = known[1]
        else:
            more = {"is_paused": True, "takes_over": takes_over} if is_paused else {}
            version = running.send(stream_id, decision.records, decision.bytes, **more)
            if takes_over:
                running.taken_over[stream_id] = version
        running.sent[stream_id] = (decision, version)
        if memory.group is not None:
            self._division(memory.group).was_sent(stream_id, version)

    def _memory(self, stream_id: int) -> RateMemory:
        memory = self._memories().get(stream_id)
        if memory is None:
            raise StreamGraphError(f"stream {stream_id} has no receiver, so it has no rate")
        return memory


class RateGroup:
    """A handle on a group of streams; made by `StreamingContext.rateGroup`.

    The driver divides the total again up to ten times a second, by what each receiver uses: one
    that does not need its part leaves it to those that wait. The shares that are in force never add
    up to more than the total.
    """

    def __init__(self, book: RateBook, plan: GroupPlan) -> None:
        self._book = book
        self._plan = plan

    @property
    def rate(self) -> GroupRate:
        """The group as it is now."""
        return self._book.group_rate(self._plan)

    def set_rate(self, rate: str | float) -> None:
        """Change the total, also while the context runs.

        Args:
            rate: Such as ``"300000/second"``; a number counts records per second, or bytes.

        Raises:
            ValueError: It is not one rate above 0.
        """
        self._book.set_group_rate(self._plan, rate)
