"""`Monitor`: the model and what shows it, begun and ended with a context."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.clock import Clock, SystemClock
from penstock.monitor.application import Application
from penstock.monitor.model import Model
from penstock.rate_limited_log import RateLimitedLog
from penstock.settings import Settings

__all__ = ["Monitor", "start_monitor"]

_log = logging.getLogger("penstock.monitor")

_TICK_S = 1.0


class Monitor:
    """Takes a point of the history every second (``penstock-monitor``) until it is stopped.

    Args:
        model: What it feeds.
        clock: For the seconds.
    """

    def __init__(self, model: Model, clock: Clock | None = None) -> None:
        self.model = model
        self._clock: Clock = SystemClock() if clock is None else clock
        self._limited = RateLimitedLog(_log)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-monitor", daemon=True)

    def start(self) -> None:
        """Begin; once."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Take no more points; wait for the thread. May be called again."""
        self._stopped.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._clock.wait(self._stopped, _TICK_S):
            try:
                self.model.tick()
            except Exception as error:  # noqa: BLE001  # the program does not depend on it
                self._limited.log(
                    f"The monitor could not take a point: {type(error).__name__}: {error}",
                    error=error,
                )


def start_monitor(
    application: Application,
    settings: Settings,
    add_listener: Callable[[Model], None],
    clock: Clock | None = None,
) -> Monitor | None:
    """Begin to watch a context that is about to start.

    Args:
        application: The context.
        settings: Its settings.
        add_listener: Adds the model to the listener bus.
        clock: For tests.

    Returns:
        The monitor, running; None when `spark.penstock.ui.enabled` is off.
    """
    if not settings.ui_enabled:
        return None
    model = Model(application, retained_batches=settings.retained_batches, clock=clock)
    add_listener(model)
    monitor = Monitor(model, clock)
    monitor.start()
    return monitor
