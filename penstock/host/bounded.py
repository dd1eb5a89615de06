"""Steps of a stop: one that hangs, or fails, keeps no other from its turn (I12)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.threads import OwnedThread

_log = logging.getLogger("penstock.host")


def run_bounded(name: str, step: Callable[[], object], timeout_s: float) -> bool:
    """Run `step` in a thread of its own, and wait for it no longer than `timeout_s`.

    For what waits for others without a bound that is known here: a disk, a NameNode, the JVM. A
    step that hangs goes on in its thread, which does not keep the interpreter from exiting.

    Args:
        name: Names the thread.
        step: What to run.
        timeout_s: How long to wait, in real time.

    Returns:
        False when the time was over first.

    Raises:
        BaseException: What the step raised.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            step()
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            errors.append(error)

    thread = OwnedThread(run, f"stop-{name}")
    try:
        thread.start()
    except RuntimeError:
        # Python 3.12.0 and 3.12.1 start no thread while the interpreter exits.
        step()
        return True
    thread.join(timeout_s)
    if errors:
        raise errors[0]
    return not thread.is_alive()


def stop_bounded(what: str, step: Callable[[], object], timeout_s: float) -> None:
    """Run a step of a stop as `run_bounded` does, and log when it hangs or fails.

    Args:
        what: What is stopped, as the log names it.
        step: What to run.
        timeout_s: How long to wait, in real time.
    """
    with told(what):
        if not run_bounded(what.replace(" ", "-"), step, timeout_s):
            _log.error(
                "Stopping %s has not ended after %.1f s; the stop goes on without", what, timeout_s
            )


@contextmanager
def told(what: str) -> Iterator[None]:
    """Log an error of a step of a stop, so that the steps after it have their turn."""
    try:
        yield
    except Exception:  # noqa: BLE001  # whatever it is, what is left must be stopped, too
        _log.exception("Stopping %s failed; the stop goes on", what)
