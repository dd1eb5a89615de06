"""Run a selection of tests with each PySpark and each Python that is claimed: `make test-versions`.

Each pair has an environment below `build/versions`, made once. PySpark 4.0 and 4.1 run on the
oldest Python that is found, the newest PySpark on each one, and `lowest` has the lowest versions of
all dependencies. Pythons are looked for on the PATH, and among those of pyenv and uv.

``--short`` runs what depends on versions most, in a few minutes for each environment: the import,
Arrow types and time zones on the way to Spark and back, a receiver as a Spark task, `foreachBatch`,
a state, recovery from a checkpoint, `mllib`, JSON and Avro of Kafka, and queries of Structured
Streaming (its source starts, ends and is restarted otherwise in each of PySpark 4.0, 4.1 and 4.2).
``--least`` runs the types and a query only, as CI does with PySpark 4.0.
"""

from __future__ import annotations

import argparse
import configparser
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from installer import installer

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = ROOT / "build" / "versions"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
OLDER_PYSPARKS = ("4.0", "4.1")
TESTS = (
    "tests/test_versions.py",
    "tests/blockstore/test_blocks.py",
    "tests/blockstore/test_dataframe.py",
    "tests/tracker/test_tracker_on_spark.py",
    "tests/streaming/test_end_to_end.py",
    "tests/streaming/kernels/test_pairs.py",
    "tests/streaming/dstream/test_operations.py",
    "tests/streaming/dstream/test_map_with_state.py",
    "tests/streaming/dstream/test_mllib.py",
    "tests/streaming/checkpoint/test_recovery.py",
    "tests/sources/kafka/test_formats.py",
    "tests/sql/test_structured_streaming.py",
    "tests/sql/test_several_streams.py",
    "tests/sql/test_spark_connect.py",
)
_QUERIES = "tests/sql/test_structured_streaming.py"
_RECOVERY = "tests/streaming/checkpoint/test_recovery.py"
SHORT = (
    "tests/test_versions.py",
    "tests/test_worker.py",
    "tests/blockstore/test_blocks.py",
    "tests/blockstore/test_dataframe.py",
    "tests/sources/kafka/test_formats.py",
    "tests/streaming/test_end_to_end.py",
    "tests/streaming/dstream/test_mllib.py",
    "tests/streaming/dstream/test_map_with_state.py",
    f"{_RECOVERY}::test_every_kind_of_stream_goes_on",
    f"{_RECOVERY}::test_a_graceful_stop_leaves_nothing_to_do_again",
    f"{_QUERIES}::test_queries_are_exact_over_restarts_of_query_and_host",
    f"{_QUERIES}::test_available_now_reads_what_was_there_at_its_start_within_the_limits",
    f"{_QUERIES}::test_columns_come_out_as_of_a_parquet_file_of_the_same_data",
    "tests/sql/test_several_streams.py",
    "tests/sql/test_spark_connect.py",
)
LEAST = (
    "tests/test_versions.py",
    "tests/blockstore/test_dataframe.py",
    f"{_QUERIES}::test_available_now_reads_what_was_there_at_its_start_within_the_limits",
)
INSTALL_S = 1800
RUN_S = 1800
_BOUND = re.compile(r"([a-zA-Z0-9_-]+)(\[[a-z]+\])?>=([0-9.]+)")


@dataclass(frozen=True)
class Pair:
    """A Python and what is installed beside the project.

    Attributes:
        name: Of the environment.
        python: Path of the interpreter.
        requirements: For pip.
    """

    name: str
    python: str
    requirements: tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="only environments whose name begins so")
    selection = parser.add_mutually_exclusive_group()
    selection.add_argument(
        "-t", "--tests", nargs="+", default=TESTS, help="tests in place of these"
    )
    selection.add_argument(
        "-s", "--short", action="store_true", help="what depends on versions most"
    )
    selection.add_argument("--least", action="store_true", help="types and a query, as CI does")
    parser.add_argument("-l", "--list", action="store_true", help="tell what would be run")
    options = parser.parse_args()
    found = dict(pythons())
    missing = [version for version in PYTHONS if version not in found]
    if missing:
        print(f"not found, and so not run: Python {', '.join(missing)}", flush=True)
    results = {}
    for pair in pairs(found):
        if options.names and not pair.name.startswith(tuple(options.names)):
            continue
        print(f"== {pair.name}: {pair.python}, {' '.join(pair.requirements)}", flush=True)
        if not options.list:
            tests = SHORT if options.short else LEAST if options.least else options.tests
            results[pair.name] = run(pair, tests)
    if options.names and not results and not options.list:
        sys.exit(f"no environment has a name that begins so: {' '.join(options.names)}")
    for name, result in results.items():
        print(f"{name}: {result}")
    sys.exit(any(result != "passed" for result in results.values()))


def pythons() -> Iterator[tuple[str, str]]:
    """Yield each version that is found, with the path of an interpreter."""
    for version in PYTHONS:
        candidates = [shutil.which(f"python{version}") or ""]
        root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
        candidates += map(str, sorted(root.glob(f"versions/{version}.*/bin/python")))
        if uv := shutil.which("uv"):
            command = [uv, "python", "find", "--no-python-downloads", version]
            told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            candidates.append(told.stdout.strip())
        for candidate in candidates:
            if candidate and _fits(candidate, version):
                yield version, candidate
                break


def _fits(python: str, version: str) -> bool:
    code = f"import ensurepip, sys; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    command = [python, "-c", code]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def pairs(found: dict[str, str]) -> Iterator[Pair]:
    """Yield what is to be run."""
    if not found:
        sys.exit(f"none of the Pythons {', '.join(PYTHONS)} is here")
    oldest = next(iter(found))
    for pyspark in OLDER_PYSPARKS:
        yield Pair(f"pyspark{pyspark}-python{oldest}", found[oldest], (f"pyspark=={pyspark}.*",))
    for version, python in found.items():
        # pip takes the newest that this Python can have.
        yield Pair(f"newest-python{version}", python, ("pyspark>=4.0,<5",))
    yield Pair(f"lowest-python{oldest}", found[oldest], tuple(lowest()))


def lowest() -> Iterator[str]:
    """Yield the lowest version of each dependency, and of those of the extras that have one.

    A package that several extras name has one bound in all of them: pip installs one version.
    """
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    groups = [config["options"]["install_requires"]]
    extras = config["options.extras_require"]
    groups += [extras[name] for name in ("kafka", "confluent", "avro", "tls", "hdfs")]
    for group in groups:
        for line in group.split("\n"):
            if bound := _BOUND.match(line.strip()):
                name, extra, version = bound.groups()
                yield f"{name}{extra or ''}=={version}"


def run(pair: Pair, tests: Sequence[str]) -> str:
    """Make the environment if it is not there, and run the tests; return how it went."""
    folder = ENVIRONMENTS / pair.name
    python = folder / "bin" / "python"
    made = folder / "made"
    wanted = "\n".join(pair.requirements)
    try:
        if not made.exists() or made.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            call([pair.python, "-m", "venv", str(folder)], INSTALL_S)
            wanted_here = [*pair.requirements, "-e", f"{ROOT}[test]"]
            call([*installer(python), *wanted_here], INSTALL_S)
            made.write_text(wanted)
        call([str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], RUN_S, python)
    except subprocess.CalledProcessError as error:
        return f"failed: {' '.join(error.cmd[1:4])}"
    except subprocess.TimeoutExpired as error:
        return f"not done within {error.timeout} s"
    return "passed"


def call(command: list[str], timeout_s: int, python: Path | None = None) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if python is not None:
        environment["PYSPARK_PYTHON"] = str(python)
    subprocess.run(command, check=True, cwd=ROOT, env=environment, timeout=timeout_s)


if __name__ == "__main__":
    main()
