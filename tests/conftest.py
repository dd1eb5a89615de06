"""One Spark and one HDFS for the whole session: starting them takes seconds."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from xdist.scheduler import LoadFileScheduling

from tests.services.hdfs import POM as HDFS_POM
from tests.services.hdfs import Hdfs
from tests.services.jars import JarsMissingError, jars
from tests.services.jvm import hasten
from tests.services.shared import until_the_end

# The gate runs the same examples each time; CONTRIBUTING tells how to try others.
# Nothing is asserted of the time that examples take to be made, either.
_PATIENT = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("same", derandomize=True, **_PATIENT)
hypothesis.settings.register_profile("other", **_PATIENT)
hypothesis.settings.load_profile("same")

hasten(os.environ)


@pytest.fixture(autouse=True, scope="session")
def plain_log() -> Iterator[None]:
    """Let pytest keep log lines as text, also after PySpark has made a logger.

    PySpark's loggers make every handler that is added write JSON. Pytest adds its own to each that
    does not propagate, in each phase of each test; its `caplog` would then show no tracebacks, and
    fail where the text of an exception cannot be had.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PySparkLogger, "addHandler", logging.Logger.addHandler)
        yield


_ONE_HDFS = frozenset(
    {
        "tests/blockstore/test_on_hdfs.py",
        "tests/dead_letters/test_on_hdfs.py",
        "tests/streaming/test_on_hdfs.py",
        "tests/wal/test_hdfs.py",
        "tests/wal/test_hdfs_away.py",
    }
)
"""Files whose tests run in one process, which starts one HDFS for them."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Refuse cases without an order: each process that runs tests must find them in the same."""
    for mark in metafunc.definition.iter_markers("parametrize"):
        assert not isinstance(mark.args[-1], (set, frozenset)), f"a set as cases: {mark.args[0]}"


_WITH_SERVERS = (
    "tests/sources/",
    "tests/continuous/test_kafka_sink.py",
    "tests/testing/test_sinks.py",
    "tests/monitor/test_browser.py",
    *_ONE_HDFS,
)
"""Where tests are that run a broker, a database, an HDFS or a browser beside Spark."""


_ON_OBJECT_STORES = frozenset(
    {
        "tests/wal/test_objects.py",
        "tests/wal/test_objects_settings.py",
        "tests/system/test_object_storage.py",
    }
)
"""Where a fixture `server` or `servers` is an object store, which `make test-long` builds."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave tests with servers to `make test-long`, and begin with what may take longest.

    So tests side by side end at about the same time.
    """
    for item in items:
        if item.nodeid.startswith(_WITH_SERVERS) and (
            item.get_closest_marker("slow")
            or {"moto", "database"}.intersection(getattr(item, "fixturenames", ()))
        ):
            item.add_marker(pytest.mark.long)
        fixtures = {"server", "servers"}.intersection(getattr(item, "fixturenames", ()))
        if fixtures and item.nodeid.partition("::")[0] in _ON_OBJECT_STORES:
            item.add_marker(pytest.mark.long)

    def bound(item: pytest.Item) -> float:
        mark = item.get_closest_marker("timeout")
        return float(mark.args[0]) if mark is not None else 0.0

    longest: dict[Path, float] = {}
    for item in items:
        longest[item.path] = max(longest.get(item.path, 0.0), bound(item))
    items.sort(key=lambda item: -longest[item.path])


class _ByServer(LoadFileScheduling):
    """Gives a file's tests to one process, but those of the sources by source and its server.

    The files of `_ONE_HDFS` are given to the same one.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        if file == "tests/sources/test_every_source.py":
            return nodeid[nodeid.rfind("[") :]
        return "HDFS" if file in _ONE_HDFS else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Let tests share a server where several processes run tests, too."""
    return _ByServer(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a report reach the process that writes it, also where a test logged what is no text."""
    report = yield
    report.sections = [
        (name, text.encode(errors="backslashreplace").decode()) for name, text in report.sections
    ]
    return report


_ENDS_LATER = pytest.StashKey[bool]()
_arm, _disarm = faulthandler.dump_traceback_later, faulthandler.cancel_dump_traceback_later


def pytest_configure(config: pytest.Config) -> None:
    """See what would end this process later: in the midst of another test, and without a word."""

    def arm(*arguments: Any, **options: Any) -> None:
        config.stash[_ENDS_LATER] = True
        _arm(*arguments, **options)

    def disarm() -> None:
        config.stash[_ENDS_LATER] = False
        _disarm()

    faulthandler.dump_traceback_later = arm
    faulthandler.cancel_dump_traceback_later = disarm


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that leaves this process with an end."""
    yield
    if item.config.stash.get(_ENDS_LATER, False):
        faulthandler.cancel_dump_traceback_later()
        pytest.fail("faulthandler.dump_traceback_later was not taken back")


def pytest_sessionfinish() -> None:
    """End what tests shared."""
    until_the_end.close()


def pytest_report_teststatus(report: object) -> tuple[str, str, str] | None:
    """Name a test when it fails: a run that is cut off later writes no summary."""
    if not isinstance(report, pytest.TestReport) or not report.failed:
        return None
    status = "failed" if report.when == "call" else "error"
    return status, f"\n{status}: {report.nodeid}\n", status.upper()


@pytest.fixture(scope="session")
def sc() -> Iterator[SparkContext]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
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


@pytest.fixture(scope="session")
def require_jars() -> Callable[[Path], None]:
    """Fetches the jars that a file names; skips what needs them where that cannot be done."""
    return _require_jars


def _require_jars(pom: Path) -> None:
    try:
        jars(pom)
    except JarsMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@contextmanager
def _started_hdfs(folder: Path, **arguments: Any) -> Iterator[Hdfs]:
    _require_jars(HDFS_POM)
    made = Hdfs(folder, **arguments)
    try:
        made.start()
    except AssertionError as error:
        made.stop()
        if "BindException" not in str(error):
            raise
        # Somebody took a port between the choice and the start.
        folder = folder.with_name(f"{folder.name}-again")
        folder.mkdir()
        made = Hdfs(folder, **arguments)
        made.start()
    try:
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def start_hdfs() -> Callable[..., AbstractContextManager[Hdfs]]:
    """Runs an HDFS, by the arguments of `Hdfs`; skips what needs it where that cannot be done."""
    return _started_hdfs


@pytest.fixture(scope="session")
def running_hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with _started_hdfs(tmp_path_factory.mktemp("hdfs"), data_nodes=2, replication=2) as made:
        yield made


@pytest.fixture
def hdfs(running_hdfs: Hdfs) -> Hdfs:
    """An HDFS of two DataNodes that keeps two copies; what a test killed runs again."""
    running_hdfs.mend()
    return running_hdfs
