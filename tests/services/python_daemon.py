"""PySpark's daemon with the imports made that each of its workers would make.

A worker of a test lives for seconds, and most of its CPU time goes into imports, and into reading
the directory of the archive again that Spark imports PySpark from. Here it is imported from where
it is installed, before workers are forked. PySpark's own daemon imports nothing, since a library
may start threads when it is imported; of those below only allocators do, which may be forked.
"""

from __future__ import annotations

import gc
import importlib
import sys

_OFTEN_USED = (
    "penstock.receiver",
    "penstock.sources",
    "penstock.streaming",
    "pyarrow",
    "pyspark.worker",
)

if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if not path.endswith(".zip")]
    for name in _OFTEN_USED:
        importlib.import_module(name)
    daemon = importlib.import_module("pyspark.daemon")
    gc.freeze()  # workers share what is not collected
    daemon.manager()
