"""How the settings of object storage get from a Spark context into the environment."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkConf

from penstock.host.spark_contexts import hand_over_storage, take_storage
from penstock.wal import STORAGE_VARIABLES

PATIENCE = ("spark.penstock.storage.patience", "PENSTOCK_STORAGE_PATIENCE")
HOSTED = ("spark.penstock.storage.s3.virtualHosted", "PENSTOCK_STORAGE_S3_VIRTUAL_HOSTED")


def spark_context(environment: dict[str, str], **settings: str) -> Any:
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    return SimpleNamespace(environment=environment, getConf=lambda: conf)


def test_each_setting_has_a_variable() -> None:
    assert {PATIENCE[1]: PATIENCE[0], HOSTED[1]: HOSTED[0]}.items() <= STORAGE_VARIABLES.items()


def test_a_spark_context_gives_them_to_its_tasks_and_leaves_the_next_one_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(PATIENCE[1], "7s")
    monkeypatch.delenv(HOSTED[1], raising=False)
    first = spark_context(
        {"OTHER": "kept"}, **{PATIENCE[0]: "9s", HOSTED[0]: "true", "spark.app.name": "a"}
    )
    try:
        hand_over_storage(first)
        assert first.environment == {"OTHER": "kept", PATIENCE[1]: "9s", HOSTED[1]: "true"}
        assert (os.environ[PATIENCE[1]], os.environ[HOSTED[1]]) == ("9s", "true")
        assert {name for name in os.environ if name.startswith("PENSTOCK_STORAGE_")} <= set(
            STORAGE_VARIABLES
        )
        # What the environment had before is there again, and goes to tasks as well.
        second = spark_context({HOSTED[1]: "true"})
        hand_over_storage(second)
        assert second.environment == {PATIENCE[1]: "7s"}
        assert HOSTED[1] not in os.environ
    finally:
        take_storage(())
    assert os.environ[PATIENCE[1]] == "7s"
