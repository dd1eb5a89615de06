"""A receiver beside a bare loop of its client: how both are timed, and what is printed.

The receiver runs in a process of its own, as in a worker of Spark, and its driver's part in that of
the benchmark, where the bare loop ran. Python and its imports are there before the time begins.
"""

from __future__ import annotations

import importlib
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa

from penstock.receiver import ReceiverLaunch, run_receiver
from penstock.testing.driver import TestDriver

_BOUND_S = 1800.0
_STOP_S = 60.0
_MEMORY = "128m"
"""Of blocks. A program has 2g by itself. With a test's two blocks of the largest size (64m) none is
filled while the one before is written; the more there is, the longer memory is touched first."""
_CONTEXT = multiprocessing.get_context("spawn")


@contextmanager
def running(receiver: object, settings: Mapping[str, object] | None = None) -> Iterator[TestDriver]:
    """Run a receiver in a process, whose imports are done, until the `with` ends."""
    with tempfile.TemporaryDirectory() as folder:
        driver = TestDriver(
            Path(folder), {"spark.penstock.memory.size": _MEMORY, **(settings or {})}
        )
        ours, theirs = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_attempt, args=(theirs,))
        process.start()
        try:
            required = getattr(receiver, "requires", ())
            clients = [name for name in sys.modules if name.partition(".")[0] in required]
            ours.send((driver.launch(receiver), clients))
            ours.recv()
            ours.send(None)
            yield driver

            def has_ended(wait_s: float) -> bool:
                process.join(wait_s)
                return not process.is_alive()

            driver.stop(has_ended, _STOP_S)
        finally:
            process.kill()
            process.join()
            driver.close()


def _attempt(pipe: Connection) -> None:
    launch: ReceiverLaunch
    launch, clients = pipe.recv()
    for name in clients:
        importlib.import_module(name)
    pa.array([0])  # The first one of a process may import pandas.
    pipe.send(None)
    pipe.recv()
    run_receiver(launch, ensure_block_server=lambda launch: None)


def wait_for(driver: TestDriver, holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds of what the driver knows."""
    driver.wait_for(holds, _BOUND_S, what, lambda: False)


def received_s(
    receiver: object, count: int, *, until: Callable[[], object] = lambda: None
) -> float:
    """Return the seconds in which a receiver has stored so many records.

    Args:
        receiver: It is started within that time.
        count: How many records its source gives.
        until: Waits for what belongs to it after the last record, such as its acknowledgement.
    """
    with running(receiver) as driver:
        began_s = time.perf_counter()
        # Not by the records themselves, which would be read back each time.
        wait_for(driver, lambda: driver.count >= count, "last record")
        until()
        return time.perf_counter() - began_s


def show(case: str, count: int, bare_s: float, ours_s: float) -> None:
    """Print how many records a second the bare loop and the receiver took, and the ratio."""
    print(
        f"{case}: bare {count / bare_s:,.0f}/s, "
        f"received {count / ours_s:,.0f}/s ({bare_s / ours_s:.2f})",
        flush=True,
    )
