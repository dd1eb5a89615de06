"""One Spark for the whole session: starting it takes seconds."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator

import pytest
from pyspark import SparkConf, SparkContext

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@pytest.fixture(scope="session")
def sc() -> Iterator[SparkContext]:
    # The Python workers take PySpark's choice of Python, and the package from this tree.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    paths = [_ROOT, os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    conf = (
        SparkConf()
        .setMaster("local[4]")
        .setAppName("penstock-tests")
        .set("spark.ui.enabled", "false")
        .set("spark.ui.showConsoleProgress", "false")
        .set("spark.default.parallelism", "2")
        .set("spark.driver.host", "127.0.0.1")
        .set("spark.driver.bindAddress", "127.0.0.1")
        .set("spark.python.worker.reuse", "true")
    )
    # py4j tells of every command at DEBUG, which pytest would keep.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    context = SparkContext(conf=conf)
    context.setLogLevel("OFF")
    yield context
    context.stop()
