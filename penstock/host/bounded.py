"""A step that may hang, run so that whoever waits for it does not."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["run_bounded"]


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

    thread = threading.Thread(target=run, name=f"penstock-stop-{name}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if errors:
        raise errors[0]
    return not thread.is_alive()
