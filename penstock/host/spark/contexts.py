"""The Spark context of a program: what is taken for one, and its settings."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.find_spark_home import _find_spark_home

from penstock._arguments import refused
from penstock.errors import IllegalStateError, SettingError
from penstock.settings.table import OWN_PREFIX, SPARK_PREFIX, Settings
from penstock.wal import STORAGE_VARIABLES, given_storage, storage_environment


def is_stopped(spark_context: SparkContext) -> bool:
    """Whether a program stopped it from Python; the JVM is not asked."""
    untyped: Any = spark_context
    return untyped._jsc is None


def spark_context_of(given: Any) -> SparkContext:
    """Return the Spark context that a program gave, or that of its session.

    Raises:
        TypeError: It is neither, or a session of Spark Connect.
        IllegalStateError: The Spark context was stopped.
    """
    context = given
    if not isinstance(given, SparkContext):
        if type(given).__module__.startswith("pyspark.sql.connect."):
            raise TypeError(
                refused("sparkContext", given, "a SparkContext of this process")
                + "; a session of Spark Connect has none: its driver is elsewhere, and Penstock "
                "runs in the driver. Submit the program with spark-submit, or use a session that "
                'was made with SparkSession.builder.master("…") and without remote("…")'
            )
        from pyspark.sql import SparkSession

        if not isinstance(given, SparkSession):
            raise TypeError(refused("sparkContext", given, "a SparkContext or a SparkSession"))
        context = given.sparkContext
    untyped: Any = context
    if is_stopped(context) or untyped._jsc.sc().isStopped():
        raise IllegalStateError(
            "The SparkContext was stopped; make a new one (SparkSession.builder.getOrCreate()), "
            "and give that"
        )
    found: SparkContext = context
    return found


def hand_over_storage(spark_context: SparkContext) -> None:
    """Give the settings of object storage to this process and to the tasks of a Spark context.

    What the environment of this process has of them also goes to the tasks, where the Spark context
    says nothing else.
    """
    take_storage(spark_context.getConf().getAll())
    for name in STORAGE_VARIABLES:
        spark_context.environment.pop(name, None)
    spark_context.environment.update(given_storage(os.environ))


_PROPERTY = re.compile(r"\s*([^\s=:#!]+)\s*[=:\s]\s*(.*?)\s*")


def settings_to_start_with(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the settings with which Spark starts in a Python program, for use before it has.

    From its file of defaults, and from ``PYSPARK_SUBMIT_ARGS``, which wins. What Spark does not
    accept is none: it says so when it starts.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("-c", "--conf", action="append", default=[])
    parser.add_argument("--properties-file")
    try:
        words = shlex.split(environment.get("PYSPARK_SUBMIT_ARGS", ""))
        given, _ = parser.parse_known_args(words)
    except (ValueError, argparse.ArgumentError):
        return []
    folder = environment.get("SPARK_CONF_DIR") or os.path.join(_find_spark_home(), "conf")
    file = Path(given.properties_file or os.path.join(folder, "spark-defaults.conf"))
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []
    found = [(match[1], match[2]) for line in lines if (match := _PROPERTY.fullmatch(line))]
    for text in given.conf:
        key, equals, value = text.partition("=")
        if equals:
            found.append((key, value))
    return found


def take_storage(pairs: Iterable[tuple[str, str]]) -> None:
    """Put the settings of object storage into the environment of this process.

    An earlier Spark context's are taken out of it.
    """
    with _taking:
        for name in list(_hidden):
            before = _hidden.pop(name)
            os.environ.pop(name, None)
            if before is not None:
                os.environ[name] = before
        for name, text in storage_environment(pairs).items():
            _hidden[name] = os.environ.get(name)
            os.environ[name] = text


_taking = threading.Lock()
_hidden: dict[str, str | None] = {}
"""What the environment had of each variable that a Spark context has set; guarded by `_taking`."""


def read_settings(
    spark_context: SparkContext, wanted: Callable[[str], bool] = lambda key: True
) -> Settings:
    """Read the settings whose keys are wanted.

    The first SparkContext of a process leaves its settings behind in the JVM, as system properties,
    and each later `SparkConf` begins with them. So one that is refused is taken out of the JVM: in
    a notebook it would come back for ever, whatever the program sets.

    Raises:
        SettingError: One is not accepted.
    """
    pairs = spark_context.getConf().getAll()
    try:
        return Settings.from_pairs((key, text) for key, text in pairs if wanted(key))
    except SettingError as error:
        if error.key.startswith((SPARK_PREFIX, OWN_PREFIX)):
            jvm: Any = spark_context._jvm
            jvm.java.lang.System.clearProperty(error.key)
        raise SettingError(
            error.key,
            error.value,
            f"{error.accepted}. Settings are those of the SparkContext: stop it, and make a new "
            "one with other settings",
        ) from None
