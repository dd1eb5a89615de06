"""Receivers and queries that the tests of Structured Streaming share."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.receiver import receiver
from penstock.sql import ReceiverHost
from tests.bounds import HANG_S

__all__ = ["WAIT_S", "Sieved", "await_records", "hosting", "numbers", "started"]

WAIT_S = HANG_S


def numbers(
    count: int, *, block_s: float = 0.0, pid_file: str = "", go_on: str = "", keys: int = 0
) -> Any:
    """Return a source of the numbers from 0 to `count`, as text, with positions.

    Args:
        count: How many.
        block_s: Seconds between each hundred of them.
        pid_file: Where the process of the receiver writes its id, if it is wanted.
        go_on: A file for which it waits after the first hundred, if that is wanted.
        keys: Records are rows with the number, and with its remainder by this as their key.
    """

    @receiver(positions=True, schema="key bigint, n bigint" if keys else None)
    def count_up(context: Any) -> Iterator[tuple[Any, int]]:
        import os

        if pid_file:
            import pathlib

            pathlib.Path(pid_file).write_text(str(os.getpid()))
        number = context.last_position or 0
        while number < count and not context.stopped.is_set():
            yield {"key": number % keys, "n": number} if keys else str(number), number + 1
            number += 1
            if number % 100 == 0:
                context.stopped.wait(block_s)
                while go_on and not os.path.exists(go_on) and not context.stopped.wait(0.05):
                    pass
        context.stopped.wait()

    return count_up


@receiver(schema="number bigint")
class Sieved:
    """So many rows in a block each, and after each a call that nothing is left of."""

    def __init__(self, count: int) -> None:
        self.count = count

    def run(self, context: Any) -> None:
        for number in range(self.count):
            context.store([{"number": number}])
            context.store([{"number": "none"}])
        context.stopped.wait()


def started(writer: Any, path: Path | None = None) -> Any:
    """Start a query, again where Spark gave its Python process up.

    On a busy machine that takes longer than the ten seconds for which Spark waits.
    `ReceiverHost.run` does so for programs.
    """
    for _ in range(6):
        query = writer.start(str(path)) if path else writer.start()
        end_s = time.monotonic() + WAIT_S
        while query.isActive and query.status["message"].startswith(("Initializing", "Getting")):
            assert time.monotonic() < end_s, query.status
            time.sleep(0.02)
        if "failed to connect back" not in str(query.exception()):
            break
    return query


@contextlib.contextmanager
def hosting(
    spark: SparkSession, source: Any, directory: Path | None = None, **arguments: Any
) -> Iterator[ReceiverHost]:
    """Run a host with the stream ``numbers``."""
    share = arguments.pop("share", None)
    host = ReceiverHost(spark, directory, share=share)
    host.stream("numbers", source, **arguments)
    host.start()
    with host:
        yield host


def await_records(host: Any, stream: str, count: int) -> None:
    """Wait until so many records of a stream are in the ledger."""
    end_s = time.monotonic() + WAIT_S
    while host.streams()[stream].records < count:
        assert time.monotonic() < end_s, host.streams()[stream]
        assert not host.errors(), host.errors()
        time.sleep(0.05)
