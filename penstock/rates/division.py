"""How the total of a group is divided, and which share is in force where.

The rule is max-min fairness: anyone who uses less than an equal part gets what it uses, and the
others divide the rest equally (Bertsekas and Gallager, "Data Networks", section 6.5). A stream that
waits for permits wants a multiple of what it has; one that does not wants what it used of late, and
a little above that. A stream without records keeps a small reserve: with the first of them it
begins to wait, and each division from then on, one every quarter of a second, gives it several
times as much as before, up to its part. All at once would be sooner; but then a short wait of a
stream that needs little, as on a busy machine, would cost the others an equal part each time.

At every moment the shares that may be in force, confirmed or on their way, add up to the total at
most: what one loses is given to another only after the receiver has confirmed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.wire.messages import ReportRateStatus

_RESERVE = 0.005
"""Part of the total that streams without records keep, all together."""
_HEADROOM = 1.005
"""What a stream that does not wait is given, relative to what it used. Bursts use its savings."""
_MEMORY_S = 2.0
"""Time constant of the average use."""
_GROWTH = 4.0
"""A stream that waits wants this many times its share, ..."""
_FIRST = 8.0
"""... and at least this many times the reserve."""
_LEAST_S = 0.2
"""The least time between two reports that give a speed. Confirmations come sooner."""
_WAITED = 0.02
"""A stream that waited for more than this part of the time wants more."""
_STALE_S = 2.0
"""A receiver that has not reported for this long counts as using nothing."""
_STEP = 0.0005
"""Changes below this part of the total are not worth a message."""


def share_out(total: float, demands: Mapping[int, float]) -> dict[int, float]:
    """Divide a total by max-min fairness.

    Args:
        total: Above 0.
        demands: What each one wants; `math.inf` for as much as there is.

    Returns:
        The shares. Their sum is `total`: what no one wants is divided equally.
    """
    shares = {}
    left, waiting = total, sorted(demands, key=lambda stream: demands[stream])
    while waiting:
        level = left / len(waiting)
        stream = waiting[0]
        if demands[stream] > level:
            shares.update(dict.fromkeys(waiting, level))
            return shares
        shares[stream] = demands[stream]
        left -= demands[stream]
        waiting.pop(0)
    return {stream: share + left / len(shares) for stream, share in shares.items()}


@dataclass
class Usage:
    """What is known of how a stream's rate is used.

    Attributes:
        rate: Records per second, averaged; None before there are two reports of an attempt.
        byte_rate: The same in bytes.
        is_hungry: Whether it waited for its rate of records; nothing else that it waits for, such
            as a limit of its own, is a reason to give it more.
        is_hungry_for_bytes: The same for bytes.
        queue_fill: The fullest that its queue was since that was last asked.
        seen_s: When the last report came, on the driver's clock.
        version: Of the rates that it has in force.
    """

    rate: float | None = None
    byte_rate: float | None = None
    is_hungry: bool = False
    is_hungry_for_bytes: bool = False
    queue_fill: float = 0.0
    seen_s: float = -math.inf
    version: int = 0
    _last: ReportRateStatus | None = field(default=None, repr=False)

    def take(self, report: ReportRateStatus, now_s: float) -> None:
        """Take note of a report."""
        self.seen_s = now_s
        self.version = report.rate_version
        self.queue_fill = max(self.queue_fill, report.queue_fill)
        last = self._last
        if last is None or last.attempt != report.attempt:
            self._last = report
            self.rate = self.byte_rate = None
            self.is_hungry = self.is_hungry_for_bytes = report.is_waiting
            return
        seconds = report.at_s - last.at_s
        if seconds < _LEAST_S:
            return
        self._last = report
        rate = max(0, report.records - last.records) / seconds
        byte_rate = max(0, report.bytes - last.bytes) / seconds
        was_hungry = self.is_hungry or self.is_hungry_for_bytes
        of_records = report.waited_s - last.waited_s > _WAITED * seconds
        of_bytes = report.byte_waited_s - last.byte_waited_s > _WAITED * seconds
        # One that has only just begun to wait may do so for either.
        begins = report.is_waiting and not (of_records or of_bytes)
        self.is_hungry, self.is_hungry_for_bytes = of_records or begins, of_bytes or begins
        is_hungry = self.is_hungry or self.is_hungry_for_bytes
        # What it used while it was held back says nothing about what it uses now.
        is_known = self.rate is not None and (is_hungry or not was_hungry)
        weight = 1 - math.exp(-seconds / _MEMORY_S) if is_known else 1.0
        self.rate = (self.rate or 0.0) * (1 - weight) + rate * weight
        self.byte_rate = (self.byte_rate or 0.0) * (1 - weight) + byte_rate * weight

    def demand(
        self, now_s: float, share: float, reserve: float, *, in_bytes: bool = False
    ) -> float:
        """Return the records per second that it wants, or the bytes.

        Args:
            now_s: The driver's clock.
            share: What it has.
            reserve: What it has at least.
            in_bytes: Whether these are bytes.
        """
        if now_s - self.seen_s > _STALE_S:
            return reserve
        if self.is_hungry_for_bytes if in_bytes else self.is_hungry:
            return max(_GROWTH * share, _FIRST * reserve)
        used = self.byte_rate if in_bytes else self.rate
        return max((used or 0.0) * _HEADROOM, reserve)


class Division:
    """The shares of one group: wanted, sent, and confirmed. Guarded by its `RateBook`'s lock.

    Args:
        total: Records per second, or bytes.
        streams: The members.
        in_bytes: Whether it is bytes.
    """

    def __init__(self, total: float, streams: tuple[int, ...], *, in_bytes: bool = False) -> None:
        self._total = total
        self._in_bytes = in_bytes
        self._wanted = dict.fromkeys(streams, total / len(streams))
        self._shares = dict(self._wanted)
        # Per stream, the versions of its rates that may be in force, and the share in each.
        self._sent: dict[int, list[tuple[int, float]]] = {stream: [] for stream in streams}
        self._living: set[int] = set()

    @property
    def shares(self) -> dict[int, float]:
        """The share of each stream, as it was decided last."""
        return dict(self._shares)

    def set_total(self, total: float) -> None:
        """Divide another total from now on, in the proportions of now."""
        factor = total / self._total
        self._total = total
        self._wanted = {stream: share * factor for stream, share in self._wanted.items()}

    def was_sent(self, stream_id: int, version: int) -> None:
        """Take note that the stream's share of now is on its way, as part of these rates."""
        sent = self._sent[stream_id]
        # Without a receiver, or as part of the same rates, only the last can ever be in force.
        if sent and (stream_id not in self._living or sent[-1][0] == version):
            sent.pop()
        sent.append((version, self._shares[stream_id]))

    def began(self, stream_id: int) -> None:
        """Take note that a receiver begins, with the rates that were sent last."""
        self._living.add(stream_id)

    def confirmed(self, stream_id: int, version: int) -> None:
        """Take note that a receiver has these rates in force, and so none before them."""
        sent = self._sent[stream_id]
        while len(sent) > 1 and sent[1][0] <= version:
            sent.pop(0)

    def ended(self, stream_id: int) -> None:
        """Take note that a receiver has ended: the next one gets the last rates."""
        self._living.discard(stream_id)
        del self._sent[stream_id][:-1]

    def divide(self, usages: Mapping[int, Usage], caps: Mapping[int, float], now_s: float) -> None:
        """Decide what each stream should have.

        Args:
            usages: How the members' rates are used.
            caps: What each may have at most for other reasons.
            now_s: The driver's clock.
        """
        reserve = _RESERVE * self._total / len(self._shares)
        demands = {
            stream: min(
                usages[stream].demand(now_s, share, reserve, in_bytes=self._in_bytes),
                max(caps[stream], reserve),
            )
            for stream, share in self._shares.items()
        }
        self._wanted = share_out(self._total, demands)

    def step(self) -> list[int]:
        """Move the shares towards what is wanted, as far as what is confirmed allows.

        Returns:
            The streams whose shares have changed; they are to be sent.
        """
        least = _STEP * self._total
        is_over = sum(self._shares.values()) > self._total
        changed = [
            stream
            for stream, share in self._shares.items()
            if share - self._wanted[stream] > (0.0 if is_over else least)
        ]
        for stream in changed:
            self._shares[stream] = self._wanted[stream]
        wishes = {
            stream: self._wanted[stream] - share
            for stream, share in self._shares.items()
            if self._wanted[stream] - share > least
        }
        spare = self._total - sum(self._committed(stream) for stream in self._shares)
        if not wishes or spare <= least:
            return changed
        factor = min(1.0, spare / sum(wishes.values()))
        for stream, wish in wishes.items():
            if wish * factor > least or factor == 1.0:
                self._shares[stream] += wish * factor
                changed.append(stream)
        return changed

    def _committed(self, stream_id: int) -> float:
        """Return the largest share that may be in force."""
        return max([self._shares[stream_id], *(share for _, share in self._sent[stream_id])])
