"""PySpark's daemon with the imports made that receivers and batches make: workers begin warm.

``spark.python.daemon.module=penstock.daemon``, set before Spark starts, lets executors fork their
Python workers from a process that has this package, Arrow and NumPy. Without it each worker imports
them for itself, which takes most of a second of a core and memory that the others of its host do
not share. Of what is imported here nothing starts a thread that a fork would not survive.

Spark gives its processes PySpark as ``pyspark.zip``, which has no compiled modules, so that each
daemon compiles them again, for half a second. The same files are beside it, with compiled ones.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from penstock.worker import archive_importers

_NAMES = (
    "pyarrow.compute",
    "pyspark.worker",
    "penstock.receiver.attempts.slot",
    "penstock.blockstore.reading.dataframe",
    "penstock.streaming.kernels.fusion",
)


def unpacked_pyspark(paths: Iterable[str]) -> Path | None:
    """Return the ``__init__.py`` of the package that Spark's ``pyspark.zip`` was made of.

    Args:
        paths: Where Python looks for modules.

    Returns:
        None when there is no such archive, or no such folder beside it, as on YARN.
    """
    for path in map(Path, paths):
        if path.parts[-3:] == ("python", "lib", "pyspark.zip"):
            # In Spark's own distribution, and as a Python package.
            for folder in (path.parents[1] / "pyspark", path.parents[2]):
                found = folder / "__init__.py"
                if folder.name == "pyspark" and found.is_file():
                    return found
    return None


def _import_unpacked(file: Path) -> None:
    """Import PySpark, and the Py4J that was installed with it."""
    for package in (file.parents[1] / "py4j" / file.name, file):
        name = package.parent.name
        spec = importlib.util.spec_from_file_location(name, package)
        if package.is_file() and spec is not None and spec.loader is not None:
            sys.modules[name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)


def _keep_directories() -> None:
    """Have no worker read the directories of archives again: its first task makes each of them.

    That took 70 ms, and 15 MiB that the worker did not share. What was read here does not change.
    """
    for importer in archive_importers():
        vars(importer)["invalidate_caches"] = lambda: None


if __name__ == "__main__":
    _file = unpacked_pyspark(sys.path)
    if _file is not None and "pyspark" not in sys.modules:
        _import_unpacked(_file)
    for _name in _NAMES:
        importlib.import_module(_name)
    _daemon = importlib.import_module("pyspark.daemon")
    _keep_directories()
    gc.freeze()  # What no worker collects is shared by all.
    _daemon.manager()
