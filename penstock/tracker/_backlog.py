"""`Backlogs`: streams whose queries do not keep up let nothing pass until one has.

What no query has read yet lies in the logs, and would fill the disk. So a stream may have a bound:
once so many bytes are unread, its receiver is paused, as by hand, and who calls `store` waits. It
goes on when a quarter of them is read, is released, or is needed by nobody any more.

What must hold:

- *Nothing goes because of it.* It only keeps more from coming.
- *It ends.* Spark commits a batch when it begins the next one, and there is none while nothing
  comes. So a consumer has read all before the place at which it asks for more, though what it has
  not committed yet stays for it.
- *Who comes late holds nobody up.* What was there before a consumer does not count for it.
- What was on its way when the bound was reached is still taken, so the bound is passed by as much
  as a receiver has in hand.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.clock import Clock
from penstock.rate_limited_log import RateLimitedLog
from penstock.tracker.places import Places, Retention

_GOES_ON = 0.75
"""The part of the bound below which a stream goes on, so that it does not stop and go with each
block."""

_log = logging.getLogger("penstock.tracker")


@dataclass(frozen=True)
class Bound:
    """What a stream may have unread.

    Attributes:
        name: Its name.
        size_bytes: With so much its receiver waits.
        retention: Its retention.
    """

    name: str
    size_bytes: int
    retention: Retention

    @property
    def is_retention_enough(self) -> bool:
        """Whether the retention bounds what is there while nobody reads it."""
        return self.retention.size_bytes is not None and self.retention.time_ms != 0


class Backlogs:
    """Compares what is unread of streams with their bounds. Safe to use from any thread.

    `_lock` guards what is known here, and orders what `hold` is told.

    Args:
        places: The ledger's.
        bounds: The streams that have one, by number.
        hold: Lets nothing of a stream pass, or lets it go on; must not block.
        clock: Time.
    """

    def __init__(
        self,
        places: Places,
        bounds: Mapping[int, Bound],
        hold: Callable[[int, bool], None],
        clock: Clock,
    ) -> None:
        self._places = places
        self._bounds = dict(bounds)
        self._hold = hold
        self._lock = threading.Lock()
        self._reached: dict[int, dict[str, int]] = {stream_id: {} for stream_id in bounds}
        self._held: set[int] = set()
        self._limited_log = RateLimitedLog(_log, clock)

    def reached(self, stream_id: int, consumer: str, place: int) -> None:
        """Take note that what lies before a place counts for a consumer no more.

        It has read that and asks for more, or that was there before it came.
        """
        if stream_id not in self._bounds:
            return
        with self._lock:
            known = self._reached[stream_id]
            known[consumer] = max(place, known.get(consumer, 0))
        self.check(stream_id)

    def is_held(self, stream_id: int) -> bool:
        """Whether a stream waits for its consumers."""
        with self._lock:
            return stream_id in self._held

    def check(self, stream_id: int | None = None) -> None:
        """Stop streams that are at their bounds, and let those go on that are not any more.

        Args:
            stream_id: One of them; None: all.
        """
        for found in self._bounds:
            if stream_id is None or found == stream_id:
                with self._lock:
                    self._check(found)

    def _check(self, stream_id: int) -> None:
        bound = self._bounds[stream_id]
        size, slowest = self._places.unread(stream_id, self._reached[stream_id])
        if not slowest and bound.is_retention_enough:
            size = 0
        is_held = stream_id in self._held
        if not is_held and size >= bound.size_bytes:
            self._held.add(stream_id)
            self._hold(stream_id, True)
            who = (
                f"consumer {slowest} does not keep up (start its query, or forget it with "
                "dropConsumer)"
                if slowest
                else "no query reads it"
            )
            self._limited_log.log(
                f"stream {bound.name} has {size} unread bytes, and its maxBacklog is "
                f"{bound.size_bytes}: its receiver waits until some of them are read; {who}",
                about=stream_id,
            )
        elif is_held and size <= bound.size_bytes * _GOES_ON:
            self._held.discard(stream_id)
            self._hold(stream_id, False)
            self._limited_log.log(
                f"stream {bound.name} goes on: {size} bytes of it are unread",
                about=stream_id,
                level=logging.INFO,
            )

    def forget_all_but(self, stream_id: int, consumers: set[str]) -> None:
        """Forget how far consumers came that are not there any more."""
        with self._lock:
            known = self._reached.get(stream_id, {})
            for consumer in known.keys() - consumers:
                del known[consumer]
