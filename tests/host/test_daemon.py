"""Workers of a real Spark that are forked from `penstock.daemon`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.system.running import WAIT_S

_PROGRAM = """
import json, sys
from pyspark import SparkConf, SparkContext

def found(_):
    import sys, threading
    warm = [name for name in ("pyarrow.compute", "penstock.receiver.slot") if name in sys.modules]
    return [(warm, threading.active_count())]

conf = SparkConf().set("spark.python.daemon.module", "penstock.daemon")
with SparkContext("local[2]", "daemon", conf=conf) as sc:
    print(json.dumps(sc.parallelize([0], 1).mapPartitions(found).collect()))
"""


@pytest.mark.slow
def test_a_worker_has_what_receivers_import_from_its_first_moment_on_and_no_threads() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": os.getcwd()},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    assert json.loads(ended.stdout.splitlines()[-1]) == [
        [["pyarrow.compute", "penstock.receiver.slot"], 1]
    ]
