"""A client of Spark Connect reads the streams of a host in another application."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.sql.sources import WAIT_S, await_records, hosting, numbers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]

CLIENT = """
import sys
from pyspark.sql import SparkSession
from penstock.sql import ReceiverHost, connect

share, folder = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
connect(spark, share)
frame = spark.readStream.format("penstock").option("stream", "numbers").load()
writer = frame.writeStream.format("parquet").option("path", folder + "/out")
writer = writer.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True)
query = writer.start()
assert query.awaitTermination(120)
assert query.exception() is None
found = spark.read.parquet(folder + "/out").collect()
print("stream", sorted(int(row[0]) for row in found) == list(range(1000)))
print("batch", spark.read.format("penstock").option("stream", "numbers").load().count())
try:
    ReceiverHost(spark)
except TypeError as error:
    print("host", error)
spark.stop()
"""


@pytest.mark.long
def test_a_connect_client_reads_by_the_share_file_and_is_told_that_it_runs_no_receivers(
    sc: Any, tmp_path: Path
) -> None:
    share = tmp_path / "share"
    with hosting(SparkSession(sc), numbers(1000), share=share) as host:
        await_records(host, "numbers", 1000)
        done = subprocess.run(
            [sys.executable, "-c", CLIENT, str(share), str(tmp_path)],
            env={
                **{key: value for key, value in os.environ.items() if "GATEWAY" not in key},
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
                "PYSPARK_PYTHON": sys.executable,
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=4 * WAIT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-6000:]
    assert "stream True" in done.stdout
    assert "batch 1000" in done.stdout
    assert "a session of Spark Connect has none" in done.stdout
