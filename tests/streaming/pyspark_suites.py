"""Run PySpark's own tests of streams on Penstock: `make conformance ARGS=FOLDER`.

FOLDER is `python/pyspark/streaming/tests` of a checkout of Apache Spark 4; the tests do not ship
with PySpark. They are taken as they are, but for the import lines of `pyspark.streaming`; their
base class is that of the installed PySpark. `LEFT_OUT` names those that cannot hold here, each with
its reason.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path

FILES = ("test_context", "test_dstream", "test_listener")
BASE = "streamingutils"

LEFT_OUT = {
    "StreamingContextTests.test_get_active": "stops the JVM's StreamingContext; there is none",
    "StreamingContextTests.test_get_active_or_create": (
        "stops the JVM's StreamingContext; there is none"
    ),
    "CheckpointTests.test_transform_function_serializer_failure": (
        "functions that refer to the SparkContext can be checkpointed (docs/differences.md)"
    ),
}

_IMPORT = re.compile(r"^from pyspark\.streaming import", re.MULTILINE)
_IMPORT_OF_BASE = re.compile(rf"^from pyspark\.testing\.{BASE} import", re.MULTILINE)
_SPARK = "--master local[4] --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false"


def rewritten(source: str) -> str:
    """Return a file of PySpark's tests with Penstock in its import lines."""
    source = _IMPORT.sub("from penstock.streaming import", source)
    return _IMPORT_OF_BASE.sub(f"from {BASE} import", source)


def put_into(target: Path, folder: Path) -> None:
    """Write the rewritten tests of a folder, and their base class."""
    import pyspark.testing

    [installed] = pyspark.testing.__path__
    (target / f"{BASE}.py").write_text(rewritten((Path(installed) / f"{BASE}.py").read_text()))
    for name in FILES:
        (target / f"{name}.py").write_text(rewritten((folder / f"{name}.py").read_text()))


def tests_in(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from tests_in(each)
        else:
            yield each


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "folder", type=Path, help="python/pyspark/streaming/tests of Spark's source"
    )
    parser.add_argument("-k", metavar="REGEX", default="", help="only tests whose name has that")
    parser.add_argument(
        "--patience", type=int, default=1, help="wait so many times longer; for a busy machine"
    )
    options = parser.parse_args()
    missing = [name for name in FILES if not (options.folder / f"{name}.py").is_file()]
    if missing:
        sys.exit(f"{options.folder} has no {missing[0]}.py; it is in the source of Apache Spark")
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"{_SPARK} pyspark-shell")
    with tempfile.TemporaryDirectory(prefix="penstock-conformance-") as name:
        put_into(Path(name), options.folder)
        sys.path.insert(0, name)
        found = list(load())
        known = {short(test) for test in found}
        gone = sorted(set(LEFT_OUT) - known)
        if gone:
            sys.exit(f"Left out here, and not among PySpark's tests: {', '.join(gone)}")
        wanted = [t for t in found if re.search(options.k, short(t))]
        chosen = [t for t in wanted if short(t) not in LEFT_OUT]
        for case in {type(test) for test in chosen if hasattr(test, "timeout")}:
            case.timeout *= options.patience  # type: ignore[attr-defined]  # that of its base class
        result = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(chosen))
    for test, reason in LEFT_OUT.items():
        print(f"left out: {test}: {reason}")
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} of {len(chosen)} passed, of {len(found)} in PySpark")
    sys.exit(not result.wasSuccessful())


def load() -> Iterator[unittest.TestCase]:
    """Yield each test once; a file has the base class's name among its own."""
    for name in FILES:
        module = importlib.import_module(name)
        for test in tests_in(unittest.defaultTestLoader.loadTestsFromModule(module)):
            if type(test).__module__ == name:
                yield test


def short(test: unittest.TestCase) -> str:
    return f"{type(test).__name__}.{test._testMethodName}"


if __name__ == "__main__":
    main()
