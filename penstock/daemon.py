"""PySpark's daemon with the imports made that receivers and batches make: workers begin warm.

``spark.python.daemon.module=penstock.daemon``, set before Spark starts, lets executors fork their
Python workers from a process that has this package, Arrow and NumPy. Without it each worker imports
them for itself, which takes most of a second of a core and memory that the others of its host do
not share. Of what is imported here nothing starts a thread that a fork would not survive.
"""

from __future__ import annotations

import gc
import importlib

_NAMES = (
    "pyarrow.compute",
    "pyspark.worker",
    "penstock.receiver.slot",
    "penstock.blockstore.dataframe",
    "penstock.streaming.kernels.fusion",
)

if __name__ == "__main__":
    for _name in _NAMES:
        importlib.import_module(_name)
    _daemon = importlib.import_module("pyspark.daemon")
    gc.freeze()  # What no worker collects is shared by all.
    _daemon.manager()
