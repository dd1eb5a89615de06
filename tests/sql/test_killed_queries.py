"""SIGKILL of the driver's process group, or of parts of it: what queries wrote is exact.

``make soak-queries`` does the same a hundred times.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.sql import ReceiverHost
from tests.bounds import HANG_S
from tests.sql.kills import KilledQueries
from tests.sql.sources import await_records, numbers, started
from tests.system.leftovers import block_servers, command_of, parent_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2700)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "kills", "between"),
    [
        (800, 1, 1),
        pytest.param(2000, 1, 1, marks=pytest.mark.exhaustive),
        pytest.param(4000, 2, 1, marks=pytest.mark.exhaustive),
        pytest.param(8000, 4, 2, marks=pytest.mark.exhaustive),
    ],
)
def test_queries_are_exact_when_the_driver_is_killed(
    tmp_path: Path, count: int, kills: int, between: int
) -> None:
    # The first kill is in batch 0, between its offset and its commit.
    KilledQueries(tmp_path, seed=1, count=count, block_s=0.8).run(kills, between)


# -- parts of a running program ------------------------------------------------------------------


def own_readers() -> list[int]:
    """Return the processes of this one's queries that ask for offsets."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        with suppress(OSError, IndexError, ValueError):
            if "python_streaming_source_runner" in command_of(pid) and is_own(pid):
                found.append(pid)
    return found


def is_own(pid: int) -> bool:
    while pid > 1:
        if pid == os.getpid():
            return True
        pid = parent_of(pid)
    return False


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_queries_are_exact_when_receivers_block_servers_and_readers_are_killed(
    sc: Any, tmp_path: Path
) -> None:
    count = 4000
    spark = SparkSession(sc)
    host = ReceiverHost(spark, tmp_path / "host")
    host.stream("numbers", numbers(count, block_s=0.1, pid_file=str(tmp_path / "pid")))
    host.start()

    def start() -> Any:
        reader = spark.readStream.format("penstock").option("stream", "numbers")
        writer = reader.option("maxRecordsPerTrigger", 300).load().writeStream.format("parquet")
        writer = writer.option("path", str(tmp_path / "out"))
        return started(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))

    with host:
        query = start()
        for victim in ("receiver", "block server", "reader"):
            seen = host.streams()["numbers"].records
            await_records(host, "numbers", min(seen + 800, count))
            if victim == "receiver":
                os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
            elif victim == "block server":
                for pid in block_servers(sc.applicationId):
                    os.kill(pid, signal.SIGKILL)
            else:
                end_s = time.monotonic() + HANG_S
                while not (readers := own_readers()):
                    assert time.monotonic() < end_s
                    time.sleep(0.05)
                for pid in readers:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                with suppress(PySparkException):
                    query.awaitTermination(60)
                assert not query.isActive
                query = start()
        await_records(host, "numbers", count)
        query.processAllAvailable()
        query.stop()
        assert host.receivers()[0].attempts >= 2
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(int(row[0]) for row in found) == list(range(count))
