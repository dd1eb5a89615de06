"""Workers of a real Spark that are forked from `penstock.daemon`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.daemon import unpacked_pyspark
from tests.programs import run_to_end

_PROGRAM = """
import json, sys
from pyspark import SparkConf, SparkContext

def found(_):
    import importlib, sys, threading, zipimport
    warm = ["pyarrow.compute", "penstock.receiver.attempts.slot"]
    warm = [name for name in warm if name in sys.modules]
    read = []
    zipimport._read_directory = read.append
    importlib.invalidate_caches()
    from_archive = "pyspark.zip" in sys.modules["pyspark.sql"].__file__
    return [(warm, threading.active_count(), from_archive, read)]

conf = SparkConf().set("spark.python.daemon.module", "penstock.daemon")
with SparkContext("local[2]", "daemon", conf=conf) as sc:
    print(json.dumps(sc.parallelize([0], 1).mapPartitions(found).collect()))
"""


@pytest.mark.slow
def test_a_worker_has_what_receivers_import_from_its_first_moment_on_and_no_threads() -> None:
    ended = run_to_end("-c", _PROGRAM)
    assert json.loads(ended.stdout.splitlines()[-1]) == [
        [["pyarrow.compute", "penstock.receiver.attempts.slot"], 1, False, []]
    ]


@pytest.mark.parametrize(
    ("archive", "package"),
    [
        ("spark/python/lib/pyspark.zip", "spark/python/pyspark"),
        ("site-packages/pyspark/python/lib/pyspark.zip", "site-packages/pyspark"),
    ],
)
def test_pyspark_is_taken_from_where_its_archive_was_made_of(
    tmp_path: Path, archive: str, package: str
) -> None:
    file = tmp_path / package / "__init__.py"
    file.parent.mkdir(parents=True)
    file.touch()
    path = ["", str(tmp_path), str(tmp_path / archive), "/nowhere/python/lib/pyspark.zip"]
    assert unpacked_pyspark(path) == file


@pytest.mark.parametrize(
    "archive", ["pyspark.zip", "python/lib/pyspark.zip", "/opt/app/python/lib/other.zip"]
)
def test_an_archive_that_stands_alone_is_what_there_is(tmp_path: Path, archive: str) -> None:
    assert unpacked_pyspark([str(tmp_path / archive)]) is None
