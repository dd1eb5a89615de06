"""The settings of a program, out of the configuration of its `SparkContext`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark import SparkContext

from penstock.errors import SettingError
from penstock.settings import OWN_PREFIX, SPARK_PREFIX, Settings


def read_settings(
    spark_context: SparkContext, wanted: Callable[[str], bool] = lambda key: True
) -> Settings:
    """Read the settings whose keys are wanted.

    The first SparkContext of a process leaves its settings behind in the JVM, as system properties,
    and each later `SparkConf` begins with them. So one that is refused is taken out there: in a
    notebook it would come back for ever, whatever the program sets.

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
