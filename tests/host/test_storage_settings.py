"""How the settings of object storage get from a Spark context into the environment."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext

from penstock.host.spark.contexts import (
    hand_over_storage,
    settings_to_start_with,
    take_storage,
)
from penstock.streaming import StreamingContext
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


def test_what_spark_will_start_with_is_known_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = tmp_path / "spark-defaults.conf"
    defaults.write_text(
        "# spark.a 0\n\nspark.a   1\nspark.b=2 and more  \nspark.c: 3\nspark.master local[2]\n"
    )
    arguments = (
        "--master local[4] --conf 'spark.b=x y' -c spark.d==4 --conf=spark.e=5 pyspark-shell"
    )
    environment = {"SPARK_CONF_DIR": str(tmp_path), "PYSPARK_SUBMIT_ARGS": arguments}
    found = dict(settings_to_start_with(environment))
    assert found == {
        "spark.a": "1",
        "spark.b": "x y",
        "spark.c": "3",
        "spark.d": "=4",
        "spark.e": "5",
        "spark.master": "local[2]",
    }
    other = tmp_path / "other.conf"
    other.write_text("spark.a 9\n")
    environment["PYSPARK_SUBMIT_ARGS"] = f"--properties-file {other} pyspark-shell"
    assert settings_to_start_with(environment) == [("spark.a", "9")]
    # What Spark will refuse is left to it.
    for wrong in ("--conf", "--conf 'spark.a=1", "--conf spark.a"):
        environment |= {"PYSPARK_SUBMIT_ARGS": wrong, "SPARK_CONF_DIR": str(tmp_path / "none")}
        assert settings_to_start_with(environment) == []


def test_a_program_finds_its_checkpoint_by_what_spark_will_start_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    untyped: Any = SparkContext
    monkeypatch.setattr(untyped, "_jvm", None)
    monkeypatch.setattr(untyped, "_active_spark_context", None)
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "not one")
    monkeypatch.setenv(
        "PYSPARK_SUBMIT_ARGS",
        f"--conf spark.penstock.storage.s3.endpoint=http://127.0.0.1:{port} "
        "--conf spark.penstock.storage.patience=1s pyspark-shell",
    )
    try:
        with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
            StreamingContext.getOrCreate("s3://bucket/app", lambda: pytest.fail("it was called"))
    finally:
        take_storage(())
