"""`RateStatus`: the rates that the driver sets for one attempt, and reports of their use."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from penstock.receiver.blocks.block_generator import BlockGenerator, RateUsage
from penstock.runtime.event_loop import EventLoop

REPORT_INTERVAL_S = 0.25
"""How often it is reported to the driver how the rate is used, if that has changed. A budget that
several receivers share is divided again as often as that."""

PIPE_INTERVAL_S = 1.0
"""How often it is reported what the attempt's threads wait for, and by that, that it lives."""

REST_INTERVAL_S = 5.0
"""How often once it was reported that nothing comes and nothing is on its way."""


_REPORTS_PER_S = 300
"""Of all receivers together: each costs about 0.6 ms of a core where it is made, and more than a
small receiver's records."""
_LONGEST_INTERVAL_S = 1.5
"""A receiver that is not heard of for two seconds gets no share of a budget above its reserve."""


def report_interval_s(receivers: int) -> float:
    """Return how often each of that many receivers is to report, so that it costs little."""
    return max(REPORT_INTERVAL_S, min(_LONGEST_INTERVAL_S, receivers / _REPORTS_PER_S))


class RateStatus:
    """Hands rates to the generator, newest last, and reports how they are used.

    A new rate holds from the next record on, also for the open block (I8). Rates have versions:
    an update that overtook the answer to the registration is not undone by that answer. Each new
    rate is reported at once, so that the driver knows when it is in force.

    A receiver that is to let nothing pass (`hold`) does so until the driver, which learns it from
    reports, has taken that over in rates that are newer than those at which it began; from then on
    the driver says when it goes on. A pause and a resume that knew nothing of it do not end it.

    `_lock` guards the generator, the version and the rates, and orders their changes; only `_holds`
    is set without it. What is reported belongs to the thread of `loop`, which others may also use.

    Args:
        loop: Reports; its owner stops it after this.
        report: Sends the driver what was read, the version of the rates in force before it, and
            whether the receiver has paused itself, which the driver takes over.
        on_error: Called, in that thread, with what ended the reports.
        interval_s: How often, in seconds.
    """

    def __init__(
        self,
        loop: EventLoop,
        report: Callable[[RateUsage, int, bool], None],
        on_error: Callable[[BaseException], None],
        interval_s: float = REPORT_INTERVAL_S,
    ) -> None:
        self._loop = loop
        self._on_error = on_error
        self._report = report
        self._interval_s = interval_s
        self._lock = threading.Lock()
        self._generator: BlockGenerator | None = None
        self._version = 0
        self._records_per_second: float | None = None
        self._bytes_per_second: float | None = None
        self._is_paused = False
        self._holds = False
        self._held_version: int | None = None
        self._is_stopped = False
        self._due_s = 0.0
        self._piped_s, self._is_empty = -math.inf, False
        self._told: tuple[RateUsage, int, bool] | None = None
        self._piped: tuple[RateUsage, int, bool] | None = None

    def start(self, generator: BlockGenerator) -> None:
        """Set the rates that are known by now, and begin to report."""
        with self._lock:
            self._generator = generator
            if self._version:
                self._apply(generator)
        generator.woken = self._look_now
        self._look_now()

    def update(
        self,
        records_per_second: float | None,
        bytes_per_second: float | None,
        version: int,
        *,
        is_paused: bool = False,
        taken_over_version: int = 0,
    ) -> None:
        """Take rates from the driver; those that are not newer are ignored. Returns at once.

        Args:
            records_per_second: None is no limit.
            bytes_per_second: None is no limit.
            version: Of the rates; 0 for none.
            is_paused: Whether nothing is to pass at all.
            taken_over_version: Of the last rates by which the driver took over a hold; 0 for none.
        """
        with self._lock:
            if version <= self._version:
                return
            self._begin_hold()
            if self._held_version is not None and taken_over_version > self._held_version:
                self._held_version = None
            self._version = version
            self._records_per_second = records_per_second
            self._bytes_per_second = bytes_per_second
            self._is_paused = is_paused
            if self._generator is not None:
                self._apply(self._generator)
        self._look_now()

    def hold(self) -> None:
        """Let nothing pass until the driver, which hears of it, takes it over and resumes.

        Returns at once; may be called with any lock held.
        """
        self._holds = True
        if self._generator is not None:
            self._generator.pause()
        # Again, for rates may just have been set; and the driver is notified.
        self._look_now()

    def stop(self, timeout_s: float) -> None:
        """Report no more."""
        self._is_stopped = True
        self._loop.drain(timeout_s)

    def _begin_hold(self) -> None:
        if self._holds:
            self._holds = False
            self._held_version = self._version

    def _apply(self, generator: BlockGenerator) -> None:
        is_paused = self._is_paused or self._holds or self._held_version is not None
        generator.update_rate(self._records_per_second, is_paused=is_paused)
        generator.update_byte_rate(self._bytes_per_second)

    def _look_now(self) -> None:
        self._loop.post(partial(self._look, at_once=True))

    def _look(self, *, at_once: bool = False) -> None:
        """Report if it is time; and again when it is time again."""
        generator = self._generator
        if self._is_stopped or generator is None:
            return
        if not at_once and time.monotonic() < self._due_s:
            return  # It was reported meanwhile, and another look is to come.
        try:
            left_s = self._report_news(generator)
        except BaseException as error:  # noqa: BLE001  # travels to the owner
            self._is_stopped = True
            self._on_error(error)
            return
        self._due_s = time.monotonic() + left_s
        self._loop.post_later(left_s, self._look)

    def _report_news(self, generator: BlockGenerator) -> float:
        """Report what is new; return how many seconds later to look again."""
        rests = self._is_empty and generator.is_resting
        # Not quite an interval: the pauses between reports do not divide it.
        interval_s = (REST_INTERVAL_S if rests else PIPE_INTERVAL_S) - self._interval_s / 2
        with_pipe = time.monotonic() >= self._piped_s + interval_s
        if with_pipe:
            self._piped_s = time.monotonic()
        with self._lock:
            self._begin_hold()
            version = self._version
            is_held = self._held_version is not None
            if is_held:
                self._apply(generator)
        # A disk that is asked for its free space may hang: setting a rate does not wait for that. A
        # newer version than this one is reported next.
        usage = generator.read_rate_usage(with_pipe=with_pipe)
        news = (replace(usage, pipe=None), version, is_held)
        is_same = news == self._told
        if (pipe := usage.pipe) is not None:
            # The one before shows what came until then, and this one that nothing comes.
            on_way = pipe.open_records or pipe.queued_blocks or pipe.stored_blocks
            self._is_empty = news == self._piped and not on_way
            self._piped = news
        elif not is_same:
            self._is_empty = False
        if with_pipe or not is_same:
            self._report(usage, version, is_held)
            self._told = news
        if not (is_same and generator.is_resting):
            return self._interval_s
        interval_s = REST_INTERVAL_S if self._is_empty else PIPE_INTERVAL_S
        return max(self._interval_s, self._piped_s + interval_s - time.monotonic())
