"""The executors' Python: which one it is, and whether it can run the program.

PySpark starts its workers with `PYSPARK_PYTHON`, or else with the first ``python3`` of the path,
which need not be the driver's. With a local master the driver's own is the right one. Elsewhere
the interpreter is asked, in a job of the JVM that needs no worker, so that what is missing is shown
in three lines in place of the stack traces of each task that fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyspark

import penstock
from penstock.errors import PenstockError
from penstock.tracker.cluster import HostLocation, SparkCluster

if TYPE_CHECKING:
    from pyspark import SparkContext

DEPENDENCIES = ("pyarrow", "numpy", "msgspec", "limits", "crc32c")
_MOST_TASKS = 16
_MARK = "penstock-python:"

# Written for any Python 3, imports nothing of what it looks for, and puts on the path what
# PySpark's worker has there.
_QUESTION = r"""
import glob, importlib.util, json, os, platform, re, resource, sys, time
asked = json.loads(sys.argv[1])
home = os.environ.get("SPARK_HOME") or ""
lib = os.path.join(home, "python", "lib")
files = [os.path.join(folder, name) for name in asked["files"] for folder in asked["folders"]]
sys.path[1:1] = (
    files + [os.path.join(lib, "pyspark.zip")] + glob.glob(os.path.join(lib, "py4j-*-src.zip"))
    + asked["path"]
)
def version(name, file):
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.origin:
        return None
    text = spec.loader.get_data(os.path.join(os.path.dirname(spec.origin), file)).decode()
    found = re.search(r"^__version__\b[^=\n]*=\s*[\"']([^\"']+)", text, re.M)
    return found.group(1) if found else "of no known version"
print("penstock-python:" + json.dumps({
    "executable": sys.executable, "host": platform.node(), "python": platform.python_version(),
    "pyspark": version("pyspark", "version.py"), "penstock": version("penstock", "__init__.py"),
    "time_s": time.time(), "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    "missing": [name for name in asked["modules"] if importlib.util.find_spec(name) is None],
}))
"""

_SHELL = '"$0" -c "$1" "$2" 2>&1 || echo " ($0 ended with code $?)"'


@dataclass(frozen=True)
class ExecutorAnswer:
    """What the Python of an executor says of itself.

    Attributes:
        host: Where it runs.
        executable: The interpreter.
        python: Its version.
        pyspark: The version of its PySpark; None without.
        lacks: What is wrong with it, item by item.
        time_s: Its wall time, in seconds since the epoch.
        open_files: How many files it may have open; below 0: any number.
    """

    host: str
    executable: str
    python: str
    pyspark: str | None
    lacks: tuple[str, ...]
    time_s: float
    open_files: int


class ExecutorPythonError(PenstockError):
    """The executors' Python cannot run the program. Nothing was started.

    Attributes:
        executable: The interpreter that was run, on the executor.
        host: The executor's host; empty if it is not known.
        lacks: What is wrong with it, item by item.
    """

    def __init__(self, executable: str, host: str, lacks: tuple[str, ...], way_out: str) -> None:
        where = f" on host {host}" if host else ""
        super().__init__(
            f"the executors' Python cannot run this program: it is {executable}{where}\n"
            f"  it lacks: {'; '.join(lacks)}\n"
            f"  way out: {way_out}"
        )
        self.executable = executable
        self.host = host
        self.lacks = lacks
        self.way_out = way_out


def use_own_python(spark_context: SparkContext) -> None:
    """Let the workers of a local master run the driver's own Python, unless another was asked for.

    PySpark looks at `pythonExec` whenever it makes an RDD or a function of a DataFrame.
    """
    is_asked_for = os.environ.get("PYSPARK_PYTHON") or spark_context.getConf().get(
        "spark.pyspark.python"
    )
    if _is_local(spark_context) and sys.executable and not is_asked_for:
        spark_context.pythonExec = sys.executable


def check_executor_python(spark_context: SparkContext, modules: Iterable[str] = ()) -> None:
    """Ask the executors' Python whether it can run the program, unless it is the driver's own.

    It waits until there is an executor.

    Args:
        spark_context: The Spark context.
        modules: What it must be able to import, beside what Penstock always needs.

    Raises:
        ExecutorPythonError: It cannot.
    """
    is_local = _is_local(spark_context)
    if is_local and shutil.which(spark_context.pythonExec) == sys.executable:
        return
    for answer in ask_executors(spark_context, modules):
        if answer.lacks:
            raise ExecutorPythonError(
                f"{answer.executable}, Python {answer.python}",
                answer.host,
                answer.lacks,
                _way_out(is_local),
            )


def ask_executors(
    spark_context: SparkContext, modules: Iterable[str] = ()
) -> tuple[ExecutorAnswer, ...]:
    """Ask the Python of each host that has executors what it is, in one short job.

    It waits until there is an executor.

    Args:
        spark_context: The Spark context.
        modules: What it must be able to import, beside what Penstock always needs.

    Raises:
        ExecutorPythonError: It cannot be run on one of them.
    """
    question = {
        "modules": [*DEPENDENCIES, *modules],
        "path": [
            folder
            for folder in spark_context.environment.get("PYTHONPATH", "").split(os.pathsep)
            if folder
        ],
        "files": list(spark_context._python_includes or ()),
        "folders": [".", _files_folder(spark_context)],
    }
    return tuple(
        ExecutorAnswer(
            answer["host"],
            answer["executable"],
            answer["python"],
            answer["pyspark"],
            _lacks(answer),
            answer["time_s"],
            answer["open_files"],
        )
        for answer in _ask(spark_context, spark_context.pythonExec, question)
    )


def _is_local(spark_context: SparkContext) -> bool:
    return re.match(r"local(\[|$)", str(spark_context.master)) is not None


def _files_folder(spark_context: SparkContext) -> str:
    jvm: Any = spark_context._jvm
    return str(jvm.org.apache.spark.SparkFiles.getRootDirectory())


def _ask(
    spark_context: SparkContext, executable: str, question: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return what each interpreter said, one for each host, if Spark grants it."""
    jvm: Any = spark_context._jvm
    cluster = SparkCluster(spark_context)
    hosts = sorted({executor.host for executor in cluster.executors()})[:_MOST_TASKS]
    places = [[HostLocation(host)] for host in hosts] or [[]]
    tasks = len(places)
    command = jvm.java.util.ArrayList()
    for part in ("/bin/sh", "-c", _SHELL, executable, _QUESTION, json.dumps(question)):
        command.add(part)
    spark_context.setJobDescription("Streaming job asking for the executors' Python")
    try:
        rdd: Any = cluster.placed([0] * tasks, places)._jrdd
        lines = [str(line) for line in rdd.pipe(command).collect()]
    finally:
        # PySpark's stub wants text; None clears it.
        spark_context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
    return _answers(lines, tasks, executable, _way_out(_is_local(spark_context)))


def _answers(
    lines: Sequence[str], tasks: int, executable: str, way_out: str
) -> list[dict[str, Any]]:
    """Return what was answered, when each task has an answer.

    Raises:
        ExecutorPythonError: One has none: the interpreter cannot be run on its host.
    """
    answers = [json.loads(line[len(_MARK) :]) for line in lines if line.startswith(_MARK)]
    if len(answers) < tasks:
        other = [line.strip() for line in lines if line.strip() and not line.startswith(_MARK)]
        said = " ".join(other[-2:]) or "it said nothing"
        on = f" on hosts other than {', '.join(sorted({a['host'] for a in answers}))}"
        raise ExecutorPythonError(
            executable, "", (f"it cannot be run{on if answers else ''}: {said}",), way_out
        )
    return answers


def _lacks(answer: Mapping[str, Any]) -> tuple[str, ...]:
    found = []
    ours = ".".join(map(str, sys.version_info[:2]))
    if answer["python"].rsplit(".", 1)[0] != ours:
        found.append(f"Python {ours}, which the driver runs")
    wanted: Sequence[tuple[str, str, bool]] = (
        ("penstock", penstock.__version__, answer["penstock"] == penstock.__version__),
        ("pyspark", pyspark.__version__, _minor(answer["pyspark"]) == _minor(pyspark.__version__)),
    )
    for name, version, is_right in wanted:
        if not is_right:
            has = f"has {answer[name]}" if answer[name] else "has none"
            found.append(f"{name} {version} of the driver ({has})")
    found.extend(answer["missing"])
    return tuple(found)


def _minor(version: str | None) -> str:
    return ".".join((version or "").split(".")[:2])


def _way_out(is_local: bool) -> str:
    own = f"this driver's own Python is {sys.executable}"
    if is_local:
        return f"unset PYSPARK_PYTHON and spark.pyspark.python, which name it; {own}"
    return (
        "set PYSPARK_PYTHON in the driver's environment (or spark.pyspark.python of spark-submit) "
        f"to a Python that has these on every host, or install them there; {own}"
    )
